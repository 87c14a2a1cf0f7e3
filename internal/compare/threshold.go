package compare

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Threshold is one condition of --fail-on: it is broken where it is true.
type Threshold struct {
	text   string
	mode   string // "" for every mode
	metric *metric
	cmp    string
	value  float64
	share  bool // value is a share of the transitions that were judged
}

// metric is a figure that thresholds are about.
type metric struct {
	name  string
	kind  string // count, duration or bytes
	share bool   // may be given in percent
	of    func(*ModeReport) float64
}

const (
	kindCount    = "count"
	kindDuration = "duration"
	kindBytes    = "bytes"
)

var measured = []metric{
	{"missed", kindCount, true, func(m *ModeReport) float64 { return float64(m.Missed) }},
	{"late", kindCount, true, func(m *ModeReport) float64 { return float64(m.Late) }},
	{"wrong", kindCount, true, func(m *ModeReport) float64 { return float64(m.Wrong) }},
	{"duplicated", kindCount, true, func(m *ModeReport) float64 { return float64(m.Duplicated) }},
	{"reordered", kindCount, true, func(m *ModeReport) float64 { return float64(m.Reordered) }},
	{"p50", kindDuration, false, func(m *ModeReport) float64 { return float64(m.All.P50) }},
	{"p90", kindDuration, false, func(m *ModeReport) float64 { return float64(m.All.P90) }},
	{"p99", kindDuration, false, func(m *ModeReport) float64 { return float64(m.All.P99) }},
	{"max", kindDuration, false, func(m *ModeReport) float64 { return float64(m.All.Max) }},
	{"state-wrong", kindDuration, false, func(m *ModeReport) float64 { return float64(m.StateWrong) }},
	{"cpu", kindDuration, false, func(m *ModeReport) float64 { return float64(m.Cost.CPU) }},
	{"calls", kindCount, false, func(m *ModeReport) float64 { return float64(m.Cost.Total.Calls) }},
	{"failed-calls", kindCount, false, func(m *ModeReport) float64 { return float64(m.Cost.Total.Failed) }},
	{"bytes", kindBytes, false, func(m *ModeReport) float64 { return float64(m.Cost.Total.Sent + m.Cost.Total.Received) }},
	{"allocs", kindCount, false, func(m *ModeReport) float64 { return float64(m.Cost.Allocs) }},
	{"fsyncs", kindCount, false, func(m *ModeReport) float64 { return float64(m.Cost.Fsyncs) }},
	{"rss", kindBytes, false, func(m *ModeReport) float64 { return float64(m.Cost.RSS) }},
}

// comparators, the longer ones first.
var comparators = []string{">=", "<=", ">", "<", "="}

// MetricNames lists what thresholds can be about.
func MetricNames() []string {
	var names []string
	for _, m := range measured {
		names = append(names, m.name)
	}
	return names
}

// ParseThresholds reads a list such as missed>0,hybrid:p99>50ms,missed>1%. A mode
// that is named has to be one of the comparison.
func ParseThresholds(list string, modes []Mode) ([]Threshold, error) {
	var out []Threshold
	for text := range strings.SplitSeq(list, ",") {
		t, err := parseThreshold(strings.TrimSpace(text), modes)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func parseThreshold(text string, modes []Mode) (Threshold, error) {
	bad := func(format string, args ...any) (Threshold, error) {
		return Threshold{}, fmt.Errorf("threshold %.80q: %s", text, fmt.Sprintf(format, args...))
	}
	t := Threshold{text: text}
	// A mode may hold an equals sign, as in generic=5s:p99>1s.
	rest := text
	if mode, after, ok := strings.Cut(text, ":"); ok {
		t.mode, rest = mode, after
		if !slices.ContainsFunc(modes, func(m Mode) bool { return m.Name == mode }) {
			var names []string
			for _, m := range modes {
				names = append(names, m.Name)
			}
			return bad("no mode %.40q is compared, only %s", mode, strings.Join(names, ", "))
		}
	}
	at := strings.IndexAny(rest, "<>=")
	if at < 0 {
		return bad("must be METRIC, one of > >= < <= =, and a value, such as missed>0 or hybrid:p99>50ms")
	}
	name := strings.TrimSpace(rest[:at])
	i := slices.IndexFunc(measured, func(m metric) bool { return m.name == name })
	if i < 0 {
		return bad("the metric %.40q is none of %s", name, strings.Join(MetricNames(), ", "))
	}
	t.metric = &measured[i]
	for _, c := range comparators {
		if value, ok := strings.CutPrefix(rest[at:], c); ok {
			t.cmp = c
			err := t.setValue(strings.TrimSpace(value))
			return t, err
		}
	}
	return bad("must have one of > >= < <= =")
}

// setValue reads the value in the metric's unit.
func (t *Threshold) setValue(s string) error {
	var err error
	bad := func(what string) error {
		return fmt.Errorf("threshold %.80q: the value of %s must be %s", t.text, t.metric.name, what)
	}
	switch t.metric.kind {
	case kindDuration:
		var d time.Duration
		if d, err = time.ParseDuration(s); err != nil || d < 0 {
			return bad("a duration, such as 50ms or 1.5s")
		}
		t.value = float64(d)
	default:
		what := "a number, 0 or more"
		if t.metric.share {
			what += ", or a share such as 1%"
			s, t.share = strings.CutSuffix(s, "%")
		}
		// ParseFloat knows Inf and NaN too, which are no thresholds.
		if t.value, err = strconv.ParseFloat(s, 64); err != nil || !(t.value >= 0 && t.value < 1e18) {
			return bad(what)
		}
	}
	return nil
}

// Check adds to the report which thresholds are broken. One about a mode that
// could not be judged to the end is, since it holds for nothing, one about a figure
// that is not known likewise, and all are where nothing happened or the measurement was
// cut short: what would have happened is not known.
func Check(r *Report, all []Threshold) {
	if len(all) > 0 && len(r.Transitions) == 0 {
		r.Broken = append(r.Broken, "nothing happened, so no threshold could be judged")
		return
	}
	if len(all) > 0 && r.Cut != "" {
		r.Broken = append(r.Broken, r.Cut+", so no threshold could be judged to the end")
		return
	}
	for _, t := range all {
		for i := range r.Modes {
			m := &r.Modes[i]
			if t.mode != "" && t.mode != m.Name {
				continue
			}
			switch {
			case m.NotRun != "":
				r.Broken = append(r.Broken, fmt.Sprintf("%s: %s could not be judged: %s", t.text, m.Name, m.NotRun))
			case m.Ended != "":
				r.Broken = append(r.Broken, fmt.Sprintf("%s: %s ended early: %s", t.text, m.Name, m.Ended))
			case t.unknown(m) != "":
				r.Broken = append(r.Broken, fmt.Sprintf("%s: %s could not be judged: %s", t.text, m.Name, t.unknown(m)))
			case t.broken(m):
				r.Broken = append(r.Broken, fmt.Sprintf("%s: %s has %s", t.text, m.Name, t.show(m)))
			}
		}
	}
}

// String is the threshold as it was given.
func (t Threshold) String() string { return t.text }

// OfProcess reports whether it is about what a process used, which is not measured in
// a replay.
func (t Threshold) OfProcess() bool { return slices.Contains(ofProcess, t.metric.name) }

var ofProcess = []string{"cpu", "allocs", "rss"}

// unknown says why the figure of a mode is none, "" where it is one: a 0 that stands
// for nothing must not pass.
func (t *Threshold) unknown(m *ModeReport) string {
	switch {
	case slices.Contains([]string{"p50", "p90", "p99", "max"}, t.metric.name) && m.All.N == 0:
		return "it told nothing, so it has no latency"
	case t.OfProcess() && m.Cost.RSS == 0:
		return "it was not measured, as in a replay"
	}
	return ""
}

// broken reports whether the condition is true of a mode.
func (t *Threshold) broken(m *ModeReport) bool {
	have := t.metric.of(m)
	if t.share {
		have = 100 * have / float64(max(m.Judged, 1))
	}
	switch t.cmp {
	case ">":
		return have > t.value
	case ">=":
		return have >= t.value
	case "<":
		return have < t.value
	case "<=":
		return have <= t.value
	default:
		return have == t.value
	}
}

func (t *Threshold) show(m *ModeReport) string {
	have := t.metric.of(m)
	switch {
	case t.metric.kind == kindDuration:
		return showDuration(have)
	case t.metric.kind == kindBytes:
		return ShowBytes(have)
	case t.share:
		return fmt.Sprintf("%.0f of %d", have, m.Judged)
	}
	return showWhole(have)
}

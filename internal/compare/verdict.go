package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// alike: two figures that differ by less than a tenth are not told apart, since
// two runs of the same mode differ by as much. Faults are: each is one too many.
const alike = 0.1

// figure is one thing that modes are compared by. Less is better.
type figure struct {
	name string
	of   func(*ModeReport) float64
	show func(float64) string
	// least is the smallest difference that means anything, whatever its share; 0: each
	// difference does.
	least float64
	// told: it is known only of a mode that told something.
	told bool
}

// known returns the modes of which the figure is known.
func (f figure) known(modes []*ModeReport) []*ModeReport {
	if !f.told {
		return modes
	}
	return slices.DeleteFunc(slices.Clone(modes), func(m *ModeReport) bool { return m.All.N == 0 })
}

func showDuration(ns float64) string { return words(int64(ns)) }

var (
	figMissed = figure{name: "missed transitions", of: func(m *ModeReport) float64 { return float64(m.Missed) }, show: showWhole}
	figLate   = figure{name: "late transitions", of: func(m *ModeReport) float64 { return float64(m.Late) }, show: showWhole}
	figWrong  = figure{name: "wrong transitions", of: func(m *ModeReport) float64 { return float64(m.Wrong) }, show: showWhole}
	figTwice  = figure{name: "transitions told twice", of: func(m *ModeReport) float64 { return float64(m.Duplicated) }, show: showWhole}
	figOrder  = figure{name: "transitions told in the wrong order", of: func(m *ModeReport) float64 { return float64(m.Reordered) }, show: showWhole}
	figP50    = figure{name: "latency p50", of: func(m *ModeReport) float64 { return float64(m.All.P50) }, show: showDuration, least: float64(time.Millisecond), told: true}
	figP99    = figure{name: "latency p99", of: func(m *ModeReport) float64 { return float64(m.All.P99) }, show: showDuration, least: float64(time.Millisecond), told: true}
	figState  = figure{name: "time with a wrong state", of: func(m *ModeReport) float64 { return float64(m.StateWrong) }, show: showDuration, least: float64(10 * time.Millisecond)}
	figCalls  = figure{name: "calls", of: func(m *ModeReport) float64 { return float64(m.Cost.Total.Calls) }, show: showWhole, least: 3}
	figBytes  = figure{name: "bytes", of: func(m *ModeReport) float64 { return float64(m.Cost.Total.Sent + m.Cost.Total.Received) }, show: ShowBytes, least: 4096}
	figCPU    = figure{name: "CPU", of: func(m *ModeReport) float64 { return float64(m.Cost.CPU) }, show: showDuration, least: float64(20 * time.Millisecond)}
	figFsyncs = figure{name: "fsyncs", of: func(m *ModeReport) float64 { return float64(m.Cost.Fsyncs) }, show: showWhole, least: 4}

	figures = []figure{figMissed, figLate, figWrong, figTwice, figOrder, figP50, figP99, figState, figCalls, figBytes, figCPU, figFsyncs}
)

func showWhole(v float64) string { return fmt.Sprintf("%.0f", v) }

// ShowBytes shows a number of bytes in three digits or so.
func ShowBytes(v float64) string {
	for _, u := range []string{"B", "KiB", "MiB"} {
		if v < 1024 {
			return Digits(v, 4) + " " + u
		}
		v /= 1024
	}
	return Digits(v, 4) + " GiB"
}

// same reports whether two values of a figure can't be told apart.
func (f figure) same(a, b float64) bool {
	d := max(a-b, b-a)
	return d == 0 || d < f.least || f.least > 0 && d < alike*max(a, b)
}

// ran returns the modes that were judged to the end.
func ran(r *Report) []*ModeReport {
	var out []*ModeReport
	for i := range r.Modes {
		if m := &r.Modes[i]; m.NotRun == "" && m.Ended == "" {
			out = append(out, m)
		}
	}
	return out
}

// best returns the modes with the least value, those that are alike included.
func (f figure) best(modes []*ModeReport) []*ModeReport {
	least := slices.MinFunc(modes, func(a, b *ModeReport) int { return cmp.Compare(f.of(a), f.of(b)) })
	var out []*ModeReport
	for _, m := range modes {
		if f.same(f.of(m), f.of(least)) {
			out = append(out, m)
		}
	}
	return out
}

// winner names the mode that serves a node best: of those that told the most
// and the least wrong, those whose state was wrong for the shortest time, and of
// these the one that asked the runtime the least; of those that are alike in that
// too, the one that was named first. "" where nothing happened.
func winner(r *Report) string {
	modes := ran(r)
	if len(modes) < 2 || len(r.Transitions) == 0 {
		return ""
	}
	bad := func(m *ModeReport) int { return m.Missed + m.Wrong + m.Duplicated + m.Reordered }
	least := bad(slices.MinFunc(modes, func(a, b *ModeReport) int { return cmp.Compare(bad(a), bad(b)) }))
	modes = slices.DeleteFunc(modes, func(m *ModeReport) bool { return bad(m) > least })
	// What takes some ms a transition takes no longer for anybody who waits.
	state := figState
	state.least = float64(len(r.Transitions)) * float64(5*time.Millisecond)
	modes = state.best(modes)
	return figCalls.best(modes)[0].Name
}

// verdict says in sentences who is better at what, by how much, and where
// hybrid is not.
func verdict(r *Report) []string {
	var out []string
	for i := range r.Modes {
		m := &r.Modes[i]
		switch {
		case m.NotRun != "":
			out = append(out, fmt.Sprintf("%s could not be judged: %s.", m.Name, strings.TrimSuffix(m.NotRun, ".")))
		case m.Ended != "":
			out = append(out, fmt.Sprintf("%s ended early and is left out of what follows: %s.", m.Name, strings.TrimSuffix(m.Ended, ".")))
		}
	}
	total := len(r.Transitions) + r.Unlisted
	modes := ran(r)
	switch {
	case total == 0:
		return append(out, "Nothing happened on the runtime, so only the costs can be compared.")
	case len(modes) == 0:
		return append(out, "No mode ran to the end.")
	}
	out = append(out, complete(modes, total))
	if len(modes) > 1 {
		if told := figP50.known(modes); len(told) > 0 {
			out = append(out, ratio(figP50, told, "Fastest to tell"))
		}
		out = append(out, ratio(figState, modes, "Shortest time with a wrong state"))
		out = append(out, ratio(figCalls, modes, "Fewest calls to the runtime"))
		if modes[0].Cost.RSS > 0 { // else they were replayed
			out = append(out, ratio(figCPU, modes, "Least CPU"))
		}
	}
	out = append(out, hybridLoses(modes)...)
	if r.Winner != "" {
		out = append(out, fmt.Sprintf("Best for this node: %s (fewest missed and wrong, then the shortest time with a wrong state, then the fewest calls).", r.Winner))
	}
	return out
}

// complete says who told everything, and well.
func complete(modes []*ModeReport, total int) string {
	var good, bad []string
	for _, m := range modes {
		var faults []string
		for _, f := range []struct {
			n    int
			word string
		}{{m.Missed, "missed"}, {m.Late, "told late"}, {m.Wrong, "told wrong"}, {m.Duplicated, "told twice"}, {m.Reordered, "told in the wrong order"}} {
			if f.n > 0 {
				faults = append(faults, fmt.Sprintf("%s %d (%s)", f.word, f.n, percent(f.n, total)))
			}
		}
		if len(faults) == 0 {
			good = append(good, m.Name)
		} else {
			bad = append(bad, m.Name+" "+strings.Join(faults, ", "))
		}
	}
	of := plural(total, "transition")
	switch {
	case len(good) == 0:
		return fmt.Sprintf("Of %s %s.", of, strings.Join(bad, "; "))
	case len(bad) == 0:
		return fmt.Sprintf("%s told all %s, each in time and right.", and(good), of)
	}
	return fmt.Sprintf("%s told all %s, each in time and right; %s.", and(good), of, strings.Join(bad, "; "))
}

// ratio says who has the least of a figure, and how many times that the others have.
func ratio(f figure, modes []*ModeReport, what string) string {
	best := f.best(modes)
	var names, rest []string
	for _, m := range best {
		names = append(names, fmt.Sprintf("%s (%s)", m.Name, f.show(f.of(m))))
	}
	least := f.of(slices.MinFunc(best, func(a, b *ModeReport) int { return cmp.Compare(f.of(a), f.of(b)) }))
	for _, m := range modes {
		if slices.Contains(best, m) {
			continue
		}
		times := ""
		if least > 0 {
			times = fmt.Sprintf(", %s times as much", showRatio(f.of(m)/least))
		}
		rest = append(rest, fmt.Sprintf("%s %s%s", m.Name, f.show(f.of(m)), times))
	}
	s := fmt.Sprintf("%s: %s", what, and(names))
	if len(rest) > 0 {
		s += "; " + strings.Join(rest, "; ")
	}
	return s + "."
}

// showRatio shows two digits or so.
func showRatio(v float64) string { return Digits(v, 2) }

// Digits shows so many digits of a number, all those before the point and none of an
// exponent.
func Digits(v float64, n int) string {
	if v == 0 {
		return "0"
	}
	after := n - 1 - int(math.Floor(math.Log10(math.Abs(v))))
	s := strconv.FormatFloat(v, 'f', max(0, after), 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// Percent shows a share.
func Percent(share float64) string { return Digits(100*share, 2) + " %" }

// hybridLoses says at which figures hybrid is not among the best.
func hybridLoses(modes []*ModeReport) []string {
	var out []string
	for _, h := range modes {
		if h.Kind != Hybrid || len(modes) < 2 {
			continue
		}
		var loses []string
		for _, f := range figures {
			known := f.known(modes)
			if !slices.Contains(known, h) {
				continue
			}
			if best := f.best(known); !slices.Contains(best, h) {
				loses = append(loses, fmt.Sprintf("%s (%s, %s has %s)", f.name, f.show(f.of(h)), best[0].Name, f.show(f.of(best[0]))))
			}
		}
		if len(loses) == 0 {
			out = append(out, fmt.Sprintf("No mode is better than %s at anything that was measured.", h.Name))
		} else {
			out = append(out, fmt.Sprintf("Where %s does not win: %s.", h.Name, strings.Join(loses, ", ")))
		}
	}
	return out
}

func percent(n, of int) string { return Percent(float64(n) / float64(of)) }

// and joins names.
func and(names []string) string {
	switch n := len(names); n {
	case 0:
		return ""
	case 1:
		return names[0]
	default:
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
}

package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/plegd/plegd/internal/compare"
)

// maxShown is how many findings of a mode the text lists; the JSON and the page
// have all.
const maxShown = 10

// JSON writes the report as one JSON document.
func JSON(w io.Writer, r *compare.Report) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Text writes the report for a terminal.
func Text(w io.Writer, r *compare.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n\n", head(r), counts(r))
	table(&b, told(r))
	b.WriteString("\n")
	table(&b, costs(r))
	b.WriteString("\n")
	if rows := byTransition(r); len(rows) > 1 {
		table(&b, rows)
		b.WriteString("\n")
	}
	table(&b, byMethod(r))
	fmt.Fprintf(&b, "\n%s\n", runtimeCPU(r))
	findings(&b, r)
	b.WriteString("\nVerdict\n")
	for _, s := range r.Verdict {
		fmt.Fprintf(&b, "- %s\n", s)
	}
	for _, n := range notes(r) {
		fmt.Fprintf(&b, "Note: %s\n", n)
	}
	_, err := io.WriteString(w, harmless(b.String()))
	return err
}

// harmless replaces what a terminal would take for a command: names come from
// the runtime.
func harmless(s string) string {
	return strings.Map(func(c rune) rune {
		if c != '\n' && unicode.IsControl(c) {
			return '\uFFFD'
		}
		return c
	}, s)
}

// head says what was compared on.
func head(r *compare.Report) string {
	seconds := time.Duration(r.To - r.From).Round(100 * time.Millisecond)
	return fmt.Sprintf("%s %s on %s, %v from %s", r.Runtime.Name, r.Runtime.Version, r.Runtime.Endpoint, seconds, clock(r.From, "2006-01-02 15:04:05Z07:00"))
}

// counts says what happened, and by what the times are known.
func counts(r *compare.Report) string {
	total := len(r.Transitions) + r.Unlisted
	var kinds, bases []string
	for _, typ := range compare.Types {
		if n := r.Counts[typ]; n > 0 {
			kinds = append(kinds, fmt.Sprintf("%d %s", n, Name(typ)))
		}
	}
	for _, b := range []compare.Basis{compare.BasisHistory, compare.BasisRuntime, compare.BasisEvent, compare.BasisSeen} {
		if n := r.Basis[b]; n > 0 {
			bases = append(bases, fmt.Sprintf("%d %s", n, basisWords[b]))
		}
	}
	s := fmt.Sprintf("load: %s\n%d transitions", r.Load, total)
	if total > 0 {
		s += ": " + strings.Join(kinds, ", ") + "\ntimes: " + strings.Join(bases, ", ")
	}
	return s
}

var basisWords = map[compare.Basis]string{
	compare.BasisHistory: "from the simulated runtime's history", compare.BasisRuntime: "from the runtime's statuses",
	compare.BasisEvent: "from the runtime's events", compare.BasisSeen: "from when any mode was first told",
}

// told is the table of how well the modes told.
func told(r *compare.Report) [][]string {
	rows := [][]string{{"MODE", "TOLD", "MISSED", "LATE", "WRONG", "TWICE", "DISORDER", "P50", "P90", "P99", "MAX", "STATE WRONG"}}
	for i := range r.Modes {
		m := &r.Modes[i]
		if m.NotRun != "" {
			rows = append(rows, []string{m.Name, "-", "-", "-", "-", "-", "-", "-", "-", "-", "-", "-"})
			continue
		}
		rows = append(rows, []string{
			m.Name, fmt.Sprintf("%d/%d", m.Told, m.Judged), strconv.Itoa(m.Missed), strconv.Itoa(m.Late), strconv.Itoa(m.Wrong),
			strconv.Itoa(m.Duplicated), strconv.Itoa(m.Reordered),
			Took(m.All, m.All.P50), Took(m.All, m.All.P90), Took(m.All, m.All.P99), Took(m.All, m.All.Max), compare.Duration(m.StateWrong),
		})
	}
	return rows
}

// costs is the table of what the modes used.
func costs(r *compare.Report) [][]string {
	rows := [][]string{{"MODE", "CALLS", "FAILED", "SENT", "RECEIVED", "CPU", "OF A CORE", "ALLOCS", "MEMORY", "FSYNCS"}}
	for i := range r.Modes {
		m := &r.Modes[i]
		c := &m.Cost
		share := "-"
		cpu, allocs, rss := "-", "-", "-" // in a replay they say nothing of the mode
		if c.RSS > 0 {
			cpu, allocs, rss = compare.Duration(c.CPU), strconv.FormatUint(c.Allocs, 10), compare.ShowBytes(float64(c.RSS))
		}
		if c.Seconds > 0 && c.RSS > 0 {
			share = compare.Percent(c.CPU.Seconds() / c.Seconds)
		}
		rows = append(rows, []string{
			m.Name, strconv.FormatUint(c.Total.Calls, 10), strconv.FormatUint(c.Total.Failed, 10),
			compare.ShowBytes(float64(c.Total.Sent)), compare.ShowBytes(float64(c.Total.Received)), cpu, share,
			allocs, rss, strconv.FormatUint(c.Fsyncs, 10),
		})
	}
	return rows
}

// byTransition is the table of latencies by type, p50 and p99.
func byTransition(r *compare.Report) [][]string {
	rows := [][]string{{"P50 / P99"}}
	for i := range r.Modes {
		rows[0] = append(rows[0], strings.ToUpper(r.Modes[i].Name))
	}
	for _, typ := range compare.Types {
		if r.Counts[typ] == 0 {
			continue
		}
		row := []string{Name(typ)}
		for i := range r.Modes {
			l := r.Modes[i].Latency[typ]
			if l.N == 0 {
				row = append(row, "-")
			} else {
				row = append(row, compare.Duration(l.P50)+" / "+compare.Duration(l.P99))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// byMethod is the table of calls.
func byMethod(r *compare.Report) [][]string {
	rows := [][]string{{"CALLS, BYTES"}}
	all := map[string]bool{}
	for i := range r.Modes {
		rows[0] = append(rows[0], strings.ToUpper(r.Modes[i].Name))
		for method := range r.Modes[i].Cost.Calls {
			all[method] = true
		}
	}
	for _, method := range slices.Sorted(maps.Keys(all)) {
		row := []string{method}
		for i := range r.Modes {
			c := r.Modes[i].Cost.Calls[method]
			switch {
			case c == (compare.Calls{}):
				row = append(row, "-")
			case c.Calls == 0: // a stream that was open before
				row = append(row, "open, "+compare.ShowBytes(float64(c.Sent+c.Received)))
			default:
				row = append(row, fmt.Sprintf("%d, %s", c.Calls, compare.ShowBytes(float64(c.Sent+c.Received))))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// runtimeCPU says what the runtime itself used, and the comparison.
func runtimeCPU(r *compare.Report) string {
	s := "CPU of the runtime's process: "
	if r.Runtime.Unknown != "" {
		s += "unknown: " + r.Runtime.Unknown
	} else {
		s += fmt.Sprintf("%s, for all modes and its own work (process %d)", compare.Duration(r.Runtime.CPU), r.Runtime.PID)
	}
	if r.OwnCPU == 0 {
		return s
	}
	return s + fmt.Sprintf("; of the comparison itself, from start to end: %s", compare.Duration(r.OwnCPU))
}

// findings lists what was not told well.
func findings(b *strings.Builder, r *compare.Report) {
	for i := range r.Modes {
		m := &r.Modes[i]
		all := len(m.Findings) + m.Unlisted
		if all == 0 {
			continue
		}
		fmt.Fprintf(b, "\n%s did not tell well (%d):\n", m.Name, all)
		for i := range m.Findings[:min(maxShown, len(m.Findings))] {
			f := &m.Findings[i]
			fmt.Fprintf(b, "  %s  %s: %s: %s\n", clock(f.At, "15:04:05.000"), f.Fault, clip(Subject(r, f)), clip(f.What))
		}
		if rest := all - maxShown; rest > 0 {
			fmt.Fprintf(b, "  and %d more; --json or --html lists them, with what the runtime said around each\n", rest)
		}
	}
}

// Subject says in words what a finding is about.
func Subject(r *compare.Report, f *compare.Finding) string {
	if f.Transition < 0 || f.Transition >= len(r.Transitions) {
		return Name(f.Type) + " " + short(f.ID)
	}
	return Describe(&r.Transitions[f.Transition])
}

// Describe says in words what happened to whom.
func Describe(t *compare.Transition) string {
	words := []string{Name(t.Type)}
	if t.Pod.Name != "" {
		words = append(words, t.Pod.Namespace+"/"+t.Pod.Name)
	}
	if t.Name != "" {
		words = append(words, fmt.Sprintf("%s#%d", t.Name, t.Attempt))
	}
	return strings.Join(append(words, short(t.ID)), " ")
}

// notes lists what the reader should know, those of the modes too.
func notes(r *compare.Report) []string {
	out := slices.Clone(r.Notes)
	for i := range r.Modes {
		m := &r.Modes[i]
		if m.Stream == "unsupported" && m.Kind != compare.Generic {
			out = append(out, m.Name+" ran without an event stream: the runtime has none, or not for one more reader")
		}
		seen := map[string]int{}
		for _, n := range m.Notes {
			seen[n.Text]++
		}
		for _, n := range m.Notes {
			if c := seen[n.Text]; c > 0 {
				text := m.Name + ": " + n.Text
				if c > 1 {
					text += fmt.Sprintf(" (%d times)", c)
				}
				out = append(out, text)
				delete(seen, n.Text)
			}
		}
	}
	return out
}

// table writes rows in columns.
func table(b *strings.Builder, rows [][]string) {
	w := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush()
}

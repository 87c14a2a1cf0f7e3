package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"slices"

	"github.com/plegd/plegd/internal/compare"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

var page = template.Must(template.New("page").Parse(pageText))

// maxPage is how many transitions can be followed on the page: more are some MB
// that a browser takes seconds to read. Those that some mode did not tell well
// come first.
const maxPage = 5000

// view is what the page shows.
type view struct {
	CSS   template.CSS
	JS    template.JS
	Title string
	Head  string
	Count string

	Verdict, Broken, Notes []string
	Winner                 string
	Told, Costs, Types     [][]string
	Methods                [][]string
	RuntimeCPU             string
	Latency                template.HTML
	ByType                 []typeChart
	Calls, Bytes, CPU      template.HTML
	Findings               []modeFindings
	Data                   data
}

// typeChart is the chart of one kind of transition.
type typeChart struct {
	Name  string
	Count int
	Chart template.HTML
}

// modeFindings is what one mode did not tell well.
type modeFindings struct {
	Mode     string
	Count    int
	Unlisted int
	Findings []finding
}

type finding struct {
	Number  int // of the transition on the page, -1 for none
	At      string
	Fault   compare.Fault
	Subject string
	What    string
	Around  []observation
}

type observation struct{ At, Mode, Via, Says, More string }

// HTML returns the report as one page, which loads nothing.
func HTML(r *compare.Report) ([]byte, error) {
	shown := choose(r)
	v := view{
		CSS: template.CSS(pageCSS), JS: template.JS(pageJS), //nolint:gosec // our own files
		Title: fmt.Sprintf("Comparison on %s %s", r.Runtime.Name, r.Runtime.Version),
		Head:  head(r), Count: counts(r),
		Verdict: r.Verdict, Broken: r.Broken, Notes: notes(r), Winner: r.Winner,
		Told: told(r), Costs: costs(r), Types: byTransition(r), Methods: byMethod(r), RuntimeCPU: runtimeCPU(r),
		Latency: latencies(r, "", 900, 320),
		Calls:   overTime(r, "Calls a second", "calls a second", func(p compare.Point) float64 { return p.Calls }),
		Bytes:   overTime(r, "KiB a second", "KiB a second", func(p compare.Point) float64 { return p.Bytes / 1024 }),
		CPU:     cpuChart(r),
		Data:    newData(r, shown),
	}
	for _, typ := range compare.Types {
		if r.Counts[typ] > 0 {
			v.ByType = append(v.ByType, typeChart{Name(typ), r.Counts[typ], latencies(r, typ, 640, 200)})
		}
	}
	for i := range r.Modes {
		if f := findingsOf(r, &r.Modes[i], shown); f.Count > 0 {
			v.Findings = append(v.Findings, f)
		}
	}
	var b bytes.Buffer
	if err := page.Execute(&b, v); err != nil {
		return nil, fmt.Errorf("page of the report: %w", err)
	}
	return b.Bytes(), nil
}

// cpuChart is empty for a replay, in which CPU says nothing of the modes.
func cpuChart(r *compare.Report) template.HTML {
	for i := range r.Modes {
		if r.Modes[i].Cost.CPU > 0 {
			return overTime(r, "CPU", "% of a core", func(p compare.Point) float64 { return 100 * p.CPU }, runtimeCurve(r)...)
		}
	}
	return ""
}

// choose returns the numbers of the transitions that the page has, by time.
func choose(r *compare.Report) []int {
	first := map[int]bool{}
	for i := range r.Modes {
		for _, f := range r.Modes[i].Findings {
			if f.Transition >= 0 {
				first[f.Transition] = true
			}
		}
	}
	var out []int
	for _, wanted := range []bool{true, false} {
		for i := range r.Transitions {
			if len(out) < maxPage && first[i] == wanted {
				out = append(out, i)
			}
		}
	}
	slices.Sort(out)
	return out
}

func findingsOf(r *compare.Report, m *compare.ModeReport, shown []int) modeFindings {
	out := modeFindings{Mode: m.Name, Count: len(m.Findings) + m.Unlisted, Unlisted: m.Unlisted}
	for i := range m.Findings {
		f := &m.Findings[i]
		number, ok := slices.BinarySearch(shown, f.Transition)
		if !ok {
			number = -1
		}
		one := finding{Number: number, At: clock(f.At, "15:04:05.000"), Fault: f.Fault, Subject: Subject(r, f), What: f.What}
		for _, o := range f.Around {
			one.Around = append(one.Around, observation{
				At: clock(o.At, "15:04:05.000000"), Mode: o.Mode, Via: string(o.Via), Says: o.Says, More: more(&o.Raw),
			})
		}
		out.Findings = append(out.Findings, one)
	}
	return out
}

// more says what an observation says beside its word.
func more(r *compare.Raw) string {
	s := ""
	add := func(format string, args ...any) {
		if s != "" {
			s += ", "
		}
		s += fmt.Sprintf(format, args...)
	}
	if r.Method != "" {
		add("%s", r.Method)
	}
	if r.State != "" {
		add("payload %s", r.State)
	}
	const layout = "15:04:05.000000"
	for _, at := range []struct {
		word string
		ns   int64
	}{{"event created", r.EventAt}, {"created", r.CreatedAt}, {"started", r.StartedAt}, {"finished", r.FinishedAt}} {
		if at.ns > 0 {
			add("%s %s", at.word, clock(at.ns, layout))
		}
	}
	if r.FinishedAt > 0 {
		add("code %d", r.ExitCode)
	}
	if r.Reason != "" {
		add("reason %s", r.Reason)
	}
	return s
}

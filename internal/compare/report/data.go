package report

import (
	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/store"
)

// data is what the script of the page follows transitions with.
type data struct {
	Modes       []dataMode       `json:"modes"`
	Types       []string         `json:"types"`
	Length      float64          `json:"length"` // ms
	Late        float64          `json:"late"`   // ms
	Transitions []dataTransition `json:"transitions"`
	Left        int              `json:"left"` // transitions that the page doesn't have
}

type dataMode struct {
	Name   string `json:"name"`
	Colour string `json:"colour"`
	Shape  string `json:"shape"`
	Ran    bool   `json:"ran"`
}

// dataTransition has times in ms since the begin of the measurement.
type dataTransition struct {
	Type  int        `json:"t"`
	ID    string     `json:"id"`
	Title string     `json:"title"`
	At    float64    `json:"at"`
	Clock string     `json:"clock"`
	Basis string     `json:"basis"`
	More  string     `json:"more"`
	Told  []*float64 `json:"told"`
	Fault []string   `json:"fault"` // by mode, "" for none
}

func newData(r *compare.Report, shown []int) data {
	d := data{Length: ms(r.To - r.From), Late: ms(int64(r.Late)), Transitions: []dataTransition{}, Left: len(r.Transitions) + r.Unlisted - len(shown)}
	types := map[store.EventType]int{}
	for i, typ := range compare.Types {
		types[typ] = i
		d.Types = append(d.Types, Name(typ))
	}
	faults := make([]map[int]string, len(r.Modes))
	for i := range r.Modes {
		m := &r.Modes[i]
		l := lookOf(i)
		d.Modes = append(d.Modes, dataMode{Name: m.Name, Colour: l.colour, Shape: l.shape, Ran: m.NotRun == ""})
		faults[i] = map[int]string{}
		for _, f := range m.Findings {
			word := string(f.Fault) + ": " + f.What
			if have := faults[i][f.Transition]; have != "" {
				word = have + "; " + word
			}
			faults[i][f.Transition] = word
		}
	}
	for _, n := range shown {
		t := &r.Transitions[n]
		one := dataTransition{
			Type: types[t.Type], ID: t.ID, Title: Describe(t), At: ms(t.At - r.From), Clock: clock(t.At, "15:04:05.000000"), Basis: string(t.Basis),
			Told: make([]*float64, len(t.Told)), Fault: make([]string, len(t.Told)),
		}
		if t.Exit != nil {
			one.More = exitWords(t)
		}
		for i, at := range t.Told {
			if at != 0 {
				v := ms(at - r.From)
				one.Told[i] = &v
			}
			one.Fault[i] = faults[i][n]
		}
		d.Transitions = append(d.Transitions, one)
	}
	return d
}

package compare

import (
	"cmp"
	"slices"
	"time"
)

const (
	// near is how far from a finding a failed call or the end of a stream may be
	// and still be part of it.
	near = int64(5 * time.Second)
	// maxAround is how many observations are put beside a finding.
	maxAround = 40
)

// around knows what the runtime said, by entity.
type around struct {
	byID  map[string][]Observation
	calls []Observation // failed calls and ends of streams, by time
}

func newAround(traces []*Trace) *around {
	a := &around{byID: map[string][]Observation{}}
	for _, t := range traces {
		for _, r := range t.Raws {
			o := Observation{Mode: t.Mode.Name, Raw: r}
			if r.Via == ViaCall {
				a.calls = append(a.calls, o)
			} else {
				a.byID[r.ID] = append(a.byID[r.ID], o)
			}
		}
	}
	slices.SortStableFunc(a.calls, earlier)
	return a
}

// of returns what was said of the entity to any mode, those nearest to the
// finding if there are many, and what failed about then.
func (a *around) of(f *Finding) []Observation {
	out := slices.Clone(a.byID[f.ID])
	i, _ := slices.BinarySearchFunc(a.calls, f.At-near, func(o Observation, at int64) int { return cmp.Compare(o.At, at) })
	for ; i < len(a.calls) && a.calls[i].At <= f.At+near; i++ {
		out = append(out, a.calls[i])
	}
	if len(out) > maxAround {
		slices.SortStableFunc(out, func(x, y Observation) int {
			return cmp.Compare(max(x.At-f.At, f.At-x.At), max(y.At-f.At, f.At-y.At))
		})
		out = out[:maxAround]
	}
	slices.SortStableFunc(out, earlier)
	return out
}

func earlier(a, b Observation) int { return cmp.Compare(a.At, b.At) }

package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// latency makes order statistics by the nearest rank.
func latency(all []time.Duration) Latency {
	if len(all) == 0 {
		return Latency{}
	}
	slices.Sort(all)
	at := func(percent int) time.Duration {
		return all[max(0, (len(all)*percent+99)/100-1)]
	}
	l := Latency{N: len(all), P50: at(50), P90: at(90), P99: at(99), Max: all[len(all)-1]}
	for i := range min(len(all), maxSpread) {
		l.Spread = append(l.Spread, all[(i+1)*len(all)/min(len(all), maxSpread)-1])
	}
	return l
}

// maxSpread is of how many steps the line of a chart is: more can't be seen.
const maxSpread = 400

// stateWrong sums up, over all entities, for how long what the mode had told was
// not the state that the entity had.
func (j *judge) stateWrong() time.Duration {
	byID := map[string][]Transition{}
	for _, tr := range j.t.all {
		byID[tr.ID] = append(byID[tr.ID], tr)
	}
	for id := range j.t.told[j.m].ids {
		if _, ok := byID[id]; !ok {
			byID[id] = nil // told, and none of it happened
		}
	}
	var sum time.Duration
	for id, transitions := range byID {
		happened := reality(transitions)
		if n := len(happened); n > 0 && happened[n-1].to == rungRemoved && happened[n-1].at < j.in.From {
			continue // it was gone before: what is told of it now is a backlog's, and not judged either
		}
		sum += apart(happened, j.t.told[j.m].states(id), j.in.From, j.until())
	}
	return sum
}

// change is a state from a time on.
type change struct {
	at int64
	to rung
}

// reality is how an entity's state changed.
func reality(all []Transition) []change {
	var out []change
	for _, tr := range all {
		out = append(out, change{tr.At, steps[tr.Type]})
	}
	// What the runtime stamps alike goes by its order in a life.
	slices.SortFunc(out, func(a, b change) int { return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.at, b.at)) })
	for i := 1; i < len(out); i++ {
		out[i].at = max(out[i].at, out[i-1].at)
	}
	return out
}

// states is how the state of an entity changed by what the mode told.
func (o *told) states(id string) []change {
	var out []change
	for _, ev := range o.ids[id] {
		to := steps[ev.Type]
		if to == 0 { // a return to an earlier state
			to = map[string]rung{"created": rungCreated, "running": rungUp, "ready": rungUp, "exited": rungDown, "notready": rungDown}[ev.State]
		}
		out = append(out, change{ev.At, to})
	}
	return out
}

// apart is how long two states differ between from and to. What is removed is as
// if it had never been: who never heard of it is right about it from then on.
func apart(a, b []change, from, to int64) time.Duration {
	var sum int64
	var x, y rung
	at := from
	for len(a) > 0 || len(b) > 0 {
		var next int64
		if len(b) == 0 || len(a) > 0 && a[0].at <= b[0].at {
			next = a[0].at
		} else {
			next = b[0].at
		}
		next = min(max(next, from), to)
		if x != y {
			sum += next - at
		}
		at = next
		for len(a) > 0 && a[0].at <= at {
			x, a = a[0].to.held(), a[1:]
		}
		for len(b) > 0 && b[0].at <= at {
			y, b = b[0].to.held(), b[1:]
		}
		if at >= to {
			break
		}
	}
	if x != y && at < to {
		sum += to - at
	}
	return time.Duration(sum)
}

// cost is what was used between the samples next to two times, and when.
func cost(t *Trace, from, to int64) (Cost, []Point) {
	c := Cost{Calls: map[string]Calls{}}
	first, last := -1, -1
	for i, s := range t.Samples {
		c.RSS = max(c.RSS, s.RSS)
		if s.At <= from || first < 0 {
			first = i
		}
		if s.At <= to || last < 0 {
			last = i
		}
	}
	if first < 0 || last <= first {
		return c, nil
	}
	a, b := t.Samples[first], t.Samples[last]
	c.Seconds = time.Duration(b.At - a.At).Seconds()
	c.CPU, c.Allocs, c.Alloced = time.Duration(b.CPU-a.CPU), b.Allocs-a.Allocs, b.Alloced-a.Alloced
	c.Commits, c.Fsyncs = b.Commits-a.Commits, b.Fsyncs-a.Fsyncs
	for method, n := range b.Calls {
		d := n.minus(a.Calls[method])
		if d != (Calls{}) {
			c.Calls[method] = d
			c.Total = c.Total.plus(d)
		}
	}
	return c, series(t.Samples[first : last+1])
}

// maxPoints bounds a series: as many as a chart can show.
const maxPoints = 600

// series says how the use went.
func series(s []Sample) []Point {
	step := max(1, (len(s)-1+maxPoints-1)/maxPoints)
	var out []Point
	for i := step; i < len(s); i += step {
		a, b := s[i-step], s[i]
		seconds := time.Duration(b.At - a.At).Seconds()
		if seconds <= 0 {
			continue
		}
		d := total(b).minus(total(a))
		out = append(out, Point{
			At: b.At, CPU: time.Duration(b.CPU-a.CPU).Seconds() / seconds,
			Calls: float64(d.Calls) / seconds, Bytes: float64(d.Sent+d.Received) / seconds,
		})
	}
	return out
}

func total(s Sample) (sum Calls) {
	for _, n := range s.Calls {
		sum = sum.plus(n)
	}
	return sum
}

func (c Calls) plus(o Calls) Calls {
	return Calls{c.Calls + o.Calls, c.Failed + o.Failed, c.Sent + o.Sent, c.Received + o.Received}
}

func (c Calls) minus(o Calls) Calls {
	return Calls{c.Calls - o.Calls, c.Failed - o.Failed, c.Sent - o.Sent, c.Received - o.Received}
}

func (p Pod) word() string {
	if p.Name == "" && p.UID == "" {
		return "none"
	}
	return p.Namespace + "/" + p.Name + " (" + p.UID + ")"
}

func words(ns int64) string { return Duration(time.Duration(max(ns, -ns))) }

// Duration shows a duration in three digits or so.
func Duration(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	default:
		return d.Round(10 * time.Microsecond).String()
	}
}

func list(words []string) string { return strings.Join(words, "; ") }

// plural is a number with its noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

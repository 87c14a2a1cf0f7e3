package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// expected returns the transitions that a stream had time to tell of: not those at
// both ends, and not those around the end of a stream.
func (o *Observed) expected() []*Fact {
	until := o.To.Add(-margin - o.maxLag())
	var all []*Fact
	for i := range o.Facts {
		f := &o.Facts[i]
		if f.Since.Before(o.From.Add(margin)) || f.Seen.After(until) {
			continue
		}
		if o.torn(f.Since, f.Seen) {
			continue
		}
		all = append(all, f)
	}
	return all
}

// habit reports whether a runtime is known not to tell of a transition: CRI-O of
// sandboxes that are created or removed, and of containers that go with their sandbox.
func (o *Observed) habit(f *Fact) bool {
	return o.Runtime == "cri-o" && (f.Type == deleted || f.Sandbox && f.Type == created)
}

// typed is a type of event, of sandboxes or containers.
type typed struct {
	sandbox bool
	kind    runtimeapi.ContainerEventType
}

func (t typed) String() string {
	what := "container"
	if t.sandbox {
		what = "sandbox"
	}
	word := strings.TrimSuffix(strings.TrimPrefix(t.kind.String(), "CONTAINER_"), "_EVENT")
	return what + " " + word
}

// tally is how many transitions of a type there were, and how many were told.
type tally struct{ happened, told int }

func (o *Observed) tallies() map[typed]*tally {
	heard := [2]map[key]bool{o.Streams[0].all(), o.Streams[1].all()}
	all := map[typed]*tally{}
	for _, f := range o.expected() {
		t := typed{f.Sandbox, f.Type}
		if all[t] == nil {
			all[t] = &tally{}
		}
		all[t].happened++
		if heard[0][f.key()] || heard[1][f.key()] {
			all[t].told++
		}
	}
	return all
}

// enough is how often something must happen untold before that is no chance.
const enough = 5

// absent reports whether a type is not told at all.
func (t *tally) absent() bool { return t != nil && t.told == 0 && t.happened >= enough }

// vital reports whether a type has to be told: that something runs, or has ended. That no
// other type is ever told is no loss, but how a runtime is. A hybrid generator judges
// alike.
func (t typed) vital() bool { return t.kind == started || t.kind == stopped }

func missingLine(o *Observed) Line {
	happened, lost := 0, 0
	for t, n := range o.tallies() {
		if n.absent() && !t.vital() || o.habit(&Fact{Sandbox: t.sandbox, Type: t.kind}) {
			continue // see typesLine
		}
		happened += n.happened
		lost += n.happened - n.told
	}
	l := Line{Verdict: Good, Finding: fmt.Sprintf("all %d transitions that lists showed were told", happened)}
	switch {
	case happened == 0:
		l = Line{Verdict: Unknown, Finding: "no transition was seen that could have been told", Advice: "examine it while pods come and go, for longer (--for), or with --workload"}
	case lost > 0:
		l = Line{
			Verdict: Bad, Finding: fmt.Sprintf("%d of %d transitions that lists showed were told to nobody (%.1f %%)", lost, happened, 100*float64(lost)/float64(happened)),
			Advice: "events alone leave a wrong state behind: use hybrid, whose relists find them",
		}
		if o.Runtime == "containerd" {
			l.Advice += ". On containerd 1.7 see who else listens"
		}
	}
	if o.Clipped {
		l.Finding += " (of more than could be kept)"
	}
	return l
}

func typesLine(o *Observed) Line {
	var absent, told []string
	vital := false
	known := map[string]bool{} // what CRI-O leaves out
	for t, n := range o.tallies() {
		switch {
		case n.absent():
			absent = append(absent, fmt.Sprintf("%v (0 of %d)", t, n.happened))
			vital = vital || t.vital()
			if f := (&Fact{Sandbox: t.sandbox, Type: t.kind}); o.habit(f) && t.sandbox {
				known["sandboxes that are created or removed"] = true
			} else if o.habit(f) {
				known["containers that go with their sandbox"] = true
			}
		case n.told > 0: // of the rest too little happened to say
			told = append(told, t.String())
		}
	}
	slices.Sort(absent)
	slices.Sort(told)
	switch {
	case len(absent)+len(told) == 0:
		return Line{Verdict: Unknown, Finding: "no transition was seen that could have been told"}
	case vital:
		return Line{
			Verdict: Bad, Finding: "not told once: " + strings.Join(absent, ", "),
			Advice: "a stream that is silent about what runs or has ended is of little use: hybrid relists then as often as generic",
		}
	case len(absent) > 0:
		l := Line{
			Verdict: Warning, Finding: "not told once: " + strings.Join(absent, ", "),
			Advice: "only lists show these: plegd learns which they are, and doesn't take them for losses",
		}
		if len(known) > 0 {
			l.Advice += ". CRI-O is known to leave out " + strings.Join(slices.Sorted(maps.Keys(known)), " and ")
		}
		return l
	}
	return Line{Verdict: Good, Finding: "told: " + strings.Join(told, ", ")}
}

func duplicatesLine(o *Observed) Line {
	twice, total := 0, 0
	for i := range o.Streams {
		seen := map[key]bool{}
		for j := range o.Streams[i].Events {
			h := &o.Streams[i].Events[j]
			if h.Malformed {
				continue
			}
			total++
			if seen[h.key()] {
				twice++
			}
			seen[h.key()] = true
		}
	}
	if twice > 0 {
		return Line{
			Verdict: Warning, Finding: fmt.Sprintf("%d of %d events were told again", twice, total),
			Advice: "a reader of the bare stream must know what it was told; plegd journals each transition once",
		}
	}
	return Line{Verdict: Good, Finding: "nothing is told twice"}
}

func orderLine(o *Observed) Line {
	var example string
	wrong := 0
	for i := range o.Streams {
		latest := map[string]*Heard{}
		seen := map[key]bool{}
		for j := range o.Streams[i].Events {
			h := &o.Streams[i].Events[j]
			if h.Malformed || seen[h.key()] {
				continue
			}
			seen[h.key()] = true
			if before := latest[h.ID]; before != nil && h.Type < before.Type {
				if wrong++; wrong == 1 {
					example = fmt.Sprintf("%v of %.13s after %v", typed{h.Sandbox, h.Type}, h.ID, typed{before.Sandbox, before.Type})
				}
				continue
			}
			latest[h.ID] = h
		}
	}
	if wrong > 0 {
		return Line{
			Verdict: Warning, Finding: fmt.Sprintf("%d events came after later ones of the same container (%s)", wrong, example),
			Advice: "a reader of the bare stream must not believe the last event; plegd takes them in any order. CRI-O is known for STOPPED before STARTED (cri-o#9738)",
		}
	}
	return Line{Verdict: Good, Finding: "each container's events come in their order"}
}

func payloadsLine(o *Observed) Line {
	var total, malformed, podless, bare, behind int
	for h := range o.heard() {
		total++
		switch {
		case h.Malformed:
			malformed++
		case h.NoSandbox:
			podless++
		case h.Type == deleted:
		case !h.Own:
			bare++
		case h.Type == stopped && !h.Exited:
			behind++
		}
	}
	var wrong []string
	for _, w := range []struct {
		n    int
		text string
	}{
		{malformed, "can't be decoded"},
		{podless, "name no pod"},
		{bare, "lack the status of what they are about"},
		{behind, "tell of an end with a status from before it"},
	} {
		if w.n > 0 {
			wrong = append(wrong, fmt.Sprintf("%d of %d %s", w.n, total, w.text))
		}
	}
	if len(wrong) > 0 {
		return Line{
			Verdict: Warning, Finding: strings.Join(wrong, "; "),
			Advice: "a reader must ask for the status itself then, as plegd does; the kubelet skips what names no pod (kubernetes#114371)",
		}
	}
	return Line{Verdict: Good, Finding: fmt.Sprintf("%d events, each with its pod and its status", total)}
}

// maxLag is how late the latest event came, 0 if the runtime's clock can't be told
// from ours.
func (o *Observed) maxLag() time.Duration {
	lags := o.lags()
	if len(lags) == 0 {
		return 0
	}
	return min(max(slices.Max(lags), 0), o.To.Sub(o.From)/2)
}

package doctor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/status"

	"github.com/plegd/plegd/internal/cri"
)

// errSwitchedOff: the runtime ends each stream at once and without an error, as CRI-O
// does while enable_pod_events is false (cri-o#7164).
var errSwitchedOff = errors.New("it ends each stream at once, without an error")

// atOnce is how long a stream lives at most of which one can say that.
const atOnce = time.Second

// unsupported says why a runtime has no stream, nil if it has one. All ways of having
// none show at the first message: that a stream could be opened proves nothing.
func unsupported(s *Stream) error {
	for _, e := range s.Ends {
		if cri.Unimplemented(e.Err) {
			return e.Err
		}
	}
	brief := func(e End) bool { return e.Err == nil && e.Events == 0 && e.After < atOnce }
	if len(s.Events) == 0 && len(s.Ends) > 1 && !slices.ContainsFunc(s.Ends, func(e End) bool { return !brief(e) }) {
		return errSwitchedOff
	}
	return nil
}

// how says how a stream ended.
func (e *End) how() string {
	if e.Err == nil {
		return "without an error"
	}
	return e.Err.Error()
}

func streamLine(o *Observed) Line {
	first := &o.Streams[0]
	switch err := unsupported(first); {
	case errors.Is(err, errSwitchedOff):
		return Line{
			Verdict: Bad, Finding: err.Error(),
			Advice: "CRI-O does that while its events are off: set enable_pod_events = true in crio.conf and restart it",
		}
	case err != nil:
		return Line{
			Verdict: Bad, Finding: "it has no event stream: " + status.Convert(err).Message(),
			Advice: "containerd has one from 1.7 on, CRI-O from 1.26 on; until then use --mode generic or hybrid",
		}
	}
	heard := len(first.Events) + len(o.Streams[1].Events)
	if ends := slices.Concat(first.Ends, o.Streams[1].Ends); len(ends) > 0 {
		return Line{
			Verdict: Bad, Finding: fmt.Sprintf("it was ended %s (first after %v, %s)", count(len(ends), "time"), ends[0].After.Round(time.Millisecond), ends[0].how()),
			Advice: "what happens until the next connection is told late or never: see the runtime's log for restarts",
		}
	}
	if expected := o.expected(); heard == 0 && len(expected) > 0 {
		return Line{
			Verdict: Bad, Finding: fmt.Sprintf("it is silent: %s happened, and nothing was told", count(len(expected), "transition")),
			Advice: "the stream is open and dead: restart the runtime, and see whether someone else takes the events (containerd 1.7)",
		}
	}
	if heard == 0 {
		return Line{
			Verdict: Unknown, Finding: "it is open, and nothing happened that could have been told",
			Advice: "examine it while pods come and go, for longer (--for), or with --workload",
		}
	}
	return Line{Verdict: Good, Finding: fmt.Sprintf("it is there, and told %d and %d events to two subscribers", len(first.Events), len(o.Streams[1].Events))}
}

// key is what an event is about.
type key struct {
	id   string
	kind int32
}

func (h *Heard) key() key { return key{h.ID, int32(h.Type)} }
func (f *Fact) key() key  { return key{f.ID, int32(f.Type)} }

// margin is left at both ends of what is judged: at the beginning the runtime may not
// have begun to tell both subscribers yet, at the end events are still on their way.
const margin = time.Second

// settled returns the events that a subscriber had time to hear, by what they are about.
func (o *Observed) settled(s *Stream) map[key]bool {
	heard := map[key]bool{}
	for i := range s.Events {
		h := &s.Events[i]
		if h.Malformed || h.At.Before(o.From.Add(margin)) || h.At.After(o.To.Add(-margin)) || o.torn(h.At, h.At) {
			continue
		}
		heard[h.key()] = true
	}
	return heard
}

// torn reports whether a stream ended, and was not there again, about then.
func (o *Observed) torn(from, to time.Time) bool {
	about := func(e End) bool {
		return to.After(e.At.Add(-margin)) && (e.Until.IsZero() || from.Before(e.Until.Add(margin)))
	}
	return slices.ContainsFunc(o.Streams[0].Ends, about) || slices.ContainsFunc(o.Streams[1].Ends, about)
}

// all returns what a subscriber has heard at any time.
func (s *Stream) all() map[key]bool {
	heard := map[key]bool{}
	for i := range s.Events {
		heard[s.Events[i].key()] = true
	}
	return heard
}

func sharingLine(o *Observed) Line {
	var only [2]int
	both := 0
	for i := range o.Streams {
		other := o.Streams[1-i].all()
		for k := range o.settled(&o.Streams[i]) {
			if other[k] {
				both++
			} else {
				only[i]++
			}
		}
	}
	both /= 2 // counted from both sides
	alone := only[0] + only[1]
	switch {
	case both == 0 && alone < 3:
		return Line{Verdict: Unknown, Finding: "too little was told to say whether subscribers share"}
	case alone > 2*both:
		return Line{
			Verdict: Bad, Finding: fmt.Sprintf("subscribers compete: %d events came to one of two, %d to both", alone, both),
			Advice: "containerd before 2.0 does that (containerd#7318): every subscriber takes events from the others, a kubelet with EventedPLEG included. hybrid does without the stream there, and relists as often as generic; or update the runtime",
		}
	case alone > 0:
		return Line{
			Verdict: Warning, Finding: fmt.Sprintf("%d events came to one of two subscribers only, %d to both", alone, both),
			Advice: "the runtime drops events for single subscribers: only relists find these",
		}
	}
	return Line{Verdict: Good, Finding: fmt.Sprintf("each subscriber gets each event (%d of %d)", both, both)}
}

// inFlight is how long after the first send to a subscriber that is gone others may
// still be on their way to it.
const inFlight = time.Second

// meanwhile are the transitions while nobody of ours listened, as far as they are told
// at other times: those that the runtime may have sent to subscribers that were gone,
// and those after it must have noticed. It may notice only by a send that fails, so what
// happened first, and what was on its way then, says nothing of what is kept.
func (o *Observed) meanwhile() (first, rest []*Fact) {
	types := o.tallies()
	var all []*Fact
	noticed := o.GapTo
	for i := range o.Facts {
		f := &o.Facts[i]
		if t := (typed{f.Sandbox, f.Type}); o.habit(f) || types[t].absent() && !t.vital() {
			continue
		}
		if f.after().After(o.GapFrom) && f.Seen.Before(o.GapTo) {
			all = append(all, f)
			if f.Seen.Before(noticed) {
				noticed = f.Seen // its event may come long after the time that its status has
			}
		}
	}
	for _, f := range all {
		if f.after().Before(noticed.Add(inFlight)) {
			first = append(first, f)
		} else {
			rest = append(rest, f)
		}
	}
	return first, rest
}

// after is what it did not happen before: the time that the runtime says, where the
// lists allow that, else that of the list before it.
func (f *Fact) after() time.Time {
	if at := time.Unix(0, f.At); at.After(f.Since) && !at.After(f.Seen) {
		return at
	}
	return f.Since
}

func reconnectLine(o *Observed) Line {
	if len(o.After.Ends) > 0 {
		return Line{Verdict: Bad, Finding: "the stream could not be opened again: it ended " + o.After.Ends[0].how(), Advice: "see the runtime's log"}
	}
	heard := o.After.all()
	toldOf := func(facts []*Fact) (told int) {
		for _, f := range facts {
			if heard[f.key()] {
				told++
			}
		}
		return told
	}
	first, rest := o.meanwhile()
	early, told, n := len(first)-toldOf(first), toldOf(rest), len(rest)
	switch {
	case len(first)+n == 0:
		return Line{Verdict: Unknown, Finding: "it can be opened again; nothing happened meanwhile"}
	case o.maxLag() > settle:
		return Line{Verdict: Unknown, Finding: "it can be opened again; events are too late to say whether what happened meanwhile is told"}
	case told < n && o.Socket.Agent:
		return Line{
			Verdict: Unknown, Finding: "it can be opened again; the socket is that of a plegd agent, which listens all the time, so the runtime keeps nothing",
			Advice: "to know what is kept while nobody listens, stop the agent and examine the runtime's own socket",
		}
	case told < n && len(o.Others) > 0:
		return Line{
			Verdict: Unknown, Finding: "it can be opened again; someone else was connected, so nothing need be kept for the next subscriber",
			Advice: "to know what is kept while nobody listens, examine it while nobody else is connected (see others)",
		}
	case told < n:
		return Line{
			Verdict: Warning, Finding: fmt.Sprintf("it can be opened again, and of what happened meanwhile tells %d of %d", told, n),
			Advice: "list after each connection, as plegd does in every mode: what fell in between is found only so",
		}
	case n == 0 && early > 0:
		return Line{Verdict: Unknown, Finding: "it can be opened again; too little happened meanwhile to say whether that is told"}
	case early > 0:
		return Line{
			Verdict: Good, Finding: fmt.Sprintf("it can be opened again, and tells what happened meanwhile (%d of %d), but for %s right after the doctor had hung up", told, n, count(early, "transition")),
			Advice: "a runtime may notice only by a send that fails that a subscriber is gone: list after each connection, as hybrid does",
		}
	}
	return Line{Verdict: Good, Finding: fmt.Sprintf("it can be opened again, and tells what happened meanwhile (%d of %d)", len(first)+n, len(first)+n)}
}

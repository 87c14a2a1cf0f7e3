package doctor

import (
	"fmt"
	"iter"
	"slices"
)

// Judge makes a report of what was gathered.
//
// Its verdict is the worst of the lines; one that could not be answered counts only
// if the report is not worth much without it, which goes for socket, stream and missing.
func Judge(o *Observed) Report {
	r := Report{
		Endpoint: o.Endpoint, Runtime: o.Runtime, Version: o.Version, Began: o.Began,
		Seconds: o.To.Sub(o.From).Seconds(), Whole: o.Whole,
	}
	for _, q := range questions {
		if q.of(o) {
			l := q.ask(o)
			l.Check = q.check
			r.Lines = append(r.Lines, l)
		}
	}
	r.Verdict = Good
	for _, l := range r.Lines {
		if l.Verdict == Unknown && l.Check != "socket" && l.Check != "stream" && l.Check != "missing" {
			continue
		}
		if l.Verdict.rank() > r.Verdict.rank() {
			r.Verdict = l.Verdict
		}
	}
	r.Summary = summary(&r, o.listened())
	return r
}

// questions are asked in this order, each of what gives it sense: of the rest an earlier
// one has said why.
var questions = []struct {
	check string
	of    func(*Observed) bool
	ask   func(*Observed) Line
}{
	{"socket", (*Observed).looked, socketLine},
	{"version", (*Observed).called, versionLine},
	{"others", (*Observed).answered, othersLine},
	{"stream", (*Observed).begun, streamLine},
	{"sharing", (*Observed).told, sharingLine},
	{"missing", (*Observed).lively, missingLine},
	{"types", (*Observed).told, typesLine},
	{"duplicates", (*Observed).told, duplicatesLine},
	{"order", (*Observed).told, orderLine},
	{"payloads", (*Observed).told, payloadsLine},
	{"times", (*Observed).told, timesLine},
	{"lag", (*Observed).timed, lagLine},
	{"reconnect", (*Observed).reopened, reconnectLine},
	{"lists", (*Observed).listed, listsLine},
	{"calls", (*Observed).begun, callsLine},
}

// What there is to judge, each with all before it that it needs.

// looked: the socket was looked at.
func (o *Observed) looked() bool { return o.SocketErr != nil || o.Socket.Mode != "" }

// called: the runtime was called.
func (o *Observed) called() bool { return o.SocketErr == nil }

// answered: a runtime answered.
func (o *Observed) answered() bool { return o.called() && o.VersionErr == nil }

// begun: it was listened to and listed.
func (o *Observed) begun() bool { return o.answered() && !o.From.IsZero() }

// listed: a list came.
func (o *Observed) listed() bool { return len(o.Lists) > 0 }

// listened: there was a stream.
func (o *Observed) listened() bool { return o.begun() && unsupported(&o.Streams[0]) == nil }

// told: it told something.
func (o *Observed) told() bool {
	return o.listened() && len(o.Streams[0].Events)+len(o.Streams[1].Events) > 0
}

// timed: it told something of which the lag is known.
func (o *Observed) timed() bool { return o.listened() && len(o.lags()) > 0 }

// lively: it told something, or there was nothing to tell.
func (o *Observed) lively() bool { return o.told() || o.listened() && len(o.expected()) == 0 }

// reopened: so did it, and was then let go and opened again.
func (o *Observed) reopened() bool { return o.lively() && !o.GapFrom.IsZero() }

// heard are the events of both subscribers, one after the other.
func (o *Observed) heard() iter.Seq[*Heard] {
	return func(yield func(*Heard) bool) {
		for i := range o.Streams {
			for j := range o.Streams[i].Events {
				if !yield(&o.Streams[i].Events[j]) {
					return
				}
			}
		}
	}
}

// summary says it in words; streamed is whether there is a stream at all.
func summary(r *Report, streamed bool) string {
	at := func(v Verdict) (n int, first string) {
		for _, l := range r.Lines {
			if l.Verdict == v {
				if n++; n == 1 {
					first = l.Check
				}
			}
		}
		return n, first
	}
	is := func(check string, v Verdict) bool {
		return slices.ContainsFunc(r.Lines, func(l Line) bool { return l.Check == check && l.Verdict == v })
	}
	switch n, first := at(r.Verdict); {
	case is("socket", Unknown):
		return "There is no runtime that may be talked to, so nothing is judged."
	case is("version", Bad):
		return "There is no runtime to talk to."
	case is("calls", Bad):
		return "Not fit for evented operation or any other: the runtime no longer answers."
	case r.Verdict == Bad && (!streamed || is("sharing", Bad)):
		return "Not fit for evented operation: hybrid does without by itself, and relists as often as generic."
	case r.Verdict == Bad:
		return fmt.Sprintf("Not fit to be followed by events alone (%s): use hybrid, whose relists find what the stream leaves out, or generic.", first)
	case r.Verdict == Unknown:
		return "Nothing happened that could have been told of: examine it while pods come and go, for longer, or with a workload."
	case r.Verdict == Warning && n == 1:
		return fmt.Sprintf("Fit for evented operation, with a reservation (%s): use hybrid.", first)
	case r.Verdict == Warning:
		return fmt.Sprintf("Fit for evented operation, with %d reservations: use hybrid.", n)
	default:
		return "Fit for evented operation: hybrid has the stream's latency, and seldom needs its relists."
	}
}

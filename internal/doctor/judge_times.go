package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// inSeconds is below what any time of this century is in ns, and above what it is
	// in seconds (cri-o#8582).
	inSeconds = int64(1e15)
	// skewed is how far clocks of one machine may differ: not at all, but for what
	// passes between two readings.
	skewed = time.Second
	// stressed is the lag from which KEP-3386 speaks of stress; about 1 ms is usual.
	stressed = time.Second
)

// lags returns how long after its created_at each event came that has one. What was
// kept for the next subscriber has no lag, but an age.
func (o *Observed) lags() []time.Duration {
	var all []time.Duration
	for h := range o.heard() {
		at := time.Unix(0, h.CreatedAt)
		if h.CreatedAt >= max(inSeconds, o.From.UnixNano()) && !o.torn(at, at) {
			all = append(all, h.At.Sub(at))
		}
	}
	return all
}

func timesLine(o *Observed) Line {
	earliest := map[key]int64{} // that a transition can have been stamped at
	for i := range o.Facts {
		f := &o.Facts[i]
		earliest[f.key()] = max(f.At, f.Since.Add(-skewed).UnixNano())
	}
	var total, unset, seconds, future, early int
	for h := range o.heard() {
		if h.Malformed {
			continue
		}
		total++
		switch at := earliest[h.key()]; {
		case h.CreatedAt <= 0:
			unset++
		case h.CreatedAt < inSeconds:
			seconds++
		case h.At.Sub(time.Unix(0, h.CreatedAt)) < -skewed:
			future++
		case h.CreatedAt < at:
			early++
		}
	}
	l := Line{Verdict: Good, Finding: "created_at is in nanoseconds, of this machine's clock, and not before what happened"}
	var found []string
	for _, w := range []struct { // the worst first, whose advice is given
		n       int
		verdict Verdict
		text    string
		advice  string
	}{
		{seconds, Bad, "are stamped in seconds, the CRI says nanoseconds", "update the runtime (cri-o#8582): a reader that orders by these times believes nothing else any more"},
		{unset, Warning, "have no created_at", "their age can't be told: plegd takes the moment of their receipt"},
		{future, Warning, fmt.Sprintf("are stamped more than %v in the future", skewed), "the runtime's clock is not this machine's, or was set: plegd orders by its own stamps and is not misled"},
		{early, Warning, "are stamped before what they tell of", "created_at can't be used to order events and statuses; plegd doesn't"},
	} {
		if w.n == 0 {
			continue
		}
		if len(found) == 0 {
			l.Verdict, l.Advice = w.verdict, w.advice
		}
		found = append(found, fmt.Sprintf("%d of %d events %s", w.n, total, w.text))
	}
	if len(found) > 0 {
		l.Finding = strings.Join(found, "; ")
	}
	return l
}

func lagLine(o *Observed) Line {
	lags := o.lags()
	slices.Sort(lags)
	at := func(p int) time.Duration { return lags[max(0, (len(lags)*p+99)/100-1)] } // the nearest rank
	l := Line{Verdict: Good, Finding: fmt.Sprintf("events come %v (p50), %v (p99), %v (max) after created_at",
		rounded(at(50)), rounded(at(99)), rounded(lags[len(lags)-1]))}
	if at(99) > stressed {
		l.Verdict, l.Advice = Warning, "a second is what KEP-3386 calls stress, 1 ms is usual: see what keeps the runtime busy, and whether it keeps old events for the next subscriber"
	}
	return l
}

// rounded keeps three digits or so.
func rounded(d time.Duration) time.Duration {
	switch {
	case d.Abs() < time.Millisecond:
		return d.Round(time.Microsecond)
	case d.Abs() < time.Second:
		return d.Round(100 * time.Microsecond)
	default:
		return d.Round(10 * time.Millisecond)
	}
}

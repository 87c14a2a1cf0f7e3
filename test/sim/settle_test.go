package sim_test

import (
	"errors"
	"fmt"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/oracletest"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// bound is the promise of docs/design.md: how long after the last fault and
// change the cache may differ from the runtime. Terms that don't apply are left out.
func (w *world) bound() time.Duration {
	const reconnect = 10 * time.Second
	t, p, l := w.p.timeout, w.p.base, w.p.most
	if q := w.calls.waits(w.life); !w.holds() || q > 0 {
		return reconnect + t + max(l, 2*t+p) + p + t + q + w.lowered()
	}
	return l + p + t + w.lowered()
}

// lowered is how long something may stay wrong that was lowered within the last
// minute, since that happens once a minute at most (O9): something that returned to an
// earlier state before the last wrong answer about it, or of which two were wrong.
func (w *world) lowered() (longest time.Duration) {
	now := time.Now()
	since := now.Add(-time.Minute)
	wait := func(from time.Time) { longest = max(longest, time.Minute-now.Sub(from)) }
	for _, ev := range w.main.events {
		if ev.Change == store.ChangeRegressed && ev.read.After(since) && w.ledger.lied(ev.EntityID(), ev.read, now, func(said) bool { return true }) {
			wait(ev.read)
		}
	}
	for id := range w.ledger.of {
		var wrong []said
		for _, x := range w.ledger.about(id, since, now) {
			if x.lie && x.claim != gone {
				wrong = append(wrong, x)
			}
		}
		if len(wrong) > 1 {
			wait(wrong[len(wrong)-2].at)
		}
	}
	return longest
}

// longest is the bound of all that is waited for beside what is promised: that no
// question is open and the stream is up.
func (w *world) longest() time.Duration {
	t, p, l := w.p.timeout, w.p.base, w.p.most
	return 10*time.Second + t + max(l, 2*t+p) + p + t + min(longestWait, max(hungWait, w.p.chaos*6/5)) + w.lowered()
}

const (
	hungWait    = 30 * time.Second // until a call that hung is made again
	longestWait = 6 * time.Minute  // between two tries of a question: 5 minutes and a fifth
)

// holds says whether the connection holds and nothing failed lately.
func (w *world) holds() bool {
	const lately = 20 * time.Second
	since := time.Now().Add(-lately)
	return w.life != nil && w.life.began.Before(since) && w.p.mode != pleg.ModeEvented && w.calls.failed.Before(since) &&
		(w.life.g.Status().Stream.State == "up" || !streams(w.p.profile) || w.p.mode == pleg.ModeGeneric)
}

// settle waits until the cache is as the runtime, which has to be within the
// bound, then for one more relist, and checks everything.
func (w *world) settle() {
	if w.p.mode == pleg.ModeEvented && len(w.bad) == 0 {
		synctest.Wait()                    // a stream that was held up until now is open then
		w.rt.EndStreams(codes.Unavailable) // without a periodic relist only a new stream brings one
	}
	began, agreed := time.Now(), time.Duration(-1)
	bound, longest := w.bound(), w.longest()
	for len(w.bad) == 0 {
		synctest.Wait()
		w.look()
		took := time.Since(began)
		diff := w.disagrees()
		switch {
		case diff != "" && took > bound:
			w.fail("%v after the last fault, promised were %v: %s", took, bound, diff)
		case diff != "":
			agreed = -1
		case agreed < 0:
			agreed = took
		}
		if diff = w.differs(); diff == "" {
			break
		}
		if took > longest {
			w.fail("%v after the last fault: %s", took, diff)
		}
		time.Sleep(w.p.base / 4)
	}
	w.note("agrees after %v, at most %v; nothing is open after %v", agreed, bound, time.Since(began))
	w.most("longest until agreement, ms", int(agreed.Milliseconds()))
	w.most("longest until agreement, % of what is promised", int(100*agreed/bound))
	w.most("longest until nothing is open, ms", int(time.Since(began).Milliseconds()))
	if bound == w.p.most+w.p.base+w.p.timeout {
		w.count("bounds without a term for what failed", 1)
		w.most("longest until agreement where nothing failed, % of what is promised", int(100*agreed/bound))
	}
	if len(w.bad) == 0 {
		time.Sleep(w.p.most + 2*w.p.base)
		synctest.Wait()
		w.look()
		diff := w.disagrees()
		if diff != "" && w.ledger.liedSince(began) { // a lie that came late and again is taken back once in a minute (O9)
			w.count("lies that came after all faults", 1)
			time.Sleep(time.Minute + bound)
			diff = w.disagrees()
		}
		if diff != "" {
			w.fail("it agreed, and does no longer: %s", diff)
		}
		// A late event may just have opened a question.
		for end := time.Now().Add(2 * w.p.timeout); w.differs() != "" && time.Now().Before(end); synctest.Wait() {
			time.Sleep(10 * time.Millisecond)
		}
		if diff := w.differs(); diff != "" {
			w.fail("nothing was open, and then for long: %s", diff)
		}
	}
	var all []told
	if w.life != nil {
		w.readersCatchUp()
		all = w.main.events
		w.sameOrder()
		if len(w.bad) == 0 {
			w.resumeEverywhere(w.life.g, all)
		}
		w.stop()
	}
	if len(w.bad) == 0 {
		for _, odd := range w.disk.odd {
			w.fail("%s", odd)
		}
		w.reopen(all)
		j := w.judge(all)
		for _, bad := range j.bad {
			w.fail("%s", bad)
		}
		for k, n := range j.counts {
			w.count(k, n)
		}
		w.checkLog()
	}
	w.summarise(all)
}

// disagrees says in what the cached pods are not as the runtime.
func (w *world) disagrees() string {
	if w.life == nil {
		return "there is no agent"
	}
	pods, _ := w.life.g.Pods()
	return oracletest.Disagreement(w.rt.Truth(), pods)
}

// differs says in what the agent is not yet as it must become.
func (w *world) differs() string {
	if diff := w.disagrees(); diff != "" {
		return diff
	}
	pods, _ := w.life.g.Pods()
	if diff := w.reasons(pods); diff != "" {
		return diff
	}
	st := w.life.g.Status()
	if n := len(st.Asks); n > 0 {
		return fmt.Sprintf("%d questions are open: %+v", n, st.Asks)
	}
	if st.Stream.State != "up" && w.p.mode != pleg.ModeGeneric && streams(w.p.profile) {
		return "the stream is " + st.Stream.State
	}
	return ""
}

// reasons says which reason of an end is not the runtime's. One may come late and
// without an event, so it is asked for (O8).
func (w *world) reasons(pods []pleg.Pod) string {
	want := map[string]string{}
	for _, c := range w.rt.Truth().Containers {
		want[c.Status.GetId()] = c.Status.GetReason()
	}
	for _, p := range pods {
		for _, c := range p.Containers {
			if c.State == "exited" && c.Reason != want[c.ID] {
				return fmt.Sprintf("the reason of %s is shown as %q, it is %q", short(c.ID), c.Reason, want[c.ID])
			}
		}
	}
	return ""
}

// readersCatchUp lets the readers that take their time take none any more.
func (w *world) readersCatchUp() {
	close(w.hurry)
	synctest.Wait()
	if end := w.life.g.Position(); end.Seq > 0 && end != *w.main.at {
		w.fail("reader main is at %v, the end is %v", *w.main.at, end)
	}
	end := *w.main.at // an epoch that has no event yet has no end either
	for _, r := range w.readers {
		r.mu.Lock()
		if r.at != nil && *r.at != end {
			w.fail("reader %s never came to the end, %v: it is at %v", r.name, end, *r.at)
		}
		r.mu.Unlock()
	}
}

// resumeEverywhere reads on from every position that was ever told. Of those that can
// be read on from what comes is what came: from each the next two events are read,
// which is all of it by induction; from some all that follows. The others are refused,
// and so is every position that never was, or that a later start skipped.
func (w *world) resumeEverywhere(g *pleg.Generator, all []told) {
	end, oldest := g.Position(), g.Oldest()
	whole := len(all)/8 + 1
	for i := range all {
		at := all[i].Position
		sub, err := g.Subscribe(&at)
		by := w.disk.by(at)
		inMemory := w.life != nil && all[i].life == w.life && (by == w.life || by == nil) && len(all)-i < 4096
		switch left := at.Epoch == end.Epoch && at.Seq >= oldest.Seq; {
		case errors.Is(err, pleg.ErrExpired) && !left && !inMemory:
			w.count("positions refused that are no longer there", 1)
			continue
		case err != nil:
			w.fail("reading on after %v, oldest is %v: %v", at, oldest, err)
			return
		}
		n := len(all)
		if i%whole != 0 {
			n = min(n, i+3)
		}
		for j := i + 1; j < n; j++ {
			ev, err := sub.Next(w.t.Context())
			if err != nil {
				w.fail("reading on after %v: %v", at, err)
				return
			}
			if ev.Position != all[j].Position {
				w.fail("reading on after %v: %v comes where %v came before", at, ev.Position, all[j].Position)
				return
			}
			w.contents.check(w, "resumed", ev)
		}
		w.count("positions resumed from in the agent", 1)
		if ev := all[i]; ev.Type == store.SequenceSkipped && ev.Position.Epoch == end.Epoch {
			for _, seq := range []uint64{ev.From, (ev.From + ev.To) / 2, ev.To} {
				w.refuses(g, pleg.Position{Epoch: end.Epoch, Seq: seq})
			}
		}
	}
	w.refuses(g, pleg.Position{Epoch: end.Epoch, Seq: end.Seq + 1})
	w.refuses(g, pleg.Position{Epoch: timestamps.Epoch{1, 2, 3}, Seq: 1})
}

// refuses checks that nothing can be read on from a position.
func (w *world) refuses(g *pleg.Generator, at pleg.Position) {
	if sub, err := g.Subscribe(&at); err == nil {
		ev, err := sub.Next(w.t.Context())
		w.fail("%v can be read on from, and nobody was ever told it: %v %v", at, ev, err)
	} else if !errors.Is(err, pleg.ErrExpired) {
		w.fail("%v, which nobody was ever told, is refused otherwise than as expired: %v", at, err)
	}
	w.count("positions refused that never were", 1)
}

// reopen reads what a next agent would find.
func (w *world) reopen(all []told) {
	l := &life{w: w, n: len(w.lives) + 1, gone: make(chan struct{})}
	cfg := pleg.Config{Endpoint: "/run/sim.sock", StateDir: w.dir, NodeName: "sim", Clock: w.agentClock(), Logger: w.log.logger(l), Retention: store.Retention{Entries: w.p.keep}}
	g, err := pleg.New(cfg)
	if err != nil {
		w.fail("the state can't be opened: %v", err)
		return
	}
	pods, _ := g.Pods()
	if diff := oracletest.Disagreement(w.rt.Truth(), pods); diff != "" {
		w.fail("what is stored differs: %s", diff)
	}
	w.resumeEverywhere(g, all[max(0, len(all)-40):])
	w.check(g.Close())
	w.resumeStored(all)
}

// resumeStored reads the event after each position from the file.
func (w *world) resumeStored(all []told) {
	b, err := store.OpenBoltReadOnly(w.dir)
	if err != nil {
		w.fail("the state can't be read: %v", err)
		return
	}
	j := b.Journal()
	for i := range all {
		at := all[i].Position
		if at.Epoch != j.Epoch || at.Seq < j.First || i+1 == len(all) {
			continue
		}
		next, err := b.Events(at.Seq, 1)
		switch {
		case err != nil:
			w.fail("stored after %v: %v", at, err)
			return
		case len(next) != 1:
			w.fail("stored after %v: nothing", at)
			return
		}
		if next[0].Position != all[i+1].Position {
			w.fail("stored after %v: %v, where %v came before", at, next[0].Position, all[i+1].Position)
			return
		}
		w.contents.check(w, "of the file", &next[0])
		w.count("positions resumed from", 1)
	}
	w.check(b.Close())
}

// checkLog: nobody is told the same trouble again and again, and nothing of a
// panic.
func (w *world) checkLog() {
	w.log.mu.Lock()
	defer w.log.mu.Unlock()
	seen := map[string]int{}
	for _, line := range w.log.lines {
		key := logtest.Attr(line, "msg") + logtest.Attr(line, "condition")
		seen[key]++
		if logtest.Attr(line, "level") == "ERROR" && logtest.Attr(line, "condition") == "" && w.disk.renewals() == 0 {
			w.fail("logged: %s", line)
		}
	}
	for key, n := range seen {
		if most := 2 + 2*len(w.lives) + 2*len(w.p.faults); n > most {
			w.fail("%d times in the log, at most %d may be: %s", n, most, key)
		}
	}
}

// most keeps a maximum for the summary.
func (w *world) most(what string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts["max: "+what] = max(w.counts["max: "+what], n)
}

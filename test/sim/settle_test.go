package sim_test

import (
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/oracletest"
	"github.com/plegd/plegd/store"
)

// bound is the promise of docs/design.md: how long after the last fault and
// change the cache may differ from the runtime.
func (w *world) bound() time.Duration {
	const (
		reconnect = 10 * time.Second
		hung      = 30 * time.Second // until a call that hung is made again
		longest   = 6 * time.Minute  // between two tries of a question: 5 minutes and a fifth
	)
	t, p, l := w.p.timeout, w.p.base, w.p.most
	q := min(longest, max(hung, w.p.chaos*6/5)) // no question failed for longer than the chaos lasted
	return reconnect + t + max(l, 2*t+p) + p + t + q
}

// settle waits until the cache is as the runtime, which has to be within the
// bound, then for one more relist, and checks everything.
func (w *world) settle() {
	if w.p.mode == pleg.ModeEvented && len(w.bad) == 0 {
		synctest.Wait()                    // a stream that was held up until now is open then
		w.rt.EndStreams(codes.Unavailable) // without a periodic relist only a new stream brings one
	}
	began := time.Now()
	for len(w.bad) == 0 {
		synctest.Wait()
		w.look()
		diff := w.differs()
		if diff == "" {
			break
		}
		if time.Since(began) > w.bound() {
			w.fail("%v after the last fault: %s", time.Since(began), diff)
			break
		}
		time.Sleep(w.p.base / 4)
	}
	took := time.Since(began)
	w.note("agrees after %v", took)
	w.most("longest until agreement, ms", int(took.Milliseconds()))
	if len(w.bad) == 0 {
		time.Sleep(w.p.most + 2*w.p.base)
		synctest.Wait()
		w.look()
		if diff := w.differs(); diff != "" {
			w.fail("it agreed, and does no longer: %s", diff)
		}
	}
	var all []told
	if w.life != nil {
		w.readersCatchUp()
		all = w.main.events
		if len(w.bad) == 0 {
			w.resumeEverywhere(w.life.g, all)
		}
		w.stop()
	}
	if len(w.bad) == 0 {
		w.reopen(all)
		w.judge(all)
		w.checkLog()
	}
	w.summarise(all)
}

// differs says in what the agent is not yet as it must become.
func (w *world) differs() string {
	if w.life == nil {
		return "there is no agent"
	}
	pods, _ := w.life.g.Pods()
	if diff := oracletest.Disagreement(w.rt.Truth(), pods); diff != "" {
		return diff
	}
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

// resumeEverywhere reads on from every position that was told under the last
// epoch: what comes is what came. From each the next two events are read, which
// is all of it by induction; from some all that follows. Of what an earlier life
// told, which is read from the store, every eighth is enough here: see
// resumeStored.
func (w *world) resumeEverywhere(g *pleg.Generator, all []told) {
	end, oldest := g.Position(), g.Oldest()
	all = slices.DeleteFunc(slices.Clone(all), func(ev told) bool {
		return ev.Position.Epoch != end.Epoch || ev.Position.Seq < oldest.Seq
	})
	whole := len(all)/8 + 1
	for i := range all {
		if all[i].life != w.life && i%8 != 0 {
			continue
		}
		n := len(all)
		if i%whole != 0 {
			n = min(n, i+3)
		}
		sub, err := g.Subscribe(&all[i].Position)
		if err != nil {
			w.fail("reading on after %v: %v", all[i].Position, err)
			return
		}
		for j := i + 1; j < n; j++ {
			ev, err := sub.Next(w.t.Context())
			if err != nil {
				w.fail("reading on after %v: %v", all[i].Position, err)
				return
			}
			if ev.Position != all[j].Position {
				w.fail("reading on after %v: %v comes where %v came before", all[i].Position, ev.Position, all[j].Position)
				return
			}
			w.contents.check(w, "resumed", ev)
		}
	}
}

// reopen reads what a next agent would find.
func (w *world) reopen(all []told) {
	l := &life{n: len(w.lives) + 1, gone: make(chan struct{})}
	cfg := pleg.Config{Endpoint: "/run/sim.sock", StateDir: w.dir, NodeName: "sim", Clock: w.agentClock(), Logger: w.log.logger(l)}
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

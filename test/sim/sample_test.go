package sim_test

import (
	"time"

	"github.com/plegd/plegd/internal/oracletest"
	"github.com/plegd/plegd/internal/simruntime"
)

// sampler looks at what the agent shows, again and again during a run.
type sampler struct {
	at    time.Time                        // of the last look
	life  *life                            // in which it was
	shown map[string]oracletest.View       // then
	seq   uint64                           // of the history, as far as it was read
	last  map[string]simruntime.Transition // the last transition of each entity
	ended map[string]bool                  // exited or not ready, ever
	turns int
}

// sample compares what is shown now with what was shown before and with the
// truth: all of it must be on the way there.
func (w *world) sample() {
	s := &w.samples
	if s.last == nil {
		s.last, s.ended = map[string]simruntime.Transition{}, map[string]bool{}
	}
	if s.turns++; s.turns%3 != 0 || w.life == nil || w.life.dead.Load() || w.disk.hanging() {
		return
	}
	for _, tr := range w.rt.HistorySince(s.seq) {
		s.seq, s.last[tr.ID] = tr.Seq, tr
		switch tr.Step {
		case simruntime.Exited, simruntime.StartFailed, simruntime.NotReady:
			s.ended[tr.ID] = true
		}
	}
	pods, _ := w.life.g.Pods()
	shown := oracletest.Shown(pods)
	for id, v := range shown {
		tr, known := s.last[id]
		switch before, was := s.shown[id]; {
		case !known:
			w.fail("shown is %s, which never was", short(id))
		case (v.State == "exited" || v.State == "notready") && !s.ended[id] && !w.ledger.lied(id, w.began, time.Now(), down):
			w.fail("shown is %s as %s, which it never was", short(id), v.State)
		case was && before.Exit != "" && v.Exit != before.Exit && w.life == s.life && (v.Exit != "" || !w.ledger.lied(id, w.began, time.Now(), alive)):
			w.fail("the exit code of %s was shown as %s and is %q now", short(id), before.Exit, v.Exit)
		case !was && w.life == s.life && tr.Step == simruntime.Removed && w.lists.listed(w.life, tr.At.Add(time.Duration(w.slack.Load())), s.at):
			// O5: that it is gone was known before it was shown first. After a step of the
			// clock that is too small to be noticed, times are compared that differ by it (T3).
			w.fail("shown is %s, although a list that was sent after its removal was answered before", short(id))
		}
	}
	s.at, s.life, s.shown = time.Now(), w.life, shown
}

// hanging says whether commits wait now.
func (d *disk) hanging() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.hung) > 0
}

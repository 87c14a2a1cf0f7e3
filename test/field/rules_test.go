package field_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// finish checks G2, ends the agent, and then checks everything that holds in
// every case, in the order of the rules.
func (f *field) finish() {
	f.t.Helper()
	f.eventually()
	f.atPlateau()
	f.end()
}

// end is finish for cases that leave the cache different from the runtime.
func (f *field) end() {
	f.t.Helper()
	f.stop()
	f.checkRules()
}

// checkRules checks what holds in every case (docs: doc.go), the agent having
// ended.
func (f *field) checkRules() {
	f.t.Helper()
	events := f.all()
	if f.resets > 0 {
		f.t.Errorf("G2: positions were lost %d times", f.resets)
	}
	f.checkLives(events)
	f.checkPositions(events)
	f.checkStored()
	f.checkExits(events)
	f.checkRemovals(events)
	f.returned()
	f.checkLog()
}

// rank is the place of an event in a life; 0 for one that is no step of it.
func rank(ev pleg.Event) int {
	return map[store.EventType]int{
		store.SandboxCreated: 1, store.SandboxReady: 2, store.SandboxNotReady: 3, store.SandboxRemoved: 4,
		store.ContainerCreated: 1, store.ContainerStarted: 2, store.ContainerDied: 3, store.ContainerRemoved: 4,
	}[ev.Type]
}

// checkLives is G1: each step once in a life, in order, and a further life
// only after a return that was told.
func (f *field) checkLives(events []pleg.Event) {
	f.t.Helper()
	type state struct {
		life uint32
		rank int
	}
	at := map[string]state{} // by epoch and id: where the state is lost, all is told anew
	for _, ev := range events {
		if ev.EntityID() == "" {
			continue
		}
		id := ev.Position.Epoch.String() + "/" + ev.EntityID()
		was := at[id]
		r := rank(ev)
		switch {
		case ev.Change == store.ChangeRegressed:
			at[id] = state{life: ev.Incarnation}
		case r == 0:
		case was.life != 0 && ev.Incarnation != was.life:
			f.t.Errorf("G1: in life %d without a return to it: %s", ev.Incarnation, describe(ev))
		case r == 1 && was.rank > 0 && f.retold[ev.EntityID()]:
			delete(f.retold, ev.EntityID())
			at[id] = state{ev.Incarnation, r}
		case r <= was.rank:
			f.t.Errorf("G1: %s comes after step %d: told %v", describe(ev), was.rank, f.told(ev.EntityID()))
		default:
			at[id] = state{ev.Incarnation, r}
		}
	}
}

// checkPositions: no number is given out twice, and none is missing (D2).
func (f *field) checkPositions(events []pleg.Event) {
	f.t.Helper()
	next := map[string]uint64{}
	for _, ev := range events {
		epoch := ev.Position.Epoch.String()
		want := next[epoch]
		if ev.Type == store.SequenceSkipped {
			want = ev.To + 1
		}
		if want != 0 && ev.Position.Seq != want {
			f.t.Errorf("D2: number %d where %d was due: %s", ev.Position.Seq, want, describe(ev))
		}
		next[epoch] = ev.Position.Seq + 1
	}
}

// checkStored is G2 for what the next agent starts from: a sound file that says
// what was shown last.
func (f *field) checkStored() {
	f.t.Helper()
	f.checkFile(filepath.Join(f.cfg.StateDir, store.FileName))
	cfg := f.cfg
	cfg.Logger = f.log.logger()
	g, err := pleg.New(cfg)
	if err != nil {
		f.t.Errorf("G2: the state can't be opened: %v", err)
		return
	}
	pods, _ := g.Pods()
	f.must(g.Close())
	f.samples.mu.Lock()
	last := f.samples.last
	f.samples.mu.Unlock()
	got := cached(pods)
	for id, v := range last {
		if got[id] != v {
			f.t.Errorf("G2: stored %s as %+v, shown was %+v", short(id), got[id], v)
		}
	}
	for id := range got {
		if _, ok := last[id]; !ok {
			f.t.Errorf("G2: stored %s, which was not shown", short(id))
		}
	}
}

// checkFile lets bbolt check the file.
func (f *field) checkFile(path string) {
	f.t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		f.t.Errorf("state file: %v", err)
		return
	}
	defer func() { f.must(db.Close()) }()
	f.must(db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			f.t.Errorf("state file: %v", err)
		}
		return nil
	}))
}

// checkExits is G3: what is known of an exit stays, in all that readers saw, and
// is what somebody said.
func (f *field) checkExits(events []pleg.Event) {
	f.t.Helper()
	f.samples.mu.Lock()
	wrong := f.samples.wrong
	f.samples.mu.Unlock()
	for _, w := range wrong {
		f.t.Errorf("G3: %s", w)
	}
	said := f.codesSaid()
	known := map[string]pleg.Event{}
	for _, ev := range events {
		if ev.Type != store.ContainerDied && ev.Change != store.ChangeAmended {
			continue
		}
		key := fmt.Sprint(ev.Container.ID, "/", ev.Incarnation)
		was, ok := known[key]
		switch {
		case !ev.ExitKnown:
			if ok {
				f.t.Errorf("G3: a code was known: %s, then %s", describe(was), describe(ev))
			}
			continue
		case ok && was.ExitCode != ev.ExitCode:
			f.t.Errorf("G3: a code was replaced: %s, then %s", describe(was), describe(ev))
		case !said[ev.Container.ID][ev.ExitCode]:
			f.t.Errorf("G3: nobody said so: %s", describe(ev))
		}
		known[key] = ev
	}
}

// codesSaid returns the exit codes that the runtime had or told, by id.
func (f *field) codesSaid() map[string]map[int32]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	said := map[string]map[int32]bool{}
	add := func(id string, code int32) {
		if said[id] == nil {
			said[id] = map[int32]bool{}
		}
		said[id][code] = true
	}
	for id, codes := range f.codes {
		for c := range codes {
			add(id, c)
		}
	}
	for _, tr := range f.rt.History() {
		if tr.Kind == simruntime.Container && tr.State == exited.String() {
			add(tr.ID, tr.ExitCode)
		}
	}
	return said
}

// checkRemovals is G6: nothing is removed that the runtime has, whatever its
// calls answered, and nothing leaves the cache without that being told.
func (f *field) checkRemovals(events []pleg.Event) {
	f.t.Helper()
	removed := map[string]int{}
	history := f.rt.History()
	for _, ev := range events {
		if ev.Type != store.ContainerRemoved && ev.Type != store.SandboxRemoved {
			continue
		}
		removed[ev.EntityID()]++
		var last simruntime.Transition
		for _, tr := range history {
			if tr.ID == ev.EntityID() && tr.At.UnixNano() <= f.observed(ev) {
				last = tr
			}
		}
		if last.Step != "" && last.Step != simruntime.Removed {
			f.t.Errorf("G6: the runtime had it, %s at %v: %s", last.Step, last.At, describe(ev))
		}
	}
	f.samples.mu.Lock()
	gone := f.samples.gone
	f.samples.mu.Unlock()
	for _, id := range gone {
		if removed[id]--; removed[id] < 0 {
			f.t.Errorf("G6: %s left the cache, and no removal was told", short(id))
		}
	}
}

// observed is when an event was observed, by the machine's clock.
func (f *field) observed(ev pleg.Event) int64 {
	if f.cfg.Clock.Wall != nil { // another clock: then only what never was removed is found
		return time.Now().UnixNano()
	}
	return ev.ObservedAt
}

// logAtMost is how often a message may come in a life without a reason of the
// case's own (G8).
const logAtMost = 2

// reasonsAtMost is how often another reason of a trouble may come: it is told
// ever more rarely, the sixth after five minutes.
const reasonsAtMost = 6

// checkLog is G8.
func (f *field) checkLog() {
	f.t.Helper()
	for message, n := range f.log.messages() {
		most, ok := f.maxLog[message]
		if !ok {
			most = logAtMost * f.lives
			if strings.HasPrefix(message, "trouble has another reason") {
				most = reasonsAtMost * f.lives
			}
		}
		if n > most {
			f.t.Errorf("G8: %d times %q, at most %d", n, message, most)
		}
		if strings.Contains(message, "panic") {
			f.t.Errorf("G4: %s", message)
		}
	}
}

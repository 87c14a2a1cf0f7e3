package arbiter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// ErrNoPod: no such pod, as of a list or a look that was made for the answer,
// or as of the last commit.
var ErrNoPod = errors.New("no such pod")

// Pod is what is known of one pod: committed, hence never ahead of the events
// that readers can see. Records are shared: don't change them.
type Pod struct {
	Key        string              // pod UID, or the sandbox id where it has none
	Sandboxes  []Entity            // the current one first
	Containers []Entity            // by name, then attempt, then id
	Position   timestamps.Position // of the newest event that is contained
	Fresh      timestamps.Tick     // it is true as of a call sent at this tick, 0 not asked in this run
}

// Entity is one sandbox or container: the last good status, beside it the
// error of the last inspection if that failed.
type Entity struct {
	*store.Record
	Restored bool   // from the state file, not yet seen in this run
	Err      string // why the last inspection failed, "" if it didn't
}

// Ref returns the pod's name and namespace as its entities have it.
func (p *Pod) Ref() store.PodRef {
	for _, list := range [][]Entity{p.Sandboxes, p.Containers} {
		for _, e := range list {
			if e.Identity.Pod != (store.PodRef{}) {
				return e.Identity.Pod
			}
		}
	}
	return store.PodRef{}
}

// IPs returns the addresses of the current sandbox, kept after termination.
func (p *Pod) IPs() []string {
	if len(p.Sandboxes) == 0 {
		return nil
	}
	return p.Sandboxes[0].IPs
}

// Restored reports whether any part has not been seen in this run.
func (p *Pod) Restored() bool {
	restored := func(e Entity) bool { return e.Restored }
	return slices.ContainsFunc(p.Sandboxes, restored) || slices.ContainsFunc(p.Containers, restored)
}

// view is the committed state as readers see it.
type view struct {
	mu       sync.RWMutex
	recs     map[string]*store.Record
	pods     map[string]map[string]struct{} // pod key → ids
	seen     map[string]bool                // ids seen in this run
	faults   map[string]string
	asks     map[string]*store.Ask
	freshAll timestamps.Tick
	relisted int64                      // monotonic ns at which the list behind freshAll was sent
	fresh    map[string]timestamps.Tick // pod key → newest look
	position timestamps.Position
	changed  chan struct{} // closed and replaced when freshness or a question moves
	ended    bool
}

func newView(snap *store.Snapshot, at timestamps.Position) *view {
	v := &view{
		recs: map[string]*store.Record{}, pods: map[string]map[string]struct{}{}, seen: map[string]bool{},
		faults: map[string]string{}, asks: map[string]*store.Ask{}, fresh: map[string]timestamps.Tick{},
		position: at, changed: make(chan struct{}),
	}
	for _, r := range snap.Records {
		v.put(r)
	}
	for _, a := range snap.Asks {
		v.asks[a.ID] = a
	}
	return v
}

// apply takes a committed part.
func (v *view) apply(p *part, at timestamps.Position) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.position = at
	for _, k := range p.batch.Gone {
		v.drop(k.ID)
	}
	for _, r := range p.batch.Records {
		if v.recs[r.ID] == nil {
			v.seen[r.ID] = true // what was not there before this run is of this run
		}
		v.put(r)
	}
	for _, a := range p.batch.Asks {
		v.asks[a.ID] = a
	}
	for _, id := range p.batch.Answered {
		delete(v.asks, id)
	}
	for id := range p.effects.confirmed {
		if v.recs[id] != nil {
			v.seen[id] = true
		}
	}
	for id, err := range p.effects.faults {
		switch {
		case err == "":
			delete(v.faults, id)
		case v.recs[id] != nil: // else it is gone already, and nobody would take the fault off
			v.faults[id] = err
		}
	}
	if p.effects.fresh[""] > v.freshAll {
		v.relisted = p.effects.relisted
	}
	v.refresh(p.effects.fresh)
	if len(p.effects.fresh)+len(p.batch.Asks)+len(p.batch.Answered)+len(p.batch.Gone) > 0 {
		close(v.changed)
		v.changed = make(chan struct{})
	}
}

func (v *view) refresh(fresh map[string]timestamps.Tick) {
	if len(fresh) == 0 {
		return
	}
	if all := fresh[""]; all > v.freshAll {
		v.freshAll = all
		// A list covers every pod: older looks say nothing more.
		maps.DeleteFunc(v.fresh, func(_ string, t timestamps.Tick) bool { return t <= all })
	}
	for key, t := range fresh {
		if key != "" && t > v.freshAll {
			v.fresh[key] = max(v.fresh[key], t)
		}
	}
	v.forgetLooks()
}

// maxLooks is how many looks at single pods are remembered between two full
// lists. A mode without periodic lists would else remember each pod that ever
// was, and each key that anybody ever asked for.
const maxLooks = 4096

// forgetLooks drops the older half of the looks when there are too many. Who
// waits for one has been woken by it long before.
func (v *view) forgetLooks() {
	if len(v.fresh) <= maxLooks {
		return
	}
	ticks := slices.Sorted(maps.Values(v.fresh))
	middle := ticks[len(ticks)/2]
	maps.DeleteFunc(v.fresh, func(_ string, t timestamps.Tick) bool { return t < middle })
}

func (v *view) put(r *store.Record) {
	if old := v.recs[r.ID]; old != nil && old.PodKey() != r.PodKey() {
		v.unplace(old)
	}
	v.recs[r.ID] = r
	key := r.PodKey()
	if v.pods[key] == nil {
		v.pods[key] = map[string]struct{}{}
	}
	v.pods[key][r.ID] = struct{}{}
}

func (v *view) drop(id string) {
	if old := v.recs[id]; old != nil {
		v.unplace(old)
	}
	delete(v.recs, id)
	delete(v.seen, id)
	delete(v.faults, id)
}

func (v *view) unplace(r *store.Record) {
	key := r.PodKey()
	delete(v.pods[key], r.ID)
	if len(v.pods[key]) == 0 {
		delete(v.pods, key)
	}
}

func (v *view) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.ended {
		v.ended = true
		close(v.changed)
	}
}

// decisive are the questions whose answer may change what a pod is told to be.
const decisive = store.ReasonDetails | store.ReasonConfirm | store.ReasonRegress | store.ReasonRemoval | store.ReasonContradict

// settled reports whether no answer about the pod is still to come that a list
// or a look has made necessary: what it lacked may be removed, what it showed
// exited may have a code. A question whose call has failed is not waited for;
// the error stands beside the status. The caller holds the lock.
func (v *view) settled(key string) bool {
	for id := range v.pods[key] {
		if a := v.asks[id]; a != nil && a.Why&decisive != 0 && a.Fails == 0 {
			return false
		}
	}
	return true
}

// pod composes one pod; the caller holds the lock.
func (v *view) pod(key string) (Pod, bool) {
	p := Pod{Key: key, Position: v.position, Fresh: max(v.freshAll, v.fresh[key])}
	for id := range v.pods[key] {
		r := v.recs[id]
		if r.Provisional {
			continue
		}
		e := Entity{Record: r, Restored: !v.seen[id], Err: v.faults[id]}
		if r.Kind == store.KindSandbox {
			p.Sandboxes = append(p.Sandboxes, e)
		} else {
			p.Containers = append(p.Containers, e)
		}
	}
	slices.SortFunc(p.Sandboxes, func(a, b Entity) int { return newerSandbox(b.Record, a.Record) })
	slices.SortFunc(p.Containers, func(a, b Entity) int {
		if c := compareIdentity(a.Identity, b.Identity); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return p, len(p.Sandboxes)+len(p.Containers) > 0
}

// Pod returns what is known of a pod by its key, its UID or, where it has
// none, its sandbox id. The error is ErrNoPod.
func (l *Loop) Pod(key string) (Pod, error) {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	p, ok := l.view.pod(key)
	if !ok {
		return Pod{}, fmt.Errorf("pod %.80q: %w", key, ErrNoPod)
	}
	return p, nil
}

// Pods returns all pods by key, and the position of the newest event that
// they contain: one consistent snapshot.
func (l *Loop) Pods() ([]Pod, timestamps.Position) {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	pods := make([]Pod, 0, len(l.view.pods))
	for _, key := range sortedKeys(l.view.pods) {
		if p, ok := l.view.pod(key); ok {
			pods = append(pods, p)
		}
	}
	return pods, l.view.position
}

// Asks returns the reinspection queue by id.
func (l *Loop) Asks() []store.Ask {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	asks := make([]store.Ask, 0, len(l.view.asks))
	for _, id := range sortedKeys(l.view.asks) {
		asks = append(asks, *l.view.asks[id])
	}
	return asks
}

// PodNewer returns what is known of a pod by a call that was sent after this
// one began, and has the pod looked at for that. What that look lacks or shows
// changed is found out before it returns. It waits until ctx ends. The
// error is ErrNoPod when the pod is not there by then, ctx's own, or
// ErrStopped. There is no wall time in the comparison (rule T1).
func (l *Loop) PodNewer(ctx context.Context, key string) (Pod, error) {
	at := l.cfg.Clock.Stamp(l.counter, timestamps.FromUnknown)
	l.Submit(&Requested{At: at, PodKey: key})
	for {
		l.view.mu.RLock()
		changed, ended := l.view.changed, l.view.ended
		p, ok := l.view.pod(key)
		fresh := p.Fresh > at.Tick && l.view.settled(key)
		l.view.mu.RUnlock()
		switch {
		case fresh && ok:
			return p, nil
		case fresh:
			return Pod{}, fmt.Errorf("pod %.80q: %w", key, ErrNoPod)
		case ended:
			return Pod{}, ErrStopped
		}
		select {
		case <-ctx.Done():
			return Pod{}, fmt.Errorf("pod %.80q: %w", key, ctx.Err())
		case <-changed:
		}
	}
}

// WaitFresh waits until a full list that was sent after the tick has been
// applied and can be read. The error is ctx's, or ErrStopped.
func (l *Loop) WaitFresh(ctx context.Context, after timestamps.Tick) error {
	for {
		l.view.mu.RLock()
		changed, ended, fresh := l.view.changed, l.view.ended, l.view.freshAll
		l.view.mu.RUnlock()
		switch {
		case fresh > after:
			return nil
		case ended:
			return ErrStopped
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

package arbiter

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// start is the wall clock at the beginning of every test, ns.
const start int64 = 1_767_225_600_000_000_000 // 2026-01-01T00:00:00Z

const second int64 = 1_000_000_000

// rig drives one core as its loop would: it stamps, commits, restarts, and
// checks after every step what must hold whatever the input was.
type rig struct {
	core   *Core
	limits Limits

	tick    timestamps.Tick
	wall    int64
	mono    int64
	running int64
	wake    int64
	open    map[timestamps.Tick]bool // calls in flight

	held bool // commits are held back
	mem  disk // what readers would see
	disk disk // what a crash leaves

	liar   bool // observations may contradict each other at will
	strict bool // check determinism and sharing too

	witnesses *witnesses // checks removals (O4), nil: not wanted
	script    []scripted // all steps, to be played again
	recording bool

	waiting map[ActionKey]Action // actions given out whose outcome has not come back
	faults  []string             // invariants found broken
}

// disk is what a store holds.
type disk struct {
	records map[store.Key]*store.Record
	tombs   map[string]*store.Record
	asks    map[string]*store.Ask
	told    map[store.Key]toldUpTo
	events  []store.Event
	tick    timestamps.Tick
	running int64
	horizon store.Horizon
}

// toldUpTo is how far an id's life was journaled.
type toldUpTo struct {
	incarnation uint32
	state       store.State
}

func newDisk() disk {
	return disk{
		records: map[store.Key]*store.Record{}, tombs: map[string]*store.Record{},
		asks: map[string]*store.Ask{}, told: map[store.Key]toldUpTo{},
	}
}

func (d disk) clone() disk {
	d.records, d.tombs = maps.Clone(d.records), maps.Clone(d.tombs)
	d.asks, d.told = maps.Clone(d.asks), maps.Clone(d.told)
	d.events = slices.Clip(d.events)
	return d
}

func newRig(limits Limits) *rig {
	return &rig{
		core: NewCore(limits, "boot"), limits: limits, wall: start, open: map[timestamps.Tick]bool{},
		mem: newDisk(), disk: newDisk(), waiting: map[ActionKey]Action{},
	}
}

// stamp takes the next tick.
func (r *rig) stamp() timestamps.Stamp {
	r.tick++
	return timestamps.Stamp{Tick: r.tick, Wall: r.wall, Mono: r.mono}
}

// send stamps the sending of a call.
func (r *rig) send() timestamps.Stamp {
	s := r.stamp()
	r.open[s.Tick] = true
	return s
}

// pass lets time pass.
func (r *rig) pass(d int64) {
	r.wall += d
	r.mono += d
	r.running += d
}

func (r *rig) now() Now {
	n := Now{Stamp: r.stamp(), Running: r.running}
	for t := range r.open {
		if n.OldestCall == 0 || t < n.OldestCall {
			n.OldestCall = t
		}
	}
	return n
}

// step gives the core one input, applies what it decides and checks it.
func (r *rig) step(in Input) Output {
	switch in := in.(type) {
	case *ListSeen:
		delete(r.waiting, in.Scope.action())
	case *ListFailed:
		delete(r.waiting, in.Scope.action())
	case *StatusSeen:
		delete(r.waiting, ActionKey{ActStatus, in.ID})
	}
	now := r.now()
	var before, twin *Core
	var was frozen
	if r.strict {
		before, twin = r.core.Clone(), r.core.Clone()
		was = freeze(before)
	}
	if r.witnesses != nil {
		r.witnesses.see(r.core, in)
	}
	out := r.core.Step(now, in)
	r.record(scripted{now: now, in: in}, &out)
	if r.strict {
		r.checkTwin(now, in, &out, before, twin, &was)
	}
	switch in := in.(type) { // applied: the calls are over
	case *ListSeen:
		delete(r.open, in.SandboxCall.Sent.Tick)
		delete(r.open, in.ContainerCall.Sent.Tick)
	case *StatusSeen:
		delete(r.open, in.Call.Sent.Tick)
	}
	r.apply(&out)
	return out
}

// checkTwin: a clone that is given the same input decides the same, and one
// that is given none does not change.
func (r *rig) checkTwin(now Now, in Input, out *Output, before, twin *Core, was *frozen) {
	is := freeze(before)
	if diff := cmp.Diff(*was, is); diff != "" {
		r.fault("a step changed what it shares with a clone: %s", diff)
	}
	same := twin.Step(now, in)
	if diff := cmp.Diff(*out, same); diff != "" {
		r.fault("the same input gave another output: %s", diff)
	}
	if a, b := r.core.Clone(), twin; a.Digest() != b.Digest() {
		r.fault("the same input gave another digest")
	}
	if fresh := r.core.Clone(); r.core.digesting {
		fresh.digesting = false
		if fresh.Digest() != r.core.Digest() {
			r.fault("the digest kept up to date differs from a fresh one")
		}
	}
}

// frozen is a deep enough copy of what clones share.
type frozen struct {
	Records map[string]store.Record
	Marks   map[string]marks
}

type marks struct {
	Deleted, Lowered timestamps.Tick
	Absent           string
	Flags            [5]bool
	Listed           uint64
	Fault            string
	Claims           string
}

func freeze(c *Core) frozen {
	f := frozen{Records: map[string]store.Record{}, Marks: map[string]marks{}}
	for id, e := range c.ents {
		f.Records[id] = e.rec
		f.Marks[id] = marks{
			Deleted: e.deleted, Lowered: e.lowered, Absent: fmt.Sprint(e.absent),
			Flags: [5]bool{e.bulk, e.stopped, e.looked, e.current}, Listed: e.listed,
			Fault: e.fault, Claims: fmt.Sprint(e.claimAt, e.via),
		}
	}
	for id, t := range c.tombs {
		f.Records["tomb "+id] = *t
	}
	return f
}

func (r *rig) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// apply does the caller's duties for one output.
func (r *rig) apply(out *Output) {
	if out.Wake != 0 && (r.wake == 0 || out.Wake < r.wake) {
		r.wake = out.Wake
	}
	for _, a := range out.Actions {
		was, waits := r.waiting[a.Key()]
		sooner := a.Attempt < was.Attempt || a.NotBefore < was.NotBefore || was.Unknown && !a.Unknown
		if waits && !sooner && a.Kind != ActList { // a periodic list may answer one that is still to be sent
			r.fault("action %v is outstanding twice", a.Key())
		}
		r.waiting[a.Key()] = a
	}
	r.write(&out.Changes)
	r.compare()
	if !r.held {
		r.commit()
	}
}

// write applies a batch to what readers see.
func (r *rig) write(b *store.Batch) {
	for _, key := range b.Gone {
		delete(r.mem.records, key)
	}
	for _, id := range b.Forgotten {
		delete(r.mem.tombs, id)
	}
	for _, id := range b.Answered {
		delete(r.mem.asks, id)
	}
	for i := range b.Events {
		r.checkEvent(&b.Events[i])
	}
	for _, id := range b.Forgotten {
		r.forget(store.Key{Kind: store.KindSandbox, ID: id})
		r.forget(store.Key{Kind: store.KindContainer, ID: id})
	}
	for _, key := range b.Gone { // no tombstone: it turned out to be of the other kind
		if !slices.ContainsFunc(b.Tombstones, func(t *store.Record) bool { return t.ID == key.ID }) {
			r.forget(key)
		}
	}
	for _, rec := range b.Records {
		r.checkRecord(rec)
		r.mem.records[store.Key{Kind: rec.Kind, ID: rec.ID}] = rec
	}
	for _, rec := range b.Tombstones {
		if r.witnesses != nil && r.mem.tombs[rec.ID] == nil {
			if wrong := r.witnesses.removed(rec); wrong != "" {
				r.fault("%s", wrong)
			}
		}
		r.checkTombstone(rec)
		r.mem.tombs[rec.ID] = rec
	}
	for _, a := range b.Asks {
		r.mem.asks[a.ID] = a
	}
	r.mem.events = append(r.mem.events, b.Events...)
	r.mem.tick, r.mem.running, r.mem.horizon = r.tick, r.running, r.core.Horizon()
}

// forget lets what lies removed, and was then forgotten, be told anew.
func (r *rig) forget(key store.Key) {
	if r.liar && r.mem.told[key].state == store.StateRemoved {
		delete(r.mem.told, key)
	}
}

func (r *rig) commit() { r.disk = r.mem.clone() }

// restart loses what was not committed and starts over from what was.
func (r *rig) restart() Output {
	r.mem = r.disk.clone()
	r.held = false
	r.tick, r.running = r.disk.tick, r.disk.running
	r.mono, r.wake = 0, 0
	r.open, r.waiting = map[timestamps.Tick]bool{}, map[ActionKey]Action{}
	r.core = NewCore(r.limits, "boot")
	if r.witnesses != nil {
		r.witnesses = newWitnesses(r.limits) // they are of one run
	}
	began := scripted{restored: r.snapshot()}
	r.core.Restore(began.restored)
	began.now = r.now()
	out := r.core.Resume(began.now)
	r.record(began, &out)
	r.apply(&out)
	return out
}

func (r *rig) snapshot() *store.Snapshot {
	s := &store.Snapshot{Meta: store.Meta{Tick: r.disk.tick, Running: r.disk.running, Horizon: r.disk.horizon}}
	for _, rec := range r.disk.records {
		s.Records = append(s.Records, rec)
	}
	slices.SortFunc(s.Records, func(a, b *store.Record) int {
		if a.Kind != b.Kind {
			return int(a.Kind) - int(b.Kind)
		}
		return slices.Compare([]byte(a.ID), []byte(b.ID))
	})
	for _, id := range sortedKeys(r.disk.tombs) {
		s.Tombstones = append(s.Tombstones, r.disk.tombs[id])
	}
	for _, id := range sortedKeys(r.disk.asks) {
		s.Asks = append(s.Asks, r.disk.asks[id])
	}
	return s
}

// changesNothing reports whether a batch holds nothing but meta.
func changesNothing(b *store.Batch) bool {
	return len(b.Records)+len(b.Gone)+len(b.Tombstones)+len(b.Forgotten)+len(b.Asks)+len(b.Answered)+len(b.Events) == 0
}

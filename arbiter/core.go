package arbiter

import (
	"cmp"
	"maps"
	"slices"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// Limits of the core. Each can be set; the defaults and their reasons stand
// here once.
type Limits struct {
	// BasePeriod is the base relist period, ns: how far apart two lists must
	// be to count as two witnesses when the runtime may be half loaded (O4).
	BasePeriod int64
	// TombstoneAge and Tombstones bound what is kept of removed entities (O6):
	// ns of running time, and a number.
	TombstoneAge int64
	Tombstones   int
}

// DefaultLimits: containerd replays events up to 5 minutes old, so 15 minutes
// outlive that three times over; 10,000 tombstones are some 10 MiB.
var DefaultLimits = Limits{
	BasePeriod:   1_000_000_000,
	TombstoneAge: 15 * 60 * 1_000_000_000,
	Tombstones:   10_000,
}

const (
	// doubtAfterReconnect, ns: a runtime that was just restarted loads its
	// containers one by one, so what its lists lack proves little (O4).
	doubtAfterReconnect = 10_000_000_000
	// massMin and massShare: a full list that loses at least 1/massShare of at
	// least massMin live entities is more likely wrong than true (O4).
	massMin   = 10
	massShare = 2
	// massLooks: when more sandboxes than this lost something in one list, one
	// more full list costs less than a look at each (O8).
	massLooks = 16
	// exitFails is after how many failed inspections a death is told without
	// its code (O2). With the usual back-off that is some seconds.
	exitFails = 5
	// lowerGap, ns: an entity returns to an earlier state at most this often (O9).
	lowerGap = 60_000_000_000
	// setBackKept, ns of running time: an event is this late at most, as tombstones
	// say, too (T3).
	setBackKept = 15 * 60 * 1_000_000_000
	// missAfter, ns: an event may be this much later than the list that saw
	// its change first before it counts as missed.
	missAfter = 5_000_000_000
	// maxDisputes is how often a list's word of an earlier state, or of something
	// removed, is put to the test while a status contradicts it each time. With
	// the usual back-off that takes a quarter of an hour; a runtime that is still
	// loading is done by then.
	maxDisputes = 12
	// evictSlack, ns: tombstones are evicted in groups, not one commit each.
	evictSlack = 60_000_000_000
)

// Core is the deterministic part of the arbiter: a state machine that is told
// observations and decides what is recorded, journaled and asked. The same
// state and the same input give the same output. It is not safe for concurrent
// use.
type Core struct {
	limits Limits
	boot   string // boot id put into events

	ents      map[string]*entity       // live and provisional entities by id
	members   index                    // sandbox id → ids of containers that name it
	sandboxes index                    // pod key → ids of its sandboxes
	tombs     map[string]*store.Record // removed entities by id
	tombOrder []string                 // ids in order of removal
	revive    map[string]timestamps.Tick
	asks      map[string]store.Ask      // the reinspection queue by id
	out       map[ActionKey]outstanding // actions whose outcome has not come back
	missing   map[string]missMark       // changes whose events are awaited
	lastEvent timestamps.Tick           // receipt of the newest event
	wanted    map[ActionKey]wish        // looks that readers wait for

	horizon  store.Horizon
	identity identity // who answers
	habits   Habits   // what is known of it by name and version
	learning learning // what this run has seen it do
	stream   StreamState
	wasUp    bool            // the stream was up at some time in this run
	upSince  timestamps.Tick // receipt of the last StreamUp
	steps    uint64
	clock    timestamps.StepDetector
	doubtful int64           // monotonic ns until which absences are weak
	distrust timestamps.Tick // runtime times are all old until a list sent after this completes; 0 trusted
	setBack  setBack

	lists      uint64           // completed full lists
	lastList   timestamps.Stamp // sending of the last completed full list; Wall moves with clock steps
	prevList   timestamps.Tick  // sending of the one before
	covered    timestamps.Tick  // sending of the later call of the last completed full list
	listWanted timestamps.Tick  // a full list sent after this is wanted; 0 none
	listFails  int              // failed full lists in a row
	connected  bool             // a connection was made in this run

	work      step   // of the present step, kept for its slices
	owner     *owner // marks the entities that no clone shares
	digesting bool   // keep sum up to date; set by the first Digest
	sum       uint64 // sum of the digests of entities and tombstones
}

// setBack is what is left of the wall clock having been set back: for a while a time
// that a runtime gave before can't be told from one that it gives now.
type setBack struct {
	wall  int64 // the latest time before, ns
	until int64 // running time until which an event may still be of before, ns; 0 never set back
}

// covers says whether a time may be of before the clock was set back.
func (b setBack) covers(at, running int64) bool { return running < b.until && at <= b.wall }

// owner is compared by address; it has a size, so that no two are the same.
type owner struct{ _ byte }

// entity is one sandbox or container with what is known of it in this run
// only. It is changed in place only by the core that owns it and only through
// edit; clones share what neither owns any more.
type entity struct {
	rec   store.Record
	pub   *store.Record // as last handed over to be stored, nil if never
	owner *owner        // who may change it
	step  uint64        // the last step that touched it

	deleted timestamps.Tick                               // receipt of the latest DELETED
	absent  witness                                       // the call that first missed it
	bulk    bool                                          // its removal is to be settled by a full list
	lowered timestamps.Tick                               // answer that showed an earlier state; 0 none
	stopped bool                                          // STOPPED was claimed in this incarnation
	heard   store.State                                   // the furthest state that an event named in this incarnation
	looked  bool                                          // an inspection was answered or failed in this run: no more waiting for details to tell
	current bool                                          // seen in this run
	listed  uint64                                        // the last full list that had it
	fault   string                                        // error of its last inspection
	claimAt [store.StateRemoved + 1]int64                 // created_at of the event that named the state, ns
	via     [store.StateRemoved + 1]timestamps.Provenance // what first showed or claimed the state
	content uint64                                        // digest of the record's content, as handed over last
	sum     uint64                                        // digest of all of this
}

// NewCore returns a core without entities. Zero limits mean the defaults.
func NewCore(limits Limits, bootID string) *Core {
	if limits.BasePeriod <= 0 {
		limits.BasePeriod = DefaultLimits.BasePeriod
	}
	if limits.TombstoneAge <= 0 {
		limits.TombstoneAge = DefaultLimits.TombstoneAge
	}
	if limits.Tombstones <= 0 {
		limits.Tombstones = DefaultLimits.Tombstones
	}
	return &Core{
		limits: limits, boot: bootID, owner: new(owner), habits: HabitsOf("", ""),
		ents: map[string]*entity{}, members: index{}, sandboxes: index{},
		tombs: map[string]*store.Record{}, revive: map[string]timestamps.Tick{},
		asks: map[string]store.Ask{}, out: map[ActionKey]outstanding{}, missing: map[string]missMark{},
		wanted: map[ActionKey]wish{},
	}
}

// Restore puts back what a store held. It is called once, on a new core,
// before the first step; what is restored counts as not yet seen in this run.
func (c *Core) Restore(s *store.Snapshot) {
	c.horizon = s.Meta.Horizon
	for _, r := range s.Records {
		e := &entity{rec: *r, pub: r}
		c.put(e)
		c.index(&e.rec)
	}
	tombs := slices.Clone(s.Tombstones)
	slices.SortFunc(tombs, func(a, b *store.Record) int { return cmp.Compare(a.Removed, b.Removed) })
	for _, t := range tombs {
		c.tombs[t.ID] = t
		c.tombOrder = append(c.tombOrder, t.ID)
	}
	for _, a := range s.Asks {
		c.asks[a.ID] = *a
	}
}

// Horizon returns the newest removal that was forgotten, to be kept in meta.
func (c *Core) Horizon() store.Horizon { return c.horizon }

// Clone returns an independent copy. Both share the entities from now on and
// copy each before they change it, so it costs the maps only. A core is cloned
// by one goroutine at a time; after that the two may be used by different ones.
func (c *Core) Clone() *Core {
	c.owner = new(owner)
	d := *c
	d.owner, d.work = new(owner), step{}
	d.ents, d.members, d.sandboxes = maps.Clone(c.ents), c.members.clone(), c.sandboxes.clone()
	d.tombs, d.tombOrder, d.revive = maps.Clone(c.tombs), slices.Clone(c.tombOrder), maps.Clone(c.revive)
	d.asks, d.out, d.missing, d.wanted = maps.Clone(c.asks), maps.Clone(c.out), maps.Clone(c.missing), maps.Clone(c.wanted)
	return &d
}

// step is the work of one call of Step.
type step struct {
	now     Now
	at      timestamps.Stamp // receipt or answer of the input
	source  timestamps.Provenance
	full    bool // a full list is being applied
	out     Output
	touched []string // ids of entities edited, in order
	gone    []string // ids of entities removed, in order
	asked   []asked  // asks that may need an action
	reasked []string // ids whose ask is to be written
}

// Resume returns the questions that a restored queue holds. It is called once
// after Restore.
func (c *Core) Resume(now Now) Output {
	s := c.begin(now)
	// A horizon in the future was set by a clock that was wrong then; left
	// there, every event would count as old for ever (T3).
	c.horizon.Wall = min(c.horizon.Wall, now.Stamp.Wall)
	for _, id := range sortedKeys(c.asks) {
		s.ask(id, false)
	}
	return c.finish(s)
}

// Step applies one input and returns what it leads to.
func (c *Core) Step(now Now, in Input) Output {
	s := c.begin(now)
	switch in := in.(type) {
	case *EventSeen:
		c.event(s, in)
	case *ListSeen:
		c.list(s, in)
	case *ListFailed:
		c.listFailed(s, in)
	case *StatusSeen:
		c.status(s, in)
	case *StreamChanged:
		c.streamChanged(s, in)
	case *StreamOverflow:
		s.out.Shrink = true
		c.wantList(s, in.At.Tick)
	case *RuntimeSeen:
		c.runtimeSeen(s, in)
	case *Connected:
		if c.connected {
			c.doubt(in.At.Mono)
		}
		c.connected = true
	case *PeriodChanged:
		if in.Base > 0 {
			c.limits.BasePeriod = in.Base
		}
	case *Requested:
		c.request(s, in)
	case *TimePassed:
	}
	return c.finish(s)
}

func (c *Core) begin(now Now) *step {
	c.steps++
	s := &c.work
	*s = step{now: now, at: now.Stamp, touched: s.touched[:0], gone: s.gone[:0], asked: s.asked[:0], reasked: s.reasked[:0]}
	if d := c.clock.Observe(now.Stamp.Wall, now.Stamp.Mono); d != 0 {
		c.clockStepped(s, d)
	}
	return s
}

// finish tells, stores and asks what the step's edits lead to. Creations are
// told sandbox first, removals containers first.
func (c *Core) finish(s *step) Output {
	for _, id := range s.touched {
		if e := c.ents[id]; e != nil && e.rec.State != store.StateRemoved {
			c.settleEntity(s, e)
		}
	}
	if s.out.Relist != nil {
		s.out.Relist.Changed = len(s.out.Changes.Records) + len(s.gone)
	}
	c.finishRemovals(s)
	c.evict(s)
	c.emit(s)
	out := s.out
	s.out = Output{} // it is the caller's now
	return out
}

// settleEntity journals, stores and asks for one edited entity.
func (c *Core) settleEntity(s *step, e *entity) {
	c.wantNeeded(s, e)
	c.tell(s, e)
	c.amend(s, e)
	same := e.pub.SameContent(&e.rec)
	if !same {
		r := e.rec
		e.pub = &r
		s.out.Changes.Records = append(s.out.Changes.Records, e.pub)
	}
	c.resum(e, same)
}

// edit returns the entity for changing within this step, nil if there is none.
func (c *Core) edit(s *step, id string) *entity {
	e := c.ents[id]
	if e == nil || e.owner == c.owner && e.step == c.steps {
		return e
	}
	if e.owner != c.owner {
		d := *e
		d.owner = c.owner
		e = &d
		c.ents[id] = e
	}
	e.step = c.steps
	s.touched = append(s.touched, id)
	return e
}

// add takes a new entity into the core within this step.
func (c *Core) add(s *step, e *entity) {
	e.step, e.owner = c.steps, c.owner
	c.put(e)
	c.index(&e.rec)
	s.touched = append(s.touched, e.rec.ID)
}

func (c *Core) put(e *entity) {
	c.ents[e.rec.ID] = e
	c.resum(e, false)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

package arbiter

import (
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// digest is equal for states from which the same can happen.
func (x *naming) digest(w *smallWorld, n *node) uint64 {
	x.w, x.n = w, n
	x.crash = n.may(faultCrash) || n.holding
	h := newDigest()
	h.num(x.core(n.core), x.agent(), x.flights())
	used := n.used
	if n.left == 0 {
		used = 0 // whatever did come, nothing will
	}
	var lies uint64
	for i := range n.seen.lies {
		lies = lies<<4 | uint64(min(n.seen.lowers[i], 2))<<2 | uint64(min(n.seen.lies[i], 2))
	}
	if w.twice && n.left > 0 {
		lies = lies<<8 | uint64(n.again.slot)<<4 | uint64(n.again.what)
	}
	h.num(uint64(n.truly), uint64(n.left)<<32|uint64(used)<<2|flags(n.holding), lies,
		uint64(n.seen.exit)<<16|uint64(n.seen.listed)<<8|uint64(n.seen.begun), uint64(age(n.mono, n.doubted)))
	if x.crash {
		h.num(uint64(age(n.running, n.mem.running)))
	}
	if n.holding {
		h.num(uint64(n.kept.begun), x.disk(&n.disk, n.running))
	}
	return h.h
}

// core is the digest of the core under other names. What decides no more than
// misses, and what an event says of its source and time, is left out.
func (x *naming) core(c *Core) uint64 {
	k := *c
	var entities, rest uint64
	x.first = x.first[:0]
	for _, e := range c.ents {
		x.found(&e.rec)
	}
	for _, t := range c.tombs {
		x.found(t)
	}
	for _, e := range c.ents {
		entities += x.entity(e)
	}
	for i, id := range c.tombOrder {
		d := newDigest()
		d.num(uint64(i), x.tombstone(c.tombs[id]))
		entities += d.h
	}
	for _, a := range c.asks {
		a.Since = x.tick(a.Since, x.asked(&a))
		rest += digestAsk(&a)
	}
	for key, o := range c.out {
		if key.Kind == ActList {
			continue // a full list may be sent at any time
		}
		if o.notBefore != 0 {
			o.notBefore = 1 + max(0, o.notBefore-x.n.mono+3600*second)/second
		}
		rest += digestOutstanding(key, o)
	}
	for id, first := range c.revive {
		rest += digestRevival(id, x.tick(first, x.w.slot(id)))
	}
	k.horizon = store.Horizon{Tick: x.tick(c.horizon.Tick, anything), Wall: hours(x.n.wall, c.horizon.Wall)}
	k.doubtful = max(0, c.doubtful-x.n.mono) / second
	k.distrust = x.fullSent(c.distrust)
	k.lastList = timestamps.Stamp{Wall: hours(x.n.wall, c.lastList.Wall)}
	k.covered = x.tick(c.covered, anything)
	if k.setBack = (setBack{}); x.n.running < c.setBack.until {
		k.setBack = setBack{hours(x.n.wall, c.setBack.wall), 1}
	}
	k.lists = some(c.lists)
	k.upSince, k.prevList, k.listWanted, k.lastEvent, k.learning = 0, 0, 0, 0, learning{}
	k.clock = timestamps.StepDetector{}
	rest += uint64(stepAhead(x.n, c)) * digestFactor
	return k.digestOf(entities, rest)
}

// stepAhead tells the steps of the wall clock that the core is still to notice;
// 0 as long as it has not looked at the clock.
func stepAhead(n *node, c *Core) int64 {
	drift := c.clock.Drift()
	if drift == 0 {
		return 0
	}
	return 1<<20 - hours(n.wall-n.mono, drift)
}

func (x *naming) entity(e *entity) uint64 {
	k, slot := *e, x.w.slot(e.rec.ID)
	k.rec = x.record(&e.rec)
	k.deleted = 0
	if e.deletedStands() {
		k.deleted = x.tick(e.deleted, slot)
	}
	k.absent = witness{}
	if e.absentStands() {
		k.absent = witness{sent: x.from(e.absent.sent, slot), answered: x.tick(e.absent.answered, slot), mono: age(x.n.mono, e.absent.mono), weak: e.absent.weak}
	}
	k.lowered = x.tick(e.lowered, slot)
	k.listed, k.heard = 0, 0
	clear(k.claimAt[:])
	clear(k.via[:])
	k.content = digestContent(&k.rec)
	d := newDigest()
	d.num(digestEntity(&k))
	if x.crash && e.pub != nil { // evidence that moved since is lost
		d.num(some(e.pub.Evidence.Reported.Span.From), some(e.pub.Known))
	}
	return d.h
}

// record is the record under other names. Of evidence that a group has only
// one value in a small world, nothing but that there is some can matter.
func (x *naming) record(r *store.Record) store.Record {
	k, slot := *r, x.w.slot(r.ID)
	k.FirstSeen = x.rank(r)
	k.Known = x.tick(r.Known, slot)
	k.LoweredAt = age(x.n.running, r.LoweredAt)
	k.Removed = x.tick(r.Removed, anything)
	k.RemovedAt = age(x.n.running, r.RemovedAt)
	k.Evidence = store.Evidences{Reported: r.Evidence.Reported}
	k.Evidence.Reported.Span = timestamps.Span{From: x.from(r.Evidence.Reported.Span.From, slot), To: x.tick(r.Evidence.Reported.Span.To, slot)}
	k.Evidence.Rest.Full = !r.Evidence.Rest.Span.IsZero()
	return k
}

// rank tells which of the sandboxes was seen first.
func (x *naming) rank(r *store.Record) timestamps.Tick {
	if r.Kind != store.KindSandbox {
		return 0
	}
	rank := x.tick(r.FirstSeen, x.w.slot(r.ID)) << 8 // a list on its way may have seen another first
	for _, t := range x.first {
		if t < r.FirstSeen {
			rank++
		}
	}
	return rank
}

// found notes when a sandbox was first seen.
func (x *naming) found(r *store.Record) {
	if r.Kind == store.KindSandbox {
		x.first = append(x.first, r.FirstSeen)
	}
}

func (x *naming) tombstone(t *store.Record) uint64 {
	k := x.record(t)
	k.Known = 0 // what revives it is known later
	return digestRecord(&k)
}

// agent is the digest of what readers were told and of what is to be asked.
func (x *naming) agent() uint64 {
	d := newDigest()
	for i := range x.w.things {
		told := x.n.mem.told[store.Key{Kind: x.w.things[i].kind, ID: x.w.things[i].id}]
		d.num(uint64(told.incarnation)<<8 | uint64(told.state))
	}
	for _, q := range x.n.due {
		d.num(uint64(q.key.Kind), uint64(max(0, q.notBefore-x.n.mono)/second))
		d.text(q.key.ID)
	}
	return d.h
}

// asked is the thing that a question is about. Of what has no record the
// sandboxes' list decides, whatever it is.
func (x *naming) asked(a *store.Ask) int {
	if x.n.core.ents[a.ID] == nil && x.n.core.tombs[a.ID] == nil {
		return anything
	}
	return x.w.slot(a.ID)
}

// flights is the digest of calls and events on their way.
func (x *naming) flights() uint64 {
	n, d := x.n, newDigest()
	for i := range n.calls {
		f := &n.calls[i]
		d.num(uint64(f.key.Kind)<<8|flags(f.half), x.answers(f),
			uint64(f.boxes.v)<<16|uint64(f.boxes.slot)<<8|uint64(f.boxes.what), uint64(f.gone&^n.seen.listed),
			uint64(hours(n.wall, f.first.Sent.Wall)), uint64(age(n.mono, f.first.Sent.Mono)), uint64(age(n.mono, f.second.Sent.Mono)))
		d.text(f.key.ID)
		x.during(&d, &f.during)
	}
	for i := range n.events {
		e := &n.events[i]
		d.num(1<<32|uint64(e.kind)<<8|uint64(e.slot), x.order(e), uint64(hours(n.wall, e.at)))
		x.during(&d, &e.during)
	}
	return d.h
}

// answers tells which calls were sent, and which lists' sandboxes answered,
// after this list's were: what they say of a sandbox is later.
func (x *naming) answers(f *flight) uint64 {
	var later uint64
	for i := range x.n.calls {
		if o := &x.n.calls[i]; f.half {
			later = later<<2 | flags(o.first.Sent.Tick > f.first.Answered.Tick, o.half && o.first.Answered.Tick > f.first.Answered.Tick)
		}
	}
	return later
}

func (x *naming) during(d *digest, s *versions) {
	d.num(uint64(s.n))
	for _, v := range s.v[:s.n] {
		d.num(uint64(v))
	}
}

// order is how an event's time compares with the others that it can be
// compared with. Of what is known for certain its time decides nothing.
func (x *naming) order(e *notice) uint64 {
	if x.certain(e) {
		return 0
	}
	c := x.n.core
	order := flags(e.at > c.lastList.Wall, e.at > c.horizon.Wall, c.setBack.covers(e.at, x.n.running))
	for i := range x.n.calls {
		if f := &x.n.calls[i]; f.key.Kind == ActList {
			order = order<<1 | flags(e.at > f.first.Sent.Wall)
		}
	}
	for _, id := range c.tombOrder {
		order = order<<1 | flags(e.at > x.n.wall-(x.n.running-c.tombs[id].RemovedAt))
	}
	return order
}

// certain reports whether all that an event can speak of is on record or a
// tombstone, and stays so.
func (x *naming) certain(e *notice) bool {
	if x.n.holding || x.n.may(faultAge) || x.n.limits.Tombstones > 0 {
		return false
	}
	for slot := range x.w.things {
		if e.mask.of(slot) == 0 {
			continue
		}
		r := x.n.recordOf(x.w.things[slot].id)
		if r == nil || r.Provisional || r.Quiet {
			return false
		}
	}
	return true
}

// disk is the digest of what a crash leaves. All its ticks are in the past of
// all that comes then.
func (x *naming) disk(disk *disk, running int64) uint64 {
	x.alone, x.first = true, x.first[:0]
	defer func() { x.alone = false }()
	var sum uint64
	for _, r := range disk.records {
		x.found(r)
	}
	for _, t := range disk.tombs {
		x.found(t)
	}
	for _, r := range disk.records {
		k := x.record(r)
		sum += digestRecord(&k)
	}
	for _, t := range disk.tombs {
		d := newDigest()
		d.num(x.tombstone(t))
		var before uint64
		for _, o := range disk.tombs {
			before += flags(o.Removed < t.Removed)
		}
		d.num(before)
		sum += d.h
	}
	for _, a := range disk.asks {
		k := *a
		k.Since = x.tick(a.Since, anything)
		sum += digestAsk(&k)
	}
	for key, told := range disk.told {
		d := newDigest()
		d.num(uint64(key.Kind), uint64(told.incarnation)<<8|uint64(told.state))
		d.text(key.ID)
		sum += d.h
	}
	d := newDigest()
	d.num(sum, some(disk.horizon.Tick), uint64(hours(x.n.wall, disk.horizon.Wall)), uint64(age(running, disk.running)))
	return d.h
}

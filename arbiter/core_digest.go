package arbiter

import (
	"math/bits"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// Digest returns a number that is equal for equal states and, but for chance,
// different for different ones. From the first call on entities and tombstones
// are summed as they change, so that its cost does not grow with their number;
// who never asks pays nothing. Sums don't depend on the order of maps.
func (c *Core) Digest() uint64 {
	if !c.digesting {
		c.startDigest()
	}
	var rest uint64
	for _, a := range c.asks {
		rest += digestAsk(&a)
	}
	for k, o := range c.out {
		rest += digestOutstanding(k, o)
	}
	for id, m := range c.missing {
		d := newDigest()
		d.num(2, uint64(m.kind), uint64(m.state), uint64(m.heard)<<2|flags(m.started, m.running), uint64(m.mono), uint64(m.tick), m.list)
		d.text(id, m.sandbox)
		rest += d.h
	}
	for k, w := range c.wanted {
		d := newDigest()
		d.num(4, uint64(k.Kind), uint64(w.after), uint64(w.fails))
		d.text(k.ID, w.podKey)
		rest += d.h
	}
	for id, tick := range c.revive {
		rest += digestRevival(id, tick)
	}
	return c.digestOf(c.sum, rest)
}

// digestOf mixes what a core has once with the sums of what it has many of.
func (c *Core) digestOf(entities, rest uint64) uint64 {
	h := newDigest()
	h.num(entities, rest, uint64(c.horizon.Tick), uint64(c.horizon.Wall), uint64(c.stream), uint64(c.upSince), uint64(c.doubtful),
		uint64(c.distrust), c.lists, uint64(c.lastList.Tick), uint64(c.lastList.Wall), uint64(c.prevList),
		uint64(c.covered), uint64(c.setBack.wall), uint64(c.setBack.until),
		uint64(c.listWanted), uint64(c.listFails), flags(c.wasUp, c.connected), uint64(c.clock.Drift()),
		uint64(c.limits.BasePeriod), uint64(c.lastEvent),
		uint64(c.learning.sent)<<32|uint64(c.learning.learnt)<<1|flags(c.identity.known))
	for _, n := range c.learning.missed {
		h.num(uint64(n))
	}
	h.text(c.identity.name, c.identity.version)
	return h.h
}

func digestOutstanding(k ActionKey, o outstanding) uint64 {
	d := newDigest()
	d.num(1, uint64(k.Kind), uint64(o.attempt)<<1|flags(o.unknown), uint64(o.notBefore))
	d.text(k.ID)
	return d.h
}

func digestRevival(id string, first timestamps.Tick) uint64 {
	d := newDigest()
	d.num(3, uint64(first))
	d.text(id)
	return d.h
}

// startDigest sums what there is. Entities may be shared with clones, so they
// are copied to take their sums.
func (c *Core) startDigest() {
	c.digesting, c.sum = true, 0
	for id, e := range c.ents {
		d := *e
		d.owner = c.owner
		d.content = digestContent(&d.rec)
		d.sum = digestEntity(&d)
		c.ents[id] = &d
		c.sum += d.sum
	}
	for _, t := range c.tombs {
		c.sum += digestRecord(t)
	}
}

// resum replaces the entity's part of the digest. Most answers say nothing new,
// and then the record's content is not gone through once more.
func (c *Core) resum(e *entity, sameContent bool) {
	if !c.digesting {
		return
	}
	c.sum -= e.sum
	if !sameContent {
		e.content = digestContent(&e.rec)
	}
	e.sum = digestEntity(e)
	c.sum += e.sum
}

// putTombstone and takeTombstone keep the digest along with the map.
func (c *Core) putTombstone(t *store.Record) {
	c.takeTombstone(t.ID)
	c.tombs[t.ID] = t
	if c.digesting {
		c.sum += digestRecord(t)
	}
}

func (c *Core) takeTombstone(id string) {
	if t := c.tombs[id]; t != nil && c.digesting {
		c.sum -= digestRecord(t)
	}
	delete(c.tombs, id)
}

func digestRecord(t *store.Record) uint64 {
	h := newDigest()
	h.num(4, digestContent(t))
	h.evidence(t)
	return h.h
}

func digestAsk(a *store.Ask) uint64 {
	h := newDigest()
	h.num(5, uint64(a.Kind), uint64(a.Why), uint64(a.Since), uint64(a.Fails))
	h.text(a.ID)
	var lo, hi uint64 // of up to 16 tries
	for _, n := range a.Tries {
		lo, hi = lo<<8|uint64(n), hi<<8|lo>>56
	}
	h.num(lo, hi)
	return h.h
}

func digestEntity(e *entity) uint64 {
	h := newDigest()
	h.num(e.content)
	h.evidence(&e.rec)
	h.text(e.fault)
	marks := uint64(e.heard)<<48 | flags(e.bulk, e.stopped, e.looked, e.current, e.absent.weak)<<40
	for i, via := range e.via {
		marks |= uint64(via) << (8 * i)
	}
	h.num(marks, uint64(e.deleted), uint64(e.absent.sent), uint64(e.absent.answered), uint64(e.absent.mono), uint64(e.lowered), e.listed)
	for _, at := range e.claimAt {
		h.num(uint64(at))
	}
	return h.h
}

// digest is a hash over words: two at a time are mixed in by one wide
// multiplication, as in wyhash.
type digest struct{ h uint64 }

const (
	digestSeed   = 0x9e3779b97f4a7c15 // of the golden ratio: no pattern in its bits
	digestFactor = 0xd6e8feb86659fd93 // odd, with as many ones as zeros
)

func newDigest() digest { return digest{digestSeed} }

// digestContent is of the fields that store.Record.SameContent compares.
func digestContent(r *store.Record) uint64 {
	d := newDigest()
	d.text(r.ID, r.Sandbox, r.Identity.Pod.UID, r.Identity.Pod.Namespace, r.Identity.Pod.Name, r.Identity.Name, r.Identity.Image,
		r.Exit.Reason, r.Exit.Message, r.Rest)
	d.text(r.IPs...)
	var labels uint64
	for k, v := range r.Identity.Labels {
		l := newDigest()
		l.text(k, v)
		labels += l.h
	}
	d.num(labels, uint64(r.Identity.Attempt)<<32|uint64(r.Incarnation),
		uint64(r.Kind)<<56|uint64(r.State)<<48|uint64(r.Journaled)<<40|uint64(r.Shown)<<32|uint64(r.GaveUp)<<16|uint64(r.Disputes)<<8|
			flags(r.HostNetwork, r.Started, r.Provisional, r.Quiet, r.ToldUnknown, r.ExitSeen),
		uint64(uint32(r.Reported))<<32|uint64(uint32(r.Exit.Code)),
		uint64(r.CreatedAt), uint64(r.StartedAt), uint64(r.Exit.FinishedAt), uint64(r.FirstSeen),
		uint64(r.LoweredAt), uint64(r.Removed), uint64(r.RemovedAt))
	return d.h
}

// evidence is what an answer moves that says nothing new.
func (d *digest) evidence(r *store.Record) {
	d.num(uint64(r.Known))
	ev := &r.Evidence
	for _, g := range [...]*store.Evidence{&ev.Identity, &ev.Reported, &ev.Created, &ev.Started, &ev.Exit, &ev.IPs, &ev.Rest} {
		d.num(uint64(g.Span.From), uint64(g.Span.To)<<8|uint64(g.State)<<1|flags(g.Full))
	}
}

func (d *digest) num(words ...uint64) {
	for ; len(words) > 1; words = words[2:] {
		d.mix(words[0], words[1])
	}
	if len(words) > 0 {
		d.mix(words[0], 0)
	}
}

func (d *digest) mix(a, b uint64) {
	hi, lo := bits.Mul64(d.h^a, digestFactor^b)
	d.h = hi ^ lo + digestSeed
}

func (d *digest) text(texts ...string) {
	for _, t := range texts {
		d.h += uint64(len(t)) * digestSeed // so that no text goes on as another begins
		for ; len(t) > 15; t = t[16:] {
			d.mix(word(t), word(t[8:]))
		}
		if len(t) > 7 { // what is left is in two words that overlap
			d.mix(word(t), word(t[len(t)-8:]))
			continue
		}
		var rest uint64
		for i := range len(t) {
			rest |= uint64(t[i]) << (8 * i)
		}
		d.mix(rest, 0)
	}
}

// word is the first eight bytes of a text.
func word(t string) uint64 {
	return uint64(t[0]) | uint64(t[1])<<8 | uint64(t[2])<<16 | uint64(t[3])<<24 |
		uint64(t[4])<<32 | uint64(t[5])<<40 | uint64(t[6])<<48 | uint64(t[7])<<56
}

func flags(flags ...bool) uint64 {
	var w uint64
	for i, f := range flags {
		if f {
			w |= 1 << i
		}
	}
	return w
}

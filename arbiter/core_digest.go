package arbiter

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/plegd/plegd/store"
)

// Digest returns a number that is equal for equal states and, but for chance,
// different for different ones. From the first call on entities are summed as
// they change, so that its cost does not grow with their number; who never
// asks pays nothing.
func (c *Core) Digest() uint64 {
	if !c.digesting {
		c.digesting, c.sum = true, 0
		for _, e := range c.ents {
			e.sum = 0 // a clone may have summed the entity we share
			c.resum(e)
		}
	}
	h := fnv.New64a()
	fmt.Fprint(h, c.sum, c.horizon, c.runtime, c.stream, c.wasUp, c.upSince, c.doubtful, c.distrust, c.lists,
		c.lastList.Tick, c.lastList.Wall, c.prevList, c.listWanted, c.listFails, c.unreachable)
	for _, id := range c.tombOrder {
		if t := c.tombs[id]; t != nil {
			fmt.Fprint(h, id, t.Incarnation, t.Exit, t.StartedAt, t.Removed, c.revive[id])
		}
	}
	for _, id := range sortedKeys(c.asks) {
		fmt.Fprint(h, c.asks[id])
	}
	for _, id := range sortedKeys(c.missing) {
		fmt.Fprint(h, id, c.missing[id])
	}
	keys := make([]string, 0, len(c.out))
	for k := range c.out {
		keys = append(keys, string(rune('0'+k.Kind))+k.ID)
	}
	slices.Sort(keys)
	fmt.Fprint(h, keys)
	return h.Sum64()
}

// resum replaces the entity's part of the digest.
func (c *Core) resum(e *entity) {
	if !c.digesting {
		return
	}
	c.sum -= e.sum
	e.sum = digestEntity(e)
	c.sum += e.sum
}

func digestEntity(e *entity) uint64 {
	h := digest{h: 14695981039346656037}
	r := &e.rec
	h.text(r.ID, r.Sandbox, r.Identity.Pod.UID, r.Identity.Pod.Namespace, r.Identity.Pod.Name, r.Identity.Name, r.Identity.Image, r.Exit.Reason, r.Exit.Message, r.Rest, e.fault)
	h.text(r.IPs...)
	h.num(uint64(r.Kind), uint64(r.Identity.Attempt), uint64(r.Incarnation), uint64(r.State), uint64(r.Journaled), uint64(r.Reported),
		uint64(r.CreatedAt), uint64(r.StartedAt), uint64(r.Exit.Code), uint64(r.Exit.FinishedAt), uint64(r.FirstSeen), uint64(r.Known),
		uint64(r.Shown), uint64(r.GaveUp), uint64(r.LoweredAt), uint64(r.Removed))
	h.flags(r.HostNetwork, r.Started, r.Provisional, r.Quiet, r.ToldUnknown, r.ExitSeen, e.bulk, e.stopped, e.looked, e.current, e.absent.weak)
	ev := &r.Evidence
	for _, g := range [...]store.Evidence{ev.Identity, ev.Reported, ev.Created, ev.Started, ev.Exit, ev.IPs, ev.Rest} {
		h.num(uint64(g.Span.From), uint64(g.Span.To), uint64(g.State))
		h.flags(g.Full)
	}
	h.num(uint64(e.deleted), uint64(e.absent.sent), uint64(e.absent.answered), uint64(e.absent.mono), uint64(e.lowered), e.listed, uint64(e.heard))
	for i := range e.claimAt {
		h.num(uint64(e.claimAt[i]), uint64(e.via[i]))
	}
	return h.h
}

// digest is FNV-1a over words.
type digest struct{ h uint64 }

func (d *digest) num(words ...uint64) {
	for _, w := range words {
		d.h = (d.h ^ w) * 1099511628211
		d.h ^= d.h >> 29
	}
}

func (d *digest) text(texts ...string) {
	for _, t := range texts {
		d.num(uint64(len(t)))
		b := []byte(t)
		for len(b) >= 8 {
			d.num(binary.LittleEndian.Uint64(b))
			b = b[8:]
		}
		for _, x := range b {
			d.num(uint64(x))
		}
	}
}

func (d *digest) flags(flags ...bool) {
	var w uint64
	for i, f := range flags {
		if f {
			w |= 1 << i
		}
	}
	d.num(w)
}

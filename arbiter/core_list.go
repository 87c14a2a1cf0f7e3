package arbiter

import (
	"slices"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// list applies a completed list, of everything, of one sandbox or of one pod.
func (c *Core) list(s *step, l *ListSeen) {
	s.at, s.source = l.ContainerCall.Answered, timestamps.FromRelist
	delete(c.out, l.Scope.action())
	all := l.Scope.All()
	s.full = all
	if all {
		c.lists++
		if c.listFails > 0 { // it may have been restarted
			c.doubt(l.ContainerCall.Answered.Mono)
		}
		c.listFails = 0
	}
	c.observeAll(s, l.Sandboxes, l.SandboxCall)
	c.observeAll(s, l.Containers, l.ContainerCall)
	c.fulfil(s, l)
	switch {
	case all:
		c.absentFromAll(s, l)
		c.fullListDone(s, l)
	case l.Scope.Sandbox != "":
		c.absentFromSandbox(s, l)
		s.out.Fresh = append(s.out.Fresh, Fresh{PodKey: store.PodKeyOfSandbox(l.Scope.Sandbox), Sent: l.SandboxCall.Sent.Tick})
	default:
		c.absentFromPod(s, l)
		s.out.Fresh = append(s.out.Fresh, Fresh{PodKey: store.PodKeyOfUID(l.Scope.PodUID), Sent: l.SandboxCall.Sent.Tick})
	}
}

// action returns the action that a list of this scope answers.
func (s Scope) action() ActionKey {
	switch {
	case s.All():
		return ActionKey{Kind: ActList}
	case s.Sandbox != "":
		return ActionKey{ActLook, s.Sandbox}
	default:
		return ActionKey{ActPod, s.PodUID}
	}
}

func (c *Core) observeAll(s *step, items []Item, call Call) {
	o := c.answerTo(call, timestamps.FromRelist)
	for i := range items {
		if e := c.observe(s, &items[i], o); e != nil {
			e.listed, e.bulk = c.lists, false
		}
	}
}

// answerAll settles what was asked about the listed entities as far as a list
// can.
func (c *Core) answerAll(s *step, items []Item, call Call) {
	for i := range items {
		c.answered(s, items[i].ID, call.Span(), false)
	}
}

// absentFromAll takes every entity that a full list lacks as missed by it.
func (c *Core) absentFromAll(s *step, l *ListSeen) {
	c.answerAll(s, l.Sandboxes, l.SandboxCall)
	c.answerAll(s, l.Containers, l.ContainerCall)
	c.forgetUnknown(s, l.SandboxCall.Span())
	var absent []string
	live, lost := 0, 0
	for id, e := range c.ents {
		if !e.rec.Provisional {
			live++
		}
		if e.listed == c.lists {
			continue
		}
		absent = append(absent, id)
		if !e.rec.Provisional && callFor(l, e.rec.Kind).Span().From > e.rec.Known {
			lost++
		}
	}
	slices.Sort(absent)
	mass := live >= massMin && lost*massShare >= live
	weak := mass || l.ContainerCall.Answered.Mono < c.doubtful
	if len(absent) == 0 {
		return
	}
	pods := map[string]struct{}{}
	for _, id := range absent {
		pods[c.ents[id].rec.Sandbox] = struct{}{}
	}
	for _, id := range absent {
		e := c.edit(s, id)
		e.bulk = mass || len(pods) > massLooks
		c.missed(s, e, callFor(l, e.rec.Kind), l.ContainerCall.Answered.Mono, weak)
		c.answered(s, id, callFor(l, e.rec.Kind).Span(), false)
	}
}

// forgetUnknown drops the questions about ids that no answer has ever shown
// and that a full list lacks too. Without it an id whose inspection fails for
// ever would be asked about for ever.
func (c *Core) forgetUnknown(s *step, list timestamps.Span) {
	var unknown []string
	for id := range c.asks {
		if c.ents[id] == nil && c.tombs[id] == nil {
			unknown = append(unknown, id)
		}
	}
	slices.Sort(unknown)
	for _, id := range unknown {
		c.answered(s, id, list, true)
	}
}

// absentFromSandbox takes what a list of one sandbox lacks as missed by it.
func (c *Core) absentFromSandbox(s *step, l *ListSeen) {
	c.answerAll(s, l.Sandboxes, l.SandboxCall)
	c.answerAll(s, l.Containers, l.ContainerCall)
	weak := l.ContainerCall.Answered.Mono < c.doubtful
	listed := listedIn(l)
	for _, id := range c.sandboxAndMembers(l.Scope.Sandbox) {
		if e := c.ents[id]; e == nil || listed[id] {
			continue
		}
		e := c.edit(s, id)
		c.missed(s, e, callFor(l, e.rec.Kind), l.ContainerCall.Answered.Mono, weak)
		c.answered(s, id, callFor(l, e.rec.Kind).Span(), false)
	}
}

// absentFromPod asks about what a list by the pod's label lacks. It proves no
// absence, since labels are the runtime's clients' own, but a reader waits for
// what is true.
func (c *Core) absentFromPod(s *step, l *ListSeen) {
	c.answerAll(s, l.Sandboxes, l.SandboxCall)
	c.answerAll(s, l.Containers, l.ContainerCall)
	listed := listedIn(l)
	for _, sandbox := range c.sandboxes.ids(store.PodKeyOfUID(l.Scope.PodUID)) {
		for _, id := range c.sandboxAndMembers(sandbox) {
			if e := c.ents[id]; e != nil && !listed[id] && callFor(l, e.rec.Kind).Sent.Tick > e.rec.Known {
				c.want(s, id, store.ReasonRemoval, callFor(l, e.rec.Kind).Answered.Tick)
			}
		}
	}
}

// listedIn returns the ids that a list has.
func listedIn(l *ListSeen) map[string]bool {
	listed := map[string]bool{}
	for _, items := range [][]Item{l.Sandboxes, l.Containers} {
		for i := range items {
			listed[items[i].ID] = true
		}
	}
	return listed
}

func callFor(l *ListSeen, k store.Kind) Call {
	if k == store.KindSandbox {
		return l.SandboxCall
	}
	return l.ContainerCall
}

// fullListDone moves what depends on completed lists only: freshness, trust in
// times, and the verdict for the adaptive period.
func (c *Core) fullListDone(s *step, l *ListSeen) {
	sent := l.SandboxCall.Sent
	if sent.Tick > c.lastList.Tick {
		c.prevList, c.lastList = c.lastList.Tick, sent
		c.covered = max(c.covered, sent.Tick, l.ContainerCall.Sent.Tick)
	}
	if c.distrust != 0 && sent.Tick > c.distrust {
		c.distrust = 0
	}
	if c.listWanted != 0 && sent.Tick > c.listWanted {
		c.listWanted = 0
	} else if c.listWanted != 0 {
		c.wantList(s, c.listWanted)
	}
	s.out.Fresh = append(s.out.Fresh, Fresh{Sent: sent.Tick})
	c.judgeMissing(s, l.ContainerCall.Answered.Mono)
	s.out.Relist = &Relist{
		Misses: len(s.out.Misses),
		Clean:  c.stream == StreamUp && len(s.out.Misses) == 0 && c.distrust == 0,
	}
	if len(s.out.Misses) > 0 {
		s.out.Shrink = true
	}
}

// listFailed: a failed call is no witness of anything; what was waiting for
// this list is asked again.
func (c *Core) listFailed(s *step, l *ListFailed) {
	s.at = l.At
	call := c.out[l.Scope.action()]
	delete(c.out, l.Scope.action())
	switch {
	case l.Scope.All():
		c.listFails++
		if c.listWanted != 0 {
			c.wantList(s, c.listWanted)
		}
		for _, id := range sortedKeys(c.asks) {
			if e := c.ents[id]; e != nil && e.bulk {
				s.ask(id, false)
			}
		}
	case l.Scope.Sandbox != "":
		for _, id := range c.sandboxAndMembers(l.Scope.Sandbox) {
			c.askFailed(s, id, call)
		}
	}
	c.wishFailed(s, l.Scope.action())
}

// wantList asks for a full list sent after the tick.
func (c *Core) wantList(s *step, after timestamps.Tick) {
	c.listWanted = max(c.listWanted, after)
	c.act(s, Action{Kind: ActList, Attempt: c.listFails}, false)
}

// outstanding is what an action that was handed out, and of which nothing has
// come yet, waits for.
type outstanding struct {
	attempt   int
	notBefore int64
	unknown   bool
}

// act hands out an action unless its like is still outstanding. A fresh reason
// must not wait for as long as one that was tried in vain: then the action is
// handed out once more, to go sooner.
func (c *Core) act(s *step, a Action, fresh bool) {
	key := a.Key()
	was, waiting := c.out[key]
	sooner := a.Attempt < was.attempt || a.NotBefore < was.notBefore || was.unknown && !a.Unknown
	if waiting && (!fresh || !sooner) {
		return
	}
	now := outstanding{a.Attempt, a.NotBefore, a.Unknown}
	if waiting {
		now = outstanding{min(now.attempt, was.attempt), min(now.notBefore, was.notBefore), now.unknown && was.unknown}
	}
	c.out[key] = now
	s.out.Actions = append(s.out.Actions, a)
}

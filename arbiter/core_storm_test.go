package arbiter

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/plegd/plegd/store"
)

// storm drives a core by chance: the world changes, events are lost, late,
// repeated and reordered, calls fail or overlap, the runtime lies, the agent
// is killed, the clock steps.
type storm struct {
	*rig
	world  *truth
	events []*EventSeen
	calls  []*call
	due    []Action
	lies   int // how many more
	log    []string

	stubborn stubborn // a lie that is told again and again

	askedTwice bool // when quiet, a second full list was to decide a removal
}

// stubborn is a lie about one thing: that it has not come so far as it has, or is
// gone. Once it is believed by nobody; told again it is a return to an earlier state
// (O3), or a removal (O4).
type stubborn struct {
	id    string
	state int32
	gone  bool
	times int // how many answers more
}

func newStorm(limits Limits, lies int) *storm {
	s := &storm{rig: newRig(limits), world: &truth{things: map[string]thing{}}, lies: lies}
	s.witnesses = newWitnesses(limits)
	return s
}

// tightOrNot is a storm, in one case of four with so few tombstones that most are forgotten at once.
func tightOrNot(t *rapid.T) *storm {
	if rapid.IntRange(0, 3).Draw(t, "tight") == 0 {
		// What lies removed and was then forgotten is told anew, so: no lies.
		return newStorm(Limits{Tombstones: 1, TombstoneAge: 30 * second}, 0)
	}
	return newStorm(Limits{}, 1000)
}

// rage lets the storm blow for a while.
func (s *storm) rage(t *rapid.T, most int) {
	for range rapid.IntRange(10, most).Draw(t, "length") {
		s.blow(t)
	}
}

func (s *storm) give(in Input) {
	s.log = append(s.log, describe(in))
	out := s.step(in)
	s.take(out)
}

func (s *storm) take(out Output) {
	s.due = append(s.due, out.Actions...)
	for i := range out.Changes.Events {
		s.log = append(s.log, "   journal "+printEvent(&out.Changes.Events[i]))
	}
	for _, a := range out.Actions {
		s.log = append(s.log, "   ask "+printAction(a))
	}
}

// lie reports whether to lie now.
func (s *storm) lie(t *rapid.T) bool {
	if s.lies == 0 || rapid.IntRange(0, 9).Draw(t, "lie") != 0 {
		return false
	}
	s.lies--
	return true
}

// blow does one thing by chance.
func (s *storm) blow(t *rapid.T) {
	s.pass(rapid.SampledFrom([]int64{1, second / 100, second, 3 * second, 20 * second}).Draw(t, "pass"))
	switch rapid.IntRange(0, 15).Draw(t, "do") {
	case 0, 1, 2:
		s.happen(t)
	case 3, 4, 5:
		if len(s.events) > 0 {
			s.deliver(t)
		}
	case 6: // nobody asked for it
		key := ActionKey{Kind: ActList}
		if ids := sortedKeys(s.world.things); len(ids) > 0 && rapid.Bool().Draw(t, "inspect") {
			key = ActionKey{ActStatus, rapid.SampledFrom(ids).Draw(t, "id")}
		}
		s.calls = append(s.calls, s.newCall(key))
	case 7, 8:
		if len(s.due) > 0 {
			i := rapid.IntRange(0, len(s.due)-1).Draw(t, "action")
			a := s.due[i]
			if a.NotBefore <= s.mono {
				s.due = slices.Delete(s.due, i, i+1)
				s.calls = append(s.calls, s.newCall(a.Key()))
			}
		}
	case 9, 10, 11, 12:
		if len(s.calls) > 0 {
			s.work(t, rapid.IntRange(0, len(s.calls)-1).Draw(t, "call"))
		}
	case 13:
		s.upset(t)
	case 14:
		if rapid.IntRange(0, 2).Draw(t, "stubborn") == 0 {
			s.persist(t)
		} else {
			s.falseEvent(t)
		}
	default:
		if s.wake != 0 && s.wake <= s.mono {
			s.wake = 0
			s.give(&TimePassed{At: s.stamp()})
		}
	}
}

// happen changes the world and queues what the runtime says of it.
func (s *storm) happen(t *rapid.T) {
	before := s.world.snapshot()
	for _, tr := range s.world.change(t, s.wall) {
		s.log = append(s.log, fmt.Sprintf("truth: %d %s", tr.kind, tr.id))
		sandbox := before.things[tr.id].sandbox
		if sandbox == "" {
			sandbox = s.world.things[tr.id].sandbox
		}
		payload := s.world
		switch rapid.IntRange(0, 5).Draw(t, "payload") {
		case 0:
			payload = before
		case 1:
			payload = &truth{things: map[string]thing{}} // nothing could be looked up
		}
		if rapid.IntRange(0, 5).Draw(t, "lost") > 0 {
			s.events = append(s.events, payload.event(tr, sandbox, s.wall))
		}
	}
}

// deliver gives one event, seldom in order, sometimes more than once.
func (s *storm) deliver(t *rapid.T) {
	i := 0
	if rapid.Bool().Draw(t, "reorder") {
		i = rapid.IntRange(0, len(s.events)-1).Draw(t, "event")
	}
	ev := *s.events[i]
	ev.At = s.stamp()
	if rapid.IntRange(0, 4).Draw(t, "again") > 0 {
		s.events = slices.Delete(s.events, i, i+1)
	}
	if rapid.IntRange(0, 30).Draw(t, "odd time") == 0 {
		ev.CreatedAt = rapid.SampledFrom([]int64{0, -1, ev.CreatedAt / second, ev.CreatedAt + 1000*second}).Draw(t, "time")
	}
	s.give(&ev)
}

// work takes a call one phase further.
func (s *storm) work(t *rapid.T, i int) {
	c := s.calls[i]
	if c.phase%2 == 1 && rapid.IntRange(0, 19).Draw(t, "fails") == 0 {
		s.calls = slices.Delete(s.calls, i, i+1)
		delete(s.open, c.first.Sent.Tick)
		delete(s.open, c.second.Sent.Tick)
		if c.key.Kind == ActStatus {
			s.give(&StatusSeen{ID: c.key.ID, Call: Call{Sent: c.first.Sent, Answered: s.stamp()}, Err: "failed"})
		} else {
			s.give(&ListFailed{Scope: c.scope(), At: s.stamp()})
		}
		return
	}
	in := s.advance(s.world, c)
	if c.phase%2 == 1 {
		if s.lie(t) {
			s.falsify(t, c)
		}
		s.insist(c)
	}
	if in != nil {
		s.calls = slices.Delete(s.calls, i, i+1)
		s.give(in)
	}
}

// insist puts the stubborn lie into an answer.
func (s *storm) insist(c *call) {
	lie := &s.stubborn
	told := func(it Item) bool {
		return lie.times > 0 && it.ID == lie.id && (lie.gone || it.State != lie.state)
	}
	tell := func() {
		s.log = append(s.log, fmt.Sprintf("the lie about %s is told", lie.id))
		lie.times--
	}
	lowered := func(it Item) Item {
		it.State, it.Exit = lie.state, store.Exit{}
		if it.Kind == store.KindContainer && it.State == criContainerCreated {
			it.StartedAt = 0
		}
		return it
	}
	if c.key.Kind == ActStatus {
		switch {
		case c.status == nil || !told(*c.status):
		case lie.gone:
			tell()
			c.status = nil
		default:
			tell()
			it := lowered(*c.status)
			c.status = &it
		}
		return
	}
	items := &c.sandboxes
	if c.phase == 3 {
		items = &c.containers
	}
	i := slices.IndexFunc(*items, told)
	switch {
	case i < 0:
	case lie.gone:
		tell()
		*items = slices.Delete(*items, i, i+1)
	default:
		tell()
		(*items)[i] = lowered((*items)[i])
	}
}

// falsify makes an answer wrong: something is missing, or in another state.
func (s *storm) falsify(t *rapid.T, c *call) {
	s.log = append(s.log, fmt.Sprintf("lie about %v", c.key))
	// A state further than the true one is believed at the first word, but for
	// an exit without its code: rule O1 has it so.
	falseState := func(it *Item) int32 {
		if it.Kind == store.KindSandbox {
			return rapid.SampledFrom([]int32{criSandboxReady, 5}).Draw(t, "false state")
		}
		return rapid.SampledFrom([]int32{criContainerCreated, it.State, criContainerExited, 3}).Draw(t, "false state")
	}
	if c.key.Kind == ActStatus {
		if c.status == nil || rapid.IntRange(0, 2).Draw(t, "gone") == 0 {
			c.status = nil
			return
		}
		it := *c.status
		it.State, it.Exit, it.StartedAt = falseState(&it), store.Exit{}, 0
		c.status = &it
		return
	}
	items := &c.sandboxes
	if c.phase == 3 {
		items = &c.containers
	}
	switch n := len(*items); {
	case n == 0:
	case n > 4 && rapid.Bool().Draw(t, "half"):
		*items = (*items)[:n/3]
	case rapid.Bool().Draw(t, "gone"):
		i := rapid.IntRange(0, n-1).Draw(t, "item")
		*items = slices.Delete(*items, i, i+1)
	default:
		it := &(*items)[rapid.IntRange(0, n-1).Draw(t, "item")]
		it.State = falseState(it)
	}
}

// falseEvent claims what did not happen.
func (s *storm) falseEvent(t *rapid.T) {
	ids := sortedKeys(s.world.things)
	if len(ids) == 0 || !s.lie(t) {
		return
	}
	id := rapid.SampledFrom(ids).Draw(t, "false id")
	x := s.world.things[id]
	kind := rapid.SampledFrom([]EventKind{EventStopped, EventDeleted, 9}).Draw(t, "false type")
	if kind == EventStopped && x.state == store.StateCreated {
		return
	}
	ev := s.world.event(transition{kind, id}, x.sandbox, s.wall)
	ev.At = s.stamp()
	s.log = append(s.log, "false event")
	s.give(ev)
}

// persist begins a stubborn lie about a state, that some calls in a row tell, and
// others later as they come.
func (s *storm) persist(t *rapid.T) {
	if x, ok := s.drawHeld(t, true); ok && s.lies >= 2 {
		times := rapid.IntRange(2, 4).Draw(t, "times")
		s.stubborn = stubborn{id: x.id, state: criOf(x.kind, x.state-1), times: times}
		s.lies -= times
		s.ask(t, x.id, rapid.IntRange(1, 3).Draw(t, "calls"))
	}
}

// drawHeld draws something of which the core knows the true state; one that could be said
// to be in an earlier state, if that is wanted. It reports false if there is none.
func (s *storm) drawHeld(t *rapid.T, lowerable bool) (x thing, ok bool) {
	var ids []string
	for id, x := range s.world.things {
		if e := s.core.ents[id]; e == nil || e.rec.State != x.state {
			continue
		}
		if !lowerable || x.state == store.StateDown || x.state == store.StateUp && x.kind == store.KindContainer {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return thing{}, false
	}
	slices.Sort(ids)
	return s.world.things[rapid.SampledFrom(ids).Draw(t, "held")], true
}

// ask makes so many whole calls that speak of a thing.
func (s *storm) ask(t *rapid.T, id string, calls int) {
	for range calls {
		key := ActionKey{ActStatus, id}
		if rapid.Bool().Draw(t, "list") {
			key = ActionKey{Kind: ActList}
		}
		c := s.newCall(key)
		s.calls = append(s.calls, c)
		for slices.Contains(s.calls, c) {
			s.work(t, len(s.calls)-1)
		}
		s.pass(second / 10)
	}
}

// lieOnce has one call tell a lie that is one: about something that the core knows.
func (s *storm) lieOnce(t *rapid.T) {
	gone := rapid.Bool().Draw(t, "gone")
	x, ok := s.drawHeld(t, !gone)
	if !ok {
		return
	}
	s.stubborn = stubborn{id: x.id, gone: gone, times: 1}
	if !gone {
		s.stubborn.state = criOf(x.kind, x.state-1)
	}
	s.ask(t, x.id, 1)
	s.stubborn = stubborn{} // told, or the call has failed
}

// upset does what befalls the agent.
func (s *storm) upset(t *rapid.T) {
	switch rapid.IntRange(0, 6).Draw(t, "upset") {
	case 0:
		s.log = append(s.log, "restart")
		s.calls, s.due = nil, nil
		s.take(s.restart())
	case 1:
		s.held = true
	case 2:
		s.held = false
		s.commit()
	case 3:
		s.wall += rapid.SampledFrom([]int64{-3600 * second, -second, 3600 * second}).Draw(t, "clock step")
	case 4:
		s.give(&StreamChanged{At: s.stamp(), State: StreamDown})
	case 5:
		s.give(&StreamChanged{At: s.stamp(), State: StreamUp})
	default:
		s.give(&RuntimeSeen{At: s.stamp(), Name: rapid.SampledFrom([]string{"containerd", "cri-o"}).Draw(t, "runtime")})
	}
}

// settle lets it be quiet: what is in flight is answered, then come one relist and all inspections that
// are due. A second list there is only where the core asks for one and O4 wants it: where the first one
// lost half of everything, or something of more than 16 sandboxes. It returns how many there were.
func (s *storm) settle(t *rapid.T) (lists int) {
	s.events, s.stubborn = nil, stubborn{}
	s.log = append(s.log, "quiet")
	s.give(&TimePassed{At: s.stamp()}) // a clock step that is not noticed yet is
	s.answer()
	s.pass(2 * second)
	isList := func(a Action) bool { return a.Kind == ActList }
	s.due = slices.DeleteFunc(s.due, isList) // this one answers what asks for lists
	s.calls = append(s.calls, s.newCall(ActionKey{Kind: ActList}))
	for n := 0; len(s.calls)+len(s.due) > 0; n++ {
		if n > 500 {
			t.Fatalf("questions without end: %v", s.due)
		}
		for _, c := range s.calls {
			if c.key.Kind == ActList {
				lists++
			}
		}
		s.answer()
		if n == 0 { // what was to be listed has been
			if s.askedTwice = s.bulk(); !s.askedTwice {
				s.due = slices.DeleteFunc(s.due, isList)
			}
		}
		s.sendDue()
	}
	return lists
}

// bulk reports whether a full list is to decide a removal (O4, O8).
func (s *storm) bulk() bool {
	for _, e := range s.core.ents {
		if e.bulk {
			return true
		}
	}
	return false
}

// answer answers all calls that are in flight.
func (s *storm) answer() {
	for len(s.calls) > 0 {
		c := s.calls[0]
		s.calls = s.calls[1:]
		var in Input
		for in == nil {
			in = s.advance(s.world, c)
		}
		s.give(in)
	}
}

// sendDue sends the calls that are asked for, each at its time.
func (s *storm) sendDue() {
	s.pass(second / 10)
	due := s.due
	s.due = nil
	sent := map[ActionKey]bool{}
	for _, a := range due {
		if sent[a.Key()] { // handed out again to go sooner; one call answers both
			continue
		}
		sent[a.Key()] = true
		if a.NotBefore > s.mono {
			s.pass(a.NotBefore - s.mono)
		}
		s.calls = append(s.calls, s.newCall(a.Key()))
	}
}

// fail prints the whole storm.
func (s *storm) fail(t *rapid.T, why string) {
	t.Helper()
	for _, l := range s.log {
		t.Log(l)
	}
	t.Fatal(why)
}

package arbiter

import (
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// status applies the answer to a status call.
func (c *Core) status(s *step, in *StatusSeen) {
	s.at, s.source = in.Call.Answered, timestamps.FromInspect
	call := c.out[ActionKey{ActStatus, in.ID}]
	delete(c.out, ActionKey{ActStatus, in.ID})
	switch {
	case in.Err != "":
		c.inspectionFailed(s, in, call)
	case in.NotFound:
		c.notFound(s, in)
	case in.Item != nil && in.Item.ID == in.ID:
		c.found(s, in)
	default:
		in = &StatusSeen{Kind: in.Kind, ID: in.ID, Call: in.Call, Err: "answer names another id"}
		c.inspectionFailed(s, in, call)
	}
}

func (c *Core) found(s *step, in *StatusSeen) {
	o := c.answerTo(in.Call, timestamps.FromInspect)
	o.inspect = true
	if e := c.observe(s, in.Item, o); e != nil {
		e.looked = true
		c.setFault(s, e, "")
	}
	c.answered(s, in.ID, in.Call.Span(), true)
	if e := c.ents[in.ID]; e != nil && exitUnknown(&e.rec) && e.rec.GaveUp&store.ReasonDetails != 0 {
		c.believeExit(s, in.ID)
	}
}

// notFound: the runtime knows no such entity. That is one witness (O4).
func (c *Core) notFound(s *step, in *StatusSeen) {
	e := c.edit(s, in.ID)
	if e == nil {
		if first, ok := c.revive[in.ID]; ok && in.Call.Sent.Tick > first {
			delete(c.revive, in.ID)
			t := *c.tombs[in.ID]
			t.Disputes = min(t.Disputes+1, maxDisputes)
			c.setTombstone(s, &t)
		}
		c.answered(s, in.ID, in.Call.Span(), true)
		return
	}
	e.looked = true
	c.setFault(s, e, "")
	// First what was asked: the new question, whether it is gone, is later than
	// this answer, and what it leaves open must count as tried all the same.
	c.answered(s, in.ID, in.Call.Span(), true)
	c.missed(s, e, in.Call, in.Call.Answered.Mono, in.Call.Answered.Mono < c.doubtful)
}

// inspectionFailed: the last good status stays, beside the error.
func (c *Core) inspectionFailed(s *step, in *StatusSeen, call outstanding) {
	if e := c.edit(s, in.ID); e != nil {
		e.looked = true
		c.setFault(s, e, in.Err)
	}
	c.askFailed(s, in.ID, call)
	if a := c.asks[in.ID]; a.Fails >= exitFails {
		c.believeExit(s, in.ID)
	}
}

// believeExit lets a death be told without its code: it was seen, and asking
// did not bring the code (O2).
func (c *Core) believeExit(s *step, id string) {
	if e := c.edit(s, id); e != nil && exitUnknown(&e.rec) {
		climb(&e.rec, store.StateDown)
	}
}

func (c *Core) setFault(s *step, e *entity, err string) {
	if e.fault != err {
		e.fault = err
		s.out.Faults = append(s.out.Faults, Fault{Key: store.Key{Kind: e.rec.Kind, ID: e.rec.ID}, Err: err})
	}
}

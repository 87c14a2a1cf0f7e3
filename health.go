package pleg

import (
	"fmt"
	"time"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/generic"
)

// Check is one part that health is about. It fails while at least one of its
// conditions holds.
type Check struct {
	Name   string    `json:"name"`             // one of CheckArbiter and the rest
	OK     bool      `json:"ok"`               // nothing is wrong with it
	Ready  bool      `json:"ready"`            // nothing is wrong, or what is wrong leaves the answers good
	Reason string    `json:"reason,omitempty"` // of its gravest condition, or a word on how it is
	Since  time.Time `json:"since,omitzero"`   // of its gravest condition
}

// The names of the checks.
const (
	CheckArbiter     = "arbiter"     // the arbiter makes progress
	CheckRelist      = "relist"      // the runtime was listed, not too long ago
	CheckStream      = "stream"      // the event stream is up
	CheckState       = "state"       // the state can be written, and has the history
	CheckInspections = "inspections" // what was inspected last could be
	CheckClock       = "clock"       // the wall clock did not jump
)

// Health is the state of health, with a reason for everything that is wrong.
type Health struct {
	Ready      bool        `json:"ready"`      // what is served can be relied on
	Live       bool        `json:"live"`       // the arbiter makes progress
	Listed     bool        `json:"listed"`     // a full list was applied in this run: who is not among the pods is not there
	Checks     []Check     `json:"checks"`     // all of them, good or bad
	Conditions []Condition `json:"conditions"` // what is wrong
}

// Health returns the present state of health. Ages are measured on the
// monotonic clock, so clock steps don't make a node unhealthy.
func (g *Generator) Health() Health {
	l := g.loop.Health()
	h := Health{Ready: true, Live: true, Listed: l.Relisted, Conditions: g.conditions(l)}
	for _, c := range []Check{
		{Name: CheckArbiter}, {Name: CheckRelist, Reason: g.relistWord(l)}, {Name: CheckStream, Reason: g.streamWord()},
		{Name: CheckState}, {Name: CheckInspections}, {Name: CheckClock},
	} {
		h.Checks = append(h.Checks, judged(c, h.Conditions))
	}
	for _, c := range h.Checks {
		h.Ready = h.Ready && c.Ready
		h.Live = h.Live && (c.OK || c.Name != CheckArbiter)
	}
	return h
}

// judged returns a check as its conditions have it. The first of those that
// make it not ready is the gravest, else the first of all.
func judged(c Check, conditions []Condition) Check {
	c.OK, c.Ready = true, true
	for _, bad := range conditions {
		if bad.Check != c.Name || !c.OK && (bad.Ready || !c.Ready) {
			continue
		}
		c.OK, c.Ready, c.Reason, c.Since = false, bad.Ready, bad.Reason, bad.Since
	}
	return c
}

// relistWord says how relists are when nothing is wrong with them.
func (g *Generator) relistWord(l arbiter.Health) string {
	age := l.RelistAge.Round(time.Millisecond)
	if g.cfg.Mode == ModeEvented {
		return fmt.Sprintf("last %v ago, none is periodic", age)
	}
	return fmt.Sprintf("last %v ago, period %s", age, periodWord(g.relister.Status().Period))
}

// periodWord shows the state machine of the adaptive period.
func periodWord(p generic.PeriodStatus) string {
	text := fmt.Sprintf("%v, %s", p.Period, p.State)
	switch p.State {
	case generic.Polling:
	case generic.Proving:
		text += fmt.Sprintf(", clean relists in a row: %d of the %d needed", p.Clean, p.Needed)
	default: // it has what it needed, and more says nothing
		text += fmt.Sprintf(", clean relists in a row: %d", p.Clean)
	}
	if p.Strikes > 0 {
		text += fmt.Sprintf(", strikes %d", p.Strikes)
	}
	return text
}

// streamWord says how the stream is when nothing is wrong with it.
func (g *Generator) streamWord() string {
	if g.cfg.Mode == ModeGeneric {
		return "not used in mode generic"
	}
	return "up"
}

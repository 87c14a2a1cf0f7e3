package pleg

import (
	"fmt"
	"time"

	"github.com/plegd/plegd/arbiter"
)

// Check is one thing that health is about.
type Check struct {
	Name   string    `json:"name"`             // one of CheckArbiter and the rest
	OK     bool      `json:"ok"`               // nothing is wrong with it
	Ready  bool      `json:"ready"`            // nothing is wrong, or what is wrong leaves the answers good
	Reason string    `json:"reason,omitempty"` // what is wrong, or a word on how it is
	Since  time.Time `json:"since,omitzero"`   // since when it is wrong, by the wall clock
}

// The names of the checks.
const (
	CheckArbiter     = "arbiter"     // the arbiter makes progress
	CheckRelist      = "relist"      // the runtime was listed, not too long ago
	CheckStream      = "stream"      // the event stream is up
	CheckState       = "state"       // the state can be written
	CheckInspections = "inspections" // what was inspected last could be
)

// Health is the state of health, with a reason for everything that is wrong.
type Health struct {
	Ready  bool    `json:"ready"`  // what is served can be relied on
	Live   bool    `json:"live"`   // the arbiter makes progress
	Listed bool    `json:"listed"` // a full list was applied in this run: who is not among the pods is not there
	Checks []Check `json:"checks"`
}

// livenessTimeout is how long the arbiter may go without a turn: it turns
// every 5 s when idle, and a commit that a slow disk holds up for half a
// minute is better waited for than killed.
const livenessTimeout = 30 * time.Second

// Health returns the present state of health. Ages are measured on the
// monotonic clock, so clock steps don't make a node unhealthy.
func (g *Generator) Health() Health {
	l := g.loop.Health()
	h := Health{Listed: l.Relisted, Checks: []Check{g.checkLoop(l), g.checkRelist(l), g.checkStream(l), g.checkState(l), g.checkInspections(l)}}
	h.Ready, h.Live = true, h.Checks[0].OK
	for i := range h.Checks {
		c := &h.Checks[i]
		c.Ready = c.Ready || c.OK
		h.Ready = h.Ready && c.Ready
	}
	return h
}

func (g *Generator) checkLoop(l arbiter.Health) Check {
	c := Check{Name: CheckArbiter, OK: l.Progress < livenessTimeout}
	if !c.OK {
		c.Reason = fmt.Sprintf("no progress for %v", l.Progress.Round(time.Second))
	}
	return c
}

// checkRelist: the age of what is served, the last good relist that could be
// written, is compared with the threshold plus the period by which the next
// was to come. So a stretched period is no fault, not even when the runtime
// goes away towards its end and the period shrinks. In ModeEvented no age
// counts: the stream does.
func (g *Generator) checkRelist(l arbiter.Health) Check {
	c := Check{Name: CheckRelist}
	rel := g.relister.Status()
	period := rel.Promised
	switch {
	case !l.Relisted:
		c.Since = l.ListFailing
		c.Reason = fmt.Sprintf("no relist of %s has succeeded yet", g.client.Path())
		if _, err := g.runtime.get(); err != "" {
			c.Reason += ": " + err
			c.Since = g.runtime.failing()
		} else if l.ListError != "" {
			c.Reason += ": " + l.ListError
		}
	case g.cfg.Mode != ModeEvented && l.RelistAge > g.cfg.RelistThreshold+period:
		c.Since = l.ListFailing
		c.Reason = fmt.Sprintf("the last relist that succeeded was %v ago, allowed are %v and a period of %v",
			l.RelistAge.Round(time.Millisecond), g.cfg.RelistThreshold, period)
		switch {
		case l.ListError != "":
			c.Reason += ": " + l.ListError
		case l.StoreError != "":
			c.Since = l.StoreSince
			c.Reason += ": what later ones found can't be written: " + l.StoreError
		}
	case l.ListError != "":
		c.Ready, c.Since = true, l.ListFailing
		c.Reason = "relists are failing: " + l.ListError
	default:
		c.OK = true
		c.Reason = fmt.Sprintf("last %v ago, period %v", l.RelistAge.Round(time.Millisecond), rel.Period.Period)
		if g.cfg.Mode == ModeEvented {
			c.Reason = fmt.Sprintf("last %v ago, none is periodic", l.RelistAge.Round(time.Millisecond))
		}
	}
	return c
}

// checkStream: without a stream a hybrid generator is a generic one, which is
// worth knowing and no fault.
func (g *Generator) checkStream(l arbiter.Health) Check {
	c := Check{Name: CheckStream, Since: l.StreamSince}
	switch {
	case g.cfg.Mode == ModeGeneric:
		return Check{Name: CheckStream, OK: true, Reason: "not used in mode generic"}
	case l.Stream == arbiter.StreamUp:
		c.OK, c.Since, c.Reason = true, time.Time{}, "up"
	case l.Stream == arbiter.StreamOff:
		c.Reason = "not yet open"
	default:
		c.Reason = l.Stream.String() + ": " + l.StreamError
	}
	c.Ready = g.cfg.Mode == ModeHybrid
	return c
}

// checkState: for as long as a relist may be old, what is served may be too.
func (g *Generator) checkState(l arbiter.Health) Check {
	if l.StoreError == "" {
		return Check{Name: CheckState, OK: true}
	}
	young := l.StoreFails <= g.cfg.RelistThreshold+g.relister.Status().Promised
	return Check{Name: CheckState, Ready: young, Since: l.StoreSince,
		Reason: "can't be written, what is new is held back until it can: " + l.StoreError}
}

func (g *Generator) checkInspections(l arbiter.Health) Check {
	if len(l.Faults) == 0 {
		return Check{Name: CheckInspections, OK: true}
	}
	return Check{Name: CheckInspections, Ready: true, Reason: fmt.Sprintf("the last inspection of %d pods failed", len(l.Faults))}
}

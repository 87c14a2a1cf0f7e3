package pleg

import (
	"fmt"
	"strings"
	"time"

	"github.com/plegd/plegd/arbiter"
)

// Condition is one thing that is wrong. The parts of it are one reading.
type Condition struct {
	Name   string    `json:"name"`           // one of Conditions
	Check  string    `json:"check"`          // the check that it fails
	Ready  bool      `json:"ready"`          // it leaves the answers good
	Reason string    `json:"reason"`         // what is wrong, with the cause
	Since  time.Time `json:"since,omitzero"` // since when, by the wall clock; zero: longer than this run
	quiet  bool      // nothing is known to be wrong yet, or it was logged before: not worth a line
	moving bool      // the reason changes as time goes by: only why tells whether the cause does
	why    string
}

// cause is the part of the reason that doesn't change as time goes by.
func (c *Condition) cause() string {
	if c.moving {
		return c.why
	}
	return c.Reason
}

// The names of the conditions, as in status, metrics and the log.
const (
	// ConditionArbiterStuck: the arbiter makes no progress. The one condition
	// that fails /livez.
	ConditionArbiterStuck = "arbiter_stuck"
	// ConditionNeverRelisted: no full list of this run could be read yet. Not
	// ready, since nobody knows what there is.
	ConditionNeverRelisted = "never_relisted"
	// ConditionRelistFailing: full lists have worked in this run and now fail.
	ConditionRelistFailing = "relist_failing"
	// ConditionRelistOld: what is served is older than the threshold and the
	// period by which it was to be renewed. Not ready.
	ConditionRelistOld = "relist_too_old"
	// ConditionStreamDown: the event stream is not up. Not ready in
	// ModeEvented; in ModeHybrid relists do its work.
	ConditionStreamDown = "stream_down"
	// ConditionStoreDegraded: the state can't be written, and readers are told
	// from memory.
	ConditionStoreDegraded = "store_degraded"
	// ConditionStateReset: the state file was no use and was set aside, when
	// this run began or later, so earlier positions are lost. It holds until the
	// end.
	ConditionStateReset = "state_reset"
	// ConditionInspectionFailing: sandboxes or containers of some pods can't be
	// inspected; what is served of them is the last good answer.
	ConditionInspectionFailing = "inspection_failing"
	// ConditionClockStepped: the wall clock has jumped in the last ten minutes.
	ConditionClockStepped = "clock_stepped"
)

// Conditions lists the names of all conditions.
var Conditions = []string{
	ConditionArbiterStuck, ConditionNeverRelisted, ConditionRelistFailing, ConditionRelistOld, ConditionStreamDown,
	ConditionStoreDegraded, ConditionStateReset, ConditionInspectionFailing, ConditionClockStepped,
}

const (
	// livenessTimeout is how long the arbiter may go without a turn: it turns
	// every 5 s when idle, and a commit that a slow disk holds up for half a
	// minute is better waited for than killed.
	livenessTimeout = 30 * time.Second
	// stepShown is how long a step of the wall clock is told of. It is over
	// with the next list; but whoever looks every few minutes has to see why
	// times on this node don't fit together.
	stepShown = 10 * time.Minute
	// namedPods is how many pods a reason names; it says how many more there are.
	namedPods = 5
	// firstListPatience: until a cause is known, a first list is only worth a
	// line in the log when it takes this long.
	firstListPatience = 10 * time.Second
)

// conditions returns what is wrong, the gravest of each check first.
func (g *Generator) conditions(l arbiter.Health) []Condition {
	found := []Condition{}
	for _, of := range []func(arbiter.Health) *Condition{
		g.arbiterStuck, g.neverRelisted, g.relistOld, g.relistFailing, g.streamDown, g.storeDegraded, g.stateReset,
		g.inspectionFailing, g.clockStepped,
	} {
		if c := of(l); c != nil {
			found = append(found, *c)
		}
	}
	return found
}

// ago returns the wall clock's time of what began so long ago by the monotonic clock.
func (g *Generator) ago(d time.Duration) time.Time { return g.cfg.Clock.Wall().Add(-d).UTC() }

func (g *Generator) arbiterStuck(l arbiter.Health) *Condition {
	if l.Progress < livenessTimeout {
		return nil
	}
	return &Condition{Name: ConditionArbiterStuck, Check: CheckArbiter, Since: g.ago(l.Progress), moving: true,
		Reason: fmt.Sprintf("no progress for %v", l.Progress.Round(time.Second))}
}

// neverRelisted names the endpoint, and no age: there is nothing to reckon one
// from (kubernetes#69007).
func (g *Generator) neverRelisted(l arbiter.Health) *Condition {
	if l.Relisted {
		return nil
	}
	running := g.cfg.Clock.Mono() - g.began
	c := &Condition{Name: ConditionNeverRelisted, Check: CheckRelist, Since: g.ago(running), quiet: running < firstListPatience,
		Reason: fmt.Sprintf("no relist of %s has succeeded yet", g.client.Path())}
	cause := l.ListError
	if _, err := g.runtime.get(); err != "" {
		cause = err
	}
	if cause != "" {
		c.Reason += ": " + cause
		c.quiet = false
	}
	return c
}

// relistFailing: at once, since it is the cause of what may follow.
func (g *Generator) relistFailing(l arbiter.Health) *Condition {
	if !l.Relisted || l.ListError == "" {
		return nil
	}
	return &Condition{Name: ConditionRelistFailing, Check: CheckRelist, Ready: true, Since: l.ListFailing.UTC(),
		Reason: "relists are failing: " + l.ListError}
}

// relistOld: the age of what is served, the last good relist, is compared with
// the threshold plus the period by which the next was to come. So a stretched
// period is no fault, not even when the runtime goes away towards its end and
// the period shrinks. In ModeEvented no age counts: the stream does.
func (g *Generator) relistOld(l arbiter.Health) *Condition {
	period := g.relister.Status().Promised
	late := l.RelistAge - period // the sum of period and threshold may be more than a Duration holds
	if !l.Relisted || g.cfg.Mode == ModeEvented || late <= g.cfg.RelistThreshold {
		return nil
	}
	c := &Condition{Name: ConditionRelistOld, Check: CheckRelist, Since: g.ago(late - g.cfg.RelistThreshold), moving: true, why: l.ListError,
		Reason: fmt.Sprintf("the last relist that succeeded was %v ago, allowed are %v and a period of %v",
			l.RelistAge.Round(time.Millisecond), g.cfg.RelistThreshold, period)}
	if l.ListError != "" {
		c.Reason += ": " + l.ListError
	}
	return c
}

// streamDown: without a stream a hybrid generator is a generic one, which is
// worth knowing and leaves the answers good.
func (g *Generator) streamDown(l arbiter.Health) *Condition {
	if g.cfg.Mode == ModeGeneric || l.Stream == arbiter.StreamUp {
		return nil
	}
	c := &Condition{Name: ConditionStreamDown, Check: CheckStream, Ready: g.cfg.Mode == ModeHybrid, Since: l.StreamSince.UTC()}
	if l.Stream == arbiter.StreamOff {
		c.Since, c.Reason, c.quiet = g.ago(g.cfg.Clock.Mono()-g.began), "not yet open", true
		return c
	}
	c.Reason = l.Stream.String() + ": " + l.StreamError
	return c
}

// storeDegraded leaves the answers good: what can't be written is served from
// memory.
func (g *Generator) storeDegraded(l arbiter.Health) *Condition {
	if l.StoreError == "" {
		return nil
	}
	return &Condition{Name: ConditionStoreDegraded, Check: CheckState, Ready: true, Since: l.StoreSince.UTC(),
		Reason: "can't be written, what is new is served from memory until it can: " + l.StoreError}
}

func (g *Generator) stateReset(l arbiter.Health) *Condition {
	since, aside, why := g.lastReset(l)
	if why == "" {
		return nil
	}
	c := &Condition{Name: ConditionStateReset, Check: CheckState, Ready: true, Since: since, quiet: true} // who began anew has told
	c.Reason = "earlier positions are lost: " + why
	if aside != "" {
		c.Reason = fmt.Sprintf("earlier positions are lost, the old state file was set aside as %s: %s", aside, why)
	}
	return c
}

// lastReset says when the state was last begun anew in this run, at its start
// too, where the old file is and why; "" when it was not.
func (g *Generator) lastReset(l arbiter.Health) (since time.Time, aside, why string) {
	switch {
	case l.Resets > 0:
		return l.ResetAt.UTC(), l.ResetAside, l.ResetReason
	case g.report.Reason != nil:
		return g.ago(g.cfg.Clock.Mono() - g.began), g.report.SetAside, g.report.Reason.Error()
	default:
		return time.Time{}, "", ""
	}
}

// inspectionFailing names the pods, those that began to fail first first.
func (g *Generator) inspectionFailing(l arbiter.Health) *Condition {
	if len(l.Faults) == 0 {
		return nil
	}
	var pods, why []string
	for _, f := range l.Faults[:min(len(l.Faults), namedPods)] {
		name := f.Key
		if f.Pod.Name != "" {
			name = f.Pod.Namespace + "/" + f.Pod.Name
		}
		text := fmt.Sprintf("of pod %s, %d", name, f.Entities)
		if !f.Since.IsZero() {
			text += " since " + f.Since.UTC().Format(time.RFC3339)
		}
		if f.Err != "" {
			text += " (" + f.Err + ")"
		}
		pods, why = append(pods, text), append(why, f.Key) // an error names one of a pod's entities, now this and now that
	}
	if more := len(l.Faults) - namedPods; more > 0 {
		pods = append(pods, fmt.Sprintf("and some of %d more pods", more))
	}
	return &Condition{Name: ConditionInspectionFailing, Check: CheckInspections, Ready: true, Since: l.Faults[0].Since.UTC(),
		moving: true, why: strings.Join(why, " "),
		Reason: "sandboxes and containers can't be inspected: " + strings.Join(pods, "; ")}
}

func (g *Generator) clockStepped(l arbiter.Health) *Condition {
	if l.ClockStep == 0 || l.StepAge >= stepShown {
		return nil
	}
	return &Condition{Name: ConditionClockStepped, Check: CheckClock, Ready: true, Since: l.Stepped.UTC(),
		Reason: fmt.Sprintf("the wall clock stepped by %v; times of the runtime count as old until a full list after that", l.ClockStep.Round(time.Millisecond))}
}

package pleg

import (
	"context"
	"log/slog"
	"time"
)

const (
	// conditionPoll is how often conditions are looked at that only time brings
	// about. Changes are looked at when they come.
	conditionPoll = time.Second
	// flapShort: a condition that comes back within this time of its end flaps.
	// Its next end then has to last for settleFirst, and for twice as long each
	// time, up to settleMost, before it counts. So one that comes and goes for
	// ever costs two lines in five minutes, after a handful at first.
	flapShort   = time.Minute
	settleFirst = 5 * time.Second
	settleMost  = 5 * time.Minute
)

// conditionLog writes one line when a condition starts, one when it has ended,
// and in between one when its cause has changed, but of each trouble ever more
// rarely: settleFirst after its start at the earliest, then twice as long after
// each line. It has no clock: now is monotonic time.
type conditionLog struct {
	log   *slog.Logger
	known map[string]*conditionState
}

// conditionState is what is remembered of one condition.
type conditionState struct {
	told   bool          // its start was logged, its end not yet
	holds  bool          // as of the last look
	start  time.Duration // of what was told, or is to be
	clear  time.Duration // when it last ended
	ended  time.Duration // when its end was last logged
	times  int           // starts since the one that was told
	settle time.Duration // how long the end has to last
	ever   bool          // an end was logged before
	cause  string        // as last told
	again  time.Duration // when another cause may be told
	wait   time.Duration // how long it may not be told after that
}

func newConditionLog(log *slog.Logger) *conditionLog {
	return &conditionLog{log: log, known: map[string]*conditionState{}}
}

// look takes the conditions that hold now.
func (l *conditionLog) look(now time.Duration, holding []Condition) {
	holds := map[string]*Condition{}
	for i := range holding {
		holds[holding[i].Name] = &holding[i]
	}
	for _, name := range Conditions {
		s := l.known[name]
		if s == nil {
			s = new(conditionState)
			l.known[name] = s
		}
		if c := holds[name]; c != nil {
			l.holding(now, s, c)
		} else {
			l.gone(now, s, name)
		}
	}
}

// holding notes that a condition holds, and tells of it once.
func (l *conditionLog) holding(now time.Duration, s *conditionState, c *Condition) {
	if !s.holds {
		s.holds = true
		if !s.told {
			s.start, s.times = now, 0
		}
		s.times++
	}
	if c.quiet || s.told && (c.cause() == s.cause || now < s.again) {
		return
	}
	level := slog.LevelError
	if c.Ready {
		level = slog.LevelWarn
	}
	if s.told {
		s.wait *= 2
		l.log.Log(context.Background(), level, "trouble has another reason", "condition", c.Name, "reason", c.Reason, "ready", c.Ready)
	} else {
		s.wait = settleFirst
		s.begin(now)
		l.log.Log(context.Background(), level, "trouble", "condition", c.Name, "reason", c.Reason, "ready", c.Ready)
	}
	s.told, s.cause, s.again = true, c.cause(), now+s.wait
}

// begin decides how long the end of a condition has to last that starts now.
func (s *conditionState) begin(now time.Duration) {
	switch {
	case !s.ever || now-s.ended > max(flapShort, 2*s.settle):
		s.settle = 0
	default:
		s.settle = min(max(2*s.settle, settleFirst), settleMost)
	}
}

// gone notes that a condition doesn't hold, and tells when its end has lasted.
func (l *conditionLog) gone(now time.Duration, s *conditionState, name string) {
	if s.holds {
		s.holds, s.clear = false, now
	}
	if !s.told || now-s.clear < s.settle {
		return
	}
	s.told, s.ever, s.ended = false, true, now
	l.log.Info("recovered", "condition", name, "after", (s.clear - s.start).Round(time.Millisecond), "times", s.times)
}

// watchConditions logs conditions until ctx ends.
func (g *Generator) watchConditions(ctx context.Context) error {
	l := newConditionLog(g.cfg.Logger)
	changed := g.loop.HealthChanged()
	for {
		l.look(g.cfg.Clock.Mono(), g.Health().Conditions)
		timer := g.cfg.Clock.NewTimer(conditionPoll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

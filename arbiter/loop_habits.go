package arbiter

// RuntimeHabits returns what is known of the present runtime.
func (l *Loop) RuntimeHabits() RuntimeHabits {
	if h := l.habits.Load(); h != nil {
		return *h
	}
	return RuntimeHabits{Known: HabitsOf("", "")}
}

// noteHabits keeps RuntimeHabits and says once in the log what was learnt.
func (l *Loop) noteHabits(in Input, out *Output) {
	if _, ok := in.(*RuntimeSeen); !ok && len(out.Habits) == 0 {
		return
	}
	h := l.core.presentHabits()
	l.habits.Store(&h)
	for _, c := range out.Habits {
		if c.Learnt {
			l.cfg.Log.Info("the runtime sends no events of this kind, so they count as missed no more", "kind", c.Kind.String())
		} else {
			l.cfg.Log.Info("the runtime does send events of this kind, so one that is missing counts as missed", "kind", c.Kind.String())
		}
	}
}

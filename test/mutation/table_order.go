package main

// The tests beside the transcripts: those of the core, and those of the loop round it.
const (
	coreTests = "^Test(OrderDoesNotMatter|EveryOrder|Convergence|OneLie|Known|EachState|NothingIsRemoved|StepIsDeterministic|" +
		"Wins|WhichEvents|Ladders|EventMistakes|MissMarks|HabitsOf|DeathsAreNever)"
	loopTests = "^Test(Loop|D2|D3|NoPosition)"
)

// timeMutants break T1 to T4.
var timeMutants = []mutant{
	{
		name: "a call sent together with what is known counts as after it", rules: "T1", file: "timestamps/tick.go",
		old: "return s.From > o.To", new: "return s.From >= o.To", tests: "^TestT1",
	},
	{
		name: "a call counts as after what came while it was in flight", rules: "T1", file: "arbiter/core_observe.go",
		old: "	case o.span.From <= known:\n", new: "	case o.span.To <= known:\n", tests: coreTests,
	},
	{
		name: "a list that was sent before an entity was heard of can miss it", rules: "T1, O4", file: "arbiter/core_removal.go",
		old: "if w.sent <= e.rec.Known {", new: "if w.answered <= e.rec.Known {", tests: coreTests,
	},
	{
		name: "ticks begin anew with each start", rules: "T1", file: "arbiter/loop.go",
		old: "timestamps.NewCounter(highestTick(snap))", new: "timestamps.NewCounter(0)", tests: loopTests,
	},
	{
		name: "an event is as new as its receipt", rules: "T2", file: "arbiter/core_event.go",
		old: "span: timestamps.Receipt(ev.At.Tick)", new: "span: timestamps.Call(ev.At.Tick, ev.At.Tick)", tests: coreTests,
	},
	{
		name: "events count as answers to calls", rules: "T2, O3", file: "arbiter/core_event.go",
		old: "span: timestamps.Receipt(ev.At.Tick), source: timestamps.FromStream}",
		new: "span: timestamps.Call(ev.At.Tick, ev.At.Tick), source: timestamps.FromStream, call: true}", tests: coreTests,
	},
	{
		name: "implausible times are believed", rules: "T3", file: "arbiter/core_event.go",
		old: "trusted := anomaly == timestamps.Plausible && c.distrust == 0", new: "trusted := c.distrust == 0", tests: coreTests,
	},
	{
		name: "after a clock step times are believed as before", rules: "T3", file: "arbiter/core_event.go",
		old: "	c.distrust = s.now.Stamp.Tick\n", new: "", tests: coreTests,
	},
	{
		name: "times of before the clock was set back are taken for times of after", rules: "T3", file: "arbiter/core_event.go",
		old: "trusted && !c.setBack.covers(ev.CreatedAt, s.now.Running) &&", new: "trusted &&", tests: coreTests,
	},
	{
		name: "the clock is set back once more, and only what it had then is kept", rules: "T3", file: "arbiter/core_event.go",
		old: "			before = max(before, c.setBack.wall)\n", new: "			before += 0\n", tests: coreTests,
	},
	{
		name: "times of before the clock was set back are doubted for ever", rules: "T3", file: "arbiter/core.go",
		old: "return running < b.until && at <= b.wall", new: "return b.until != 0 && at <= b.wall", tests: coreTests,
	},
	{
		name: "a list sent before a clock step brings the trust in times back", rules: "T3", file: "arbiter/core_list.go",
		old: "c.distrust != 0 && sent.Tick > c.distrust", new: "c.distrust != 0", tests: coreTests,
	},
	{
		name: "the horizon stays when the clock steps", rules: "T3, O6", file: "arbiter/core_event.go",
		old: "	c.horizon.Wall = timestamps.AddClamped(c.horizon.Wall, d)\n", new: "", tests: coreTests,
	},
	{
		name: "a clock step asks for no list", rules: "T3", file: "arbiter/core_event.go",
		old: "	c.wantList(s, s.now.Stamp.Tick)\n", new: "", tests: coreTests,
	},
	{
		name: "a horizon in the future is restored as it was", rules: "T3, O6", file: "arbiter/core.go",
		old: "	c.horizon.Wall = min(c.horizon.Wall, now.Stamp.Wall)\n", new: "", tests: coreTests,
	},
	{
		name: "times in seconds pass for plausible", rules: "T3", file: "timestamps/sanity.go",
		old: "		return Seconds\n", new: "		return Plausible\n", tests: "^TestT3",
	},
	{
		name: "a step of the clock moves no base, so one jump is seen for ever", rules: "T3", file: "timestamps/step.go",
		old: "		d.wall, d.mono = wall, mono\n", new: "", tests: "^TestT3",
	},
	{
		name: "doubt is measured by the wall clock", rules: "T4, O4", file: "arbiter/core_list.go",
		old: "weak := mass || l.ContainerCall.Answered.Mono < c.doubtful", new: "weak := mass || l.ContainerCall.Answered.Wall < c.doubtful",
		tests: coreTests,
	},
	{
		name: "tombstones age by the wall clock", rules: "T4, O6", file: "arbiter/core_tombstones.go",
		old: "s.now.Running - c.tombs[id].RemovedAt", new: "s.now.Stamp.Wall - c.tombs[id].RemovedAt", tests: coreTests,
	},
	{
		name: "running time begins anew with each start", rules: "T4", file: "arbiter/loop.go",
		old: "return l.base.Running + mono - l.started", new: "return mono - l.started", tests: loopTests,
	},
	{
		name: "events don't say in which boot they were seen", rules: "T4", file: "arbiter/core_journal.go",
		old: "BootID:      c.boot,", new: "BootID:      \"\",", tests: coreTests + "|" + loopTests,
	},
}

// orderMutants break O1 to O3.
var orderMutants = []mutant{
	{
		name: "STOPPED is believed", rules: "O1", file: "arbiter/core_event.go",
		old: "			e.stopped = true\n", new: "			climb(r, store.StateDown)\n", tests: coreTests,
	},
	{
		name: "STOPPED proves no start", rules: "O1", file: "arbiter/core_event.go",
		old: "		// It proves the start; the end only where a status agrees.\n		e.proveStarted(o.source)\n", new: "", tests: coreTests,
	},
	{
		name: "a state sinks with any answer", rules: "O1, O3", file: "arbiter/core_ladder.go",
		old: "if to > r.State {", new: "if to != store.StateNone {", tests: coreTests,
	},
	{
		name: "an unknown container counts as exited", rules: "O1", file: "arbiter/core_ladder.go",
		old: "		return store.StateDown\n	default:\n		return store.StateNone\n	}\n}\n\n// claimed",
		new: "		return store.StateDown\n	default:\n		return store.StateDown\n	}\n}\n\n// claimed", tests: coreTests,
	},
	{
		name: "STARTED proves nothing", rules: "O1", file: "arbiter/core_event.go",
		old: "		r.Shown |= bit(store.StateUp)\n		e.proveStarted(o.source)\n", new: "", tests: coreTests,
	},
	{
		name: "an exit without its code is told at once", rules: "O2", file: "arbiter/core_observe.go",
		old: "case shown == store.StateDown && r.Kind == store.KindContainer && !r.Exit.Known():", new: "case r.ID == \"\":", tests: coreTests,
	},
	{
		name: "a status that says exited is believed without code and finish time", rules: "O2", file: "arbiter/core_observe.go",
		old: "case shown == store.StateDown && r.Kind == store.KindContainer && !r.Exit.Known():",
		new: "case shown == store.StateDown && r.Kind == store.KindContainer && !r.Exit.Known() && !it.Full:", tests: coreTests,
	},
	{
		name: "a code without a finish time is taken as an exit", rules: "O2, O7", file: "arbiter/core_merge.go",
		old: "	if it.Exit.Known() {", new: "	if it.Exit.Known() || it.Full {", tests: coreTests,
	},
	{
		name: "a start is told before its time was asked for", rules: "O2", file: "arbiter/core_journal.go",
		old: "if c.awaitsDetails(e) && !removed {", new: "if c.awaitsDetails(e) && removed {", tests: coreTests,
	},
	{
		name: "more than one inspection is waited for", rules: "O2", file: "arbiter/core_journal.go",
		old: "case e.looked || c.asks", new: "case c.asks", tests: coreTests,
	},
	{
		name: "a start that the end denies is told", rules: "O2", file: "arbiter/core_observe.go",
		old: "	if o.inspect {\n		e.voidStart(it)\n	}\n", new: "", tests: coreTests,
	},
	{
		name: "an end without a start denies what an event named", rules: "O2", file: "arbiter/core_observe.go",
		old: " && e.heard < store.StateUp {", new: " {", tests: coreTests,
	},
	{
		name: "a start is told without evidence", rules: "O2", file: "arbiter/core_journal.go",
		old: "if r.Journaled < store.StateUp && r.Started {", new: "if r.Journaled < store.StateUp && r.State > store.StateCreated {", tests: coreTests,
	},
	{
		name: "what was created and is gone has died", rules: "O2", file: "arbiter/core_journal.go",
		old: "removed && (r.Started || r.ExitSeen || r.Exit.Known() || bit(store.StateDown)&r.Shown != 0)", new: "removed", tests: coreTests,
	},
	{
		name: "a death waits for its code for ever where inspections fail", rules: "O2", file: "arbiter/core_status.go",
		old: "a.Fails >= exitFails {", new: "a.Fails >= 255 {", tests: coreTests,
	},
	{
		name: "a death waits for its code for ever where inspections don't say it", rules: "O2", file: "arbiter/core_status.go",
		old: "e.rec.GaveUp&store.ReasonDetails != 0 {", new: "e.rec.GaveUp&store.ReasonDetails == 255 {", tests: coreTests,
	},
	{
		name: "an exit that was shown by mistake is kept", rules: "O2", file: "arbiter/core_observe.go",
		old: "		r.ExitSeen = false\n", new: "", tests: coreTests,
	},
	{
		name: "a list confirms a return to an earlier state", rules: "O3", file: "arbiter/core_observe.go",
		old: "case o.inspect && o.span.From > e.lowered && !c.loweredLately(s, &e.rec):", new: "case o.span.From > e.lowered && !c.loweredLately(s, &e.rec):",
		tests: coreTests,
	},
	{
		name: "one inspection lowers a state", rules: "O3", file: "arbiter/core_observe.go",
		old: "	case e.lowered == 0:\n", new: "	case e.lowered == 0 && !o.inspect:\n", tests: coreTests,
	},
	{
		name: "an answer in between that shows the state does not end the suspicion", rules: "O3", file: "arbiter/core_observe.go",
		old: "		e.lowered = 0\n	case o.span.From", new: "	case o.span.From", tests: coreTests,
	},
	{
		name: "a return to an earlier state forgets the addresses", rules: "O3, O7", file: "arbiter/core_observe.go",
		old: "CreatedAt: r.CreatedAt, IPs: r.IPs,", new: "CreatedAt: r.CreatedAt,", tests: coreTests,
	},
	{
		name: "the confirming answer is not taken whole", rules: "O3", file: "arbiter/core_observe.go",
		old: "		Shown: bit(shown), Rest: r.Rest,", new: "		Exit: r.Exit, StartedAt: r.StartedAt, Shown: bit(shown), Rest: r.Rest,", tests: coreTests,
	},
	{
		name: "one inspection revives a tombstone", rules: "O3, O6", file: "arbiter/core_tombstones.go",
		old: "	case !asked:\n", new: "	case !asked && !o.inspect:\n", tests: coreTests,
	},
	{
		name: "a list revives a tombstone", rules: "O3, O6", file: "arbiter/core_tombstones.go",
		old: "case o.inspect && o.span.From > first &&", new: "case o.span.From > first &&", tests: coreTests,
	},
	{
		name: "an inspection that overlaps the first answer revives a tombstone", rules: "O3, O6", file: "arbiter/core_tombstones.go",
		old: "case o.inspect && o.span.From > first &&", new: "case o.inspect && o.span.To > first &&", tests: coreTests,
	},
}

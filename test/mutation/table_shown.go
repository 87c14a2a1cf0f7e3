package main

// shownMutants break what an operator relies on: conditions, metrics and the watchdog.
var shownMutants = []mutant{
	{
		name: "an arbiter without progress is no condition", rules: "conditions", file: "conditions.go",
		old: "	if l.Progress < livenessTimeout {\n", new: "	if l.Progress >= 0 {\n", tests: "^Test(Conditions|ConditionArbiterStuck)$",
	},
	{
		name: "relists that fail are no condition", rules: "conditions", file: "conditions.go",
		old: "	if !l.Relisted || l.ListError == \"\" {\n", new: "	if !l.Relisted || l.ListError != \"\" {\n", tests: "^TestConditions$",
	},
	{
		name: "the period by which the next relist was to come counts against it", rules: "conditions", file: "conditions.go",
		old: "	late := l.RelistAge - period //", new: "	late := l.RelistAge //", tests: "^Test(Conditions|ReadyWhenAStretchedPeriodIsCutShort)$",
	},
	{
		name: "a stream that is down makes a hybrid agent unready", rules: "conditions", file: "conditions.go",
		old: "Ready: g.cfg.Mode == ModeHybrid,", new: "Ready: g.cfg.Mode == ModeEvented,", tests: "^TestConditions$",
	},
	{
		name: "a state that was lost before the start is not told", rules: "conditions", file: "conditions.go",
		old: "	case g.report.Reason != nil:\n", new: "	case g.report.Reason != nil && l.Resets > 0:\n", tests: "^TestConditionStateReset$",
	},
	{
		name: "a call that ended counts as in flight", rules: "metrics", file: "internal/metrics/observe.go",
		old: "	m.callsInFlight.WithLabelValues(label).Dec()\n", new: "", tests: "^TestValues$",
	},
	{
		name: "NotFound counts as an error", rules: "metrics", file: "internal/metrics/observe.go",
		old: "		outcome = resultNotFound\n", new: "		outcome = resultError\n", tests: "^TestValues$",
	},
	{
		name: "misses are not counted by kind", rules: "metrics", file: "internal/metrics/observe.go",
		old: "m.misses.WithLabelValues(miss.Kind.String()).Inc()", new: "m.misses.WithLabelValues(arbiter.MissKind(0).String()).Inc()\n		_ = miss", tests: "^TestValues$",
	},
	{
		name: "a runtime's words become labels", rules: "metrics", file: "internal/metrics/metrics.go",
		old: "	return \"other\"\n}\n\n// codeLabel", new: "	return method\n}\n\n// codeLabel", tests: "^TestLabelsAreBounded$",
	},
	{
		name: "an age is shown before the first relist", rules: "metrics", file: "internal/metrics/gauges.go",
		old: "	if g.RelistAge >= 0 {\n", new: "	if g.RelistAge > -100 {\n", tests: "^TestNoAgeBeforeTheFirstRelist$",
	},
	{
		name: "an agent that is stopped is not ended", rules: "watchdog", file: "cmd/plegd/watchdog.go",
		old: "			if missed++; missed < signsPerLimit {\n", new: "			if missed++; missed < 1_000_000 {\n", tests: "^TestWatchdogEndsAStoppedAgent$", hangs: true,
	},
	{
		name: "a sign of life counts for nothing", rules: "watchdog", file: "cmd/plegd/watchdog.go",
		old: "		case <-alive:\n			missed = 0\n", new: "		case <-alive:\n", tests: "^TestWatchdogLeavesAHealthyAgentAlone$",
	},
	{
		name: "signals don't reach the agent", rules: "watchdog", file: "cmd/plegd/watchdog.go",
		old: "			_ = child.Process.Signal(sig) // it may have ended just now\n", new: "			_ = sig\n", tests: "^TestWatchdogLeavesAHealthyAgentAlone$", hangs: true,
	},
	{
		name: "an agent without progress says that it lives", rules: "watchdog", file: "cmd/plegd/watchdog.go",
		old: "			if alive() && send() != nil {\n", new: "			if send() != nil {\n", tests: "^TestNoSignOfLifeWithoutProgress$",
	},
	{
		name: "an agent outlives its supervisor", rules: "watchdog", file: "cmd/plegd/watchdog.go",
		old: "				gone()\n				cancel()\n", new: "				cancel()\n", tests: "^TestAgentEndsWithItsSupervisor$", hangs: true,
	},
}

package main

// relistMutants break the rules of the adaptive relist.
var relistMutants = []mutant{
	{
		name: "a change that happened before the stream was up is a miss", rules: "relist", file: "arbiter/core_misses.go",
		old: "c.lists == 0 || c.listBefore(s) <= c.upSince {", new: "c.lists == 0 {", tests: coreTests,
	},
	{
		name: "an event that comes after the list is a miss at once", rules: "relist", file: "arbiter/core_misses.go",
		old: "if c.lists <= m.list || mono-m.mono < missAfter {", new: "if c.lists < m.list {", tests: coreTests,
	},
	{
		name: "an event that came takes no mark off", rules: "relist", file: "arbiter/core_misses.go",
		old: "			delete(c.missing, id)\n		} else {", new: "			_ = id\n		} else {", tests: coreTests,
	},
	{
		name: "what a runtime never sends is a miss", rules: "relist", file: "arbiter/core_misses.go",
		old: "		if c.excused(kind) {\n			continue\n		}\n", new: "", tests: coreTests,
	},
	{
		name: "a broken stream hides behind a habit", rules: "relist", file: "arbiter/core_misses.go",
		old: "c.excused(kind) && m.running && m.heard < store.StateDown {", new: "c.excused(kind) && m.running && m.heard < store.StateNone {", tests: coreTests,
	},
	{
		name: "silence about everything teaches a habit", rules: "relist", file: "arbiter/core_habits.go",
		old: "if !learnable.has(k) || !othersCame ||", new: "if !learnable.has(k) ||", tests: coreTests,
	},
	{
		name: "that deaths go untold can be learnt", rules: "relist", file: "arbiter/core_habits.go",
		old: "if !learnable.has(k) || !othersCame ||", new: "if !othersCame ||", tests: coreTests,
	},
	{
		name: "a habit that was learnt outlives an event of its kind", rules: "relist", file: "arbiter/core_habits.go",
		old: "		l.learnt &^= setOf(k)\n", new: "", tests: coreTests,
	},
	{
		name: "another version has the habits of the one before", rules: "relist", file: "arbiter/core_habits.go",
		old: "	c.habits, c.learning = HabitsOf(in.Name, in.Version), learning{}\n", new: "	if !was.known {\n		c.habits = HabitsOf(in.Name, in.Version)\n	}\n", tests: coreTests,
	},
	{
		name: "what is awaited of a runtime is held against the next one", rules: "relist", file: "arbiter/core_habits.go",
		old: "	clear(c.missing)\n	if was.known", new: "	if was.known", tests: coreTests,
	},
	{
		name: "the streams of containerd 1.7 count as shared", rules: "relist", file: "arbiter/core_habits.go",
		old: "		stream: StreamCompeting,\n", new: "		stream: StreamShared,\n", tests: coreTests,
	},
	{
		name: "a stream that opened asks for no list", rules: "relist", file: "arbiter/core_event.go",
		old: "		c.wantList(s, in.At.Tick)\n	}\n	if in.State != c.stream", new: "	}\n	if in.State != c.stream", tests: coreTests,
	},
	{
		name: "a stream that ended leaves the period stretched", rules: "relist", file: "arbiter/core_event.go",
		old: "		s.out.Shrink = true\n		clear(c.missing)", new: "		clear(c.missing)", tests: coreTests,
	},
	{
		name: "events thrown away lead to no list", rules: "relist", file: "arbiter/core.go",
		old: "		s.out.Shrink = true\n		c.wantList(s, in.At.Tick)\n", new: "		s.out.Shrink = true\n", tests: coreTests,
	},
	{
		name: "a list sent before somebody asked answers him", rules: "relist, T1", file: "arbiter/core_request.go",
		old: "	case sent > w.after:\n", new: "	case sent > w.after*0:\n", tests: coreTests + "|" + loopTests,
	},
	{
		name: "misses add no strike", rules: "relist", file: "generic/period.go",
		old: "min(p.strikes+1, maxStrikes)", new: "min(p.strikes, maxStrikes)", tests: "^TestPeriod",
	},
	{
		name: "the period stretches without a stream", rules: "relist", file: "generic/period.go",
		old: "	case v.Clean && p.up && now >= p.next:\n", new: "	case v.Clean && now >= p.next:\n", tests: "^TestPeriod",
	},
	{
		name: "the period is earned by the number of lists", rules: "relist", file: "generic/period.go",
		old: "	case v.Clean && p.up && now >= p.next:\n", new: "	case v.Clean && p.up:\n", tests: "^TestPeriod",
	},
	{
		name: "strikes are forgiven by waiting", rules: "relist", file: "generic/period.go",
		old: "p.current, p.clean, p.next = p.base, 0, 0 }", new: "p.current, p.clean, p.next, p.strikes = p.base, 0, 0, 0 }", tests: "^TestPeriod",
	},
	{
		name: "the period stretches at once after a miss", rules: "relist", file: "generic/period.go",
		old: "		case p.clean < p.needed():\n", new: "		case p.clean < 1:\n", tests: "^TestPeriod",
	},
	{
		name: "what has not started is left to the relists", rules: "relist", file: "generic/starts.go",
		old: "		if a == nil && len(s.byID) < maxStarts {\n", new: "		if false {\n", tests: "^TestUnstartedContainersAreAskedAbout$",
	},
	{
		name: "what has started is asked about", rules: "relist", file: "generic/starts.go",
		old: "	case store.ContainerStarted, store.ContainerDied, store.ContainerRemoved:\n", new: "	case store.ContainerRemoved:\n", tests: "^TestUnstartedContainersAreAskedAbout$",
	},
	{
		name: "what has not started is asked about once", rules: "relist", file: "generic/starts.go",
		old: "		if a.looks == startLooks {\n", new: "		if a.looks == 1 {\n", tests: "^TestUnstartedContainersAreAskedAbout$",
	},
	{
		name: "what is many is the same on every node", rules: "relist", file: "generic/starts.go",
		old: "max(startsListed, r.starts.node/entriesPerLook)", new: "startsListed", tests: "^TestListsForUnstartedContainersAreWorthIt$",
	},
	{
		name: "lists for what has not started come as often as looks", rules: "relist", file: "generic/starts.go",
		old: "		r.starts.last += r.period.base / 2 // lists are a base period apart\n", new: "", tests: "^TestListsForUnstartedContainersAreWorthIt$",
	},
}

package main

// mergeMutants break O7.
var mergeMutants = []mutant{
	{
		name: "an answer without addresses takes the known ones away", rules: "O7", file: "arbiter/core_merge.go",
		old: "	if len(it.IPs) > 0 {\n", new: "	if it.Kind == store.KindSandbox {\n", tests: coreTests,
	},
	{
		name: "an answer without a start takes the known one away", rules: "O7", file: "arbiter/core_merge.go",
		old: "	if it.StartedAt > 0 {\n", new: "	if it.Full {\n", tests: coreTests,
	},
	{
		name: "a list item outranks the status before it", rules: "O7", file: "arbiter/core_merge.go",
		old: "	case old.Full != ev.Full:\n		return ev.Full\n", new: "", tests: coreTests,
	},
	{
		name: "of two concurrent values the one that came last stays", rules: "O7", file: "arbiter/core_merge.go",
		old: "	return order() > 0\n", new: "	return true\n", tests: coreTests,
	},
	{
		name: "what is concurrent is decided by arrival, not by the state shown", rules: "O7", file: "arbiter/core_merge.go",
		old: "	case ev.State != old.State:\n		return ev.State > old.State\n", new: "	case ev.State != old.State:\n		return true\n", tests: coreTests,
	},
	{
		name: "the certainly older value wins", rules: "O7, T1", file: "arbiter/core_merge.go",
		old: "	case old.Span.After(ev.Span):\n		return false\n", new: "	case old.Span.After(ev.Span):\n		return true\n", tests: coreTests,
	},
	{
		name: "unknown values move the stamp", rules: "O7", file: "arbiter/core_merge.go",
		old:   "		put(&r.IPs, &r.Evidence.IPs, &it.IPs, &ev, compareIPs)\n	}\n",
		new:   "		put(&r.IPs, &r.Evidence.IPs, &it.IPs, &ev, compareIPs)\n	} else if wins(&r.Evidence.IPs, &ev, func() int { return 1 }) {\n		r.Evidence.IPs = ev\n	}\n",
		tests: coreTests,
	},
	{
		name: "one stamp serves all groups of fields", rules: "O7", file: "arbiter/core_merge.go",
		old: "	if it.Exit.Known() {\n		put(&r.Exit, &r.Evidence.Exit,", new: "	if it.Exit.Known() {\n		put(&r.Exit, &r.Evidence.Reported,", tests: coreTests,
	},
	{
		name: "a container keeps the pod of its own labels", rules: "O7", file: "arbiter/core_observe.go",
		old: "			r.Identity.Pod = pod\n", new: "", tests: coreTests,
	},
	{
		name: "containers don't follow when their sandbox's pod becomes known", rules: "O7", file: "arbiter/core_observe.go",
		old: "		c.edit(s, id).rec.Identity.Pod = r.Identity.Pod\n", new: "		_ = id\n", tests: coreTests,
	},
	{
		name: "of a pod's sandboxes the highest attempt goes before a ready one", rules: "O7", file: "arbiter/core_pod.go",
		old: "		compareBool(a.State == store.StateUp, b.State == store.StateUp),\n		cmp.Compare(a.Identity.Attempt, b.Identity.Attempt),\n",
		new: "		cmp.Compare(a.Identity.Attempt, b.Identity.Attempt),\n		compareBool(a.State == store.StateUp, b.State == store.StateUp),\n", tests: coreTests,
	},
	{
		name: "of a pod's sandboxes the one first seen goes last", rules: "O7", file: "arbiter/core_pod.go",
		old: "cmp.Compare(a.FirstSeen, b.FirstSeen)", new: "cmp.Compare(b.FirstSeen, a.FirstSeen)", tests: coreTests,
	},
	{
		name: "a pod shows the address of a sandbox before", rules: "O7", file: "arbiter/core_pod.go",
		old: "if e := c.ents[id]; e != nil && !e.rec.Provisional &&", new: "if e := c.ents[id]; e != nil && !e.rec.Provisional && len(e.rec.IPs) > 0 &&", tests: coreTests,
	},
	{
		name: "a pod without a UID is keyed by its bare sandbox id", rules: "O7", file: "store/record.go",
		old: "	keyOfSandbox = \"sandbox:\"\n", new: "	keyOfSandbox = \"\"\n", tests: "^TestPodKey",
	},
}

// questionMutants break O8 and O9.
var questionMutants = []mutant{
	{
		name: "an older answer clears the queue", rules: "O8", file: "arbiter/core_queue.go",
		old: "	if span.From <= a.Since {\n		return\n	}\n", new: "", tests: coreTests,
	},
	{
		name: "a failed call clears the queue", rules: "O8", file: "arbiter/core_queue.go",
		old: "			a.Fails = saturate(a.Fails)\n		}\n		c.setAsk(s, a, false)\n", new: "			a.Fails = saturate(a.Fails)\n		}\n		c.dropAsk(s, a.ID)\n", tests: coreTests,
	},
	{
		name: "a call that went sooner lengthens the back-off", rules: "O8", file: "arbiter/core_queue.go",
		old: "		if call.attempt >= int(a.Fails) {\n", new: "		if call.attempt >= 0 {\n", tests: coreTests,
	},
	{
		name: "a list settles removals alone", rules: "O8", file: "arbiter/core_queue.go",
		old: "		case a.Why&why == 0:\n", new: "		case a.Why&why == 0 || !inspect && why != store.ReasonRemoval:\n", tests: coreTests,
	},

	{
		name: "UNKNOWN is asked about for ever", rules: "O8", file: "arbiter/core_queue.go",
		old: "	store.ReasonUnknown:    5,\n", new: "", tests: coreTests,
	},
	{
		name: "a ready sandbox without address is not asked about", rules: "O8", file: "arbiter/core_queue.go",
		old: "len(r.IPs) == 0 && !r.HostNetwork && !r.Evidence.Rest.Span.IsZero()", new: "len(r.IPs) == 0 && r.HostNetwork && !r.Evidence.Rest.Span.IsZero()", tests: coreTests,
	},
	{
		name: "137 is taken as final", rules: "O8", file: "arbiter/core_queue.go",
		old: "r.Exit.Code == 137 && r.Exit.Reason != \"OOMKilled\"", new: "r.Exit.Code == 137 && r.Exit.Reason == \"OOMKilled\"", tests: coreTests,
	},
	{
		name: "255 is taken as final", rules: "O8", file: "arbiter/core_queue.go",
		old: "r.Exit.Code == 255\n", new: "r.Exit.Code == 256\n", tests: coreTests,
	},
	{
		name: "a STOPPED that the payload contradicts is not looked into", rules: "O8", file: "arbiter/core_event.go",
		old: "			c.want(s, r.ID, store.ReasonContradict, o.span.To)\n		}\n	case store.StateRemoved:", new: "		}\n	case store.StateRemoved:", tests: coreTests,
	},
	{
		name: "tries are not bounded where list and status disagree", rules: "O8", file: "arbiter/core_observe.go",
		old: "if !o.inspect && e.rec.Disputes >= maxDisputes {", new: "if o.inspect && e.rec.Disputes >= maxDisputes {", tests: coreTests,
	},
	{
		name: "the queue is not restored", rules: "O8, D1", file: "arbiter/core.go",
		old: "		c.asks[a.ID] = *a\n	}\n}\n\n// Horizon", new: "		_ = *a\n	}\n}\n\n// Horizon", tests: coreTests,
	},
	{
		name: "what was restored is not asked again", rules: "O8", file: "arbiter/core.go",
		old: "		s.ask(id, false)\n	}\n	return c.finish(s)\n}\n\n// Step", new: "		_ = id\n	}\n	return c.finish(s)\n}\n\n// Step", tests: coreTests,
	},
	{
		name: "a fresh reason waits as long as one that was tried in vain", rules: "O8", file: "arbiter/core_queue.go",
		old: "	fresh := a.Why&why == 0\n", new: "	fresh := false\n", tests: coreTests,
	},
	{
		name: "a mass change is asked about one by one", rules: "O8", file: "arbiter/core_list.go",
		old: "		e.bulk = mass || len(pods) > massLooks\n", new: "		e.bulk = false\n", tests: coreTests,
	},
	{
		name: "a question about something gone stays in the queue", rules: "O8", file: "arbiter/core_removal.go",
		old: "	c.dropAsk(s, id)\n	if e.fault", new: "	if e.fault", tests: coreTests,
	},
	{
		name: "states are told again and again", rules: "O9", file: "arbiter/core_journal.go",
		old: "	r.Journaled = state\n", new: "", tests: coreTests,
	},
	{
		name: "a death is told before the start", rules: "O9", file: "arbiter/core_journal.go",
		old: "	if r.Journaled < store.StateUp && r.Started {\n",
		new: "	if r.State == store.StateDown && r.Started && r.Journaled == store.StateCreated {\n		c.journalState(s, e, store.StateDown)\n	}\n	if r.Journaled != store.StateUp && r.Started && r.State > store.StateCreated && e.pub != nil && e.pub.Journaled < store.StateUp {\n", tests: coreTests,
	},
	{
		name: "a return to an earlier state is not told", rules: "O9", file: "arbiter/core_observe.go",
		old: "	c.journalRegression(s, r)\n", new: "", tests: coreTests,
	},
	{
		name: "a return to an earlier state starts no life", rules: "O9", file: "arbiter/core_observe.go",
		old: "next.Incarnation, next.Journaled, void = r.Incarnation+1, shown, store.StateNone", new: "next.Journaled, void = shown, store.StateNone", tests: coreTests,
	},
	{
		name: "what nobody was told of is taken back", rules: "O2, O3, O9", file: "arbiter/core_observe.go",
		old: "	told, void := r.Journaled > shown, shown+1\n", new: "	told, void := true, shown+1\n", tests: coreTests,
	},
	{
		name: "returns to an earlier state are without a limit", rules: "O9", file: "arbiter/core_observe.go",
		old: "	return r.LoweredAt != 0 && s.now.Running-r.LoweredAt < lowerGap\n", new: "	return r.LoweredAt < 0 && s.now.Running-r.LoweredAt < lowerGap\n", tests: coreTests,
	},
	{
		name: "what is learnt late is not told", rules: "O9", file: "arbiter/core_journal.go",
		old: "	if changed == nil {\n", new: "	if changed == nil || r.State != store.StateNone {\n", tests: coreTests,
	},
	{
		name: "an amendment doesn't say that the reason changed", rules: "O9", file: "arbiter/core_journal.go",
		old: "	add(store.StateDown, old.Exit.Reason != r.Exit.Reason, store.FieldReason)\n", new: "", tests: coreTests,
	},
	{
		name: "UNKNOWN is told each time", rules: "O9", file: "arbiter/core_journal.go",
		old: "	r.ToldUnknown = true\n", new: "", tests: coreTests,
	},
	{
		name: "a step depends on the order of a map", rules: "the core is deterministic", file: "arbiter/core_list.go",
		old: "	slices.Sort(absent)\n", new: "", tests: coreTests,
	},
	{
		name: "a step changes what it shares with a clone", rules: "the core is deterministic", file: "arbiter/core.go",
		old: "		d := *e\n		d.owner = c.owner\n		e = &d\n		c.ents[id] = e\n", new: "		e.owner = c.owner\n", tests: coreTests,
	},
}

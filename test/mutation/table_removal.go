package main

// removalMutants break O4 to O6.
var removalMutants = []mutant{
	{
		name: "DELETED alone removes", rules: "O4", file: "arbiter/core_removal.go",
		old: "if e.deletedStands() && e.absentStands() && !e.absent.weak {", new: "if e.deletedStands() {", tests: coreTests,
	},
	{
		name: "one absence removes", rules: "O4", file: "arbiter/core_removal.go",
		old: "	case !e.absentStands():\n", new: "	case !weak:\n		c.remove(s, e)\n	case !e.absentStands():\n", tests: coreTests,
	},
	{
		name: "a weak absence is as good as any beside a DELETED", rules: "O4", file: "arbiter/core_removal.go",
		old: "case e.deletedStands() && !weak:", new: "case e.deletedStands():", tests: coreTests,
	},
	{
		name: "two lists that overlap are two witnesses", rules: "O4", file: "arbiter/core_removal.go",
		old: "case w.sent > e.absent.answered && (", new: "case w.answered > e.absent.answered && (", tests: coreTests,
	},
	{
		name: "weak witnesses need no time between them", rules: "O4", file: "arbiter/core_removal.go",
		old: "(!weak && !e.absent.weak || call.Sent.Mono", new: "(!weak && !e.absent.weak || call.Sent.Wall", tests: coreTests,
	},
	{
		name: "a second witness is asked for before it can count", rules: "O4", file: "arbiter/core_queue.go",
		old: "(e.absent.weak || s.now.Stamp.Mono < c.doubtful)", new: "e.absent.weak", tests: coreTests,
	},
	{
		name: "a witness stands though a later answer showed the entity", rules: "O4", file: "arbiter/core_removal.go",
		old: "return e.absent.sent > e.rec.Known", new: "return e.absent.sent != 0", tests: coreTests,
	},
	{
		name: "a DELETED stands though a later answer showed the entity", rules: "O4", file: "arbiter/core_removal.go",
		old: "return e.deleted != 0 && e.deleted >= e.rec.Known", new: "return e.deleted != 0", tests: coreTests,
	},
	{
		name: "a list that lost half of everything is believed", rules: "O4", file: "arbiter/core_list.go",
		old: "mass := live >= massMin && lost*massShare >= live", new: "mass := live < 0 && lost*massShare >= live", tests: coreTests,
	},
	{
		name: "a new connection raises no doubt", rules: "O4", file: "arbiter/core.go",
		old: "		if c.connected {\n			c.doubt(in.At.Mono)\n		}\n", new: "", tests: coreTests,
	},
	{
		name: "the first connection raises doubt", rules: "O4", file: "arbiter/core.go",
		old: "		if c.connected {\n			c.doubt(in.At.Mono)\n		}\n", new: "		c.doubt(in.At.Mono)\n", tests: coreTests,
	},
	{
		name: "the end of the stream raises no doubt", rules: "O4", file: "arbiter/core_event.go",
		old: "if in.State == StreamDown && c.stream == StreamUp {", new: "if in.State == StreamOff && c.stream == StreamUp {", tests: coreTests,
	},
	{
		name: "a stream that opened again raises no doubt", rules: "O4", file: "arbiter/core_event.go",
		old: "		if c.wasUp {\n			c.doubt(in.At.Mono)\n		}\n", new: "", tests: coreTests,
	},
	{
		name: "a list after one that failed raises no doubt", rules: "O4", file: "arbiter/core_list.go",
		old: "			c.doubt(l.ContainerCall.Answered.Mono)\n", new: "", tests: coreTests,
	},
	{
		name: "an inspection while there is doubt is as good as any", rules: "O4", file: "arbiter/core_status.go",
		old: "in.Call.Answered.Mono < c.doubtful)", new: "false)", tests: coreTests,
	},
	{
		name: "a look while there is doubt is as good as any", rules: "O4", file: "arbiter/core_list.go",
		old: "	weak := l.ContainerCall.Answered.Mono < c.doubtful\n	listed := listedIn(l)\n", new: "	weak := false\n	listed := listedIn(l)\n", tests: coreTests,
	},
	{
		name: "a failed inspection is a witness", rules: "O4", file: "arbiter/core_status.go",
		old: "		c.inspectionFailed(s, in, call)\n	case in.NotFound:", new: "		c.notFound(s, in)\n	case in.NotFound:", tests: coreTests,
	},
	{
		name: "a payload without a container is a witness", rules: "O4", file: "arbiter/core_event.go",
		old: "	if ev.ID == \"\" {\n",
		new: "	if len(ev.Containers) == 0 && c.ents[ev.ID] != nil {\n		c.deletedClaimed(s, c.edit(s, ev.ID), ev.At.Tick)\n	}\n	if ev.ID == \"\" {\n", tests: coreTests,
	},
	{
		name: "a list by the pod's label proves an absence", rules: "O4", file: "arbiter/core_list.go",
		old: "				c.want(s, id, store.ReasonRemoval, callFor(l, e.rec.Kind).Answered.Tick)\n",
		new: "				c.missed(s, c.edit(s, id), callFor(l, e.rec.Kind), 0, false)\n", tests: coreTests,
	},
	{
		name: "every event introduces what it names", rules: "O5", file: "arbiter/core_event.go",
		old: "ev.CreatedAt > c.lastList.Wall && ev.CreatedAt > c.horizon.Wall", new: "ev.CreatedAt > c.horizon.Wall", tests: coreTests,
	},
	{
		name: "events introduce what they name before any list has completed", rules: "O5", file: "arbiter/core_event.go",
		old: "&& c.lists > 0 &&", new: "&&", tests: coreTests,
	},
	{
		name: "an answer introduces what a later list has lacked", rules: "O5", file: "arbiter/core_observe.go",
		old: "span.From > max(c.horizon.Tick, c.covered)", new: "span.From > c.horizon.Tick", tests: coreTests,
	},
	{
		name: "a list covers containers from the sending of its sandboxes", rules: "O5", file: "arbiter/core_list.go",
		old: "max(c.covered, sent.Tick, l.ContainerCall.Sent.Tick)", new: "max(c.covered, sent.Tick)", tests: coreTests,
	},
	{
		name: "what an event's type alone speaks of is taken as there", rules: "O5", file: "arbiter/core_event.go",
		old: "	o.new = false\n	if state", new: "	if state", tests: coreTests,
	},
	{
		name: "provisional records are told", rules: "O5", file: "arbiter/core_journal.go",
		old: "	if r.Provisional {\n		return\n	}\n	removed", new: "	removed", tests: coreTests,
	},
	{
		name: "a provisional record that is gone leaves no tombstone", rules: "O5", file: "arbiter/core_removal.go",
		old: "	c.setTombstone(s, &e.rec)\n	c.tombOrder = append(c.tombOrder, id)\n",
		new: "	if e.rec.Incarnation == 1 && e.pub != nil && e.pub.Provisional {\n		return\n	}\n	c.setTombstone(s, &e.rec)\n	c.tombOrder = append(c.tombOrder, id)\n", tests: coreTests,
	},
	{
		name: "what events proved of something gone is not told", rules: "O5", file: "arbiter/core_removal.go",
		old: "		if e.rec.Quiet {\n", new: "		if !e.rec.Quiet {\n", tests: coreTests,
	},
	{
		name: "a late event revives a tombstone", rules: "O5, O6", file: "arbiter/core_tombstones.go",
		old: "	if !o.call {\n		c.amendTombstone(s, t, it, o)\n		return nil\n	}\n",
		new: "	if !o.call && rung(it.Kind, it.State) == store.StateUp {\n		return c.reviveEntity(s, t, it, o)\n	}\n", tests: coreTests,
	},
	{
		name: "tombstones go though a call from before is in flight", rules: "O6", file: "arbiter/core_tombstones.go",
		old: "return s.now.OldestCall == 0 || t.Removed < s.now.OldestCall", new: "return t.Removed > 0 || s.now.OldestCall == 0", tests: coreTests,
	},
	{
		name: "no horizon is kept", rules: "O6", file: "arbiter/core_tombstones.go",
		old: "		c.horizon.Tick = max(c.horizon.Tick, t.Removed)\n", new: "", tests: coreTests,
	},
	{
		name: "the horizon is when a tombstone is forgotten, not when it was removed", rules: "O6, T3", file: "arbiter/core_tombstones.go",
		old: "timestamps.AddClamped(s.now.Stamp.Wall, -age(id))", new: "timestamps.AddClamped(s.now.Stamp.Wall, -age(id)*0)", tests: coreTests,
	},
	{
		name: "tombstones are without number", rules: "O6", file: "arbiter/core_tombstones.go",
		old: "!expired && len(c.tombs) <= c.limits.Tombstones ||", new: "!expired ||", tests: coreTests,
	},
	{
		name: "tombstones stay for ever", rules: "O6", file: "arbiter/core_tombstones.go",
		old: "	due := age(c.tombOrder[0]) >= c.limits.TombstoneAge+evictSlack\n", new: "	due := false\n", tests: coreTests,
	},
	{
		name: "tombstones are not handed over to be stored", rules: "O6, D1", file: "arbiter/core_removal.go",
		old: "	s.out.Changes.Tombstones = append(s.out.Changes.Tombstones, &t)\n", new: "	if len(t.ID) == 0 {\n		s.out.Changes.Tombstones = append(s.out.Changes.Tombstones, &t)\n	}\n", tests: coreTests,
	},
	{
		name: "a code that comes after the removal is thrown away", rules: "O6", file: "arbiter/core_tombstones.go",
		old: "		r.Exit, r.Evidence.Exit = it.Exit, ev\n", new: "", tests: coreTests,
	},
	{
		name: "a code that comes after the removal is not journaled", rules: "O6, O9", file: "arbiter/core_tombstones.go",
		old: "	if !r.Quiet {\n		c.journalAmendment(s, t, &r)", new: "	if r.Quiet {\n		c.journalAmendment(s, t, &r)", tests: coreTests,
	},
}

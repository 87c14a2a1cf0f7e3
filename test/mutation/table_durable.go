package main

// durableMutants break D1 to D4.
var durableMutants = []mutant{
	{
		name: "a record that changed is not handed over", rules: "D1", file: "arbiter/core.go",
		old: "		s.out.Changes.Records = append(s.out.Changes.Records, e.pub)\n", new: "		if e.pub.State == store.StateNone {\n			s.out.Changes.Records = append(s.out.Changes.Records, e.pub)\n		}\n", tests: coreTests,
	},
	{
		name: "a relist that finds nothing writes", rules: "D1", file: "arbiter/core.go",
		old: "	if !same {\n", new: "	if e.pub != nil {\n", tests: coreTests + "|" + loopTests,
	},
	{
		name: "readers are told before the commit", rules: "D1", file: "arbiter/loop_commit.go",
		old: "		err := l.prepare(p)\n		if err == nil {\n", new: "		err := l.prepare(p)\n		if err == nil {\n			l.publish(p, false)\n", tests: loopTests,
	},
	{
		name: "one entity's change is split", rules: "D1", file: "arbiter/loop_pending.go",
		old: "(end-begin < partSize || end <= reach)", new: "end-begin < partSize && reach >= 0", tests: loopTests,
	},
	{
		name: "a large relist is one transaction", rules: "D1", file: "arbiter/loop_pending.go",
		old: "(end-begin < partSize || end <= reach)", new: "(end-begin < 1_000_000 || end <= reach)", tests: loopTests,
	},
	{
		name: "commits are not spaced", rules: "D1", file: "arbiter/loop_commit.go",
		old: "	if !l.limiter.AllowN(time.Unix(0, int64(l.cfg.Clock.Mono())), 1) {\n		return nil\n	}\n", new: "", tests: loopTests,
	},
	{
		name: "after a kill the numbers go on from the last one written", rules: "D2", file: "arbiter/loop_numbers.go",
		old: "		next = base.Reserved + 1\n", new: "		next = base.Last + 1\n", tests: loopTests,
	},
	{
		name: "a skip is not told", rules: "D2", file: "arbiter/loop_numbers.go",
		old: "		n.skipFrom, n.skipTo = base.Last+1, base.Reserved\n", new: "", tests: loopTests,
	},
	{
		name: "a store that is begun anew is empty", rules: "D3", file: "arbiter/loop_mend.go",
		old: "	first := l.core.Missing(&store.Snapshot{})\n", new: "	first := store.Batch{}\n", tests: loopTests,
	},
	{
		name: "a clean stop gives nothing back", rules: "D2", file: "arbiter/loop_commit.go",
		old: "	meta.Next = next\n", new: "", tests: loopTests,
	},
	{
		name: "numbers are given out before their block is durable", rules: "D2", file: "arbiter/loop_numbers.go",
		old: "	if err := l.commit(&store.Batch{Meta: l.meta(limit)}); err != nil {\n		return err\n	}\n	l.numbers.alloc.Extend(limit)\n",
		new: "	l.numbers.alloc.Extend(limit)\n	if err := l.commit(&store.Batch{Meta: l.meta(limit)}); err != nil {\n		return err\n	}\n", tests: loopTests,
	},
	{
		name: "a commit that failed bounds no numbers of its epoch", rules: "D2", file: "arbiter/loop_numbers.go",
		old: "		l.numbers.alloc = timestamps.NewAllocator(used+1, used+timestamps.Block)\n", new: "		_ = used\n", tests: loopTests,
	},
	{
		name: "epochs are the same each time", rules: "D2", file: "arbiter/loop_numbers.go",
		old: "		_, _ = rand.Read(e[:])\n", new: "		_, _ = rand.Read(e[:0])\n		e[0] = 1\n", tests: loopTests,
	},
	{
		name: "when the block is used up on a full disk its numbers go on", rules: "D2", file: "arbiter/loop_numbers.go",
		old: "		l.beginEpoch(unnamedNumbers(newEpoch()), \"the reserved numbers are used up\")\n", new: "		l.numbers.alloc.Extend(l.numbers.alloc.Limit() + timestamps.Block)\n", tests: loopTests,
	},
	{
		name: "what is told from memory is not marked volatile", rules: "D2", file: "arbiter/loop_trouble.go",
		old: "	l.publish(p, true)\n", new: "	l.publish(p, false)\n", tests: loopTests,
	},
	{
		name: "what fails to be written is told before what is committed", rules: "D2", file: "arbiter/loop_commit.go",
		old: "			for ; i < len(parts); i++ {\n				l.tell(&parts[i])\n			}\n", new: "			for j := len(parts) - 1; j >= i; j-- {\n				l.tell(&parts[j])\n			}\n", tests: loopTests,
	},
	{
		name: "while the store fails nothing is told", rules: "D2", file: "arbiter/loop_commit.go",
		old: "	if l.failing() {\n		l.tellPending()\n		if int64", new: "	if l.failing() {\n		if int64", tests: loopTests,
	},
	{
		name: "events that wait to be written are without number", rules: "D2", file: "arbiter/loop_numbers.go",
		old: "held+len(events) > l.cfg.Unwritten ||", new: "held+len(events) < 0 ||", tests: loopTests,
	},
	{
		name: "who stands within skipped numbers goes on as if nothing had happened", rules: "D2", file: "arbiter/loop_subscribe.go",
		old: "		s.buf = nil\n		return s.expired()\n	}\n	return nil\n}\n\n// fillFromTail", new: "	}\n	return nil\n}\n\n// fillFromTail", tests: loopTests,
	},
	{
		name: "a failed batch is made anew instead of tried again", rules: "D3", file: "arbiter/loop_commit.go",
		old: "				l.trouble.batch = &p.batch\n", new: "				p.numbered = false\n", tests: loopTests,
	},
	{
		name: "a failing store is tried ever more rarely without end", rules: "D3", file: "arbiter/loop_trouble.go",
		old: "backoff.WithMaxInterval(retryMost)", new: "backoff.WithMaxInterval(100 * retryMost)", tests: loopTests,
	},
	{
		name: "an I/O error is copied around at once", rules: "D3", file: "arbiter/loop_mend.go",
		old: "	case !damaged && !replaced && l.trouble.tries < 2:\n		return nil\n", new: "", tests: loopTests,
	},
	{
		name: "a full disk is copied around", rules: "D3", file: "arbiter/loop_mend.go",
		old: "errors.Is(cause, store.ErrFull), errors.Is(cause, store.ErrUnwritable):\n		return nil\n	case !damaged", new: "errors.Is(cause, store.ErrUnwritable):\n		return nil\n	case !damaged", tests: loopTests,
	},
	{
		name: "a state is copied as often as it fails", rules: "D3", file: "arbiter/loop_mend.go",
		old: "	case l.mended != 0 && mono-l.mended < mendGap:\n		return nil\n", new: "", tests: loopTests,
	},
	{
		name: "what can't be copied is not begun anew", rules: "D3", file: "arbiter/loop_mend.go",
		old: "	err := r.Renew(cause, first)\n", new: "	err := error(nil)\n	_, _ = r, first\n", tests: loopTests,
	},
	{
		name: "a state begun anew keeps its epoch", rules: "D3", file: "arbiter/loop_mend.go",
		old: "	if l.numbers.alloc.Next() > 1 {\n		fresh.epoch = newEpoch()\n	}\n", new: "", tests: loopTests,
	},
	{
		name: "a batch that the store refuses is tried for ever", rules: "D3", file: "arbiter/loop_trouble.go",
		old: "var hopeless = []error{store.ErrBatch, store.ErrConflict,", new: "var hopeless = []error{", tests: loopTests,
	},
	{
		name: "what was told from memory is not written when it can be", rules: "D3, D2", file: "arbiter/loop_trouble.go",
		old: "	missing.events = l.feed.toWrite()\n", new: "", tests: loopTests,
	},
	{
		name: "records that changed while the disk was full are not written when it can be", rules: "D3, D2", file: "arbiter/loop_trouble.go",
		old: "	missing.add(&Output{Changes: l.core.Missing(snap)})\n", new: "	_ = snap\n", tests: loopTests,
	},
	{
		name: "checksums are not looked at", rules: "D4", file: "store/codec.go",
		old: "	if binary.BigEndian.Uint32(value[1:]) != checksum(t, key, value) {\n", new: "	if binary.BigEndian.Uint32(value[1:]) == 0 && checksum(t, key, value) != 0 {\n", tests: "^TestCodec",
	},
	{
		name: "two agents may hold one state", rules: "D4", file: "store/lock.go",
		old: "unix.LOCK_EX|unix.LOCK_NB", new: "unix.LOCK_SH|unix.LOCK_NB", tests: "^TestBoltLocked",
	},
	{
		name: "another runtime's state is taken", rules: "D4", file: "store/schema.go",
		old: "	return fmt.Errorf(\"%w: it is of %s, not of %s; use another state directory\", ErrForeign, stored, given)\n", new: "	return nil\n", tests: "^TestBoltForeign",
	},
	{
		name: "another runtime under a running agent is recorded", rules: "D4", file: "arbiter/loop.go",
		old: "	if l.runtime.Name != \"\" && l.runtime.Name != rt.Name {\n", new: "	if l.runtime.Name == \"-\" {\n", tests: loopTests,
	},
	{
		name: "the journal grows without end", rules: "D4", file: "store/journal.go",
		old: "j.Entries > 1 && (j.Entries > keep.Entries ||", new: "j.Entries > 1 && (j.Entries > keep.Entries*1000 ||", tests: "Conformance$",
	},
	{
		name: "the journal is kept by number and size only", rules: "D4", file: "store/journal.go",
		old: " || now-j.oldest > keep.Age)", new: ")", tests: "Conformance$",
	},
	{
		name: "a gap in the journal is read over", rules: "D2, D4", file: "store/journal.go",
		old: "		case seq != prev+1 && (", new: "		case seq == 0 && (", tests: "Conformance$|^TestSingleDamaged",
	},
	{
		name: "a skip stands for more than it names", rules: "D2, D4", file: "store/journal.go",
		old: " || e.To+1 != seq)", new: ")", tests: "Conformance$",
	},
}

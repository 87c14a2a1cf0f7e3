package store

import "fmt"

// journalState is the journal's description plus what retention needs, kept
// in memory so that a commit that drops nothing reads nothing.
type journalState struct {
	Journal
	oldest int64 // Event.Running of the first entry, ns
}

const (
	// minTrim is how many entries one commit may drop besides twice those it
	// adds: enough to shrink a journal after its bounds were lowered, few
	// enough that a commit takes no longer for it than for its own work.
	minTrim = 128
	// maxEventBytes bounds one answer of Events, so that a reader's
	// transaction is short however much it asks for: bbolt must wait for
	// readers before it can remap a growing file (etcd-io/bbolt#854).
	maxEventBytes = 1 << 20
)

// trimBudget is how many entries a commit of n events may drop.
func trimBudget(n int) int { return 2*n + minTrim }

// eventTime is the part of an Event that retention looks at.
type eventTime struct {
	Running int64 `cbor:"19,keyasint"`
}

// decodeEvent reads a journal entry of an epoch.
func decodeEvent(key, value []byte) (Event, error) {
	var e Event
	err := unseal(tableJournal, key, value, &e)
	e.Position.Seq, _ = seqOf(key)
	return e, err
}

// countJournal describes the journal by reading all of it.
func countJournal(r reader, meta Meta) journalState {
	j := journalState{Journal: Journal{Epoch: meta.Epoch}}
	r.each(tableJournal, nil, func(key, value []byte) bool {
		seq, ok := seqOf(key)
		if !ok {
			return true
		}
		e := entry{seq: seq, value: value}
		if j.Entries == 0 {
			e.running = runningOf(key, value)
		}
		j.append(e)
		return true
	})
	return j
}

// runningOf returns Event.Running of a stored entry. A damaged one counts as
// written at the very start, so that retention drops it first.
func runningOf(key, value []byte) int64 {
	var t eventTime
	if unseal(tableJournal, key, value, &t) != nil {
		return 0
	}
	return t.Running
}

// append counts an entry that was put after all others.
func (j *journalState) append(e entry) {
	if j.Entries == 0 {
		j.First, j.oldest = e.seq, e.running
	}
	j.Last = e.seq
	j.Entries++
	j.Bytes += int64(len(e.value))
}

// due reports whether the retention wants the oldest entry dropped. The newest
// entry always stays: it is the memory of how far the numbers have come, and
// without it a reader that missed everything would look up to date.
func (j *journalState) due(keep Retention, now int64) bool {
	return j.Entries > 1 && (j.Entries > keep.Entries || j.Bytes > keep.Bytes || now-j.oldest > keep.Age)
}

// trim drops the oldest entries as long as the retention wants it, at most as
// many as the budget allows.
func (j journalState) trim(w writer, keep Retention, now int64, budget int) (journalState, error) {
	if !j.due(keep, now) {
		return j, nil
	}
	var drop [][]byte
	size := 0
	w.each(tableJournal, nil, func(key, value []byte) bool {
		seq, ok := seqOf(key)
		if !ok {
			return true
		}
		if len(drop) > 0 { // the entry before this one is to go
			j.Entries--
			j.Bytes -= int64(size)
			j.First, j.oldest = seq, runningOf(key, value)
		}
		if len(drop) >= budget || !j.due(keep, now) {
			return false
		}
		drop = append(drop, append([]byte(nil), key...))
		size = len(value)
		return true
	})
	for _, key := range drop {
		if err := w.delete(tableJournal, key); err != nil {
			return j, err
		}
	}
	return j, nil
}

// readEvents returns entries after a number, as [Store.Events] documents. It
// looks no further than j, which is what the last successful commit left.
func readEvents(r reader, j Journal, after uint64, limit int) ([]Event, error) {
	if j.Entries == 0 || after >= j.Last {
		return nil, nil
	}
	if meta, err := readMeta(r); err != nil || meta.Epoch != j.Epoch {
		// A commit that failed for its caller may have been written all the
		// same, with a new epoch.
		return nil, fmt.Errorf("journal after %d: %w: epoch %s has ended", after, ErrExpired, j.Epoch)
	}
	var out []Event
	var lost error
	prev, size := after, 0
	r.each(tableJournal, seqKey(after+1), func(key, value []byte) bool {
		seq, ok := seqOf(key)
		if !ok || seq > j.Last {
			return false
		}
		e, err := decodeEvent(key, value)
		switch {
		case err != nil:
			lost = fmt.Errorf("journal after %d: %w: entry %d: %w", after, ErrExpired, seq, err)
		case seq != prev+1 && (e.Type != SequenceSkipped || e.From > prev+1 || e.To+1 != seq):
			lost = fmt.Errorf("journal after %d: %w: the next entry is %d, the oldest %d", after, ErrExpired, seq, j.First)
		}
		if lost != nil || len(out) >= limit || (len(out) > 0 && size+len(value) > maxEventBytes) {
			return false
		}
		e.Position.Epoch = j.Epoch
		out = append(out, e)
		prev, size = seq, size+len(value)
		return true
	})
	if len(out) > 0 || (lost == nil && limit <= 0) {
		return out, nil
	}
	if lost == nil {
		lost = fmt.Errorf("journal after %d: %w: nothing is stored up to %d", after, ErrExpired, j.Last)
	}
	return nil, lost
}

package store

import (
	"bytes"
	"fmt"

	"github.com/plegd/plegd/timestamps"
)

// edit is one encoded change to a table; a nil value deletes the key.
type edit struct {
	table      table
	key, value []byte
}

// entry is one encoded event.
type entry struct {
	seq     uint64
	running int64 // Event.Running
	value   []byte
}

// sealedBatch is a batch in stored form. Encoding happens before the
// transaction begins: it keeps transactions short, and a value that can't be
// encoded harms nothing.
type sealedBatch struct {
	epoch   timestamps.Epoch
	running int64 // Meta.Running
	edits   []edit
	entries []entry
}

// sealBatch encodes a batch and refuses one that contradicts itself.
func sealBatch(b *Batch) (*sealedBatch, error) {
	s := &sealedBatch{epoch: b.Meta.Epoch, running: b.Meta.Running}
	meta := b.Meta
	meta.Schema = Schema
	if err := s.put(tableMeta, metaKey, meta); err != nil {
		return nil, err
	}
	// Deletions come first: a batch that both deletes and puts a key puts it.
	for _, k := range b.Gone {
		s.delete(recordTable(k.Kind), k.ID)
	}
	for _, id := range b.Forgotten {
		s.delete(tableTombstones, id)
	}
	for _, id := range b.Answered {
		s.delete(tableAsks, id)
	}
	for _, r := range b.Records {
		if err := s.record(recordTable(r.Kind), r); err != nil {
			return nil, err
		}
	}
	for _, r := range b.Tombstones {
		if err := s.record(tableTombstones, r); err != nil {
			return nil, err
		}
	}
	for _, a := range b.Asks {
		if a.ID == "" {
			return nil, fmt.Errorf("ask: %w: no id", ErrBatch)
		}
		if err := s.put(tableAsks, []byte(a.ID), a); err != nil {
			return nil, err
		}
	}
	return s, s.events(b)
}

func (s *sealedBatch) put(t table, key []byte, v any) error {
	value, err := seal(t, key, v)
	if err != nil {
		return err
	}
	s.edits = append(s.edits, edit{t, key, value})
	return nil
}

func (s *sealedBatch) delete(t table, id string) {
	s.edits = append(s.edits, edit{t, []byte(id), nil})
}

func (s *sealedBatch) record(t table, r *Record) error {
	if r.ID == "" || (r.Kind != KindSandbox && r.Kind != KindContainer) {
		return fmt.Errorf("record %.80q of kind %d: %w", r.ID, r.Kind, ErrBatch)
	}
	value, err := encodeRecord(t, r)
	if err != nil {
		return err
	}
	s.edits = append(s.edits, edit{t, []byte(r.ID), value})
	if r.Kind == KindContainer {
		return s.put(tablePlaces, []byte(r.ID), Placement{Sandbox: r.Sandbox, Pod: r.PodKey()})
	}
	return nil
}

func (s *sealedBatch) events(b *Batch) error {
	last := uint64(0)
	for i := range b.Events {
		e := &b.Events[i]
		seq := e.Position.Seq
		switch {
		case e.Position.Epoch != b.Meta.Epoch || e.Position.Epoch.IsZero():
			return fmt.Errorf("event %s: %w: the batch is of epoch %s", e.Position, ErrBatch, b.Meta.Epoch)
		case seq <= last || seq > timestamps.MaxNumber:
			return fmt.Errorf("event %s: %w: its number must be above %d and below 2^53", e.Position, ErrBatch, last)
		}
		last = seq
		value, err := seal(tableJournal, seqKey(seq), e)
		if err != nil {
			return err
		}
		s.entries = append(s.entries, entry{seq, e.Running, value})
	}
	return nil
}

// apply writes a batch in one transaction and returns the journal as it is
// afterwards. Whatever can be wrong with the batch is found before the first
// write.
func (s *sealedBatch) apply(w writer, j journalState, keep Retention) (journalState, error) {
	if j.Epoch != s.epoch && j.Entries > 0 {
		// A new epoch starts only when history is lost (rule D2); positions of
		// the old one can't be told from it by number.
		if err := w.clear(tableJournal); err != nil {
			return j, err
		}
		j = journalState{}
	}
	j.Epoch = s.epoch
	fresh, err := s.unwritten(w, j)
	if err != nil {
		return j, err
	}
	for _, e := range s.edits {
		if err := e.write(w); err != nil {
			return j, err
		}
	}
	if err := s.forgetPlaces(w); err != nil {
		return j, err
	}
	for _, e := range fresh {
		if err := w.put(tableJournal, seqKey(e.seq), e.value); err != nil {
			return j, err
		}
		j.append(e)
	}
	return j.trim(w, keep, s.running, trimBudget(len(s.entries)))
}

// write applies one edit and leaves alone what is already as it should be, so
// that neither a retry nor an unchanged placement makes a page dirty.
func (e edit) write(w writer) error {
	old := w.get(e.table, e.key)
	switch {
	case e.value == nil && old == nil:
		return nil
	case e.value == nil:
		return w.delete(e.table, e.key)
	case bytes.Equal(old, e.value):
		return nil
	default:
		return w.put(e.table, e.key, e.value)
	}
}

// forgetPlaces drops the placement of every container that has neither a
// record nor a tombstone any more.
func (s *sealedBatch) forgetPlaces(w writer) error {
	for _, e := range s.edits {
		if e.value != nil || (e.table != tableContainers && e.table != tableTombstones) {
			continue
		}
		if w.get(tableContainers, e.key) != nil || w.get(tableTombstones, e.key) != nil {
			continue
		}
		if err := (edit{tablePlaces, e.key, nil}).write(w); err != nil {
			return err
		}
	}
	return nil
}

// unwritten returns the events that the journal lacks. Those at or below its
// last number must be there with the same content (a retry) or have been
// dropped by the retention since.
func (s *sealedBatch) unwritten(r reader, j journalState) ([]entry, error) {
	for i, e := range s.entries {
		if e.seq > j.Last {
			return s.entries[i:], nil
		}
		if old := r.get(tableJournal, seqKey(e.seq)); !bytes.Equal(old, e.value) && (old != nil || e.seq >= j.First) {
			return nil, fmt.Errorf("event %s/%d: %w", s.epoch, e.seq, ErrConflict)
		}
	}
	return nil, nil
}

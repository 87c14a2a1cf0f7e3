package store

import (
	"bytes"
	"slices"
	"sync"
)

// Memory is a Store without a file: for tests, and for running where nothing
// may be written. It keeps the encoded values, so that what comes out is a
// copy that went through the same codec as with a file.
//
// The zero Memory is not ready; use [NewMemory]. It is safe for concurrent
// use.
type Memory struct {
	mu      sync.RWMutex
	keep    Retention
	tables  *memoryTables
	journal journalState
	closed  bool
}

var (
	_ Store   = (*Memory)(nil)
	_ Rescuer = (*Memory)(nil)
)

// NewMemory returns an empty store for this runtime. Zero fields of keep mean
// the defaults.
func NewMemory(runtime RuntimeID, keep Retention) *Memory {
	return &Memory{keep: keep.Defaulted(), tables: newTables(runtime)}
}

// newTables returns tables with nothing but a meta without an epoch.
func newTables(runtime RuntimeID) *memoryTables {
	t := new(memoryTables)
	value := must(seal(tableMeta, metaKey, Meta{Schema: Schema, Runtime: runtime}))
	_ = t.put(tableMeta, metaKey, value) // it never fails
	return t
}

// Reopen returns a store with the same content, as if the process had ended
// and another one had opened the file. m is closed.
func (m *Memory) Reopen() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return &Memory{keep: m.keep, tables: m.tables.clone(), journal: m.journal}
}

// Load implements [Store].
func (m *Memory) Load() (*Snapshot, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, ErrClosed
	}
	s, _, err := readSnapshot(m.tables)
	return s, err
}

// Commit implements [Store]. It fails only for a malformed batch, and then
// nothing was changed.
func (m *Memory) Commit(b *Batch) error {
	s, err := sealBatch(b)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	j, err := s.apply(m.tables, m.journal, m.keep)
	if err != nil {
		return err
	}
	m.journal = j
	return nil
}

// Events implements [Store].
func (m *Memory) Events(after uint64, limit int) ([]Event, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, ErrClosed
	}
	return readEvents(m.tables, m.journal.Journal, after, limit)
}

// Journal implements [Store].
func (m *Memory) Journal() Journal {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.journal.Journal
}

// PodOf returns where a container belongs, false when neither a record nor a
// tombstone of it is stored.
func (m *Memory) PodOf(container string) (Placement, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return Placement{}, false
	}
	return readPlacement(m.tables, container)
}

// Containers returns the ids of up to limit containers, stored or removed
// lately, that begin with a prefix, in order.
func (m *Memory) Containers(prefix string, limit int) ([]string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return nil, ErrClosed
	}
	return readContainers(m.tables, prefix, limit), nil
}

// Rescue implements [Rescuer]. There is nothing that memory must be saved from.
func (m *Memory) Rescue(error) error { return nil }

// Renew implements [Rescuer]. The old state is gone.
func (m *Memory) Renew(_ error, first *Batch) error {
	sealed, err := sealBatch(first)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	meta, err := readMeta(m.tables)
	if err != nil {
		return err
	}
	fresh := newTables(meta.Runtime)
	journal, err := sealed.apply(fresh, journalState{}, m.keep)
	if err != nil {
		return err
	}
	m.tables, m.journal = fresh, journal
	return nil
}

// Close implements [Store].
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	return nil
}

// memoryTables keeps each table as a slice sorted by key. Values are never
// modified, so a clone shares them.
type memoryTables [tableEnd][]memoryRow

type memoryRow struct{ key, value []byte }

var _ writer = (*memoryTables)(nil)

func (m *memoryTables) find(t table, key []byte) (int, bool) {
	return slices.BinarySearchFunc(m[t], key, func(r memoryRow, key []byte) int { return bytes.Compare(r.key, key) })
}

func (m *memoryTables) get(t table, key []byte) []byte {
	if i, ok := m.find(t, key); ok {
		return m[t][i].value
	}
	return nil
}

func (m *memoryTables) each(t table, from []byte, visit func(key, value []byte) bool) {
	i, _ := m.find(t, from)
	for _, r := range m[t][i:] {
		if !visit(r.key, r.value) {
			return
		}
	}
}

func (m *memoryTables) put(t table, key, value []byte) error {
	i, ok := m.find(t, key)
	if ok {
		m[t][i].value = value
	} else {
		m[t] = slices.Insert(m[t], i, memoryRow{key, value})
	}
	return nil
}

func (m *memoryTables) delete(t table, key []byte) error {
	switch i, ok := m.find(t, key); {
	case ok && i == 0: // the journal shrinks at its front
		m[t][0] = memoryRow{}
		m[t] = m[t][1:]
	case ok:
		m[t] = slices.Delete(m[t], i, i+1)
	}
	return nil
}

func (m *memoryTables) clear(t table) error {
	m[t] = nil
	return nil
}

func (m *memoryTables) clone() *memoryTables {
	c := new(memoryTables)
	for t := range m {
		c[t] = slices.Clone(m[t])
	}
	return c
}

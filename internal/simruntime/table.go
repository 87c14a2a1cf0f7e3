package simruntime

import (
	"fmt"
	"strings"
)

// table keeps objects by id and in the order in which they were added, so that
// lists are the same in every run. containerd's own order is a map's; see
// Shuffle.
type table[T any] struct {
	byID map[string]*row[T]
	rows []*row[T]
	dead int // rows of objects that are gone, swept when they are the majority
}

type row[T any] struct {
	id    string
	value T
	gone  bool
}

func newTable[T any]() *table[T] { return &table[T]{byID: map[string]*row[T]{}} }

// add puts an object under a new id, or replaces the one that has it.
func (t *table[T]) add(id string, v T) {
	if r, ok := t.byID[id]; ok {
		r.value = v
		return
	}
	r := &row[T]{id: id, value: v}
	t.byID[id] = r
	t.rows = append(t.rows, r)
}

func (t *table[T]) remove(id string) {
	r, ok := t.byID[id]
	if !ok {
		return
	}
	delete(t.byID, id)
	r.gone = true
	if t.dead++; t.dead <= len(t.rows)/2 {
		return
	}
	live := make([]*row[T], 0, len(t.byID))
	for _, r := range t.rows {
		if !r.gone {
			live = append(live, r)
		}
	}
	t.rows, t.dead = live, 0
}

// find looks an object up by its id or, as containerd does, by a beginning of
// its id that no other object shares.
func (t *table[T]) find(kind, id string) (T, error) {
	var zero T
	if r, ok := t.byID[id]; ok {
		return r.value, nil
	}
	var found *row[T]
	if id != "" && len(id) < idLength {
		for full, r := range t.byID {
			if !strings.HasPrefix(full, id) {
				continue
			}
			if found != nil {
				return zero, fmt.Errorf("%s %q: more than one begins with it: %w", kind, id, ErrNotFound)
			}
			found = r
		}
	}
	if found == nil {
		return zero, fmt.Errorf("%s %q: %w", kind, id, ErrNotFound)
	}
	return found.value, nil
}

// all calls yield for every object in the order of adding.
func (t *table[T]) all(yield func(T) bool) {
	for _, r := range t.rows {
		if !r.gone && !yield(r.value) {
			return
		}
	}
}

func (t *table[T]) len() int { return len(t.byID) }

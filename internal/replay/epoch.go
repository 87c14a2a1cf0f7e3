package replay

import (
	"encoding/binary"
	"fmt"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// modeWithoutStream is that of a generator that never asks for the event stream.
const modeWithoutStream = "generic"

// epoch returns the epoch of a journal that begins here, which is else left to chance. No
// two generators that may tell different things have the same.
func (w *World) epoch(cfg *pleg.Config) (e timestamps.Epoch) {
	part := fmt.Sprint("epoch ", cfg.Mode, cfg.RelistPeriod, cfg.RelistPeriodMax, cfg.RPCTimeout)
	binary.BigEndian.PutUint64(e[:], w.dice(part).Uint64()|1) // never zero
	return e
}

// withEpoch returns a hook by which a store that has no epoch has this one.
func withEpoch(e timestamps.Epoch, more func(store.Store) store.Store) func(store.Store) store.Store {
	return func(s store.Store) store.Store {
		if more != nil {
			s = more(s)
		}
		return &epochStore{s, e}
	}
}

type epochStore struct {
	store.Store

	epoch timestamps.Epoch
}

// Load implements [store.Store].
func (s *epochStore) Load() (*store.Snapshot, error) {
	snap, err := s.Store.Load()
	if err == nil && snap.Meta.Epoch.IsZero() {
		snap.Meta.Epoch = s.epoch
	}
	return snap, err
}

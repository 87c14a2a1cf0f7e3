package store

import "fmt"

// damage is one stored value that can't be read.
type damage struct {
	table table
	key   []byte
	err   error
}

// readMeta returns the stored meta; the zero Meta when there is none yet.
func readMeta(r reader) (Meta, error) {
	var m Meta
	value := r.get(tableMeta, metaKey)
	if value == nil {
		return m, nil
	}
	if err := unseal(tableMeta, metaKey, value, &m); err != nil {
		return Meta{}, fmt.Errorf("%w: meta: %w", ErrDamaged, err)
	}
	return m, nil
}

// readSnapshot reads everything but the journal and lists what is damaged.
func readSnapshot(r reader) (*Snapshot, []damage, error) {
	meta, err := readMeta(r)
	if err != nil {
		return nil, nil, err
	}
	s := &Snapshot{Meta: meta}
	var bad []damage
	records := func(t table, out *[]*Record) {
		r.each(t, nil, func(key, value []byte) bool {
			rec, err := decodeRecord(t, key, value)
			if err != nil {
				bad = append(bad, damage{t, append([]byte(nil), key...), err})
			} else {
				*out = append(*out, rec)
			}
			return true
		})
	}
	records(tableSandboxes, &s.Records)
	records(tableContainers, &s.Records)
	records(tableTombstones, &s.Tombstones)
	r.each(tableAsks, nil, func(key, value []byte) bool {
		a := new(Ask)
		err := unseal(tableAsks, key, value, a)
		if err == nil && a.ID != string(key) {
			err = fmt.Errorf("%w: it names itself %.80q", errDamagedValue, a.ID)
		}
		if err != nil {
			bad = append(bad, damage{tableAsks, append([]byte(nil), key...), err})
		} else {
			s.Asks = append(s.Asks, a)
		}
		return true
	})
	s.Dropped = len(bad)
	return s, bad, nil
}

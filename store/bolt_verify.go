package store

import (
	"errors"
	"fmt"
)

// survey checks the schema and reads every value of a file that was just
// opened: what is damaged shows now, not in the middle of the run.
func (b *Bolt) survey(r boltTables) error {
	for _, t := range tableList {
		if r.tx.Bucket([]byte(t.String())) == nil {
			return fmt.Errorf("%w: not a state of plegd: there is no table %s", ErrDamaged, t)
		}
	}
	schema, err := decodeSchema(r.get(tableMeta, schemaKey))
	if err != nil {
		return err
	}
	if schema > Schema {
		return fmt.Errorf("%w: its schema is %d, this version reads up to %d", ErrNewerSchema, schema, Schema)
	}
	meta, err := readMeta(r)
	if err != nil {
		return err
	}
	b.runtime = meta.Runtime
	b.state = countJournal(r, meta)
	for _, t := range tableList {
		if t == tableMeta {
			continue
		}
		r.each(t, nil, func(key, value []byte) bool {
			if err := verifyValue(t, key, value); err != nil {
				b.damaged = append(b.damaged, damage{t, append([]byte(nil), key...), err})
			}
			return true
		})
	}
	return nil
}

// verifyValue checks one value. Journal entries are only checked by their sum:
// decoding 50,000 of them would make every start slower.
func verifyValue(t table, key, value []byte) error {
	switch t {
	case tableSandboxes, tableContainers, tableTombstones:
		_, err := decodeRecord(t, key, value)
		return err
	case tableJournal:
		if _, ok := seqOf(key); !ok {
			return fmt.Errorf("%w: its key is no number", errDamagedValue)
		}
	}
	_, err := open(t, key, value)
	return err
}

// Report is what [Verify] found in a state file.
type Report struct {
	Path       string
	Size       int64 // of the file, bytes
	Pages      Pages
	Meta       Meta
	Sandboxes  int
	Containers int
	Tombstones int
	Asks       int
	Journal    Journal
	Damaged    []DamagedValue // single values that can't be read
}

// DamagedValue names a stored value that can't be read.
type DamagedValue struct {
	Table string // meta, sandboxes, containers, tombstones, asks, places, journal
	Key   string // an id, or the number of a journal entry
	Err   error
}

// Verify reads all of a state file, or of the one in a state directory,
// without changing anything, and decodes every value. The error is that of
// [OpenBoltReadOnly]; a file with damaged values is no error but listed.
func Verify(path string) (Report, error) {
	path = stateFile(path)
	report := Report{Path: path}
	unlock, err := shareFile(path)
	if err != nil {
		return report, err
	}
	defer unlock()
	pages, err := checkPages(path)
	if err != nil {
		return report, err
	}
	report.Pages, report.Size = pages, pages.FileSize
	b, err := openFile(BoltConfig{file: path, Timeout: DefaultTimeout}, nil, true)
	if err != nil {
		return report, err
	}
	err = b.view(func(r reader) error {
		s, bad, err := readSnapshot(r)
		if err != nil {
			return err
		}
		report.Meta, report.Tombstones, report.Asks = s.Meta, len(s.Tombstones), len(s.Asks)
		for _, rec := range s.Records {
			if rec.Kind == KindSandbox {
				report.Sandboxes++
			} else {
				report.Containers++
			}
		}
		report.Journal = b.Journal()
		for _, d := range append(bad, readDamage(r)...) {
			report.Damaged = append(report.Damaged, DamagedValue{d.table.String(), d.name(), d.err})
		}
		return nil
	})
	return report, errors.Join(err, b.Close())
}

// readDamage decodes the values that a snapshot doesn't hold.
func readDamage(r reader) []damage {
	var bad []damage
	check := func(t table, decode func(key, value []byte) error) {
		r.each(t, nil, func(key, value []byte) bool {
			if err := decode(key, value); err != nil {
				bad = append(bad, damage{t, append([]byte(nil), key...), err})
			}
			return true
		})
	}
	check(tablePlaces, func(key, value []byte) error { return unseal(tablePlaces, key, value, new(Placement)) })
	check(tableJournal, func(key, value []byte) error {
		if err := verifyValue(tableJournal, key, value); err != nil {
			return err
		}
		_, err := decodeEvent(key, value)
		return err
	})
	return bad
}

// name returns the key as people write it.
func (d damage) name() string {
	if seq, ok := seqOf(d.key); ok && d.table == tableJournal {
		return fmt.Sprint(seq)
	}
	return fmt.Sprintf("%.80q", d.key)
}

package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	bolt "go.etcd.io/bbolt"
)

// startFresh puts a new, empty file in place and, if old is set, the present
// one aside first.
func startFresh(cfg BoltConfig, old bool) (b *Bolt, aside string, err error) {
	b, err = makeFile(cfg, func(db *bolt.DB) error { return fillFresh(db, cfg.Runtime) })
	if err != nil {
		return nil, "", err
	}
	aside, err = b.install(old)
	if err == nil {
		err = syncDir(cfg.Dir)
	}
	if err != nil {
		b.abandon(err)
		return nil, aside, err
	}
	return b, aside, nil
}

// makeFile makes a state file under a name of its own, so that a full disk
// leaves things as they were, has fill write it, and returns it synced, open
// and locked, as the lock must not be missing for a moment. install gives it
// its name.
func makeFile(cfg BoltConfig, fill func(*bolt.DB) error) (*Bolt, error) {
	fresh := cfg.path() + newSuffix
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("state file %s: %w", fresh, classify(err, ErrUnwritable))
	}
	b := &Bolt{path: cfg.path(), cfg: cfg}
	err := b.openBbolt(false, func(name string, flag int, mode os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(fresh, flag|os.O_EXCL, mode)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return duplicate(f, name) // so that errors name what it is going to be
	})
	if err == nil {
		err = guard(func() error {
			b.db.NoSync = true // once at the end does
			err := fill(b.db)
			b.db.NoSync = false
			return errors.Join(err, b.db.Sync())
		})
	}
	if err == nil {
		err = b.readAll()
	}
	if err != nil {
		b.abandon(err)
		_ = os.Remove(fresh)
		if !errors.Is(err, ErrDamaged) {
			err = classify(err, ErrUnwritable)
		}
		return nil, fmt.Errorf("state file %s: %w", fresh, err)
	}
	return b, nil
}

// install renames a file that was just made into place and, if old is set, the
// present one aside first. A crash at any point leaves the old file, no file
// or the new file under the name, never half of one.
func (b *Bolt) install(old bool) (aside string, err error) {
	fresh := b.path + newSuffix
	if old {
		aside, err = setAside(b.path, b.cfg)
	}
	if err == nil {
		if err = os.Rename(fresh, b.path); err != nil {
			err = fmt.Errorf("state file %s: %w", b.path, classify(err, ErrUnwritable))
		}
	}
	if err != nil {
		_ = os.Remove(fresh)
	}
	return aside, err
}

// fillFresh makes all tables, a schema version and a meta that has no epoch
// yet.
func fillFresh(db *bolt.DB, runtime RuntimeID) error {
	return db.Update(func(tx *bolt.Tx) error {
		for _, t := range tableList {
			if _, err := tx.CreateBucket([]byte(t.String())); err != nil {
				return err
			}
		}
		w := boltTables{tx}
		meta, err := seal(tableMeta, metaKey, Meta{Schema: Schema, Runtime: runtime})
		if err != nil {
			return err
		}
		return errors.Join(w.put(tableMeta, schemaKey, encodeSchema(Schema)), w.put(tableMeta, metaKey, meta))
	})
}

// setAside renames a damaged file and deletes all but the latest of those set
// aside before. A renamed file takes bbolt's lock on it along, should a panic
// have left one.
func setAside(path string, cfg BoltConfig) (aside string, err error) {
	prefix := path + damagedInfix
	base := prefix + cfg.Now().UTC().Format("20060102T150405Z")
	aside = base
	for n := 2; ; n++ {
		_, err := os.Lstat(aside)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil { // of the directory or the disk, so every name would fail
			return "", fmt.Errorf("state file %s: set aside: %w", path, classify(err, ErrUnwritable))
		}
		aside = fmt.Sprintf("%s-%d", base, n)
	}
	if err := os.Rename(path, aside); err != nil {
		return "", fmt.Errorf("state file %s: set aside: %w", path, classify(err, ErrUnwritable))
	}
	pruneDamaged(prefix, aside)
	return aside, nil
}

// pruneDamaged deletes files set aside earlier, but for the latest ones by
// name. What can't be deleted is left: it only takes room.
func pruneDamaged(prefix, latest string) {
	old, err := filepath.Glob(escapeGlob(prefix) + "*")
	if err != nil {
		return
	}
	old = slices.DeleteFunc(old, func(p string) bool { return p == latest })
	slices.Sort(old)
	for len(old) > keepDamaged-1 {
		_ = os.Remove(old[0])
		old = old[1:]
	}
}

// escapeGlob makes a path stand for itself in a pattern.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// syncDir makes renames in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("state directory %s: %w", dir, classify(err, ErrUnwritable))
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("state directory %s: sync: %w", dir, classify(err, ErrIO))
	}
	return nil
}

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
// one aside first. The new file is made under another name before anything is
// moved, so that a full disk leaves things as they were; a crash at any point
// leaves the old file, no file or the new file under the name, never half of
// one.
func startFresh(cfg BoltConfig, old bool) (aside string, err error) {
	path, fresh := cfg.path(), cfg.path()+newSuffix
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("state file %s: %w", fresh, classify(err, ErrUnwritable))
	}
	if err := createFile(fresh, cfg); err != nil {
		_ = os.Remove(fresh)
		return "", fmt.Errorf("state file %s: %w", fresh, classify(err, ErrUnwritable))
	}
	if old {
		if aside, err = setAside(path, cfg); err != nil {
			_ = os.Remove(fresh)
			return "", err
		}
	}
	if err := os.Rename(fresh, path); err != nil {
		return aside, fmt.Errorf("state file %s: %w", path, classify(err, ErrUnwritable))
	}
	return aside, syncDir(cfg.Dir)
}

// createFile makes a file with all tables, a schema version and a meta that
// has no epoch yet.
func createFile(path string, cfg BoltConfig) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: cfg.Timeout, FreelistType: bolt.FreelistMapType})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, t := range tableList {
			if _, err := tx.CreateBucket([]byte(t.String())); err != nil {
				return err
			}
		}
		w := boltTables{tx}
		meta, err := seal(tableMeta, metaKey, Meta{Schema: Schema, Runtime: cfg.Runtime})
		if err != nil {
			return err
		}
		return errors.Join(w.put(tableMeta, schemaKey, encodeSchema(Schema)), w.put(tableMeta, metaKey, meta))
	})
	return errors.Join(err, db.Close())
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

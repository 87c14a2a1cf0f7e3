package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// OpenBolt opens the state file in cfg.Dir for one process, and makes it if
// there is none. A damaged file is set aside and a fresh one made; the report
// tells, and the caller should say so loudly.
//
// The error wraps [ErrLocked], [ErrUnwritable], [ErrNewerSchema], [ErrForeign]
// or [ErrFull] where one of them fits; then nothing has been changed but for
// the directory and the lock file.
func OpenBolt(cfg BoltConfig) (*Bolt, OpenReport, error) {
	var report OpenReport
	cfg = cfg.defaulted()
	if err := cfg.validate(); err != nil {
		return nil, report, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, report, fmt.Errorf("state directory %s: %w", cfg.Dir, classify(err, ErrUnwritable))
	}
	lock, err := takeLock(cfg.lock())
	if err != nil {
		return nil, report, err
	}
	b, report, err := openLocked(cfg)
	if err != nil {
		_ = lock.release()
		return nil, report, err
	}
	b.lock = lock
	return b, report, nil
}

// openLocked does the work of OpenBolt while the lock is held.
func openLocked(cfg BoltConfig) (*Bolt, OpenReport, error) {
	var report OpenReport
	path := cfg.path()
	keep := false // the old file, under another name
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, report, fmt.Errorf("state file %s: %w", path, classify(err, ErrUnwritable))
	default:
		held, err := holdFile(path, cfg.Timeout)
		if err != nil {
			return nil, report, err
		}
		defer held.release()
		if info.Mode().IsRegular() && info.Size() == 0 {
			// There is nothing in it to keep. It is not a new state either: the
			// epoch that was in it is lost.
			report.Reason = fmt.Errorf("state file %s: %w: it is empty", path, ErrDamaged)
		} else {
			b, err := openSound(cfg, held, &report)
			if err == nil {
				_ = os.Remove(path + newSuffix) // of a rescue that was cut short; it only takes room
			}
			if !errors.Is(err, ErrDamaged) {
				return b, report, err
			}
			report.Reason, keep = err, true
		}
		if err := held.own(cfg.Timeout); err != nil {
			return nil, report, err
		}
	}
	b, aside, err := startFresh(cfg, keep)
	if err != nil {
		if report.Reason != nil {
			err = fmt.Errorf("%w, and the old file is no use: %s", err, report.Reason.Error())
		}
		return nil, report, err
	}
	report.Fresh, report.SetAside = true, aside
	return b, report, nil
}

// openSound opens an existing file after every check there is. An error that
// wraps ErrDamaged condemns the file.
func openSound(cfg BoltConfig, held *heldFile, report *OpenReport) (*Bolt, error) {
	path := cfg.path()
	if _, err := checkPages(path); err != nil {
		return nil, err
	}
	if cfg.Check != nil && !stoppedCleanly(cfg, held) {
		if err := cfg.Check(path); errors.Is(err, ErrDamaged) {
			return nil, fmt.Errorf("state file %s: %w", path, err)
		} else if err != nil {
			report.CheckError = err
		}
	}
	b, err := openFile(cfg, held, false)
	if err != nil {
		return nil, err
	}
	if err := checkRuntime(b.runtime, cfg.Runtime); err != nil {
		_ = b.Close()
		return nil, fmt.Errorf("state file %s: %w", path, err)
	}
	report.Damaged = len(b.damaged)
	return b, nil
}

// stoppedCleanly reports whether the last agent gave its unused numbers back,
// which is the last thing that one does. The pages were scanned before.
func stoppedCleanly(cfg BoltConfig, held *heldFile) (clean bool) {
	b := &Bolt{path: cfg.path(), cfg: cfg}
	err := b.openBbolt(true, func(string, int, os.FileMode) (*os.File, error) { return held.share() })
	if err == nil {
		err = guard(func() error {
			return b.db.View(func(tx *bolt.Tx) error {
				meta, err := readMeta(boltTables{tx})
				clean = meta.Next != 0
				return err
			})
		})
	}
	b.abandon(err)
	return clean && err == nil
}

// OpenBoltReadOnly opens a state file, or the one in a state directory, for
// reading and changes nothing, not even a damaged file, for which the error
// wraps [ErrDamaged]. It fails with [ErrLocked] while a process has the file
// open for writing. Commits to it fail.
func OpenBoltReadOnly(path string) (*Bolt, error) {
	path = stateFile(path)
	unlock, err := shareFile(path)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := checkPages(path); err != nil {
		return nil, err
	}
	return openFile(BoltConfig{file: path, Timeout: DefaultTimeout}, nil, true)
}

// stateFile returns the path of the state file if it was given the directory.
func stateFile(path string) string {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return (BoltConfig{Dir: path}).path()
	}
	return path
}

// openFile opens a file with bbolt, checks its schema and reads every value in
// it once. If the file is held, bbolt goes on with that lock.
func openFile(cfg BoltConfig, held *heldFile, readOnly bool) (*Bolt, error) {
	b := &Bolt{path: cfg.path(), cfg: cfg}
	err := b.openBbolt(readOnly, func(name string, flag int, mode os.FileMode) (*os.File, error) {
		if held != nil {
			return held.share()
		}
		// No O_CREATE: a file that vanished meanwhile must not come back empty.
		return os.OpenFile(name, flag&^os.O_CREATE, mode)
	})
	if err == nil {
		err = b.readAll()
	}
	if err != nil {
		b.abandon(err)
		return nil, openError(b.path, err)
	}
	return b, nil
}

// openBbolt opens the database in the file that open returns.
func (b *Bolt) openBbolt(readOnly bool, open func(name string, flag int, mode os.FileMode) (*os.File, error)) error {
	return guard(func() error {
		var err error
		b.db, err = bolt.Open(b.path, 0o600, &bolt.Options{
			Timeout:      b.cfg.Timeout,
			MaxSize:      b.cfg.MaxSize,
			ReadOnly:     readOnly,
			FreelistType: bolt.FreelistMapType,
			// The freelist stays on disk, bbolt's default: without it a
			// damaged file kills the process from a goroutine of bbolt's own.
			NoFreelistSync: false,
			NoStatistics:   true,
			OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
				f, err := open(name, flag, mode)
				b.file = f
				return f, err
			},
		})
		if err == nil {
			b.self, err = b.file.Stat()
		}
		return err
	})
}

// readAll surveys a file that was just opened or made, and shows its journal.
func (b *Bolt) readAll() error {
	err := guard(func() error {
		return b.db.View(func(tx *bolt.Tx) error { return b.survey(boltTables{tx}) })
	})
	if err == nil {
		b.publish()
	}
	return err
}

// abandon closes a file that could not be opened, because of err, or is of no
// use any more.
func (b *Bolt) abandon(err error) {
	_ = closeBolt(b.db, b.file, errors.Is(err, ErrDamaged))
}

// openError says what an error of opening means.
func openError(path string, err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return lockedError("state file "+path, (BoltConfig{Dir: filepath.Dir(path)}).lock())
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrVersionMismatch), errors.Is(err, berrors.ErrChecksum):
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	default:
		err = classify(err, nil)
	}
	return fmt.Errorf("state file %s: %w", path, err)
}

// ReadRuntime returns which runtime a state file, or the one in a state
// directory, describes. It reads the file as [OpenBoltReadOnly] does and fails
// as that does.
func ReadRuntime(path string) (RuntimeID, error) {
	b, err := OpenBoltReadOnly(path)
	if err != nil {
		return RuntimeID{}, err
	}
	return b.runtime, b.Close()
}

package store

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	berrors "go.etcd.io/bbolt/errors"
)

// Rule D3: what can be done about a failed commit depends on why it failed.
func TestD3ErrorsAreToldApart(t *testing.T) {
	path := func(errno syscall.Errno) error { return &fs.PathError{Op: "write", Path: "state.db", Err: errno} }
	sentinels := []error{ErrFull, ErrUnwritable, ErrIO}
	for _, c := range []struct {
		err  error
		want error
	}{
		{path(syscall.ENOSPC), ErrFull},
		{path(syscall.EDQUOT), ErrFull},
		{path(syscall.EFBIG), ErrFull},
		{berrors.ErrMaxSizeReached, ErrFull},
		{errors.New("file resize error: " + path(syscall.ENOSPC).Error()), ErrFull}, // as bbolt wraps it
		{path(syscall.EROFS), ErrUnwritable},
		{path(syscall.EACCES), ErrUnwritable},
		{path(syscall.EPERM), ErrUnwritable},
		{path(syscall.EIO), ErrIO},
		{errors.New("file sync error: " + path(syscall.EIO).Error()), ErrIO},
		{errors.New("anything else"), nil},
	} {
		got := classify(c.err, nil)
		if !errors.Is(got, c.err) || !strings.HasSuffix(got.Error(), c.err.Error()) {
			t.Errorf("%v: lost in %v", c.err, got)
		}
		for _, s := range sentinels {
			if is, should := errors.Is(got, s), errors.Is(c.want, s); is != should {
				t.Errorf("%v: is %q: %v", c.err, s, is)
			}
		}
	}
	if classify(nil, ErrIO) != nil {
		t.Error("no error became one")
	}
	if err := classify(os.ErrClosed, ErrIO); !errors.Is(err, ErrIO) || !errors.Is(err, os.ErrClosed) {
		t.Errorf("the default was not used: %v", err)
	}
}

func TestGuardTurnsPanicsAndFaultsIntoErrors(t *testing.T) {
	want := errors.New("plain")
	if err := guard(func() error { return want }); err != want { //nolint:errorlint // the very same
		t.Errorf("got %v, want the error as it was", err)
	}
	var m map[string]int
	for name, fn := range map[string]func() error{
		"panic":   func() error { panic("page 5: unexpected") },
		"runtime": func() error { m["a"] = 1; return nil },
		"fault":   faultingRead(t),
	} {
		if err := guard(fn); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: got error %v, want ErrDamaged", name, err)
		}
	}
}

// faultingRead returns a function that reads a mapped page which its file no
// longer has.
func faultingRead(t *testing.T) func() error {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, 8192, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(syscall.Munmap(data), f.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	return func() error {
		if data[5000] == 1 {
			return nil
		}
		return errors.New("no fault")
	}
}

package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A directory that can't be looked into is an error: a search for a free name
// in it would never end.
func TestSetAsideEndsWhereNamesCannotBeLookedUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(file, FileName) // below what is no directory
	aside, err := setAside(path, BoltConfig{Now: func() time.Time { return time.Unix(0, 0) }})
	if !errors.Is(err, ErrUnwritable) || !errors.Is(err, syscall.ENOTDIR) || aside != "" || !strings.Contains(err.Error(), path) {
		t.Errorf("set aside as %q, error %v", aside, err)
	}
}

// Files set aside within one second have names of their own.
func TestSetAsideReplacesNothing(t *testing.T) {
	cfg := BoltConfig{Dir: t.TempDir(), Now: func() time.Time { return time.Unix(0, 0) }}
	seen := map[string]bool{}
	for range 3 {
		if err := os.WriteFile(cfg.path(), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		aside, err := setAside(cfg.path(), cfg)
		if err != nil || seen[aside] {
			t.Errorf("set aside as %q, error %v", aside, err)
		}
		seen[aside] = true
	}
}

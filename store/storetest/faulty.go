package storetest

import (
	"fmt"
	"sync"

	"github.com/plegd/plegd/store"
)

// Faulty wraps a store and makes commits fail or wait on demand. As a real
// store must, it shows readers only what a commit that succeeded has written.
// It is safe for concurrent use.
type Faulty struct {
	inner store.Store

	mu      sync.Mutex
	before  fault
	after   fault
	hook    func(*store.Batch) error
	gate    chan struct{} // nil, or closed when commits may go on
	shown   store.Journal // what readers may see
	commits int
	failed  int
}

// fault is an error for the next n commits; n < 0 means for all of them.
type fault struct {
	n   int
	err error
}

// take uses up one failure, nil when there is none left.
func (f *fault) take() error {
	if f.n == 0 {
		return nil
	}
	if f.n > 0 {
		f.n--
	}
	return f.err
}

var _ store.Store = (*Faulty)(nil)

// NewFaulty returns a store that behaves as inner until it is told otherwise.
func NewFaulty(inner store.Store) *Faulty {
	return &Faulty{inner: inner, shown: inner.Journal()}
}

// FailBefore makes the next n commits fail with err before they write
// anything; n < 0 means until told otherwise, 0 ends it.
func (f *Faulty) FailBefore(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = fault{n, err}
}

// FailAfter makes the next n commits fail with err although they have written
// everything: the outcome that the caller can't know. n is as in FailBefore.
func (f *Faulty) FailAfter(n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = fault{n, err}
}

// Hook has fn look at each batch before it is written. An error of fn fails
// the commit. Nil removes the hook.
func (f *Faulty) Hook(fn func(*store.Batch) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = fn
}

// Hold makes commits wait until release is called, as a disk that hangs does.
// release may be called more than once.
func (f *Faulty) Hold() (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	gate := make(chan struct{})
	f.gate = gate
	return sync.OnceFunc(func() { close(gate) })
}

// Commits returns how many commits succeeded and how many were made to fail or
// failed by themselves.
func (f *Faulty) Commits() (succeeded, failed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.commits, f.failed
}

// Commit implements [store.Store].
func (f *Faulty) Commit(b *store.Batch) error {
	f.mu.Lock()
	gate := f.gate
	f.mu.Unlock()
	if gate != nil {
		<-gate
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.before.take()
	if err == nil && f.hook != nil {
		err = f.hook(b)
	}
	if err == nil {
		err = f.inner.Commit(b)
	}
	if err == nil {
		err = f.after.take()
	}
	if err != nil {
		f.failed++
		return err
	}
	f.commits++
	f.shown = f.inner.Journal()
	return nil
}

// Load implements [store.Store].
func (f *Faulty) Load() (*store.Snapshot, error) { return f.inner.Load() }

// Journal implements [store.Store].
func (f *Faulty) Journal() store.Journal {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.shown
}

// Events implements [store.Store].
func (f *Faulty) Events(after uint64, limit int) ([]store.Event, error) {
	shown := f.Journal()
	if shown.Entries == 0 || after >= shown.Last {
		return nil, nil
	}
	events, err := f.inner.Events(after, limit)
	if err != nil {
		return nil, err
	}
	for i, e := range events {
		if e.Position.Epoch != shown.Epoch {
			return nil, fmt.Errorf("journal after %d: %w: epoch %s has ended", after, store.ErrExpired, shown.Epoch)
		}
		if e.Position.Seq > shown.Last {
			return events[:i], nil
		}
	}
	return events, nil
}

// Close implements [store.Store].
func (f *Faulty) Close() error { return f.inner.Close() }

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
	rescue  func(error) error // nil, or asked before Rescue does anything
	renew   func(error) error // the same for Renew
	rescued int
	renewed int
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

var (
	_ store.Store   = (*Faulty)(nil)
	_ store.Rescuer = (*Faulty)(nil)
)

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

// OnRescue has fn called by each Rescue, with its cause, before the inner store
// is asked. An error of fn is what Rescue returns, and the inner store isn't
// asked. fn may call f's other methods, such as FailBefore to end the faults
// that a rescue mends. Nil removes it.
func (f *Faulty) OnRescue(fn func(cause error) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rescue = fn
}

// OnRenew is OnRescue for Renew.
func (f *Faulty) OnRenew(fn func(cause error) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renew = fn
}

// Rescues returns how many calls of Rescue and of Renew succeeded.
func (f *Faulty) Rescues() (rescued, renewed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rescued, f.renewed
}

// Rescue implements [store.Rescuer].
func (f *Faulty) Rescue(cause error) error {
	return f.mend(cause, &f.rescue, store.Rescuer.Rescue, &f.rescued)
}

// Renew implements [store.Rescuer]. Readers see the fresh journal.
func (f *Faulty) Renew(cause error, first *store.Batch) error {
	err := f.mend(cause, &f.renew, func(r store.Rescuer, cause error) error { return r.Renew(cause, first) }, &f.renewed)
	if err == nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.shown = f.inner.Journal()
	}
	return err
}

// Aside returns where the inner store has set a file aside, "" if it has not or
// can't.
func (f *Faulty) Aside() string {
	if s, ok := f.inner.(interface{ Aside() string }); ok {
		return s.Aside()
	}
	return ""
}

// mend asks a hook and then the inner store, and counts if both went well.
func (f *Faulty) mend(cause error, hook *func(error) error, do func(store.Rescuer, error) error, count *int) error {
	f.mu.Lock()
	fn := *hook
	f.mu.Unlock()
	if fn != nil {
		if err := fn(cause); err != nil {
			return err
		}
	}
	inner, ok := f.inner.(store.Rescuer)
	if !ok {
		return fmt.Errorf("%T can't be rescued: %w", f.inner, cause)
	}
	if err := do(inner, cause); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	*count++
	return nil
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
	// As in a file: a commit that failed and was written may have ended the epoch.
	if f.inner.Journal().Epoch != shown.Epoch {
		return nil, fmt.Errorf("journal after %d: %w: epoch %s has ended", after, store.ErrExpired, shown.Epoch)
	}
	events, err := f.inner.Events(after, limit)
	if err != nil {
		return nil, err
	}
	for i, e := range events {
		if e.Position.Seq > shown.Last {
			return events[:i], nil
		}
	}
	return events, nil
}

// Close implements [store.Store].
func (f *Faulty) Close() error { return f.inner.Close() }

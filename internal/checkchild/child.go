// Package checkchild has bbolt check a state file in a child process.
//
// bbolt's check trusts the file that it checks. On a damaged one it may fault
// in a goroutine of its own, which nothing can catch, go round in circles for
// ever, or take memory without end. So a process that must live on never runs
// it itself: [Checker] starts a child, which calls [Main], and gives it up at a
// deadline.
package checkchild

import (
	"errors"
	"fmt"
	"io"
	"runtime/metrics"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// The exit codes of the child. Go ends a process that panics with 2, but also
// one that it can't run.
const (
	codeSound   = 0
	codeOther   = 1 // the check can't be made
	codeCrashed = 2
	codeDamaged = 3
)

const (
	// maxMemory is what the check may have on its heap. It needs about 100
	// bytes a page, so 13 MiB for the largest state file.
	maxMemory = 256 << 20
	// watchEvery is how often the child looks at its memory. Even a check that
	// does nothing but take more gets no further than some GiB per second.
	watchEvery = 20 * time.Millisecond
	// lockTimeout is how long the child waits for bbolt's lock on the file.
	lockTimeout = 2 * time.Second
)

// Main is the whole child. It checks the file at path up to the first error,
// writes what is wrong to out and returns the code to exit with, at once, since
// the check may still run. It also returns when in ends, as its parent holds
// the other end for life, and when more memory is needed than a sound file
// could cause.
func Main(path string, in io.Reader, out io.Writer) int {
	checked, alone, full := make(chan verdict, 1), make(chan struct{}), make(chan struct{})
	go func() { checked <- check(path) }()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		close(alone)
	}()
	go func() {
		for heap() <= maxMemory {
			time.Sleep(watchEvery)
		}
		close(full)
	}()
	var v verdict
	select {
	case v = <-checked:
	case <-alone:
		v = verdict{codeOther, "the parent process has ended"}
	case <-full:
		v = verdict{codeDamaged, fmt.Sprintf("the check needs more than %d MiB of memory", maxMemory>>20)}
	}
	if v.text != "" {
		fmt.Fprintln(out, v.text)
	}
	return v.code
}

// verdict is an exit code, and what to say with it.
type verdict struct {
	code int
	text string
}

// heap returns the size of what is on the heap.
func heap() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// check opens a file for reading and says the first error of bbolt's check.
func check(path string) verdict {
	db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true, Timeout: lockTimeout})
	switch {
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrVersionMismatch), errors.Is(err, berrors.ErrChecksum):
		return verdict{codeDamaged, err.Error()}
	case errors.Is(err, berrors.ErrTimeout):
		return verdict{codeOther, "the file is locked by another process"}
	case err != nil:
		return verdict{codeOther, err.Error()}
	}
	err = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			return err // what the check would do after that is of no use; the process ends
		}
		return nil
	})
	if err != nil {
		return verdict{codeDamaged, err.Error()}
	}
	return verdict{code: codeSound}
}

package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/store"
)

// The forms of events on stdout.
const (
	outputText = "text"
	outputJSON = "json"
	outputNone = "none"
	// outputKubelet is what the kubelet's GenericPLEG would have sent, as JSON.
	outputKubelet = "kubelet"
)

const (
	// outputBuffer is what is gathered while events come faster than they can
	// be written one by one.
	outputBuffer = 64 << 10
	// readerPoll is how often it is looked whether the reader of an idle stdout
	// is still there.
	readerPoll = time.Second
)

// printer writes events to stdout. It pulls them, so a reader that stops
// reading blocks nothing but the printer.
type printer struct {
	w      *bufio.Writer
	format func(*pleg.Event) ([]byte, error) // lines, or none
}

func newPrinter(out io.Writer, form string) *printer {
	p := &printer{w: bufio.NewWriterSize(out, outputBuffer), format: formatText}
	switch form {
	case outputJSON:
		p.format = formatJSON
	case outputKubelet:
		p.format = kubeletFormat()
	}
	return p
}

// kubeletFormat returns a function that makes no line or more of each event.
func kubeletFormat() func(*pleg.Event) ([]byte, error) {
	var feed pleg.KubeletFeed
	return func(ev *pleg.Event) (lines []byte, err error) {
		for _, k := range feed.Events(ev) {
			b, err := k.MarshalJSON()
			if err != nil {
				return nil, err
			}
			lines = append(append(lines, b...), '\n')
		}
		return lines, nil
	}
}

func formatJSON(ev *pleg.Event) ([]byte, error) {
	b, err := ev.MarshalJSON() // json.Marshal would escape it once more
	return append(b, '\n'), err
}

// print writes events until the generator has stopped and all are written. It
// flushes whenever it has caught up.
func (p *printer) print(sub *pleg.Subscription) error {
	ready, cancel := context.WithCancel(context.Background())
	cancel() // Next with it returns what is there, and doesn't wait
	for {
		ev, err := sub.Next(ready)
		if errors.Is(err, context.Canceled) {
			if err := p.w.Flush(); err != nil {
				return err
			}
			ev, err = sub.Next(context.Background())
		}
		switch {
		case errors.Is(err, pleg.ErrStopped), errors.Is(err, store.ErrClosed):
			return p.w.Flush()
		case err != nil:
			return errors.Join(p.w.Flush(), err)
		}
		line, err := p.format(ev)
		if err != nil {
			return err
		}
		if _, err := p.w.Write(line); err != nil {
			return err
		}
	}
}

// readerGone reports whether a write failed for want of a reader.
func readerGone(err error) bool { return errors.Is(err, syscall.EPIPE) }

// watchReader calls gone when the reader of a pipe has gone away, which a
// writer with nothing to write would not notice. stop ends the watch.
func watchReader(ctx context.Context, out io.Writer, gone func()) (stop func()) {
	f, ok := out.(*os.File)
	if !ok {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		every(ctx, readerPoll, func() {
			fds := []unix.PollFd{{Fd: int32(f.Fd())}} //nolint:gosec // a descriptor fits
			// Errors and hangups are reported without being asked for.
			if n, err := unix.Poll(fds, 0); err == nil && n > 0 {
				gone()
			}
		})
	}()
	return func() {
		cancel()
		<-done
	}
}

package compare

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/replay"
)

// Replay runs one mode on a recording, in virtual time, as a child process does:
// it reads what to do from in and writes lines to out. The process ends with it;
// it returns only what keeps it from beginning. It has to be called by the
// process's first goroutine; see [replay.Main].
func Replay(in io.Reader, out io.Writer) error {
	c, err := readChild(bufio.NewScanner(in))
	if err != nil {
		return err
	}
	rec, err := replay.Open(c.Input)
	if err != nil {
		return err
	}
	c.Endpoint = "/recording" // as the world calls it
	replay.Main(rec, func(ctx context.Context, w *replay.World) int {
		if err := c.replay(ctx, w, out); err != nil {
			return 1
		}
		return 0
	})
	return nil
}

// replay runs the mode in the world of a recording. The error is about writing.
func (c Child) replay(ctx context.Context, w *replay.World, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := &lineWriter{buf: bufio.NewWriter(out), failed: cancel}
	q.enc = json.NewEncoder(q.buf)
	clock := w.Clock()
	rec := NewRecorder(q.put, clock)
	closing := make(chan struct{})
	timer := time.AfterFunc(c.CloseAt, func() { close(closing) })
	defer timer.Stop()
	rec.End(c.run(ctx, closing, place{
		rec: rec, clock: clock, dial: w.Dial, configure: w.Configure, redial: w.Redial(), random: w.Random("hinter"),
	}))
	return q.close()
}

// lineWriter writes lines at once: in virtual time nothing else goes on meanwhile.
type lineWriter struct {
	failed func()

	mu  sync.Mutex
	buf *bufio.Writer
	enc *json.Encoder
	err error
}

func (w *lineWriter) put(l Line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	if w.err = w.enc.Encode(l); w.err != nil {
		w.failed()
	}
}

func (w *lineWriter) close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	if w.err != nil {
		return fmt.Errorf("lines of a mode: %w", w.err)
	}
	return nil
}

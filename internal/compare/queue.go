package compare

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
)

// maxQueue is how many lines wait for a reader that is behind. What the runtime
// says is dropped beyond it, and counted, so that the connection to the runtime
// never waits; everything else waits.
const maxQueue = 8192

// queue writes lines in their order.
type queue struct {
	lines   chan Line
	done    chan error
	dropped atomic.Uint64

	mu     sync.RWMutex
	closed bool
}

func newQueue(w io.Writer) *queue {
	q := &queue{lines: make(chan Line, maxQueue), done: make(chan error, 1)}
	go func() { q.done <- q.write(w) }()
	return q
}

// put takes a line, and throws it away after close: the connection may still
// have a word to say when all else has ended.
func (q *queue) put(l Line) {
	q.mu.RLock()
	defer q.mu.RUnlock()
	if q.closed {
		return
	}
	if l.Raw == nil {
		q.lines <- l
		return
	}
	select {
	case q.lines <- l:
	default:
		q.dropped.Add(1)
	}
}

// write writes until close. After an error it only takes.
func (q *queue) write(w io.Writer) (failed error) {
	buf := bufio.NewWriter(w)
	enc := json.NewEncoder(buf)
	for l := range q.lines {
		if n := q.dropped.Swap(0); n > 0 && failed == nil {
			failed = enc.Encode(Line{Note: &Note{Text: fmt.Sprintf("%d things that the runtime said were not kept: they came faster than they could be written", n)}})
		}
		if failed == nil {
			failed = enc.Encode(l)
		}
		if failed == nil && len(q.lines) == 0 {
			failed = buf.Flush()
		}
	}
	return failed
}

// close writes the rest.
func (q *queue) close() error {
	q.mu.Lock()
	q.closed = true
	close(q.lines)
	q.mu.Unlock()
	return <-q.done
}

// noter makes notes of what a mode's log says of trouble.
type noter struct {
	rec *Recorder
	n   atomic.Int64
}

// Enabled implements [slog.Handler].
func (n *noter) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (n *noter) Handle(_ context.Context, r slog.Record) error {
	if n.n.Add(1) > maxNotes {
		return nil
	}
	var b strings.Builder
	b.WriteString(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	n.rec.Note(limit(b.String()))
	return nil
}

// WithAttrs implements [slog.Handler].
func (n *noter) WithAttrs([]slog.Attr) slog.Handler { return n }

// WithGroup implements [slog.Handler].
func (n *noter) WithGroup(string) slog.Handler { return n }

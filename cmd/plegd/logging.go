package main

import (
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
)

const (
	// logQueue is how many lines wait for a stderr that doesn't take them. More
	// are dropped and counted: whoever reads the log must not hold up the agent.
	logQueue = 1024
	// lastWords is how long stderr may take for what is left at the end.
	lastWords = 100 * time.Millisecond
)

// logOptions are the flags of commands that log.
type logOptions struct{ level, format string }

// addTo adds the flags.
func (o *logOptions) addTo(cmd *cobra.Command) {
	o.level, o.format = "info", "text"
	choiceFlag(cmd, &o.level, "log-level", "least level of what is logged on stderr", "debug", "info", "warn", "error")
	choiceFlag(cmd, &o.format, "log-format", "form of the log", "text", "json")
}

// logger returns the logger that the flags ask for. Its level is set to the
// flag's, and may be set to another later.
func (o *logOptions) logger(w io.Writer, level *slog.LevelVar) *slog.Logger {
	_ = level.UnmarshalText([]byte(o.level)) // the flag allows only what this reads
	opts := &slog.HandlerOptions{Level: level}
	if o.format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// logWriter passes lines on to a writer that may block, and never blocks
// itself.
type logWriter struct {
	w     io.Writer
	lines chan []byte
	quit  chan struct{}
	done  chan struct{}
	lost  int // owned by Write, which slog calls one at a time
}

func newLogWriter(w io.Writer) *logWriter {
	l := &logWriter{w: w, lines: make(chan []byte, logQueue), quit: make(chan struct{}), done: make(chan struct{})}
	go l.run()
	return l
}

// Write implements [io.Writer].
func (l *logWriter) Write(p []byte) (int, error) {
	line := append([]byte(nil), p...)
	if l.lost > 0 {
		line = append(fmt.Appendf(nil, "plegd: log lines lost since stderr was blocked: %d\n", l.lost), line...)
	}
	select {
	case l.lines <- line:
		l.lost = 0
	default:
		l.lost++
	}
	return len(p), nil
}

func (l *logWriter) run() {
	defer close(l.done)
	for {
		select {
		case line := <-l.lines:
			_, _ = l.w.Write(line) // there is nobody to tell
		case <-l.quit:
			for {
				select {
				case line := <-l.lines:
					_, _ = l.w.Write(line)
				default:
					return
				}
			}
		}
	}
}

// close writes what is left, for a moment at most.
func (l *logWriter) close() {
	close(l.quit)
	briefly(func() { <-l.done })
}

// briefly runs f, which may block for ever, and waits for it for a moment.
func briefly(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(lastWords):
	}
}

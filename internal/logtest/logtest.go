// Package logtest is for tests that read what runs beside them writes: a log,
// or a child process's output.
package logtest

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
)

// Buffer keeps what is written to it, by any goroutine, and may be read
// meanwhile. Its zero value is ready.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements [io.Writer].
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Lines returns the lines that were written so far, none if there are none.
func (b *Buffer) Lines() []string {
	s := strings.TrimSuffix(b.String(), "\n")
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

// Count returns how many lines contain a text.
func (b *Buffer) Count(text string) (n int) {
	for _, line := range b.Lines() {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// Logger returns a logger that writes text to the buffer.
func (b *Buffer) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// Attr returns the value of one attribute of a line that slog's text handler
// wrote, "" if it has none.
func Attr(line, key string) string {
	_, rest, ok := strings.Cut(" "+line, " "+key+"=")
	if !ok {
		return ""
	}
	if strings.HasPrefix(rest, `"`) {
		value, _, _ := strings.Cut(rest[1:], `"`)
		return value
	}
	value, _, _ := strings.Cut(rest, " ")
	return value
}

package field_test

import (
	"log/slog"

	"github.com/plegd/plegd/internal/logtest"
)

// records is a log that can be counted by message (G8).
type records struct{ buf logtest.Buffer }

// logger logs from level info on: what is for debugging is no line to anybody.
func (r *records) logger() *slog.Logger { return r.buf.Logger() }

func (r *records) all() []string { return r.buf.Lines() }

// messages counts the records of each message. The lines of conditions are
// told apart by their names.
func (r *records) messages() map[string]int {
	m := map[string]int{}
	for _, line := range r.all() {
		msg := logtest.Attr(line, "msg")
		if c := logtest.Attr(line, "condition"); c != "" {
			msg += " (" + c + ")"
		}
		m[msg]++
	}
	return m
}

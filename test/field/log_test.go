package field_test

import (
	"log/slog"
	"strings"

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
		msg := field1(line, "msg=")
		if c := field1(line, "condition="); c != "" {
			msg += " (" + c + ")"
		}
		m[msg]++
	}
	return m
}

// field1 returns the value of one attribute of a line of slog's text handler.
func field1(line, key string) string {
	_, rest, ok := strings.Cut(line, " "+key)
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

package main

import (
	"errors"
	"strings"
	"time"

	pleg "github.com/plegd/plegd"
)

// when is a place in the journal: a position or a time. The zero when is none.
type when struct {
	text     string // as it was given
	position *pleg.Position
	at       time.Time
}

// set reports whether there is one.
func (w *when) set() bool { return w.text != "" }

// firstMoment is before every event: no clock of an agent shows it.
var firstMoment = time.Unix(0, 1)

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// whenValue is a flag for a place in the journal.
type whenValue struct {
	to  *when
	now func() time.Time
}

// Set implements [pflag.Value]. A duration counts back from now.
func (v whenValue) Set(s string) error {
	w := when{text: s}
	if d, err := time.ParseDuration(s); err == nil {
		if d < 0 {
			return errors.New("must not be negative: a duration counts back from now")
		}
		w.at = laterOf(v.now().Add(-d), firstMoment)
		*v.to = w
		return nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		w.at = laterOf(t, firstMoment)
		*v.to = w
		return nil
	}
	if !strings.Contains(s, "/") {
		return errors.New("must be a position, EPOCH/SEQ, as events have it, a time as of RFC 3339, such as 2026-01-02T15:04:05Z, or a duration before now, such as 10m")
	}
	if err := (&sinceValue{&w.position}).Set(s); err != nil {
		return err
	}
	*v.to = w
	return nil
}

// String implements [pflag.Value].
func (v whenValue) String() string {
	if v.to == nil {
		return ""
	}
	return v.to.text
}

// Type implements [pflag.Value].
func (whenValue) Type() string { return "position|time|duration" }

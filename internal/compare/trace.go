package compare

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// maxEvents and maxRaws bound what is kept of one mode: some 300 bytes
	// each, so that eight modes stay below 2 GiB on the busiest node. At 5
	// transitions a second this is a day.
	maxEvents = 500_000
	maxRaws   = 200_000
	// maxNotes bounds the log lines that are kept.
	maxNotes = 200
	// maxSamples is a day's at one a second.
	maxSamples = 86_400
	// maxLine is the longest line that is read.
	maxLine = 1 << 20
)

// Trace is what one mode said, in its order.
type Trace struct {
	Mode    Mode
	Ready   *Ready // nil if it never was
	Events  []Event
	Raws    []Raw
	Samples []Sample
	Notes   []Note
	End     *End  // nil if it ended without a word
	Dropped int   // lines that are too many to keep
	Full    int64 // when the first event came that was one of them, 0 for none
}

// Add takes one line. It is for one goroutine at a time.
func (t *Trace) Add(l Line) {
	switch {
	case l.Ready != nil:
		t.Ready = l.Ready
	case l.End != nil:
		t.End = l.End
	case l.Event != nil && len(t.Events) < maxEvents:
		t.Events = append(t.Events, *l.Event)
	case l.Raw != nil && len(t.Raws) < maxRaws:
		t.Raws = append(t.Raws, *l.Raw)
	case l.Sample != nil && len(t.Samples) < maxSamples:
		t.Samples = append(t.Samples, *l.Sample)
	case l.Note != nil && len(t.Notes) < maxNotes:
		t.Notes = append(t.Notes, *l.Note)
	default:
		t.Dropped++
		if l.Event != nil && t.Full == 0 {
			t.Full = l.Event.At
		}
	}
}

// ErrLine is wrapped by what ReadLines returns for what is no line of a mode.
var ErrLine = errors.New("not a line of a comparison")

// ReadLines hands each line to take, until the end.
func ReadLines(r io.Reader, take func(Line)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var l Line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("%w: %.80q: %w", ErrLine, lines.Text(), err)
		}
		take(l)
	}
	return lines.Err()
}

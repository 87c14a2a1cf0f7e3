package doctor

import (
	"time"
)

// Verdict is how well a runtime does in one respect.
type Verdict string

// The verdicts, from the best to the worst. Unknown says that there was nothing to
// judge by.
const (
	Good    Verdict = "ok"
	Unknown Verdict = "unknown"
	Warning Verdict = "warning"
	Bad     Verdict = "bad"
)

// rank orders verdicts, the best first.
func (v Verdict) rank() int {
	switch v {
	case Good:
		return 0
	case Unknown:
		return 1
	case Warning:
		return 2
	default:
		return 3
	}
}

// Line answers one question.
type Line struct {
	// Check is what was asked: socket, version, others, stream, sharing, missing,
	// types, duplicates, order, payloads, times, lag, reconnect, lists or calls.
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	// Finding is what was found, with figures.
	Finding string `json:"finding"`
	// Advice is what to do about it, "" where there is nothing to do.
	Advice string `json:"advice,omitempty"`
}

// Report is what the doctor found.
type Report struct {
	Endpoint string    `json:"endpoint"`
	Runtime  string    `json:"runtime,omitempty"` // its own name
	Version  string    `json:"version,omitempty"`
	Began    time.Time `json:"began"`
	Seconds  float64   `json:"seconds"` // of listening, both streams at once
	// Whole is false if the examination was ended before its time.
	Whole bool   `json:"whole"`
	Lines []Line `json:"lines"`
	// Verdict is the worst of the lines that decide it: see Judge.
	Verdict Verdict `json:"verdict"`
	Summary string  `json:"summary"` // in words
}

package store

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/plegd/plegd/timestamps"
)

// The earliest and latest times that fit into int64 nanoseconds.
var (
	minTime = time.Unix(0, math.MinInt64)
	maxTime = time.Unix(0, math.MaxInt64)
)

// ParseTime reads what [FormatTime] writes, or any other RFC 3339 time, into
// ns since the Unix epoch. Errors wrap [ErrEvent].
func ParseTime(s string) (int64, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0, fmt.Errorf("time %.40q: %w: want RFC 3339", s, ErrEvent)
	}
	if t.Before(minTime) || t.After(maxTime) {
		return 0, fmt.Errorf("time %.40q: %w: out of range", s, ErrEvent)
	}
	return t.UnixNano(), nil
}

// wireEvent is jsonEvent as a reader sees it: an exit code that is null or
// absent is unknown.
type wireEvent struct {
	jsonEvent
	ExitCode *int32 `json:"exit_code"`
}

// UnmarshalJSON reads what MarshalJSON writes; fields and event types that
// this version doesn't know are no error. Errors wrap [ErrEvent].
func (e *Event) UnmarshalJSON(data []byte) error {
	var w wireEvent
	if err := json.Unmarshal(data, &w); err != nil {
		return fmt.Errorf("event: %w: %w", ErrEvent, err)
	}
	epoch, err := timestamps.ParseEpoch(w.Epoch)
	if err != nil {
		return fmt.Errorf("event: %w: %w", ErrEvent, err)
	}
	if w.Seq == 0 || w.Seq > timestamps.MaxNumber || w.Type == "" {
		return fmt.Errorf("event %s/%d of type %.40q: %w", epoch, w.Seq, w.Type, ErrEvent)
	}
	out := Event{
		Position: timestamps.Position{Epoch: epoch, Seq: w.Seq}, Type: w.Type, Incarnation: w.Incarnation,
		SandboxID: w.SandboxID, Reason: w.Reason, Change: w.Change, Changed: w.Changed, State: w.State, From: w.From, To: w.To,
		Source: parseSource(w.Source), Inferred: w.Inferred, Volatile: w.Volatile, BootID: w.BootID,
	}
	if w.ObservedAt != "" {
		if out.ObservedAt, err = ParseTime(w.ObservedAt); err != nil {
			return fmt.Errorf("event %s: observed_at: %w", out.Position, err)
		}
	}
	if w.OccurredAt != nil {
		if out.OccurredAt, err = ParseTime(*w.OccurredAt); err != nil {
			return fmt.Errorf("event %s: occurred_at: %w", out.Position, err)
		}
	}
	if p := w.Pod; p != nil {
		out.Pod = EventPod{UID: p.UID, Namespace: p.Namespace, Name: p.Name, IP: p.IP}
		if len(p.Labels) > 0 {
			out.Pod.Labels = p.Labels
		}
	}
	if c := w.Container; c != nil {
		out.Container = EventContainer{ID: c.ID, Name: c.Name, Attempt: c.Attempt, Image: c.Image}
	}
	if len(out.Changed) == 0 {
		out.Changed = nil
	}
	if w.ExitCode != nil {
		out.ExitKnown, out.ExitCode = true, *w.ExitCode
	}
	*e = out
	return nil
}

// parseSource reads the word that Provenance.String writes; "" and words that
// this version doesn't know are no source.
func parseSource(s string) timestamps.Provenance {
	for _, p := range []timestamps.Provenance{timestamps.FromStream, timestamps.FromRelist, timestamps.FromInspect} {
		if p.String() == s {
			return p
		}
	}
	return timestamps.FromUnknown
}

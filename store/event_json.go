package store

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/plegd/plegd/timestamps"
)

// jsonEvent is the wire form of an Event. What doesn't apply to an event's
// type is absent, as the source is where nothing was observed; "occurred_at" is
// null where the runtime never said when, and "exit_code" is null on a death
// whose code is unknown.
type jsonEvent struct {
	Epoch       string         `json:"epoch"`
	Seq         uint64         `json:"seq"`
	Type        EventType      `json:"type"`
	Incarnation uint32         `json:"incarnation,omitempty"`
	Pod         *jsonPod       `json:"pod,omitempty"`
	SandboxID   string         `json:"sandbox_id,omitempty"`
	Container   *jsonContainer `json:"container,omitempty"`
	ExitCode    *jsonExit      `json:"exit_code,omitempty"`
	Reason      string         `json:"reason,omitempty"`
	OccurredAt  *string        `json:"occurred_at"`
	ObservedAt  string         `json:"observed_at"`
	Source      string         `json:"source,omitempty"`
	Inferred    bool           `json:"inferred"`
	Volatile    bool           `json:"volatile"`
	BootID      string         `json:"boot_id"`
	Change      Change         `json:"change,omitempty"`
	Changed     []string       `json:"changed,omitempty"`
	State       string         `json:"state,omitempty"`
	From        uint64         `json:"from,omitempty"`
	To          uint64         `json:"to,omitempty"`
}

type jsonPod struct {
	UID       string            `json:"uid"`
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	IP        string            `json:"ip"`
	Labels    map[string]string `json:"labels"`
}

type jsonContainer struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Attempt uint32 `json:"attempt"`
	Image   string `json:"image"`
}

// jsonExit is a code or null.
type jsonExit struct {
	known bool
	code  int32
}

// MarshalJSON writes the code, or null when it is unknown.
func (e jsonExit) MarshalJSON() ([]byte, error) {
	if !e.known {
		return []byte("null"), nil
	}
	return json.Marshal(e.code)
}

// FormatTime returns a time in ns as RFC 3339 with nanoseconds in UTC, the
// form of every time that plegd prints. Every int64 has one: they span the
// years 1677 to 2262.
func FormatTime(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

// MarshalJSON writes the event as one line of JSON. It is the only encoder of
// events; every output takes its bytes as they are, since json.Marshal would
// write <, > and & in them another way. Bytes that aren't UTF-8 become U+FFFD; the
// agent's running time is left out.
func (e Event) MarshalJSON() ([]byte, error) {
	j := jsonEvent{
		Epoch: e.Position.Epoch.String(), Seq: e.Position.Seq, Type: e.Type, Incarnation: e.Incarnation,
		SandboxID: e.SandboxID, Reason: e.Reason, Change: e.Change, Changed: e.Changed, State: e.State, From: e.From, To: e.To,
		ObservedAt: FormatTime(e.ObservedAt), Inferred: e.Inferred,
		Volatile: e.Volatile, BootID: e.BootID,
	}
	if e.Source != timestamps.FromUnknown {
		j.Source = e.Source.String()
	}
	if e.Type != SequenceSkipped {
		j.Pod = &jsonPod{e.Pod.UID, e.Pod.Namespace, e.Pod.Name, e.Pod.IP, e.Pod.Labels}
		if j.Pod.Labels == nil {
			j.Pod.Labels = map[string]string{}
		}
	}
	if e.Container.ID != "" {
		j.Container = &jsonContainer{e.Container.ID, e.Container.Name, e.Container.Attempt, e.Container.Image}
	}
	if e.Type == ContainerDied || e.ExitKnown {
		j.ExitCode = &jsonExit{e.ExitKnown, e.ExitCode}
	}
	if e.OccurredAt != 0 {
		s := FormatTime(e.OccurredAt)
		j.OccurredAt = &s
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(j); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

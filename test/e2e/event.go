package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// event is one line of plegd's JSON output, as the documentation describes it.
type event struct {
	Epoch       string          `json:"epoch"`
	Seq         uint64          `json:"seq"`
	Type        string          `json:"type"`
	Incarnation int             `json:"incarnation"`
	Pod         eventPod        `json:"pod"`
	SandboxID   string          `json:"sandbox_id"`
	Container   *eventContainer `json:"container"`
	ExitCode    exitCode        `json:"exit_code"`
	Reason      string          `json:"reason"`
	OccurredAt  *time.Time      `json:"occurred_at"`
	ObservedAt  time.Time       `json:"observed_at"`
	Source      string          `json:"source"`
	Inferred    bool            `json:"inferred"`
	Volatile    bool            `json:"volatile"`
	BootID      string          `json:"boot_id"`
	Change      string          `json:"change"`
	Changed     []string        `json:"changed"`
	State       string          `json:"state"`
	From        uint64          `json:"from"`
	To          uint64          `json:"to"`

	seen time.Time // when this test read it
}

type eventPod struct {
	UID       string            `json:"uid"`
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	IP        string            `json:"ip"`
	Labels    map[string]string `json:"labels"`
}

type eventContainer struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Attempt uint32 `json:"attempt"`
	Image   string `json:"image"`
}

// exitCode tells absent, null and a number apart.
type exitCode struct {
	present bool
	code    *int32 // nil is null
}

func (e *exitCode) UnmarshalJSON(b []byte) error {
	e.present = true
	return json.Unmarshal(b, &e.code)
}

func (e exitCode) String() string {
	switch {
	case !e.present:
		return "absent"
	case e.code == nil:
		return "null"
	default:
		return fmt.Sprint(*e.code)
	}
}

// parseEvent is strict: a field that isn't documented is an error.
func parseEvent(line []byte) (event, error) {
	var e event
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return event{}, fmt.Errorf("event %q: %w", line, err)
	}
	e.seen = time.Now()
	return e, nil
}

// id is the container or sandbox that the event is about.
func (e event) id() string {
	if e.Container != nil {
		return e.Container.ID
	}
	return e.SandboxID
}

// position is the event's place in the form that --since takes.
func (e event) position() string { return fmt.Sprintf("%s/%d", e.Epoch, e.Seq) }

// String is what a failed test shows.
func (e event) String() string {
	s := fmt.Sprintf("%d %s %s/%s %.8s", e.Seq, e.Type, e.Pod.Namespace, e.Pod.Name, e.id())
	if e.Container != nil {
		s += " " + e.Container.Name
	}
	if e.ExitCode.present {
		s += " exit " + e.ExitCode.String()
	}
	if e.Change != "" {
		s += fmt.Sprintf(" %s %v, now %s", e.Change, e.Changed, e.State)
	}
	if e.Type == "SequenceSkipped" {
		s += fmt.Sprintf(" %d..%d", e.From, e.To)
	}
	if e.Inferred {
		s += " inferred"
	}
	return s + " by " + e.Source
}

// trace is the life of one container or sandbox in short: the types of its events in order.
func trace(events []event, id string) string {
	var types []string
	for _, e := range events {
		if e.id() == id {
			types = append(types, strings.TrimPrefix(strings.TrimPrefix(e.Type, "Container"), "Sandbox"))
		}
	}
	return strings.Join(types, " ")
}

// Whole lives, as trace writes them.
const (
	wholeContainer = "Created Started Died Removed"
	wholeSandbox   = "Created Ready NotReady Removed"
)

// find returns the event of the type about the id.
func find(events []event, eventType, id string) (event, bool) {
	for _, e := range events {
		if e.Type == eventType && e.id() == id {
			return e, true
		}
	}
	return event{}, false
}

// dump lists events one a line.
func dump(events []event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

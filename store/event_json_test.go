package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/timestamps"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// goldenEvents holds one event of each type and each rule about what is null
// or absent. The file in testdata is the wire format: a change to it breaks
// readers.
func goldenEvents() []Event {
	epoch := timestamps.Epoch{0x9f, 1, 2, 3, 4, 5, 6, 0xab}
	const occurred, observed = 1_700_000_000_123_456_789, 1_700_000_000_500_000_000
	pod := EventPod{UID: "0b7f4e1c-uid", Namespace: "default", Name: "web-0", IP: "10.1.2.3", Labels: map[string]string{"b": "2", "app": "web"}}
	ctr := EventContainer{ID: "c0ffee", Name: "main", Attempt: 2, Image: "registry/web:1"}
	sandbox := func(typ EventType) Event {
		return Event{Type: typ, Incarnation: 1, Pod: pod, SandboxID: "5a9d", OccurredAt: occurred, ObservedAt: observed, Source: timestamps.FromStream, BootID: "boot-1", Running: 7}
	}
	container := func(typ EventType, change func(*Event)) Event {
		e := sandbox(typ)
		e.Container = ctr
		if change != nil {
			change(&e)
		}
		return e
	}
	events := []Event{
		sandbox(SandboxCreated),
		sandbox(SandboxReady),
		sandbox(SandboxNotReady),
		sandbox(SandboxRemoved),
		container(ContainerCreated, nil),
		container(ContainerStarted, func(e *Event) { e.Source, e.Inferred = timestamps.FromInspect, true }),
		container(ContainerDied, func(e *Event) { e.ExitKnown, e.ExitCode, e.Reason = true, 7, "Error" }),
		container(ContainerDied, func(e *Event) { e.ExitKnown, e.Reason = true, "Completed" }),                           // 0 is a value
		container(ContainerDied, func(e *Event) { e.OccurredAt, e.Source, e.Inferred = 0, timestamps.FromRelist, true }), // nothing is known
		container(ContainerDied, func(e *Event) { e.ExitKnown, e.ExitCode = true, -1 }),
		container(ContainerRemoved, func(e *Event) { e.Volatile = true }),
		container(ContainerChanged, func(e *Event) { e.Change, e.State = ChangeUnknown, "unknown" }),
		container(ContainerChanged, func(e *Event) {
			e.Change, e.Changed, e.State = ChangeAmended, []string{FieldExitCode, FieldReason}, "exited"
			e.ExitKnown, e.ExitCode, e.Reason = true, 137, "OOMKilled"
		}),
		container(ContainerChanged, func(e *Event) { e.Change, e.Changed = ChangeAmended, []string{FieldStartedAt} }),
		container(ContainerChanged, func(e *Event) {
			e.Incarnation, e.Change, e.Changed, e.State = 2, ChangeRegressed, []string{FieldState}, "running"
		}),
		{Type: SandboxChanged, Incarnation: 1, SandboxID: "5a9d", ObservedAt: observed, Source: timestamps.FromRelist, Change: ChangeAmended, Changed: []string{FieldIPs}, BootID: "boot-1"}, // a pod that nobody named
		{Type: SequenceSkipped, ObservedAt: observed, From: 10, To: 16, BootID: "boot-1"},
		container(ContainerCreated, func(e *Event) {
			e.Pod.Labels = map[string]string{"odd": "<&>\u2028\n\"", "bad": "\xff"}
			e.OccurredAt, e.ObservedAt = math.MinInt64, math.MaxInt64
		}),
	}
	for i := range events {
		events[i].Position = timestamps.Position{Epoch: epoch, Seq: uint64(i + 1)}
	}
	events[len(events)-1].Position.Seq = timestamps.MaxNumber
	return events
}

func TestEventJSONGolden(t *testing.T) {
	var got bytes.Buffer
	for _, e := range goldenEvents() {
		line, err := e.MarshalJSON()
		if err != nil {
			t.Fatalf("%s: %v", e.Type, err)
		}
		if bytes.ContainsRune(line, '\n') || !json.Valid(line) {
			t.Errorf("%s: not one line of JSON: %s", e.Type, line)
		}
		got.Write(append(line, '\n'))
	}
	file := filepath.Join("testdata", "events.jsonl")
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("events differ from %s (-want +got; -update rewrites it):\n%s", file, diff)
	}
}

func TestEventJSONComesBack(t *testing.T) {
	for _, e := range goldenEvents() {
		line, err := json.Marshal(e) // by value: it must use the one encoder as well
		if err != nil {
			t.Fatal(err)
		}
		var got Event
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		want := e
		want.Running = 0 // not told
		if bad, ok := want.Pod.Labels["bad"]; ok {
			want.Pod.Labels["bad"] = strings.ToValidUTF8(bad, "\uFFFD")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s came back as something else (-want +got):\n%s", line, diff)
		}
	}
}

func TestEventJSONAcceptsWhatLaterVersionsAdd(t *testing.T) {
	var e Event
	err := json.Unmarshal([]byte(`{"epoch":"9f010203040506ab","seq":3,"type":"ContainerPaused","pod":{"uid":"u","zone":"z"},"source":"oracle","mood":[1]}`), &e)
	if err != nil || e.Type != "ContainerPaused" || e.Pod.UID != "u" || e.Source != timestamps.FromUnknown {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestEventJSONRefusesWhatIsNoEvent(t *testing.T) {
	const start = `{"epoch":"9f010203040506ab","seq":3,"type":"ContainerDied"`
	for name, text := range map[string]string{
		"no epoch":         `{"seq":3,"type":"ContainerDied"}`,
		"epoch of zeros":   `{"epoch":"0000000000000000","seq":3,"type":"ContainerDied"}`,
		"no number":        `{"epoch":"9f010203040506ab","type":"ContainerDied"}`,
		"number too large": `{"epoch":"9f010203040506ab","seq":9007199254740992,"type":"ContainerDied"}`,
		"negative number":  `{"epoch":"9f010203040506ab","seq":-3,"type":"ContainerDied"}`,
		"no type":          `{"epoch":"9f010203040506ab","seq":3}`,
		"no time":          start + `,"observed_at":"yesterday"}`,
		"year 3000":        start + `,"occurred_at":"3000-01-01T00:00:00Z"}`,
		"year 1000":        start + `,"occurred_at":"1000-01-01T00:00:00Z"}`,
		"exit code text":   start + `,"exit_code":"7"}`,
		"exit code 2^31":   start + `,"exit_code":2147483648}`,
		"a list":           `[]`,
	} {
		var e Event
		if err := e.UnmarshalJSON([]byte(text)); !errors.Is(err, ErrEvent) {
			t.Errorf("%s: got error %v, want one that wraps ErrEvent", name, err)
		}
	}
}

func TestFormatTimeIsAlwaysRFC3339(t *testing.T) {
	for _, ns := range []int64{0, 1, -1, math.MinInt64, math.MaxInt64, -6795364578871345152, 1_700_000_000_000_000_000} {
		text := FormatTime(ns)
		if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
			t.Errorf("%d: %v", ns, err)
		}
		if got, err := ParseTime(text); err != nil || got != ns {
			t.Errorf("%d: came back as %d, %v", ns, got, err)
		}
	}
}

func FuzzEventJSON(f *testing.F) {
	for _, e := range goldenEvents() {
		line, err := e.MarshalJSON()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var e Event
		if err := e.UnmarshalJSON(data); err != nil {
			if !errors.Is(err, ErrEvent) {
				t.Errorf("error %v doesn't wrap ErrEvent", err)
			}
			return
		}
		line, err := e.MarshalJSON()
		if err != nil {
			t.Fatalf("%+v was read but can't be written: %v", e, err)
		}
		var again Event
		if err := again.UnmarshalJSON(line); err != nil {
			t.Fatalf("%s was written but can't be read: %v", line, err)
		}
		second, err := again.MarshalJSON()
		if err != nil || !bytes.Equal(line, second) {
			t.Errorf("%s became %s, %v", line, second, err)
		}
	})
}

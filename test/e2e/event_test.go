package e2e

import (
	"fmt"
	"testing"
)

func TestParseEvent(t *testing.T) {
	const line = `{"epoch":"9f00000000000001","seq":42,"type":"ContainerDied","incarnation":1,` +
		`"pod":{"uid":"u","namespace":"n","name":"p","ip":"10.0.0.1","labels":{"a":"b"}},"sandbox_id":"s",` +
		`"container":{"id":"c","name":"main","attempt":0,"image":"i"},%s"reason":"Error",` +
		`"occurred_at":"2026-01-02T03:04:05.000000006Z","observed_at":"2026-01-02T03:04:05Z",` +
		`"source":"stream","inferred":false,"volatile":false,"boot_id":"b"}`
	for exit, want := range map[string]string{`"exit_code":7,`: "7", `"exit_code":null,`: "null", ``: "absent"} {
		e, err := parseEvent([]byte(fmt.Sprintf(line, exit)))
		if err != nil || e.ExitCode.String() != want || e.OccurredAt.Nanosecond() != 6 {
			t.Errorf("with %q: exit code %v, %v; want %s", exit, e.ExitCode, err, want)
		}
	}
	if _, err := parseEvent([]byte(fmt.Sprintf(line, `"surprise":1,`))); err == nil {
		t.Error("an undocumented field passed")
	}
}

func TestTrace(t *testing.T) {
	c := &eventContainer{ID: "c"}
	events := []event{
		{Type: "SandboxCreated", SandboxID: "s"},
		{Type: "ContainerCreated", SandboxID: "s", Container: c},
		{Type: "ContainerStarted", SandboxID: "s", Container: c},
		{Type: "SandboxReady", SandboxID: "s"},
	}
	if got := trace(events, "c"); got != "Created Started" {
		t.Errorf("container: %q", got)
	}
	if got := trace(events, "s"); got != "Created Ready" {
		t.Errorf("sandbox: %q", got)
	}
}

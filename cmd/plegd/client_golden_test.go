package main

import (
	"strings"
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
)

// goldenNow is when the golden pods are looked at.
var goldenNow = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// goldenPods are pods of which each is another case.
func goldenPods() []pleg.Pod {
	ago := func(d time.Duration) time.Time { return goldenNow.Add(-d) }
	code := func(n int32) *int32 { return &n }
	const id = "0123456789abcdef0123"
	return []pleg.Pod{
		{
			Key: "uid-web", UID: "uid-web", Namespace: "shop", Name: "web-7d4b9c", IP: "10.0.0.7", IPs: []string{"10.0.0.7", "fd00::7"},
			Labels: map[string]string{"app": "web", "tier": "front"}, Position: "9f3c5a7e01b2d4c6/42",
			Sandboxes: []pleg.Sandbox{
				{ID: "b" + id, State: "ready", Reported: "ready", Incarnation: 1, Attempt: 1, CreatedAt: ago(49 * time.Hour), IPs: []string{"10.0.0.7", "fd00::7"}},
				{ID: "a" + id, State: "notready", Reported: "notready", Incarnation: 2, CreatedAt: ago(50 * time.Hour), Error: "rpc error: x\x1b[31m"},
			},
			Containers: []pleg.Container{
				{ID: "c" + id, Name: "app", State: "exited", Reported: "exited", Incarnation: 1, Image: "registry.example/app:1", FinishedAt: ago(3 * time.Hour), ExitCode: code(137), Reason: "OOMKilled"},
				{ID: "d" + id, Name: "app", Attempt: 1, State: "running", Reported: "running", Incarnation: 1, Image: "registry.example/app:1", StartedAt: ago(2 * time.Hour)},
				{ID: "e" + id, Name: "init", State: "exited", Reported: "exited", Incarnation: 1, FinishedAt: ago(49 * time.Hour), ExitCode: code(0), Reason: "Completed"},
				{ID: "f" + id, Name: "side", State: "created", Reported: "unknown", Incarnation: 1, Restored: true, CreatedAt: ago(time.Minute), Message: "no such file"},
			},
		},
		{
			Key: "uid-db", UID: "uid-db", Namespace: "shop", Name: "a-database-with-quite-a-long-name-0", IP: "10.0.0.9", IPs: []string{"10.0.0.9"}, Restored: true,
			Sandboxes:  []pleg.Sandbox{{ID: "9" + id, State: "notready", Reported: "notready", CreatedAt: ago(5 * time.Minute), HostNetwork: true}},
			Containers: []pleg.Container{{ID: "8" + id, Name: "db", Attempt: 12, State: "exited", Reported: "exited"}},
		},
		{Key: "sandbox:" + id, Sandboxes: []pleg.Sandbox{{ID: id, State: "created", Reported: "ready", CreatedAt: ago(time.Second)}}},
		{Key: "uid-left", UID: "uid-left", Namespace: "default", Name: "left", Containers: []pleg.Container{{ID: "7" + id, Name: "x", State: "running"}}},
	}
}

// goldenStatus is an agent with trouble.
func goldenStatus() agentStatus {
	return agentStatus{
		Mode: "hybrid", Node: "n1", Runtime: agentRuntime{Endpoint: "/run/containerd/containerd.sock", Name: "containerd", Version: "v2.1.4"},
		Health: agentHealth{Ready: true, Live: true, Conditions: []agentCondition{
			{"stream_down", "connection refused\x07", goldenNow.Add(-90 * time.Second)}, {Name: "state_reset", Reason: "was damaged"},
		}},
		Position: "9f3c5a7e01b2d4c6/42", Oldest: "9f3c5a7e01b2d4c6/0", Journal: agentJournal{"9f3c5a7e01b2d4c6", 42, 12345},
		Relist: agentRelist{Periodic: true, Period: 90, State: "stretching", Failures: 2, Error: "deadline exceeded", Waiting: 1, InFlight: 2},
		Stream: agentStream{State: "down", Since: goldenNow.Add(-90 * time.Second), Error: "connection refused", Reconnects: 3, Events: 100, Lost: 4, Malformed: 5},
		Queued: 6, Asks: []agentAsking{{"0123456789abcdef0123", "container", []string{"exit_code", "unknown"}, 3}},
	}
}

func TestGoldenPods(t *testing.T) {
	for name, wide := range map[string]bool{"pods": false, "pods-wide": true} {
		for _, colors := range []bool{false, true} {
			tab := podTable(wide, colors)
			for _, p := range goldenPods() {
				tab.add(podRow(&p, goldenNow, wide)...)
			}
			var b strings.Builder
			if err := tab.write(&b); err != nil {
				t.Fatal(err)
			}
			if colors {
				name += "-colour"
			}
			golden(t, "client-"+name, b.String())
		}
	}
}

func TestGoldenPod(t *testing.T) {
	var b strings.Builder
	for _, p := range goldenPods() {
		if err := describePod(&b, &p, goldenNow, false); err != nil {
			t.Fatal(err)
		}
		b.WriteString("----\n")
	}
	golden(t, "client-pod", b.String())
}

func TestGoldenStatus(t *testing.T) {
	s := goldenStatus()
	golden(t, "client-status", s.text(goldenNow, false))
	golden(t, "client-status-colour", s.text(goldenNow, true))
	for want, r := range map[string]agentRuntime{"not known yet": {}, "not known yet at /r: gone": {Endpoint: "/r", Error: "gone"}} {
		if got := r.text(); got != want {
			t.Errorf("a runtime that isn't known: %q, want %q", got, want)
		}
	}
}

// The view leaves out what a terminal has no room for.
func TestGoldenTop(t *testing.T) {
	view := func() *topView {
		events := &topEvents{}
		for i, latency := range []time.Duration{-1, 300 * time.Microsecond, 2 * time.Millisecond, 40 * time.Millisecond, 5 * time.Second} {
			events.list = append(events.list, topEvent{goldenNow.Add(time.Duration(i-62) * time.Second), latency})
		}
		return &topView{now: goldenNow, status: goldenStatus(), pods: goldenPods(), events: events}
	}
	for name, size := range map[string][2]int{"top": {0, 0}, "top-120x40": {120, 40}, "top-60x16": {60, 16}, "top-24x10": {24, 10}, "top-24x20": {24, 20}, "top-1x3": {1, 3}, "top-2x1": {2, 1}} {
		lines := view().lines(size[0], size[1], false)
		golden(t, "client-"+name, strings.Join(lines, "\n")+"\n")
		for _, line := range lines {
			if size[0] > 0 && width(line) > size[0] {
				t.Errorf("%s: %d wide: %s", name, width(line), line)
			}
		}
		if size[1] > 0 && len(lines) > size[1] {
			t.Errorf("%s: %d lines", name, len(lines))
		}
	}
	v := view()
	v.podsUnknown, v.trouble = "plegd at /x: pods are not known yet", "lost the agent 3s ago, what follows is old: no such file"
	golden(t, "client-top-trouble", strings.Join(v.lines(80, 0, true), "\n")+"\n")
}

// Rate and latency are of the last minute, of no more than is kept.
func TestTopEvents(t *testing.T) {
	e := &topEvents{}
	e.add(nil)
	if got := e.text(goldenNow); got != "0.0/s in the last minute" {
		t.Errorf("%q", got)
	}
	for i := range topMost + 1 {
		e.list = append(e.list, topEvent{goldenNow.Add(-10*time.Second + time.Duration(i)*time.Microsecond), -1})
	}
	e.list, e.dropped = e.list[topMost/2:], true
	if got := e.text(goldenNow); got != "1001.1/s in the last minute" {
		t.Errorf("%q", got)
	}
}

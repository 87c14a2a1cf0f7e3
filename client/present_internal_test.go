package client

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/store"
)

func seconds(n int64) *timestamppb.Timestamp { return &timestamppb.Timestamp{Seconds: n} }

// Each event changes what it tells, and nothing else.
func TestPresentTakesEvents(t *testing.T) {
	here := &plegdv1.EventPod{Uid: "u", Namespace: "ns", Name: "p", Labels: map[string]string{"a": "b"}}
	sandbox := func(kind store.EventType, id string, at int64) *Event {
		return &Event{Type: string(kind), PodKey: "u", Pod: here, SandboxId: id, Incarnation: 1, OccurredAt: seconds(at)}
	}
	container := func(kind store.EventType, id string, at int64) *Event {
		ev := sandbox(kind, "s1", at)
		ev.Container = &plegdv1.EventContainer{Id: id, Name: "app", Image: "i"}
		return ev
	}
	with := func(ev *Event, change func(*Event)) *Event { change(ev); return ev }
	there := present{}
	var want *Pod
	for i, step := range []struct {
		ev     *Event
		change func() // of want
	}{
		{sandbox(store.SandboxChanged, "s1", 0), func() {}}, // of what isn't there
		{sandbox(store.SandboxCreated, "s1", 1), func() {
			want = &Pod{Key: "u", Uid: "u", Namespace: "ns", Name: "p", Labels: here.Labels, Sandboxes: []*Sandbox{{Id: "s1", State: "created", Incarnation: 1, CreatedAt: seconds(1)}}}
		}},
		{with(sandbox(store.SandboxReady, "s1", 2), func(ev *Event) { ev.Pod = proto.CloneOf(here); ev.Pod.Ip = "10.0.0.1"; ev.Position = "e/2" }), func() {
			want.Sandboxes[0].State, want.Sandboxes[0].Ips, want.Ips, want.Position = "ready", []string{"10.0.0.1"}, []string{"10.0.0.1"}, "e/2"
		}},
		{sandbox(store.SequenceSkipped, "", 0), func() { want.Position = "" }},
		{container(store.ContainerChanged, "c1", 0), func() {}}, // of what isn't there
		{container(store.ContainerCreated, "c1", 3), func() {
			want.Containers = []*Container{{Id: "c1", SandboxId: "s1", Name: "app", Image: "i", State: "created", Incarnation: 1, CreatedAt: seconds(3)}}
		}},
		{container(store.ContainerStarted, "c1", 4), func() { want.Containers[0].State, want.Containers[0].StartedAt = "running", seconds(4) }},
		{with(container(store.ContainerChanged, "c1", 5), func(ev *Event) { ev.Change, ev.State = "unknown", "unknown" }), func() {}},
		{with(container(store.ContainerDied, "c1", 6), func(ev *Event) { ev.Reason = "Unknown" }), func() {
			c := want.Containers[0]
			c.State, c.FinishedAt, c.Reason = "exited", seconds(6), "Unknown"
		}},
		{with(container(store.ContainerChanged, "c1", 0), func(ev *Event) {
			ev.Change, ev.State, ev.ExitCode, ev.Reason = string(store.ChangeAmended), "exited", proto.Int32(3), "Error"
		}), func() { want.Containers[0].ExitCode, want.Containers[0].Reason = proto.Int32(3), "Error" }},
		{with(container(store.ContainerChanged, "c1", 0), func(ev *Event) {
			ev.Change, ev.State, ev.Incarnation = string(store.ChangeRegressed), "running", 2
		}), func() {
			c := want.Containers[0]
			c.State, c.Incarnation, c.ExitCode, c.Reason, c.FinishedAt = "running", 2, nil, "", nil
		}},
		// Another attempt, and one before it that is heard of late.
		{with(container(store.ContainerStarted, "c3", 8), func(ev *Event) { ev.Container.Attempt = 2 }), func() {
			want.Containers = append(want.Containers, &Container{Id: "c3", SandboxId: "s1", Name: "app", Image: "i", Attempt: 2, State: "running", Incarnation: 1, StartedAt: seconds(8)})
		}},
		{with(container(store.ContainerDied, "c2", 7), func(ev *Event) { ev.Container.Attempt = 1 }), func() {
			want.Containers = slices.Insert(want.Containers, 1, &Container{Id: "c2", SandboxId: "s1", Name: "app", Image: "i", Attempt: 1, State: "exited", Incarnation: 1, FinishedAt: seconds(7)})
		}},
		{sandbox(store.SandboxNotReady, "s1", 9), func() { want.Sandboxes[0].State = "notready" }},
		{sandbox(store.SandboxCreated, "s2", 10), func() {
			want.Sandboxes = slices.Insert(want.Sandboxes, 0, &Sandbox{Id: "s2", State: "created", Incarnation: 1, CreatedAt: seconds(10)})
		}},
		// The first one is the current one again.
		{sandbox(store.SandboxReady, "s1", 11), func() {
			want.Sandboxes[0], want.Sandboxes[1] = want.Sandboxes[1], want.Sandboxes[0]
			want.Sandboxes[0].State = "ready"
		}},
		// One that is heard of late is not the current one.
		{sandbox(store.SandboxNotReady, "s0", 12), func() {
			want.Sandboxes = slices.Insert(want.Sandboxes, 1, &Sandbox{Id: "s0", State: "notready", Incarnation: 1})
		}},
		{sandbox(store.SandboxRemoved, "s0", 12), func() { want.Sandboxes = slices.Delete(want.Sandboxes, 1, 2) }},
		{sandbox(store.SandboxRemoved, "s1", 12), func() { want.Sandboxes = want.Sandboxes[1:] }},
		{sandbox(store.SandboxRemoved, "s2", 13), func() { want.Sandboxes = want.Sandboxes[:0] }},
		{container(store.ContainerRemoved, "c2", 14), func() { want.Containers = slices.Delete(want.Containers, 1, 2) }},
		{container(store.ContainerRemoved, "c3", 14), func() { want.Containers = want.Containers[:1] }},
		{container(store.ContainerRemoved, "c1", 14), func() { want = nil }},
		{container(store.ContainerRemoved, "c1", 14), func() {}},
	} {
		there.take(step.ev)
		step.change()
		got := there.list(nil)
		all := []*Pod{}
		if want != nil {
			all = append(all, want)
		}
		if diff := cmp.Diff(all, got, protocmp.Transform()); diff != "" {
			t.Errorf("step %d, %s (- is wanted):\n%s", i, step.ev.Type, diff)
		}
	}
}

// What only the snapshot tells goes where an event has changed something, and a pod
// whose UID is learnt late is one pod.
func TestPresentOfASnapshot(t *testing.T) {
	snapshot := func() []*Pod {
		return []*Pod{{
			Key: "sandbox:s", Ips: []string{"10.0.0.1", "fd00::1"},
			Sandboxes:  []*Sandbox{{Id: "s", State: "ready", Reported: "ready", Attempt: 3, HostNetwork: true, Ips: []string{"10.0.0.1", "fd00::1"}}},
			Containers: []*Container{{Id: "c", SandboxId: "s", Name: "app", State: "running", Reported: "running", Message: "m", CreatedAt: seconds(1)}},
		}}
	}
	pod := &plegdv1.EventPod{Uid: "u", Namespace: "ns", Name: "p", Ip: "10.0.0.1"}
	died := &Event{Type: "ContainerDied", PodKey: "u", Pod: pod, SandboxId: "s", Container: &plegdv1.EventContainer{Id: "c", Name: "app"}, ExitCode: proto.Int32(0)}
	there := newPresent(snapshot())
	there.take(died)
	want := snapshot()[0]
	want.Key, want.Uid, want.Namespace, want.Name = "u", "u", "ns", "p"
	want.Containers = []*Container{{Id: "c", SandboxId: "s", Name: "app", State: "exited", ExitCode: proto.Int32(0), CreatedAt: seconds(1)}}
	if diff := cmp.Diff([]*Pod{want}, there.list(nil), protocmp.Transform()); diff != "" {
		t.Errorf("(- is wanted):\n%s", diff)
	}
	there.take(&Event{Type: "SandboxNotReady", PodKey: "u", Pod: pod, SandboxId: "s"})
	want.Sandboxes[0].State, want.Sandboxes[0].Reported = "notready", ""
	if diff := cmp.Diff([]*Pod{want}, there.list(nil), protocmp.Transform()); diff != "" {
		t.Errorf("(- is wanted):\n%s", diff)
	}
	for names, n := range map[string]int{"app": 1, "other": 0} {
		if got := len(there.list(&Filter{Containers: []string{names}})); got != n {
			t.Errorf("%d pods with the container %s, want %d", got, names, n)
		}
	}
}

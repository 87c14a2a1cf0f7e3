package client

import (
	"fmt"
	"slices"
	"testing"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
)

// The events of the time in which something was restored are seen with what was so all
// that time, and not with what an earlier run knew and was not so any more.
func TestEventsOfARestoredPod(t *testing.T) {
	t.Parallel()
	pod := func(app string, more ...*Container) *Pod {
		return &Pod{Key: "u", Restored: true, Sandboxes: []*Sandbox{{Id: "s", State: "ready", Incarnation: 1, Restored: true}},
			Containers: append([]*Container{{Id: "c", Name: "app", State: app, Incarnation: 1, Restored: true}}, more...)}
	}
	at := func(n int) string { return fmt.Sprint("9f010203040506ab/", n) }
	event := func(n int, typ, id string) *Event {
		return &Event{Position: at(n), Type: typ, PodKey: "u", SandboxId: "s", Incarnation: 1, Container: &plegdv1.EventContainer{Id: id, Name: id}}
	}
	job := &Container{Id: "job", Name: "job", State: "exited", Incarnation: 1}
	created, started, died := event(4, "ContainerCreated", "job"), event(5, "ContainerStarted", "job"), event(7, "ContainerDied", "job")
	const end = 7
	before := event(4242, "ContainerCreated", "job") // of the epoch before
	before.Position = "0102030405060708/4242"
	for _, tc := range []struct {
		what   string
		events []*Event
		seen   *Pod
		want   []string
	}{
		{"as it was", []*Event{created, started, died}, pod("running", job), []string{"running created", "running running", "running exited"}},
		{"from an epoch before on", []*Event{before, started, died}, pod("running", job), []string{"running created", "running running", "running exited"}},
		{"changed", []*Event{created, started, event(6, "ContainerDied", "c"), died}, pod("exited", job), []string{"exited running", "exited exited"}},
	} {
		t.Run(tc.what, func(t *testing.T) {
			var got []string
			s := waiting{there: newPresent([]*Pod{pod("running")}), met: func(pods []*Pod) (bool, error) {
				line := ""
				for _, pod := range pods {
					if pod.Restored || pod.Sandboxes[0].Restored || pod.Containers[0].Restored {
						t.Error("it is still called restored")
					}
					line = pod.Containers[0].State + " " + pod.Containers[1].State
				}
				got = append(got, line)
				return false, nil
			}}
			s.doubt = doubtful(s.there, newPresent([]*Pod{tc.seen}))
			for _, ev := range tc.events {
				if !s.pass(&Update{Event: ev}, at(end)) {
					t.Errorf("ends after %s", ev.Position)
				}
			}
			if s.pass(&Update{Event: event(end+1, "ContainerRemoved", "job")}, at(end)) {
				t.Error("it goes on after the end")
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("seen %q, want %q", got, tc.want)
			}
		})
	}
}

// Package oracletest compares, for tests, what an agent shows and tells with what a
// simulated runtime really did.
package oracletest

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// View is what can be said of a sandbox or container from both sides.
type View struct {
	State                      string // "" where the runtime reports none that means something
	Reported                   string
	Pod, Sandbox               string // the pod's key
	Name                       string
	Attempt                    uint32
	Created, Started, Finished int64
	Exit                       string
	IPs                        string // "" once the runtime reports none, since an address is kept
}

// Nameless is the key of the pod of a sandbox to which nobody gave a UID.
func Nameless(sandbox string) string { return "sandbox:" + sandbox }

// number is how a state outside the enum is shown; -1 is the agent's own for
// none.
func number(state int32) string {
	if state == store.ReportedNone {
		return "unknown"
	}
	return strconv.Itoa(int(state))
}

// Truth is the runtime's side, by id.
func Truth(tr simruntime.Truth) map[string]View {
	m, podOf := map[string]View{}, map[string]string{}
	for _, s := range tr.Sandboxes {
		key := s.GetMetadata().GetUid()
		if key == "" {
			key = s.GetLabels()[simruntime.LabelPodUID]
		}
		if key == "" {
			key = Nameless(s.GetId())
		}
		podOf[s.GetId()] = key
		v := View{Pod: key, Sandbox: s.GetId(), Attempt: s.GetMetadata().GetAttempt(), Created: s.GetCreatedAt()}
		switch s.GetState() {
		case runtimeapi.PodSandboxState_SANDBOX_READY:
			v.State, v.Reported = "ready", "ready"
		case runtimeapi.PodSandboxState_SANDBOX_NOTREADY:
			v.State, v.Reported = "notready", "notready"
		default: // a number outside the enum is shown as it is
			v.Reported = number(int32(s.GetState()))
		}
		var ips []string
		if ip := s.GetNetwork().GetIp(); ip != "" {
			ips = append(ips, ip)
		}
		for _, ip := range s.GetNetwork().GetAdditionalIps() {
			ips = append(ips, ip.GetIp())
		}
		v.IPs = strings.Join(ips, ",")
		m[s.GetId()] = v
	}
	for _, tc := range tr.Containers {
		c := tc.Status
		key, ok := podOf[tc.SandboxID]
		if !ok {
			key = c.GetLabels()[simruntime.LabelPodUID]
		}
		v := View{
			Pod: key, Sandbox: tc.SandboxID, Name: c.GetMetadata().GetName(), Attempt: c.GetMetadata().GetAttempt(),
			Created: c.GetCreatedAt(), Started: c.GetStartedAt(),
		}
		switch c.GetState() {
		case runtimeapi.ContainerState_CONTAINER_CREATED:
			v.State, v.Reported = "created", "created"
		case runtimeapi.ContainerState_CONTAINER_RUNNING:
			v.State, v.Reported = "running", "running"
		case runtimeapi.ContainerState_CONTAINER_EXITED:
			v.State, v.Reported = "exited", "exited"
			if c.GetFinishedAt() != 0 {
				v.Finished, v.Exit = c.GetFinishedAt(), fmt.Sprint(c.GetExitCode())
			}
		case runtimeapi.ContainerState_CONTAINER_UNKNOWN:
			v.Reported = "unknown"
		default:
			v.Reported = number(int32(c.GetState()))
		}
		m[c.GetId()] = v
	}
	return m
}

// nanos turns a time back into the runtime's, 0 for unknown.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// Shown is the agent's side, by id.
func Shown(pods []pleg.Pod) map[string]View {
	m := map[string]View{}
	for _, p := range pods {
		for _, s := range p.Sandboxes {
			m[s.ID] = View{
				State: s.State, Reported: s.Reported, Pod: p.Key, Sandbox: s.ID, Attempt: s.Attempt, Created: nanos(s.CreatedAt),
				IPs: strings.Join(s.IPs, ","),
			}
		}
		for _, c := range p.Containers {
			v := View{
				State: c.State, Reported: c.Reported, Pod: p.Key, Sandbox: c.SandboxID, Name: c.Name, Attempt: c.Attempt,
				Created: nanos(c.CreatedAt), Started: nanos(c.StartedAt), Finished: nanos(c.FinishedAt),
			}
			if c.ExitCode != nil {
				v.Exit = fmt.Sprint(*c.ExitCode)
			}
			m[c.ID] = v
		}
	}
	return m
}

// Disagreement compares what an agent shows with the runtime; "" if they agree.
func Disagreement(tr simruntime.Truth, pods []pleg.Pod) string {
	want, got := Truth(tr), Shown(pods)
	for id, w := range want {
		g, ok := got[id]
		if !ok {
			continue
		}
		if w.State == "" { // UNKNOWN: how far it had come before stays, and its end
			g.State, g.Exit, g.Finished = "", "", 0
		}
		if w.IPs == "" {
			g.IPs = ""
		}
		got[id] = g
	}
	if maps.Equal(want, got) {
		return ""
	}
	named := func(m map[string]View) map[string]View {
		out := map[string]View{}
		for id, v := range m {
			v.Pod, v.Sandbox = Short(v.Pod), Short(v.Sandbox)
			out[Short(id)] = v
		}
		return out
	}
	return cmp.Diff(named(want), named(got))
}

// Short is an id for messages: without padding by "_", and the beginning of one
// that the runtime made.
func Short(id string) string {
	id = strings.TrimRight(id, "_")
	if len(id) == 64 {
		id = id[:12]
	}
	return id
}

// Rank is the place of an event in a life; 0 for one that is no step of it.
func Rank(ev pleg.Event) int { return ranks[ev.Type] }

var ranks = map[store.EventType]int{
	store.SandboxCreated: 1, store.SandboxReady: 2, store.SandboxNotReady: 3, store.SandboxRemoved: 4,
	store.ContainerCreated: 1, store.ContainerStarted: 2, store.ContainerDied: 3, store.ContainerRemoved: 4,
}

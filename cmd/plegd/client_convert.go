package main

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/selection"
	"github.com/plegd/plegd/store"
)

// What the API says is turned into the types of the agent, so that their JSON
// is the one that `plegd run` and HTTP write too.

// nanoseconds returns a time in ns, 0 for none.
func nanoseconds(t *timestamppb.Timestamp) int64 {
	if t == nil {
		return 0
	}
	return t.AsTime().UnixNano()
}

// moment returns a time, the zero Time for none.
func moment(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// eventOf returns an event as the agent has it, but for its running time.
func eventOf(e *plegdv1.Event) (*pleg.Event, error) {
	at, err := pleg.ParsePosition(e.GetPosition())
	if err != nil {
		return nil, fmt.Errorf("the agent sent an event: %w", err)
	}
	p, c := e.GetPod(), e.GetContainer()
	ev := &pleg.Event{
		Position: at, Type: store.EventType(e.GetType()), Incarnation: e.GetIncarnation(), SandboxID: e.GetSandboxId(),
		Pod:       store.EventPod{UID: p.GetUid(), Namespace: p.GetNamespace(), Name: p.GetName(), IP: p.GetIp(), Labels: p.GetLabels()},
		Container: store.EventContainer{ID: c.GetId(), Name: c.GetName(), Attempt: c.GetAttempt(), Image: c.GetImage()},
		ExitKnown: e.ExitCode != nil, ExitCode: e.GetExitCode(), Reason: e.GetReason(),
		OccurredAt: nanoseconds(e.GetOccurredAt()), ObservedAt: nanoseconds(e.GetObservedAt()),
		Inferred: e.GetInferred(), Volatile: e.GetVolatile(), BootID: e.GetBootId(),
		Change: store.Change(e.GetChange()), Changed: e.GetChanged(), State: e.GetState(),
		From: e.GetSkippedFrom(), To: e.GetSkippedTo(),
	}
	for _, source := range selection.Sources {
		if source.String() == e.GetSource() {
			ev.Source = source
		}
	}
	return ev, nil
}

// podOfAPI returns a pod as the agent has it, without the runtime's own status
// messages.
func podOfAPI(p *plegdv1.Pod) pleg.Pod {
	pod := pleg.Pod{
		Key: p.GetKey(), UID: p.GetUid(), Namespace: p.GetNamespace(), Name: p.GetName(), IPs: notNil(p.GetIps()),
		Labels: p.GetLabels(), Restored: p.GetRestored(), Position: p.GetPosition(),
		Sandboxes: []pleg.Sandbox{}, Containers: []pleg.Container{},
	}
	if len(pod.IPs) > 0 {
		pod.IP = pod.IPs[0]
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	for _, s := range p.GetSandboxes() {
		pod.Sandboxes = append(pod.Sandboxes, pleg.Sandbox{
			ID: s.GetId(), State: s.GetState(), Reported: s.GetReported(), Incarnation: s.GetIncarnation(), Attempt: s.GetAttempt(),
			CreatedAt: moment(s.GetCreatedAt()), IPs: notNil(s.GetIps()), HostNetwork: s.GetHostNetwork(),
			Restored: s.GetRestored(), Error: s.GetError(),
		})
	}
	for _, c := range p.GetContainers() {
		pod.Containers = append(pod.Containers, pleg.Container{
			ID: c.GetId(), SandboxID: c.GetSandboxId(), Name: c.GetName(), Attempt: c.GetAttempt(), Image: c.GetImage(),
			State: c.GetState(), Reported: c.GetReported(), Incarnation: c.GetIncarnation(),
			CreatedAt: moment(c.GetCreatedAt()), StartedAt: moment(c.GetStartedAt()), FinishedAt: moment(c.GetFinishedAt()),
			ExitCode: c.ExitCode, Reason: c.GetReason(), Message: c.GetMessage(), Restored: c.GetRestored(), Error: c.GetError(),
		})
	}
	return pod
}

// notNil returns a list that JSON writes as [] rather than null.
func notNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// agentStatus is what an agent says of itself. Fields are named as in
// /v1/status, which has more.
type agentStatus struct {
	Mode     string        `json:"mode"`
	Node     string        `json:"node"`
	Runtime  agentRuntime  `json:"runtime"`
	Health   agentHealth   `json:"health"`
	Position string        `json:"position"` // of the newest event
	Oldest   string        `json:"oldest"`   // the oldest position that can be read on from
	Journal  agentJournal  `json:"journal"`
	Relist   agentRelist   `json:"relist"`
	Stream   agentStream   `json:"stream"`
	Queued   int64         `json:"queued_events"`
	Asks     []agentAsking `json:"reinspections"`
}

type agentRuntime struct {
	Endpoint string `json:"endpoint"`
	Name     string `json:"name"`
	Version  string `json:"version"`
	Error    string `json:"error,omitempty"`
}

type agentHealth struct {
	Ready      bool             `json:"ready"`
	Live       bool             `json:"live"`
	Conditions []agentCondition `json:"conditions"`
}

type agentCondition struct {
	Name   string    `json:"name"`
	Reason string    `json:"reason"`
	Since  time.Time `json:"since,omitzero"`
}

type agentJournal struct {
	Epoch   string `json:"epoch"`
	Entries int64  `json:"entries"`
	Bytes   int64  `json:"bytes"`
}

type agentRelist struct {
	Periodic bool    `json:"periodic"`
	Period   float64 `json:"period_seconds"`
	State    string  `json:"period_state"`
	Failures int32   `json:"failures"`
	Error    string  `json:"error,omitempty"`
	Waiting  int32   `json:"inspections_waiting"`
	InFlight int32   `json:"inspections_in_flight"`
}

type agentStream struct {
	State      string    `json:"state"`
	Since      time.Time `json:"since,omitzero"`
	Error      string    `json:"error,omitempty"`
	Reconnects uint64    `json:"reconnects"`
	Events     uint64    `json:"events"`
	Lost       uint64    `json:"lost"`
	Malformed  uint64    `json:"malformed"`
}

type agentAsking struct {
	ID      string   `json:"id"`
	Kind    string   `json:"kind"`
	Reasons []string `json:"reasons"`
	Fails   int32    `json:"fails"`
}

// statusOf returns what the API says of an agent.
func statusOf(s *plegdv1.StatusResponse) agentStatus {
	r, j, rel, str := s.GetRuntime(), s.GetJournal(), s.GetRelist(), s.GetStream()
	out := agentStatus{
		Mode: s.GetMode(), Node: s.GetNode(),
		Runtime:  agentRuntime{r.GetEndpoint(), r.GetName(), r.GetVersion(), r.GetError()},
		Health:   agentHealth{Ready: s.GetReady(), Live: s.GetLive(), Conditions: []agentCondition{}},
		Position: j.GetNewest(), Oldest: j.GetOldest(), Journal: agentJournal{j.GetEpoch(), j.GetEntries(), j.GetBytes()},
		Relist: agentRelist{
			Periodic: rel.GetPeriodic(), Period: rel.GetPeriod().AsDuration().Seconds(), State: rel.GetState(), Failures: rel.GetFailures(),
			Error: rel.GetError(), Waiting: rel.GetInspectionsWaiting(), InFlight: rel.GetInspectionsInFlight(),
		},
		Stream: agentStream{
			State: str.GetState(), Since: moment(str.GetSince()), Error: str.GetError(), Reconnects: str.GetReconnects(),
			Events: str.GetEvents(), Lost: str.GetLost(), Malformed: str.GetMalformed(),
		},
		Queued: s.GetQueuedEvents(), Asks: []agentAsking{},
	}
	for _, c := range s.GetConditions() {
		out.Health.Conditions = append(out.Health.Conditions, agentCondition{c.GetName(), c.GetReason(), moment(c.GetSince())})
	}
	for _, a := range s.GetReinspections() {
		out.Asks = append(out.Asks, agentAsking{a.GetId(), a.GetKind(), notNil(a.GetReasons()), a.GetFailures()})
	}
	return out
}

package pleg

import (
	"context"
	"maps"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/store"
)

// Pod is the cached status of one pod: the last good status of each of its
// sandboxes and containers, beside it the last error. It is committed state,
// so it is never ahead of the events that can be read. A Pod is the caller's own
// copy.
type Pod struct {
	Key        string            `json:"key"` // the UID; where the pod has none, "sandbox:" and its sandbox's id
	UID        string            `json:"uid"`
	Namespace  string            `json:"namespace"`
	Name       string            `json:"name"`
	IP         string            `json:"ip"` // of the current sandbox; kept after termination
	IPs        []string          `json:"ips"`
	Labels     map[string]string `json:"labels"`
	Restored   bool              `json:"restored"` // some of it is from the state file and not yet seen in this run
	Position   string            `json:"position"` // of the newest event that is contained
	Sandboxes  []Sandbox         `json:"sandboxes"`
	Containers []Container       `json:"containers"`
}

// Sandbox is one sandbox of a pod; the current one comes first in a Pod.
type Sandbox struct {
	ID          string    `json:"id"`
	State       string    `json:"state"`    // created, ready, notready: as far as the events have told
	Reported    string    `json:"reported"` // ready, notready, unknown: as the runtime last said
	Incarnation uint32    `json:"incarnation"`
	Attempt     uint32    `json:"attempt"`
	CreatedAt   time.Time `json:"created_at,omitzero"`
	IPs         []string  `json:"ips"`
	HostNetwork bool      `json:"host_network"`
	Restored    bool      `json:"restored"`
	Error       string    `json:"error,omitempty"` // why its last inspection failed
	rec         *store.Record
}

// Container is one container of a pod. Containers are ordered by name, then
// attempt.
type Container struct {
	ID          string    `json:"id"`
	SandboxID   string    `json:"sandbox_id"`
	Name        string    `json:"name"`
	Attempt     uint32    `json:"attempt"`
	Image       string    `json:"image"`
	State       string    `json:"state"`    // created, running, exited: as far as the events have told
	Reported    string    `json:"reported"` // created, running, exited, unknown: as the runtime last said
	Incarnation uint32    `json:"incarnation"`
	CreatedAt   time.Time `json:"created_at,omitzero"`
	StartedAt   time.Time `json:"started_at,omitzero"`
	FinishedAt  time.Time `json:"finished_at,omitzero"`
	ExitCode    *int32    `json:"exit_code"` // null unless the runtime has said it
	Reason      string    `json:"reason"`
	Message     string    `json:"message"`
	Restored    bool      `json:"restored"`
	Error       string    `json:"error,omitempty"` // why its last inspection failed
	rec         *store.Record
}

// Status returns the sandbox's full CRI status, as last said by an event or an
// inspection, with the fields that plegd keeps beside it; nil if only lists
// spoke of it so far. The message is the caller's own.
func (s *Sandbox) Status() *runtimeapi.PodSandboxStatus {
	status, _ := cri.RestoreSandbox(s.rec)
	return status
}

// Status returns the container's full CRI status, as last said by an event or
// an inspection, with the fields that plegd keeps beside it; nil if only lists
// spoke of it so far. The message is the caller's own.
func (c *Container) Status() *runtimeapi.ContainerStatus {
	status, _ := cri.RestoreContainer(c.rec)
	return status
}

// Pod returns the cached status of a pod by its UID, or by "sandbox:" and its sandbox id
// where it has none. The error wraps ErrNoPod.
func (g *Generator) Pod(key string) (Pod, error) {
	p, err := g.loop.Pod(key)
	if err != nil {
		return Pod{}, err
	}
	return newPod(p), nil
}

// PodNewer is Pod as of a call to the runtime that is sent after this one
// began, and makes that call. It waits until ctx ends. The error wraps
// ErrNoPod if the pod is gone by then, ctx's error, or ErrStopped.
func (g *Generator) PodNewer(ctx context.Context, key string) (Pod, error) {
	p, err := g.loop.PodNewer(ctx, key)
	if err != nil {
		return Pod{}, err
	}
	return newPod(p), nil
}

// Pods returns all pods, and the position of the newest event that they
// contain: subscribing from it continues the snapshot without gap or overlap.
func (g *Generator) Pods() ([]Pod, Position) {
	list, at := g.loop.Pods()
	pods := make([]Pod, len(list))
	for i, p := range list {
		pods[i] = newPod(p)
	}
	return pods, at
}

// newPod copies what it takes: the caller may change it, and records are shared
// with the arbiter.
func newPod(p arbiter.Pod) Pod {
	ref := p.Ref()
	q := Pod{
		Key: p.Key, UID: ref.UID, Namespace: ref.Namespace, Name: ref.Name, IPs: list(p.IPs()),
		Labels: map[string]string{}, Restored: p.Restored(), Position: p.Position.String(),
		Sandboxes: []Sandbox{}, Containers: []Container{},
	}
	if len(q.IPs) > 0 {
		q.IP = q.IPs[0]
	}
	if len(p.Sandboxes) > 0 && p.Sandboxes[0].Identity.Labels != nil {
		q.Labels = maps.Clone(p.Sandboxes[0].Identity.Labels)
	}
	for _, e := range p.Sandboxes {
		q.Sandboxes = append(q.Sandboxes, Sandbox{
			ID: e.ID, State: e.Journaled.Name(e.Kind), Reported: cri.StateName(e.Kind, e.Reported), Incarnation: e.Incarnation,
			Attempt: e.Identity.Attempt, CreatedAt: at(e.CreatedAt), IPs: list(e.IPs), HostNetwork: e.HostNetwork,
			Restored: e.Restored, Error: e.Err, rec: e.Record,
		})
	}
	for _, e := range p.Containers {
		c := Container{
			ID: e.ID, SandboxID: e.Sandbox, Name: e.Identity.Name, Attempt: e.Identity.Attempt, Image: e.Identity.Image,
			State: e.Journaled.Name(e.Kind), Reported: cri.StateName(e.Kind, e.Reported), Incarnation: e.Incarnation,
			CreatedAt: at(e.CreatedAt), StartedAt: at(e.StartedAt), FinishedAt: at(e.Exit.FinishedAt),
			Reason: e.Exit.Reason, Message: e.Exit.Message, Restored: e.Restored, Error: e.Err, rec: e.Record,
		}
		if e.Exit.Known() {
			code := e.Exit.Code
			c.ExitCode = &code
		}
		q.Containers = append(q.Containers, c)
	}
	return q
}

// at returns a time in ns as a time.Time, the zero Time for unknown.
func at(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// list returns a copy, which JSON writes as [] rather than null.
func list(s []string) []string { return append([]string{}, s...) }

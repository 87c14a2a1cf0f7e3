package rpc

import (
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/store"
)

// protoEvent converts an event. What it returns shares maps and slices with it.
func protoEvent(ev *pleg.Event) *plegdv1.Event {
	e := &plegdv1.Event{
		Position: text(ev.Position), Type: string(ev.Type), Incarnation: ev.Incarnation, SandboxId: ev.SandboxID,
		Reason: ev.Reason, OccurredAt: timeOfNano(ev.OccurredAt), ObservedAt: timeOfNano(ev.ObservedAt), Source: ev.Source.String(),
		Inferred: ev.Inferred, Volatile: ev.Volatile, BootId: ev.BootID,
		Change: string(ev.Change), Changed: ev.Changed, State: ev.State, SkippedFrom: ev.From, SkippedTo: ev.To,
	}
	if ev.Type == store.SequenceSkipped {
		return e
	}
	e.PodKey = ev.PodKey()
	e.Pod = &plegdv1.EventPod{Uid: ev.Pod.UID, Namespace: ev.Pod.Namespace, Name: ev.Pod.Name, Ip: ev.Pod.IP, Labels: ev.Pod.Labels}
	if c := ev.Container; c.ID != "" {
		e.Container = &plegdv1.EventContainer{Id: c.ID, Name: c.Name, Attempt: c.Attempt, Image: c.Image}
	}
	if ev.ExitKnown {
		e.ExitCode = proto.Int32(ev.ExitCode)
	}
	return e
}

// text is a position as clients have it, "" for none.
func text(p pleg.Position) string {
	if p.Epoch.IsZero() {
		return ""
	}
	return p.String()
}

// timeOfNano converts a time in ns, 0 for unknown.
func timeOfNano(ns int64) *timestamppb.Timestamp {
	if ns == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, ns))
}

// timeOf converts a time, the zero Time for unknown.
func timeOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// protoPod converts a pod, with the runtime's own statuses if they are asked for.
func protoPod(p *pleg.Pod, full bool) (*plegdv1.Pod, error) {
	q := &plegdv1.Pod{
		Key: p.Key, Uid: p.UID, Namespace: p.Namespace, Name: p.Name, Ips: p.IPs, Labels: p.Labels, Restored: p.Restored,
		Position: p.Position, Sandboxes: make([]*plegdv1.Sandbox, len(p.Sandboxes)), Containers: make([]*plegdv1.Container, len(p.Containers)),
	}
	for i := range p.Sandboxes {
		s := &p.Sandboxes[i]
		q.Sandboxes[i] = &plegdv1.Sandbox{
			Id: s.ID, State: s.State, Reported: s.Reported, Incarnation: s.Incarnation, Attempt: s.Attempt, CreatedAt: timeOf(s.CreatedAt),
			Ips: s.IPs, HostNetwork: s.HostNetwork, Restored: s.Restored, Error: s.Error,
		}
		if status := s.Status(); full && status != nil {
			var err error
			if q.Sandboxes[i].Status, err = anypb.New(status); err != nil {
				return nil, err
			}
		}
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		q.Containers[i] = &plegdv1.Container{
			Id: c.ID, SandboxId: c.SandboxID, Name: c.Name, Attempt: c.Attempt, Image: c.Image, State: c.State, Reported: c.Reported,
			Incarnation: c.Incarnation, CreatedAt: timeOf(c.CreatedAt), StartedAt: timeOf(c.StartedAt), FinishedAt: timeOf(c.FinishedAt),
			ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message, Restored: c.Restored, Error: c.Error,
		}
		if status := c.Status(); full && status != nil {
			var err error
			if q.Containers[i].Status, err = anypb.New(status); err != nil {
				return nil, err
			}
		}
	}
	return q, nil
}

// protoStatus converts what the generator says of itself.
func protoStatus(s *pleg.Status) *plegdv1.StatusResponse {
	r := &plegdv1.StatusResponse{
		Live: s.Health.Live, Ready: s.Health.Ready, Mode: string(s.Mode), Node: s.Node,
		Runtime: &plegdv1.Runtime{Endpoint: s.Runtime.Endpoint, Name: s.Runtime.Name, Version: s.Runtime.Version, Error: s.Runtime.Error},
		Journal: &plegdv1.Journal{Oldest: s.Oldest, Newest: s.Position, Entries: int64(s.Journal.Entries), Bytes: s.Journal.Bytes},
		Relist: &plegdv1.Relist{
			Periodic: s.Relist.Periodic, Period: durationpb.New(time.Duration(s.Relist.Period * float64(time.Second))),
			State: s.Relist.State, Failures: int32(s.Relist.Failures), Error: s.Relist.Error,
			InspectionsWaiting: int32(s.Relist.Waiting), InspectionsInFlight: int32(s.Relist.InFlight),
		},
		Stream: &plegdv1.Stream{
			State: s.Stream.State, Since: timeOf(s.Stream.Since), Error: s.Stream.Error, Reconnects: s.Stream.Reconnects,
			Events: s.Stream.Events, Lost: s.Stream.Lost, Malformed: s.Stream.Malformed,
		},
		QueuedEvents: int64(s.Queued),
	}
	if p, err := pleg.ParsePosition(s.Position); err == nil {
		r.Journal.Epoch = p.Epoch.String()
	}
	for _, c := range s.Health.Conditions {
		r.Conditions = append(r.Conditions, &plegdv1.Condition{Name: c.Name, Reason: c.Reason, Since: timeOf(c.Since)})
	}
	for _, a := range s.Asks {
		r.Reinspections = append(r.Reinspections, &plegdv1.Reinspection{Id: a.ID, Kind: a.Kind, Reasons: a.Reasons, Failures: int32(a.Fails)})
	}
	return r
}

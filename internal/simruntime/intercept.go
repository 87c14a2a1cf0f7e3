package simruntime

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// unary records a call and lets rules act on it and on its answer.
func (s *service) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	op := newOp(info.FullMethod, req)
	call := s.r.calls.begin(op.Method, op.ID)
	defer func() { s.r.calls.end(call, status.Code(err)) }()
	acts := s.r.rules.match(op)
	if err := s.act(ctx, op, acts, false); err != nil {
		if errors.Is(err, errEndOK) {
			return nil, status.Error(codes.Internal, "a rule with EOF met a call that is no stream")
		}
		return nil, err
	}
	resp, err = next(ctx, req)
	if err := s.act(ctx, op, acts, true); err != nil {
		return nil, err
	}
	if err != nil {
		return nil, toStatus(err)
	}
	return edited(resp, acts), nil
}

// stream does for streams what unary does for calls. The rules act once the
// request has been read, so that they can see it.
func (s *service) stream(_ any, inner grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	w := &watchedStream{ServerStream: inner, s: s, method: info.FullMethod}
	err := next(s, w)
	if errors.Is(err, errEndOK) {
		err = nil
	}
	err = toStatus(err)
	if w.call != nil {
		s.r.calls.end(w.call, status.Code(err))
	}
	return err
}

type watchedStream struct {
	grpc.ServerStream
	s      *service
	method string
	op     Op
	call   *Call
	acts   []*act
	sent   bool
}

func (w *watchedStream) RecvMsg(m any) error {
	if err := w.ServerStream.RecvMsg(m); err != nil || w.call != nil {
		return err
	}
	w.op = newOp(w.method, m)
	w.call = w.s.r.calls.begin(w.op.Method, w.op.ID)
	w.acts = w.s.r.rules.match(w.op)
	return w.s.act(w.Context(), w.op, w.acts, false)
}

func (w *watchedStream) SendMsg(m any) error {
	m = edited(m, w.acts)
	if emptied(m, w.acts) {
		return nil
	}
	if err := w.ServerStream.SendMsg(m); err != nil {
		return err
	}
	if w.sent {
		return nil
	}
	w.sent = true
	return w.s.act(w.Context(), w.op, w.acts, true)
}

// newOp reads method and id out of a request.
func newOp(fullMethod string, req any) Op {
	op := Op{Method: fullMethod[strings.LastIndexByte(fullMethod, '/')+1:]}
	op.Request, _ = req.(proto.Message)
	switch q := req.(type) {
	case interface{ GetContainerId() string }:
		op.ID = q.GetContainerId()
	case interface{ GetPodSandboxId() string }:
		op.ID = q.GetPodSandboxId()
	case interface {
		GetFilter() *runtimeapi.ContainerFilter
	}:
		if op.ID = q.GetFilter().GetId(); op.ID == "" {
			op.ID = q.GetFilter().GetPodSandboxId()
		}
	case interface {
		GetFilter() *runtimeapi.PodSandboxFilter
	}:
		op.ID = q.GetFilter().GetId()
	}
	return op
}

// act carries out what rules do to a call, before it (after false) or to its
// answer. An error ends the call.
func (s *service) act(ctx context.Context, op Op, acts []*act, after bool) error {
	select {
	case <-s.down: // a stream has ended by now, so nothing else may still work
		return errStopping
	default:
	}
	for _, a := range acts {
		if a.rule.After != after {
			continue
		}
		if a.rule.Do != nil {
			a.rule.Do(op)
		}
		if a.rule.Delay > 0 {
			timer := time.NewTimer(a.rule.Delay)
			err := s.wait(ctx, a, timer.C)
			timer.Stop()
			if err != nil {
				return err
			}
		}
		if a.rule.Hang {
			if err := s.wait(ctx, a, nil); err != nil {
				return err
			}
		}
		switch {
		case a.rule.EOF:
			return errEndOK
		case a.rule.Code != codes.OK:
			message := a.rule.Message
			if message == "" {
				message = "answered by a rule"
			}
			return status.Error(a.rule.Code, message)
		}
	}
	return nil
}

// wait ends when the timer fires, the rule is removed, the caller gives up
// (unless that is ignored) or the runtime goes down.
func (s *service) wait(ctx context.Context, a *act, timer <-chan time.Time) error {
	cancelled := ctx.Done()
	if a.rule.IgnoreCancel {
		cancelled = nil
	}
	select {
	case <-timer:
		return nil
	case <-a.handle.removed:
		return nil
	case <-cancelled:
		return status.FromContextError(ctx.Err()).Err()
	case <-s.stop:
		return errStopping
	}
}

// edited returns an outgoing message as rules change it. Messages share parts
// with the model and with each other, so a copy is changed.
func edited(m any, acts []*act) any {
	msg, ok := m.(proto.Message)
	if !ok {
		return m
	}
	copied := false
	for _, a := range acts {
		if !a.rule.changes() {
			continue
		}
		if !copied {
			msg, copied = proto.Clone(msg), true
		}
		a.rule.edit(msg)
	}
	return msg
}

// emptied says whether rules left nothing of a message of a streaming list.
// Runtimes send none without items (KEP-5825). Raw bytes go out in any case.
func emptied(m any, acts []*act) bool {
	if slices.ContainsFunc(acts, func(a *act) bool { return a.rule.Raw != nil }) {
		return false
	}
	switch m := m.(type) {
	case *runtimeapi.StreamPodSandboxesResponse:
		return len(m.PodSandboxes) == 0
	case *runtimeapi.StreamContainersResponse:
		return len(m.Containers) == 0
	}
	return false
}

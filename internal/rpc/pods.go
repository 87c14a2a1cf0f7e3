package rpc

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/watch"
)

const (
	// maxKey is ample for the key of a pod, bytes.
	maxKey = 1024
	// maxAhead is how far in the future an answer may be asked for: a client's
	// clock is this machine's, so more is a mistake.
	maxAhead = time.Hour
)

// ListPods implements plegdv1.PodLifecycleServer.
func (s *Server) ListPods(req *plegdv1.ListPodsRequest, stream grpc.ServerStreamingServer[plegdv1.ListPodsResponse]) error {
	if len(req.Filter.GetTypes())+len(req.Filter.GetSources()) > 0 {
		return invalid(errors.New("invalid filter: types and sources choose events, and pods have none"))
	}
	sel, err := newSelection(req.Filter)
	if err != nil {
		return statusOf(err)
	}
	src, err := s.source()
	if err != nil {
		return err
	}
	return s.through(stream, func(ctx context.Context, o *outlet) error {
		var at pleg.Position
		parts, err := s.takePods(ctx, req.Full, func() (pods []pleg.Pod, err error) {
			pods, at, err = watch.Pods(src, sel)
			return pods, err
		})
		if err != nil {
			return err
		}
		err = parts.send(o, func(pods []*plegdv1.Pod) proto.Message { return &plegdv1.ListPodsResponse{Pods: pods} })
		if err != nil {
			return err
		}
		return o.send(&plegdv1.ListPodsResponse{Position: at.String()}, at.String())
	})
}

// GetPod implements plegdv1.PodLifecycleServer.
func (s *Server) GetPod(ctx context.Context, req *plegdv1.GetPodRequest) (*plegdv1.GetPodResponse, error) {
	switch {
	case req.Key == "":
		return nil, invalid(errors.New(`key "": must be the UID of a pod, or "sandbox:" and the id of its sandbox`))
	case len(req.Key) > maxKey:
		return nil, invalid(fmt.Errorf("key %.80q: must be at most %d bytes long", req.Key, maxKey))
	}
	src, err := s.source()
	if err != nil {
		return nil, err
	}
	var pod pleg.Pod
	if req.NewerThan == nil {
		pod, err = watch.Pod(src, req.Key)
	} else { // the pod itself is asked for
		pod, err = s.podNewer(ctx, src, req)
	}
	if err != nil {
		return nil, statusOf(err)
	}
	p, err := protoPod(&pod, req.Full)
	if err != nil {
		return nil, statusOf(err)
	}
	return &plegdv1.GetPodResponse{Pod: p}, nil
}

// podNewer waits for the time that is asked for, and has the runtime asked.
func (s *Server) podNewer(ctx context.Context, src Source, req *plegdv1.GetPodRequest) (pleg.Pod, error) {
	if err := req.NewerThan.CheckValid(); err != nil {
		return pleg.Pod{}, invalid(fmt.Errorf("newer_than: %w", err))
	}
	ahead := time.Until(req.NewerThan.AsTime())
	if ahead > maxAhead {
		return pleg.Pod{}, invalid(fmt.Errorf("newer_than %s: must be at most %v in the future", req.NewerThan.AsTime().Format(time.RFC3339), maxAhead))
	}
	if err := s.waits.enter(); err != nil {
		return pleg.Pod{}, err
	}
	defer s.waits.free()
	ctx, cancel := s.untilStop(ctx)
	defer cancel()
	timer := time.NewTimer(max(0, ahead))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return pleg.Pod{}, s.ended(ctx)
	case <-timer.C:
	}
	if s.fresh.wait(ctx) != nil {
		return pleg.Pod{}, s.ended(ctx)
	}
	defer s.fresh.free()
	pod, err := src.PodNewer(ctx, req.Key)
	if err != nil && ctx.Err() != nil {
		err = s.ended(ctx)
	}
	return pod, err
}

// untilStop returns a context that ends with the server too.
func (s *Server) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(watch.ErrStopping) })
	return ctx, func() { stop(); cancel(nil) }
}

// ended is the status of a call whose context, of untilStop, has ended.
func (s *Server) ended(ctx context.Context) error {
	switch {
	case errors.Is(context.Cause(ctx), watch.ErrStopping):
		return stopping("")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the runtime has not answered within the deadline of the call")
	}
	return status.FromContextError(ctx.Err()).Err()
}

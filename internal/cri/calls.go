package cri

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RuntimeVersion is the runtime's answer to Version.
type RuntimeVersion struct {
	Name       string // such as containerd or cri-o
	Version    string // of the runtime, in its own form
	APIVersion string // of the CRI, such as v1
}

// Version asks who is there. It is the cheapest call of the CRI. A containerd
// without its CRI plugin answers with code Unimplemented.
func (c *Client) Version(ctx context.Context) (RuntimeVersion, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	resp, err := c.api.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return RuntimeVersion{}, fmt.Errorf("version: %w", err)
	}
	return RuntimeVersion{
		Name:       text(resp.GetRuntimeName(), maxName),
		Version:    text(resp.GetRuntimeVersion(), maxName),
		APIVersion: text(resp.GetRuntimeApiVersion(), maxName),
	}, nil
}

// PodSandboxStatus asks for the status of one sandbox. The error is
// [NotFound] when there is none, and wraps [ErrAnswer] for an answer without a
// status or about another sandbox: containerd takes a shortened id for a name.
func (c *Client) PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	resp, err := c.api.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return nil, fmt.Errorf("status of sandbox %.80q: %w", id, err)
	}
	if got := resp.GetStatus().GetId(); got != id || id == "" {
		return nil, fmt.Errorf("status of sandbox %.80q: %w: it is about %.80q", id, ErrAnswer, got)
	}
	return resp.GetStatus(), nil
}

// ContainerStatus asks for the status of one container. Errors are as those of
// [Client.PodSandboxStatus].
func (c *Client) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	resp, err := c.api.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return nil, fmt.Errorf("status of container %.80q: %w", id, err)
	}
	if got := resp.GetStatus().GetId(); got != id || id == "" {
		return nil, fmt.Errorf("status of container %.80q: %w: it is about %.80q", id, ErrAnswer, got)
	}
	return resp.GetStatus(), nil
}

// EventStream is an open event stream. Whoever opened it must go on reading
// until an error that does not wrap [ErrMalformed]: containerd 2.x stops
// creating and removing containers while a subscriber does not read.
type EventStream struct{ stream grpc.ClientStream }

// Events opens the event stream, which lives until ctx ends. That it opened
// proves nothing: a runtime without events says so at the first Recv.
func (c *Client) Events(ctx context.Context) (*EventStream, error) {
	desc := &grpc.StreamDesc{StreamName: "GetContainerEvents", ServerStreams: true}
	stream, err := c.conn.NewStream(ctx, desc, runtimeapi.RuntimeService_GetContainerEvents_FullMethodName)
	if err != nil {
		return nil, fmt.Errorf("event stream: %w", err)
	}
	if err := stream.SendMsg(&runtimeapi.GetEventsRequest{}); err != nil {
		return nil, fmt.Errorf("event stream: %w", err)
	}
	if err := stream.CloseSend(); err != nil {
		return nil, fmt.Errorf("event stream: %w", err)
	}
	return &EventStream{stream}, nil
}

// Recv waits for the next message. It returns io.EOF when the runtime ended
// the stream without an error. After an error that wraps [ErrMalformed] the
// stream goes on; every other one is its end. Only one goroutine may call it.
func (s *EventStream) Recv() (*runtimeapi.ContainerEventResponse, error) {
	var f frame
	if err := s.stream.RecvMsg(&f); err != nil {
		return nil, err // io.EOF must stay bare; the others name the method
	}
	if f.err != nil {
		return nil, fmt.Errorf("event: %w: %w", ErrMalformed, f.err)
	}
	return &f.event, nil
}

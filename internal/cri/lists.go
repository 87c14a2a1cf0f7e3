package cri

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListPodSandbox lists the sandboxes that match the filter, all for nil. It
// streams the list where the runtime can (KEP-5825), which lifts the limit of
// [MaxMessage] on its size. The list is complete or there is an error.
func (c *Client) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	items, err := list(c, "StreamPodSandboxes",
		func() (grpc.ServerStreamingClient[runtimeapi.StreamPodSandboxesResponse], error) {
			return c.api.StreamPodSandboxes(ctx, &runtimeapi.StreamPodSandboxesRequest{Filter: filter})
		},
		(*runtimeapi.StreamPodSandboxesResponse).GetPodSandboxes,
		func() ([]*runtimeapi.PodSandbox, error) {
			resp, err := c.api.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
			return resp.GetItems(), err
		})
	if err != nil {
		return nil, fmt.Errorf("list of sandboxes: %w", err)
	}
	return items, nil
}

// ListContainers lists the containers that match the filter, as
// [Client.ListPodSandbox] does sandboxes.
func (c *Client) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	items, err := list(c, "StreamContainers",
		func() (grpc.ServerStreamingClient[runtimeapi.StreamContainersResponse], error) {
			return c.api.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{Filter: filter})
		},
		(*runtimeapi.StreamContainersResponse).GetContainers,
		func() ([]*runtimeapi.Container, error) {
			resp, err := c.api.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
			return resp.GetContainers(), err
		})
	if err != nil {
		return nil, fmt.Errorf("list of containers: %w", err)
	}
	return items, nil
}

// list tries the streaming form of a list, and the unary one where the runtime
// does not know it. Any other error is the list's: what came before it proves
// nothing.
func list[Item, Resp any](c *Client, method string,
	open func() (grpc.ServerStreamingClient[Resp], error),
	items func(*Resp) []Item,
	unary func() ([]Item, error),
) ([]Item, error) {
	if c.knownUnary(method) {
		return unary()
	}
	all, err := drain(open, items)
	if Unimplemented(err) {
		c.setUnary(method)
		return unary()
	}
	return all, err
}

// drain reads a streamed list to its end.
func drain[Item, Resp any](open func() (grpc.ServerStreamingClient[Resp], error), items func(*Resp) []Item) ([]Item, error) {
	stream, err := open()
	if err != nil {
		return nil, err
	}
	var all []Item
	for {
		resp, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, items(resp)...)
	}
}

func (c *Client) knownUnary(method string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unary[method]
}

func (c *Client) setUnary(method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unary[method] = true
}

package criserver

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/unsent"
	"github.com/plegd/plegd/store"
)

// batchItems and batchBytes bound one message of a streamed list. Clients take
// 4 MiB where nobody has told them to take more.
const batchItems, batchBytes = 1000, 2 << 20

// maxMaking are how many calls at a time work on a copy of all that is known, which is
// made while the writer waits.
const maxMaking = 4

// ListPodSandbox answers from the cache.
func (s *Server) ListPodSandbox(ctx context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	items, err := s.sandboxes(ctx, req.GetFilter())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ListPodSandboxResponse{Items: items}, nil
}

// StreamPodSandboxes answers from the cache.
func (s *Server) StreamPodSandboxes(req *runtimeapi.StreamPodSandboxesRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	items, err := s.sandboxes(out.Context(), req.GetFilter())
	if err != nil {
		return err
	}
	parts, sizes := batches(items)
	return sendParts(s, out, parts, sizes, func(part []*runtimeapi.PodSandbox) proto.Message {
		return &runtimeapi.StreamPodSandboxesResponse{PodSandboxes: part}
	})
}

// ListContainers answers from the cache.
func (s *Server) ListContainers(ctx context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	items, err := s.containers(ctx, req.GetFilter())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ListContainersResponse{Containers: items}, nil
}

// StreamContainers answers from the cache.
func (s *Server) StreamContainers(req *runtimeapi.StreamContainersRequest, out grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	items, err := s.containers(out.Context(), req.GetFilter())
	if err != nil {
		return err
	}
	parts, sizes := batches(items)
	return sendParts(s, out, parts, sizes, func(part []*runtimeapi.Container) proto.Message {
		return &runtimeapi.StreamContainersResponse{Containers: part}
	})
}

// sandboxes lists sandboxes, from the cache or as configured.
func (s *Server) sandboxes(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	var items []*runtimeapi.PodSandbox
	d, err := s.list(ctx, store.KindSandbox, func(_ Source, known []pleg.Entity) doubt {
		id := fullID(f.GetId(), known)
		for i := range known {
			item := s.shelf.sandbox(&known[i])
			if item == nil {
				return doubtItem(&known[i])
			}
			if (id == "" || id == item.GetId()) && hasLabels(item.GetLabels(), f.GetLabelSelector()) &&
				(f.GetState() == nil || f.GetState().GetState() == item.GetState()) {
				items = append(items, item)
			}
		}
		return ""
	})
	if err != nil || d == "" {
		return items, err
	}
	return throughList(ctx, s, d, runtimeapi.RuntimeService_ListPodSandbox_FullMethodName, f, func(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
		client, err := s.runtime()
		if err != nil {
			return nil, err
		}
		return client.ListPodSandbox(ctx, f)
	})
}

// containers lists containers, as sandboxes does sandboxes.
func (s *Server) containers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	var items []*runtimeapi.Container
	d, err := s.list(ctx, store.KindContainer, func(src Source, known []pleg.Entity) doubt {
		id, sandbox := fullID(f.GetId(), known), f.GetPodSandboxId()
		if sandbox != "" {
			sandbox = fullID(sandbox, ofKind(src.Entities(), store.KindSandbox))
		}
		for i := range known {
			item := s.shelf.container(&known[i])
			if item == nil {
				return doubtItem(&known[i])
			}
			if (id == "" || id == item.GetId()) && (sandbox == "" || sandbox == item.GetPodSandboxId()) &&
				hasLabels(item.GetLabels(), f.GetLabelSelector()) && (f.GetState() == nil || f.GetState().GetState() == item.GetState()) {
				items = append(items, item)
			}
		}
		return ""
	})
	if err != nil || d == "" {
		return items, err
	}
	return throughList(ctx, s, d, runtimeapi.RuntimeService_ListContainers_FullMethodName, f, func(ctx context.Context) ([]*runtimeapi.Container, error) {
		client, err := s.runtime()
		if err != nil {
			return nil, err
		}
		return client.ListContainers(ctx, f)
	})
}

// list has of list all entities of a kind, whose items are learnt as far as they can
// be, or returns what speaks against listing them, as of does.
func (s *Server) list(ctx context.Context, kind store.Kind, of func(src Source, known []pleg.Entity) doubt) (d doubt, err error) {
	src, d := s.cache()
	if d != "" {
		return d, nil
	}
	// What was new after the calls that others wait for too is asked for by those that
	// come after them.
	for lessons := 2; ; lessons-- {
		lacking := false
		err := s.inTurn(ctx, func() {
			known := ofKind(src.Entities(), kind)
			if lacking = lessons > 0 && s.shelf.learnable(known); lacking {
				return
			}
			for i := range known {
				if d = doubtListed(&known[i]); d != "" {
					return
				}
			}
			d = of(src, known)
		})
		if err != nil || !lacking {
			return d, err
		}
		_ = s.learn(ctx) // in vain or not, the next turn tells
	}
}

// inTurn calls do, which works on a copy of all that is known, when it is its turn.
// It depends on no client and not on the runtime.
func (s *Server) inTurn(ctx context.Context, do func()) error {
	select {
	case s.making <- struct{}{}:
		defer func() { <-s.making }()
		do()
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// learnable reports whether an item is not there yet that may be learnt. One that
// was just looked for in vain is left to learnAlways: who asks meanwhile has the
// runtime asked anyway.
func (h *shelf) learnable(known []pleg.Entity) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range known {
		if !e.Restored && h.sandboxes[e.ID] == nil && h.containers[e.ID] == nil && time.Since(h.vain[e.ID]) >= learnFirst {
			return true
		}
	}
	return false
}
func doubtItem(e *pleg.Entity) doubt {
	return doubt("the runtime has not listed " + e.Kind.String() + " " + e.ID + " yet")
}

func ofKind(all []pleg.Entity, kind store.Kind) []pleg.Entity {
	var of []pleg.Entity
	for _, e := range all {
		if e.Kind == kind {
			of = append(of, e)
		}
	}
	return of
}

// throughList lists by asking the runtime, unless that is not wanted.
func throughList[T proto.Message](ctx context.Context, s *Server, d doubt, method string, filter proto.Message, list func(context.Context) ([]T, error)) ([]T, error) {
	if s.cfg.Untrusted == Unavailable {
		return nil, d.err()
	}
	key, err := keyOf(method, filter)
	if err != nil {
		return nil, err
	}
	return ask(ctx, s.through, served[method], key, func(ctx context.Context) ([]T, int, error) {
		items, err := list(ctx)
		size := 0
		for _, item := range items {
			size += proto.Size(item)
		}
		return items, size, err
	})
}

// fullID returns the id that begins like this, if there is just one: runtimes
// take such an id for a name. Others stay as they are, and match nothing.
func fullID(id string, known []pleg.Entity) string {
	if found := matching(id, known); len(found) == 1 {
		return found[0]
	}
	return id
}

// hasLabels reports whether all of a selector is there. CRI's are of equality
// alone.
func hasLabels(labels, selector map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// batches divides a list into parts, none for an empty list. sizes are those of the
// parts, in bytes.
func batches[T proto.Message](items []T) (parts [][]T, sizes []int) {
	for len(items) > 0 {
		n, size := 0, 0
		for n < len(items) && n < batchItems {
			more := proto.Size(items[n]) + unsent.PerItem
			if n > 0 && size+more > batchBytes {
				break
			}
			n++
			size += more
		}
		parts, sizes, items = append(parts, items[:n]), append(sizes, size), items[n:]
	}
	return parts, sizes
}

package replay

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/recording"
)

const (
	// buffer is how much a connection holds, bytes.
	buffer = 1 << 20
	// margin is by how much a call is ended before its own deadline, ns: calls that all
	// end at one moment by themselves would do so in any order.
	margin = int64(time.Millisecond)
	// batch is how many items a message of a streamed list has.
	batch = 500
)

// runtimeServer answers calls over gRPC.
type runtimeServer struct {
	runtimeapi.UnimplementedRuntimeServiceServer

	listener *bufconn.Listener
	server   *grpc.Server
	served   chan struct{}
	world    *World
}

// call is one that waits for its answer.
type call struct {
	method, about string
	streamed      string // the method by which a list was asked for, if it streams it
	request       any
	at, limit     int64 // when it came, and when it is to end
	n             int
	reply         chan reply // capacity 1
}

type reply struct {
	message proto.Message
	err     error
}

func (s *runtimeServer) serve(w *World) {
	s.world, s.served = w, make(chan struct{})
	s.listener = bufconn.Listen(buffer)
	s.server = grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.WaitForHandlers(true))
	runtimeapi.RegisterRuntimeServiceServer(s.server, s)
	go func() {
		defer close(s.served)
		_ = s.server.Serve(&listener{s.listener, w}) // it ends with shut
	}()
}

func (s *runtimeServer) shut() {
	s.server.Stop()
	<-s.served
}

// listener keeps the connections, to close them.
type listener struct {
	*bufconn.Listener

	w *World
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.w.mu.Lock()
		l.w.talk.conns[conn] = true
		l.w.mu.Unlock()
	}
	return conn, err
}

// raw is a message that is encoded.
type raw []byte

// codec is gRPC's, but lets raw messages through.
type codec struct{}

// Name implements [encoding.CodecV2].
func (codec) Name() string { return grpcproto.Name }

// Marshal implements [encoding.CodecV2].
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.(raw); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return encoding.GetCodecV2(grpcproto.Name).Marshal(v)
}

// Unmarshal implements [encoding.CodecV2].
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	return encoding.GetCodecV2(grpcproto.Name).Unmarshal(data, v)
}

// ask waits until a call is answered.
func ask[Answer proto.Message](ctx context.Context, s *runtimeServer, method, streamed string, request any) (answer Answer, err error) {
	w := s.world
	c := &call{method: method, streamed: streamed, about: recording.About(request), request: request, limit: never, reply: make(chan reply, 1)}
	if deadline, ok := ctx.Deadline(); ok {
		c.limit = int64(deadline.Sub(w.began)) - margin
	}
	w.mu.Lock()
	w.made++
	c.at, c.n = w.now(), w.made
	w.calls = append(w.calls, c)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	select {
	case r := <-c.reply:
		answer, _ = r.message.(Answer)
		return answer, r.err
	case <-ctx.Done():
		w.forget(c)
		return answer, status.FromContextError(ctx.Err()).Err()
	}
}

// forget takes that a call waits no more.
func (w *World) forget(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = slices.DeleteFunc(w.calls, func(o *call) bool { return o == c })
}

// first returns the call that is to be answered next, and when. Of those of one moment
// the order is that of their names.
func (w *World) first() (first *call, at int64) {
	at = never
	now := w.now()
	for _, c := range w.calls {
		when := w.facts.when(c, now)
		if first == nil || cmp.Or(cmp.Compare(max(when, now), max(at, now)), cmp.Compare(c.method, first.method), cmp.Compare(c.about, first.about), cmp.Compare(c.n, first.n)) < 0 {
			first, at = c, when
		}
	}
	return first, at
}

// answer answers a call by what is known.
func (w *World) answer(c *call) {
	m, err := w.facts.reply(c, w.now())
	w.reply(c, m, err)
}

// reply answers a call.
func (w *World) reply(c *call, m proto.Message, err error) {
	w.calls = slices.DeleteFunc(w.calls, func(o *call) bool { return o == c })
	switch {
	case err != nil:
		w.counted.Errors++
	case c.method == methodSandboxes || c.method == methodContainers:
		w.counted.Lists++
	case c.method == methodSandboxStatus || c.method == methodContainerStatus:
		w.counted.Statuses++
	}
	c.reply <- reply{m, err}
}

// Version implements [runtimeapi.RuntimeServiceServer].
func (s *runtimeServer) Version(ctx context.Context, req *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return ask[*runtimeapi.VersionResponse](ctx, s, methodVersion, "", req)
}

// PodSandboxStatus implements [runtimeapi.RuntimeServiceServer].
func (s *runtimeServer) PodSandboxStatus(ctx context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return ask[*runtimeapi.PodSandboxStatusResponse](ctx, s, methodSandboxStatus, "", req)
}

// ContainerStatus implements [runtimeapi.RuntimeServiceServer].
func (s *runtimeServer) ContainerStatus(ctx context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return ask[*runtimeapi.ContainerStatusResponse](ctx, s, methodContainerStatus, "", req)
}

// ListPodSandbox implements [runtimeapi.RuntimeServiceServer].
func (s *runtimeServer) ListPodSandbox(ctx context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return ask[*runtimeapi.ListPodSandboxResponse](ctx, s, methodSandboxes, "", req)
}

// ListContainers implements [runtimeapi.RuntimeServiceServer].
func (s *runtimeServer) ListContainers(ctx context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return ask[*runtimeapi.ListContainersResponse](ctx, s, methodContainers, "", req)
}

// StreamPodSandboxes implements [runtimeapi.RuntimeServiceServer].
func (s *runtimeServer) StreamPodSandboxes(req *runtimeapi.StreamPodSandboxesRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	all, err := ask[*runtimeapi.ListPodSandboxResponse](out.Context(), s, methodSandboxes, "StreamPodSandboxes", &runtimeapi.ListPodSandboxRequest{Filter: req.GetFilter()})
	return inBatches(all.GetItems(), err, func(b []*runtimeapi.PodSandbox) error {
		return out.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: b})
	})
}

// StreamContainers implements [runtimeapi.RuntimeServiceServer].
func (s *runtimeServer) StreamContainers(req *runtimeapi.StreamContainersRequest, out grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	all, err := ask[*runtimeapi.ListContainersResponse](out.Context(), s, methodContainers, "StreamContainers", &runtimeapi.ListContainersRequest{Filter: req.GetFilter()})
	return inBatches(all.GetContainers(), err, func(b []*runtimeapi.Container) error {
		return out.Send(&runtimeapi.StreamContainersResponse{Containers: b})
	})
}

func inBatches[T any](items []T, err error, send func([]T) error) error {
	for err == nil && len(items) > 0 {
		n := min(batch, len(items))
		err = send(items[:n])
		items = items[n:]
	}
	return err
}

// GetContainerEvents implements [runtimeapi.RuntimeServiceServer].
func (s *runtimeServer) GetContainerEvents(_ *runtimeapi.GetEventsRequest, out grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	w := s.world
	if w.Header().Mode == modeWithoutStream {
		return status.Error(codes.Unimplemented, "the recording was made without the event stream")
	}
	w.mu.Lock()
	sub, after, end := w.talk.subscribe()
	w.mu.Unlock()
	if end != nil {
		select {
		case <-time.After(time.Duration(after)):
		case <-out.Context().Done():
		}
		return bare(end)
	}
	defer func() {
		w.mu.Lock()
		w.talk.unsubscribe(sub)
		w.mu.Unlock()
	}()
	for {
		select {
		case <-sub.came:
		case <-out.Context().Done():
			return status.FromContextError(out.Context().Err()).Err()
		}
		w.mu.Lock()
		events, end := sub.events, sub.end
		sub.events = nil
		w.mu.Unlock()
		for _, body := range events {
			if err := out.SendMsg(raw(body)); err != nil {
				return err
			}
		}
		if end != nil {
			return bare(end)
		}
	}
}

// bare returns nil for an end without an error.
func bare(end error) error {
	if errors.Is(end, errEnd) {
		return nil
	}
	return end
}

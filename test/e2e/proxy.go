package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// maxMessage is above the largest list that a test makes; the proxy must not be the limit.
const maxMessage = 64 << 20

// proxy stands between the agent and the runtime. It counts the calls, can be cut, and changes
// nothing: messages pass as the bytes they are.
type proxy struct {
	socket string
	up     *grpc.ClientConn

	mu     sync.Mutex
	server *grpc.Server // nil while cut
	done   chan struct{}
	calls  []call
}

// call is one call that passed.
type call struct {
	method string // without the service
	id     string // what a status call asks about
	at     time.Time
}

// startProxy listens on a socket of its own in front of another.
func startProxy(t testing.TB, upstream string) *proxy {
	t.Helper()
	up, err := grpc.NewClient("unix://"+upstream,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	p := &proxy{
		socket: filepath.Join(workDir(t, "proxy"), "cri.sock"),
		up:     up,
	}
	t.Cleanup(func() {
		p.cut()
		_ = up.Close()
	})
	p.mend(t)
	return p
}

// mend serves, at the start and after a cut.
func (p *proxy) mend(t testing.TB) {
	t.Helper()
	if err := os.Remove(p.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("proxy: %v", err)
	}
	lis, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	server := grpc.NewServer(
		grpc.UnknownServiceHandler(p.forward),
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.MaxRecvMsgSize(maxMessage))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(lis) // ends with cut
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.server, p.done = server, done
}

// cut breaks every connection and stops listening, as a runtime that is killed does.
func (p *proxy) cut() {
	p.mu.Lock()
	server, done := p.server, p.done
	p.server = nil
	p.mu.Unlock()
	if server != nil {
		server.Stop()
		<-done
	}
}

// mark is a point in the sequence of calls.
func (p *proxy) mark() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls)
}

// since returns the calls after a mark.
func (p *proxy) since(mark int) []call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls[mark:])
}

// count counts calls by method.
func count(calls []call) map[string]int {
	n := map[string]int{}
	for _, c := range calls {
		n[c.method]++
	}
	return n
}

// asked counts the status calls about one container or sandbox.
func asked(calls []call, id string) int {
	n := 0
	for _, c := range calls {
		if c.id == id {
			n++
		}
	}
	return n
}

// relists returns when the pods were listed, by the one call or the other.
func relists(calls []call) []time.Time {
	var at []time.Time
	for _, c := range calls {
		if c.method == "ListPodSandbox" || c.method == "StreamPodSandboxes" {
			at = append(at, c.at)
		}
	}
	return at
}

// forward serves any method by calling it upstream. Every call is forwarded as if both sides
// streamed, which on the wire a unary call is a case of.
func (p *proxy) forward(_ any, down grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(down)
	if !ok {
		return status.Error(codes.Internal, "proxy: call without a method")
	}
	index := p.note(call{method: path.Base(method), at: time.Now()})

	ctx := down.Context()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends both directions
	up, err := p.up.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	requests := make(chan error, 1)
	send := func(m any) error {
		p.look(index, m)
		return up.SendMsg(m)
	}
	go func() { requests <- pump(down.RecvMsg, send, up.CloseSend) }()

	err = p.answer(up, down)
	if err != nil {
		return err
	}
	select {
	case err = <-requests:
		return err
	default:
		return nil // the runtime answered without reading on
	}
}

// note keeps a call and returns its index.
func (p *proxy) note(c call) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, c)
	return len(p.calls) - 1
}

// look reads from a status call's request what it asks about: in both requests that is field 1.
func (p *proxy) look(index int, m any) {
	raw, ok := m.(*rawMessage)
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &p.calls[index]
	if !ok || c.method != "ContainerStatus" && c.method != "PodSandboxStatus" {
		return
	}
	if num, typ, n := protowire.ConsumeTag(raw.data); n > 0 && num == 1 && typ == protowire.BytesType {
		id, _ := protowire.ConsumeBytes(raw.data[n:])
		c.id = string(id)
	}
}

// answer passes what comes back, up to the status of the call.
func (p *proxy) answer(up grpc.ClientStream, down grpc.ServerStream) error {
	defer func() { down.SetTrailer(up.Trailer()) }()
	header, err := up.Header()
	if err != nil {
		return err
	}
	// Sent at once: a client may wait for it to see that a stream is open.
	if err := down.SendHeader(header); err != nil {
		return err
	}
	return pump(up.RecvMsg, down.SendMsg, func() error { return nil })
}

// pump moves messages until there are no more.
func pump(recv, send func(any) error, end func() error) error {
	for {
		var m rawMessage
		switch err := recv(&m); {
		case errors.Is(err, io.EOF):
			return end()
		case err != nil:
			return err
		}
		if err := send(&m); err != nil {
			return err
		}
	}
}

// rawMessage is a message that nobody has looked into.
type rawMessage struct{ data []byte }

// rawCodec takes messages for bytes.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*rawMessage)
	if !ok {
		return nil, fmt.Errorf("raw codec: %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(m.data)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*rawMessage)
	if !ok {
		return fmt.Errorf("raw codec: %T", v)
	}
	m.data = data.Materialize()
	return nil
}

package rpc

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/crowd"
	"github.com/plegd/plegd/internal/unsent"
	"github.com/plegd/plegd/internal/watch"
)

const (
	// maxConns are open at once: two for each pod of a full node. A new one takes
	// the place of one without a call; one more than are in use is refused.
	maxConns = 256
	// goAwayTimeout bounds what is said to those who are too many, of whom maxSpoken
	// are told at once.
	goAwayTimeout, maxSpoken = 100 * time.Millisecond, 64
	// maxRequest is ample for a filter that names every pod of a node by its UID,
	// bytes.
	maxRequest = 64 << 10
	// maxHeader as for HTTP, bytes.
	maxHeader = 16 << 10
	// maxStreams are the calls of one connection at once, and maxCalls those of all.
	// A call that waits costs its goroutines, some 20 KiB.
	maxStreams, maxCalls = 128, 1024
	// maxWatches at once: five for each pod of a full node. One that is not read
	// holds up to 64 KiB and a message that gRPC has taken and not yet sent.
	maxWatches = 512
	// maxAside are the streams of gRPC's own services, which last as watches do, and
	// maxWaits the calls that wait for the runtime. So a quarter of all calls is left
	// for those that are answered at once.
	maxAside, maxWaits = 64, 192
	// maxFresh calls at once have the runtime asked.
	maxFresh = 16
	// maxCuts of streams is how many a connection survives: what was sent and
	// not taken stays in memory as long as the connection does.
	maxCuts = 4
	// Clients ping no oftener than pingMin. One from which nothing was heard for
	// pingTime is pinged, and counts as dead after pingTimeout more.
	pingMin, pingTime, pingTimeout = 10 * time.Second, 30 * time.Second, 20 * time.Second
	// idleTimeout ends connections without calls.
	idleTimeout = 5 * time.Minute
	// greetTimeout bounds how slowly a client may begin.
	greetTimeout = 5 * time.Second
	// readBuffer and writeBuffer of each connection, bytes: requests are small.
	readBuffer, writeBuffer = 4 << 10, 32 << 10
	// stopTimeout is how long answers in progress may take at the end.
	stopTimeout = 500 * time.Millisecond
	// healthPeriod is how soon who watches the health service hears of a change.
	healthPeriod = time.Second
)

// Source is what is served. *pleg.Generator is one once it is there.
type Source interface {
	watch.Source
	Status() pleg.Status
	Position() pleg.Position
	Pod(key string) (pleg.Pod, error)
	PodNewer(ctx context.Context, key string) (pleg.Pod, error)
	Relist(ctx context.Context) error
}

// Config says what to serve.
type Config struct {
	// Health is asked for the health service. Required.
	Health func() pleg.Health
	// Source returns what to read from, or why there is nothing yet. Required.
	Source func() (Source, error)
	// Turns are shared with what else the process serves; nil for Turns of its own.
	Turns *watch.Turns
	// Stall is how long a client may not take what was sent, or not send its request;
	// 0 for unsent.Stall.
	Stall time.Duration
	// Logger may be nil.
	Logger *slog.Logger
}

// Server serves on one listener.
type Server struct {
	plegdv1.UnimplementedPodLifecycleServer
	cfg      Config
	ctx      context.Context // ends when the server stops
	stop     context.CancelFunc
	crowd    *crowd.Crowd
	calls    *slots
	watches  *slots
	aside    *slots
	waits    *slots
	snapshot *slots
	unsent   *unsent.Budget
	fresh    *slots
	relists  relists
	senders  sync.WaitGroup // goroutines that send
	encoded  encoder
}

// New returns a Server to be run once.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Stall = cmp.Or(cfg.Stall, unsent.Stall)
	cfg.Turns = cmp.Or(cfg.Turns, watch.NewTurns())
	s := &Server{
		cfg: cfg, crowd: crowd.New(crowd.Config{Max: maxConns, Settle: crowd.Settle, Logger: cfg.Logger.With("server", "gRPC")}),
		calls: newSlots(maxCalls, "calls at once", cfg.Logger), watches: newSlots(maxWatches, "watches", cfg.Logger),
		aside: newSlots(maxAside, "streams of health and reflection", cfg.Logger), waits: newSlots(maxWaits, "calls that wait for the runtime", cfg.Logger),
		snapshot: newSlots(maxSnapshots, "snapshots", cfg.Logger), fresh: newSlots(maxFresh, "calls that have the runtime asked", cfg.Logger),
		unsent: unsent.New(maxUnsent, 2*cfg.Stall), // a stream is cut before its connection
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Serve serves until ctx ends, then ends the watches, lets other answers in
// progress end for a moment and closes the listener. It returns nil then. Who is
// at the other end of a connection is logged, if the connection tells (see Peer).
func (s *Server) Serve(ctx context.Context, lis net.Listener) error {
	defer s.senders.Wait()
	defer s.stop()
	srv := grpc.NewServer(
		grpc.Creds(peerCredentials{s.crowd, make(chan struct{}, maxSpoken)}),
		grpc.ForceServerCodecV2(codec{}),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxHeaderListSize(maxHeader),
		grpc.MaxConcurrentStreams(maxStreams), grpc.InTapHandle(s.admit),
		grpc.ReadBufferSize(readBuffer), grpc.WriteBufferSize(writeBuffer),
		grpc.ConnectionTimeout(greetTimeout), grpc.WaitForHandlers(true),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingMin, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout, Time: pingTime, Timeout: pingTimeout}),
	)
	services := registrar{srv, s}
	plegdv1.RegisterPodLifecycleServer(services, s)
	h := newHealth(s.cfg.Health)
	healthpb.RegisterHealthServer(services, h)
	reflection.Register(services)

	var rest sync.WaitGroup
	defer rest.Wait()
	serving, served := context.WithCancel(ctx)
	defer served()
	rest.Go(func() { h.follow(serving) })
	rest.Go(func() {
		<-serving.Done()
		s.stop() // watches end
		h.Shutdown()
		timer := time.AfterFunc(stopTimeout, srv.Stop) // cuts who is still reading
		defer timer.Stop()
		srv.GracefulStop()
	})
	err := srv.Serve(lis)
	if ctx.Err() == nil {
		return fmt.Errorf("gRPC on %s: %w", lis.Addr(), err)
	}
	return nil
}

// source returns what to read from. The error is a status.
func (s *Server) source() (Source, error) {
	src, err := s.cfg.Source()
	if err != nil {
		return nil, failed(codes.Unavailable, plegdv1.Reason_REASON_STARTING, err, nil)
	}
	return src, nil
}

package criserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/crowd"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/internal/unixsock"
	"github.com/plegd/plegd/internal/unsent"
	"github.com/plegd/plegd/internal/watch"
)

const (
	// maxConns at a time; more take the place of those without a call, or wait in
	// the kernel's queue.
	maxConns = 128
	// maxStreams are the calls of one connection that are in progress at a
	// time; a client's library lets more wait.
	maxStreams = 32
	// maxRequest is the size of a request in bytes. Reading takes an id, a
	// filter or the name of an image.
	maxRequest = 16 << 10
	// maxHeaders is the size of a call's metadata in bytes.
	maxHeaders = 16 << 10
	// maxAnswer is what runtimes send at most and clients of the CRI take, in
	// bytes. A list that is larger has a streaming form.
	maxAnswer = cri.MaxMessage
	// greetTimeout is how long a new connection may take to speak.
	greetTimeout = 5 * time.Second
	// idleTimeout closes connections without a call, which clients make again
	// when they need one.
	idleTimeout = 5 * time.Minute
	// stopTimeout is how long answers in progress may take at the end.
	stopTimeout = 500 * time.Millisecond
)

// Policy says what is done when the cache can't be relied on.
type Policy string

// The policies.
const (
	// ReadThrough asks the runtime.
	ReadThrough Policy = "read-through"
	// Unavailable answers UNAVAILABLE with the reason.
	Unavailable Policy = "unavailable"
)

// Policies lists the policies, the default first.
var Policies = []Policy{ReadThrough, Unavailable}

// Source is whose cache is served. *pleg.Generator is one.
type Source interface {
	Health() pleg.Health
	Entity(id string) (pleg.Entity, bool)
	Entities() []pleg.Entity
	EntitiesOf(podKey string) (sandboxes, containers []pleg.Entity)
	Subscribe(from *pleg.Position) (*pleg.Subscription, error)
	watch.Busier
}

// Config says what to serve and where.
type Config struct {
	// Socket is the path of the unix socket. Required.
	Socket string
	// Group is the socket's group; nil for that of the process. Its mode is
	// unixsock.GroupMode.
	Group *int
	// Untrusted says what is done when the cache can't be relied on. Required.
	Untrusted Policy
	// Source returns the cache and the runtime's own endpoint, or why there is
	// nothing yet. Once there is one it stays. Required.
	Source func() (s Source, endpoint string, err error)
	// NoStream says that the source reads no event stream: then what is new
	// comes with relists alone.
	NoStream bool
	// Turns are shared with what else the process serves; nil for Turns of its own.
	Turns *watch.Turns
	// RPCTimeout bounds each call to the runtime. Zero means the default of
	// package cri.
	RPCTimeout time.Duration
	// Stall is how long a client may not take what was sent, or not send its request;
	// 0 for unsent.Stall.
	Stall time.Duration
	// Logger may be nil.
	Logger *slog.Logger
}

// Server serves on the socket that New took.
type Server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	cfg    Config
	lis    *unixsock.Socket
	ctx    context.Context // ends with Run
	cancel context.CancelFunc
	tasks  sync.WaitGroup // goroutines of requests

	through *through
	shelf   *shelf
	hub     *hub
	unsent  *unsent.Budget
	making  chan struct{} // has a place for each that works on a copy of all that is known

	mu     sync.Mutex
	client *cri.Client // of the runtime, made when it is known
}

// New takes the socket. Run or Close gives it back.
func New(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.RPCTimeout == 0 {
		cfg.RPCTimeout = cri.DefaultRPCTimeout
	}
	cfg.Stall = cmp.Or(cfg.Stall, unsent.Stall)
	cfg.Turns = cmp.Or(cfg.Turns, watch.NewTurns())
	lis, err := unixsock.ListenFor(cfg.Socket, unixsock.GroupMode, cfg.Group)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Socket, unixsock.Cause(err))
	}
	s := &Server{cfg: cfg, lis: lis, shelf: newShelf(), hub: newHub(), unsent: unsent.New(maxUnsent, 2*cfg.Stall), making: make(chan struct{}, maxMaking)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.through = newThrough(s.ctx, cfg.RPCTimeout, &s.tasks)
	cfg.Logger.Info("serving the read-only CRI endpoint", "socket", cfg.Socket)
	return s, nil
}

// Close gives back what a Server holds that was never run.
func (s *Server) Close() error {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		_ = s.client.Close() // says only that it was closed
	}
	return s.lis.Close()
}

// Run serves until ctx ends, then lets answers in progress end for a moment and
// gives the socket back. It returns nil then.
func (s *Server) Run(ctx context.Context) error {
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxSendMsgSize(maxAnswer), grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(greetTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout}),
		// Clients of the CRI are used to runtimes, whose policy is gRPC's own; one
		// that pings more often must not be cut for it here either.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.Creds(newNamed()), grpc.InTapHandle(s.count),
		grpc.ForceServerCodecV2(unsent.Codec{}), grpc.ChainUnaryInterceptor(s.unary), grpc.ChainStreamInterceptor(s.stream),
		grpc.UnknownServiceHandler(refuse), grpc.WaitForHandlers(true),
	)
	server.RegisterService(readOnly(runtimeapi.RuntimeService_ServiceDesc), s)
	server.RegisterService(readOnly(runtimeapi.ImageService_ServiceDesc), s)

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.follow(ctx) })
	group.Go(func() error { return s.learnAlways(ctx) })
	group.Go(func() error {
		room := crowd.New(crowd.Config{Max: maxConns, Settle: crowd.Settle, Logger: s.cfg.Logger.With("socket", s.cfg.Socket)})
		err := server.Serve(room.Door(s.lis))
		if errors.Is(err, grpc.ErrServerStopped) || errors.Is(err, net.ErrClosed) {
			return nil
		}
		return err
	})
	group.Go(func() error {
		<-ctx.Done()
		s.hub.close(errStopping, errStopping)
		timer := time.AfterFunc(stopTimeout, func() {
			s.cancel() // calls that are waited for
			server.Stop()
		})
		server.GracefulStop()
		timer.Stop()
		return nil
	})
	err := group.Wait()
	_ = s.Close() // gRPC has closed the listener
	s.tasks.Wait()
	if err != nil {
		return fmt.Errorf("CRI endpoint on %s: %w", s.cfg.Socket, err)
	}
	return nil
}

// runtime returns the client of the runtime.
func (s *Server) runtime() (*cri.Client, error) {
	_, endpoint, err := s.cfg.Source()
	if err != nil {
		return nil, unavailable("no runtime is known yet: " + err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		s.client, err = cri.Dial(cri.Config{Endpoint: endpoint, RPCTimeout: s.cfg.RPCTimeout, Clock: sysclock.New()})
		if err != nil {
			return nil, unavailable(err.Error())
		}
	}
	return s.client, nil
}

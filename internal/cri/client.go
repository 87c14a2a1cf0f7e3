package cri

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/stats"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/timestamps"
)

const (
	// DefaultRPCTimeout bounds one call. A list of 20,000 containers takes a
	// busy runtime a few seconds; a call that takes longer than this one hangs.
	DefaultRPCTimeout = 10 * time.Second
	// MaxMessage is the receive limit in bytes, the kubelet's own. Runtimes
	// send up to this much; gRPC's default of 4 MiB broke ordinary big nodes.
	MaxMessage = 16 << 20
	// Dialing again starts at once after a loss and slows to this, which is
	// what the kubelet's client does: a restarted runtime is found in 3 s.
	minRedial, maxRedial = 100 * time.Millisecond, 3 * time.Second
	// connectTimeout ends the attempt to connect to a socket whose owner is
	// frozen: the kernel accepts for it, but no greeting ever comes.
	connectTimeout = 5 * time.Second
	// Fixed flow-control windows switch off gRPC's bandwidth estimation, which
	// sends pings (invariant 4). The stream's holds some hundred events.
	streamWindow, connWindow = 1 << 20, 4 << 20
)

// Config says how to reach the runtime.
type Config struct {
	// Endpoint is unix:///path or an absolute path. Required.
	Endpoint string
	// RPCTimeout bounds every call but the event stream; a shorter deadline of
	// the caller wins. Zero means [DefaultRPCTimeout].
	RPCTimeout time.Duration
	// Clock measures how long calls take. Required.
	Clock timestamps.Clock
	// Observer is told of every call. It may be nil.
	Observer Observer
	// Connected is called each time a connection to the runtime was made, the
	// first included: the runtime behind it may be another one than before. It
	// must not block, and may be called once more just after Close. It may be
	// nil.
	Connected func()
	// Gated holds back every call but Version on a new connection until the
	// [Peer] that answered on it was accepted: who is there may be another
	// runtime than on the connection before. A call that waits keeps its
	// deadline, and fails when the connection ends.
	Gated bool
	// Dialer replaces the dialing of the socket, in tests. It may be nil.
	Dialer func(ctx context.Context, path string) (net.Conn, error)
	// Redial replaces how soon a lost connection is tried again, in replays. It may be nil.
	// With it Connected is called a microsecond late: gRPC says that a connection begins
	// before it lets calls through, and in virtual time which of the two a call that
	// Connected sets off meets would be chance.
	Redial *backoff.Config
	// Stats sees each call and all that is received. It may be nil.
	Stats stats.Handler
}

// Client is a connection to one runtime that is made, and made again, as calls
// need it.
type Client struct {
	conn    *grpc.ClientConn
	api     runtimeapi.RuntimeServiceClient
	timeout time.Duration
	path    string

	mu    sync.Mutex
	unary map[string]bool // streaming lists that the runtime answered with Unimplemented
}

// Dial prepares a client. It does not connect: the first call does, and fails
// with code Unavailable while there is nobody to connect to. Errors are about
// cfg only; those about the endpoint wrap [ErrEndpoint].
func Dial(cfg Config) (*Client, error) {
	path, err := ParseEndpoint(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	if cfg.RPCTimeout < 0 {
		return nil, fmt.Errorf("RPC timeout %v: must not be negative", cfg.RPCTimeout)
	}
	if cfg.Clock.Mono == nil {
		return nil, fmt.Errorf("CRI client: no clock")
	}
	if cfg.RPCTimeout == 0 {
		cfg.RPCTimeout = DefaultRPCTimeout
	}
	dial := cfg.Dialer
	if dial == nil {
		dial = func(ctx context.Context, path string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
			if err != nil {
				return nil, notSocket(path, err)
			}
			return &greeting{Conn: conn}, nil
		}
	}
	c := &Client{timeout: cfg.RPCTimeout, path: path, unary: map[string]bool{}}
	connected := func() {
		c.Reprobe()
		if cfg.Connected != nil {
			cfg.Connected()
		}
	}
	watch := &watcher{clock: cfg.Clock, observer: cfg.Observer, connected: connected}
	if cfg.Redial != nil {
		watch.connected = func() { time.AfterFunc(time.Microsecond, connected) }
	}
	words := plain{path}
	params := backoff.DefaultConfig
	params.BaseDelay, params.MaxDelay = minRedial, maxRedial
	if cfg.Redial != nil {
		params = *cfg.Redial
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(newSessions(cfg.Gated)),
		grpc.WithPerRPCCredentials(gate{}),
		grpc.WithAuthority("localhost"), // a path is no valid :authority
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, path) }),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: params, MinConnectTimeout: connectTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.ForceCodecV2(codec{})),
		grpc.WithStaticStreamWindowSize(streamWindow),
		grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableServiceConfig(),
		grpc.WithStatsHandler(watch),
		grpc.WithChainUnaryInterceptor(words.unary, watch.unary),
		grpc.WithChainStreamInterceptor(words.stream, watch.stream),
	}
	if cfg.Stats != nil {
		options = append(options, grpc.WithStatsHandler(cfg.Stats))
	}
	// passthrough hands the path to the dialer as it is: a path is no URL.
	c.conn, err = grpc.NewClient("passthrough:///"+path, options...)
	if err != nil {
		return nil, fmt.Errorf("runtime endpoint %.200q: %w", cfg.Endpoint, err)
	}
	c.api = runtimeapi.NewRuntimeServiceClient(c.conn)
	return c, nil
}

// Close ends the connection and every call on it.
func (c *Client) Close() error { return c.conn.Close() }

// Conn returns the connection itself, for whoever passes on calls that plegd
// does not make. Its calls have no deadline but the caller's.
func (c *Client) Conn() grpc.ClientConnInterface { return c.conn }

// Path returns the path of the socket.
func (c *Client) Path() string { return c.path }

// Reprobe forgets which streaming lists the runtime did not have. The client
// does so itself whenever it has connected again: cri-client 0.37 stays with
// the unary calls for good and so misses a runtime upgraded under it.
func (c *Client) Reprobe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.unary)
}

// deadline bounds a call.
func (c *Client) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timeout)
}

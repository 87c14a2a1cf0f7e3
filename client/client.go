package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/timestamppb"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/unixsock"
)

type (
	// Event is one entry of the journal, as the API tells it.
	Event = plegdv1.Event
	// Pod is the cached status of one pod.
	Pod = plegdv1.Pod
	// Sandbox is one sandbox of a pod.
	Sandbox = plegdv1.Sandbox
	// Container is one container of a pod.
	Container = plegdv1.Container
	// Filter chooses events and pods: values of one field are alternatives, fields
	// that are set must all agree. A nil Filter chooses all.
	Filter = plegdv1.Filter
	// Status is what the agent says of itself.
	Status = plegdv1.StatusResponse
)

// DefaultSocket is where an agent serves that nobody configured.
const DefaultSocket = "/run/plegd/plegd.sock"

const (
	// maxMessage is ample for one pod with the runtime's own statuses, of which
	// CRI allows 16 MiB each; the agent sends larger lists in parts.
	maxMessage = 64 << 20
	// window of each stream, bytes: what a loop that is slow over one event holds of the
	// next. Without one gRPC lets it grow, which is of use over a network only.
	window = 64 << 10
	// reachTimeout is how long an agent may take to greet on a socket that it
	// listens on: no round trip of a network is in it.
	reachTimeout = 5 * time.Second
	// redialMost is how long gRPC waits between two tries to connect. Trying a socket of
	// this machine costs next to nothing, and reach waits for the next try: to have it
	// made at once, by ResetConnectBackoff, is a data race in grpc-go 1.85.
	redialMost = 250 * time.Millisecond
	// pingTime and pingTimeout find out that an agent hangs. The agent refuses
	// pings that come more often than each 10 s.
	pingTime, pingTimeout = 20 * time.Second, 10 * time.Second
)

// Options of a Client. The zero Options are good for most.
type Options struct {
	// Wait has Events, Watch, WaitFor and Cache wait for an agent that isn't there
	// yet. Without it that is an error, unless it was there before.
	Wait bool
	// Disconnected is called when one of them has lost the agent, or with Wait has
	// not found it, and goes on trying: once, with why, until Reconnected is called.
	Disconnected func(why error)
	// Reconnected is called when it goes on, with nothing lost or repeated, but for
	// what Live and StartOver say of themselves.
	Reconnected func()
}

// Client is a connection to one agent, made when it is needed and again when it
// is lost. It is safe for concurrent use.
type Client struct {
	socket  string
	options Options
	conn    *grpc.ClientConn
	api     plegdv1.PodLifecycleClient
}

// Dial returns a Client of the agent at a unix socket, /path or unix:///path. It
// doesn't connect yet, so the error is about the path alone. Close it.
func Dial(socket string, o Options) (*Client, error) {
	path := strings.TrimPrefix(socket, "unix://")
	switch {
	case path == "":
		return nil, fmt.Errorf("socket %q: must be the path of a unix socket, /path or unix:///path", socket)
	case len(path) > unixsock.MaxPath:
		return nil, fmt.Errorf("socket %.200q: the path has %d bytes, a unix socket's may have %d", path, len(path), unixsock.MaxPath)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("socket %q: %w", socket, err)
	}
	conn, err := grpc.NewClient("passthrough:///plegd",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: retryFirst, Multiplier: 2, Jitter: 0.2, MaxDelay: redialMost},
			MinConnectTimeout: reachTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingTime, Timeout: pingTimeout}),
		grpc.WithInitialWindowSize(window),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	)
	if err != nil {
		return nil, fmt.Errorf("socket %q: %w", socket, err)
	}
	return &Client{socket: path, options: o, conn: conn, api: plegdv1.NewPodLifecycleClient(conn)}, nil
}

// Close ends the connection and all that uses it.
func (c *Client) Close() error { return c.conn.Close() }

// Socket returns the path of the socket.
func (c *Client) Socket() string { return c.socket }

// PodOptions are for Pod and Pods.
type PodOptions struct {
	// NewerThan, if set, has the answer be of a call to the runtime that is sent at
	// this time or later. A time that has passed means at once. Of Pod only.
	NewerThan time.Time
	// Full adds the runtime's own status messages.
	Full bool
}

// Pod returns one pod by its key, see Pod.Key: its UID, or where it has none
// "sandbox:" and the id of its sandbox. A UID that itself begins with "sandbox:" or
// "uid:" has "uid:" before it. The error wraps ErrNoPod if there is none,
// ErrUnavailable if that can't be told, ctx's error.
func (c *Client) Pod(ctx context.Context, key string, o PodOptions) (*Pod, error) {
	req := &plegdv1.GetPodRequest{Key: key, Full: o.Full}
	if !o.NewerThan.IsZero() {
		req.NewerThan = timestamppb.New(o.NewerThan)
	}
	resp, err := call(ctx, c, func() (*plegdv1.GetPodResponse, error) { return c.api.GetPod(ctx, req) })
	return resp.GetPod(), err
}

// Pods returns the pods that are chosen, and the position that continues them:
// events from there on follow without gap or overlap. A filter's types and sources
// must not be set. The error wraps ErrUnavailable as long as the agent
// doesn't know what pods there are.
func (c *Client) Pods(ctx context.Context, filter *Filter, o PodOptions) (pods []*Pod, position string, err error) {
	if !o.NewerThan.IsZero() {
		return nil, "", fmt.Errorf("%w: NewerThan is for one pod; use Relist to have all of them read anew", ErrInvalid)
	}
	_, err = call(ctx, c, func() (struct{}, error) {
		pods, position = []*Pod{}, ""
		stream, err := c.api.ListPods(ctx, &plegdv1.ListPodsRequest{Filter: filter, Full: o.Full})
		if err != nil {
			return struct{}{}, err
		}
		for {
			resp, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return struct{}{}, nil
			}
			if err != nil {
				return struct{}{}, err
			}
			pods, position = append(pods, resp.Pods...), resp.Position
		}
	})
	if err != nil {
		return nil, "", err
	}
	return pods, position, nil
}

// Status returns how the agent is and why.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	return call(ctx, c, func() (*Status, error) { return c.api.Status(ctx, &plegdv1.StatusRequest{}) })
}

// Relist has the runtime listed now. With wait it returns when that is done and
// can be read, with the position of the newest event then, or with the list's
// error, which wraps ErrUnavailable.
func (c *Client) Relist(ctx context.Context, wait bool) (position string, err error) {
	resp, err := call(ctx, c, func() (*plegdv1.RequestRelistResponse, error) {
		return c.api.RequestRelist(ctx, &plegdv1.RequestRelistRequest{Wait: wait})
	})
	return resp.GetPosition(), err
}

// call makes a call whose repetition does no harm. If the connection broke it is
// made once more, so that a call which meets a restarted agent doesn't fail for
// what became of the old one.
func call[T any](ctx context.Context, c *Client, do func() (T, error)) (T, error) {
	var none T
	if err := c.reach(ctx); err != nil {
		return none, err
	}
	resp, err := do()
	if brokenOff(err) && ctx.Err() == nil {
		if err := c.reach(ctx); err != nil {
			return none, err
		}
		resp, err = do()
	}
	if err != nil {
		return none, c.explain(ctx, err)
	}
	return resp, nil
}

// reach connects, unless it is connected. The error is a SocketError or ctx's. gRPC
// alone would say late and indirectly that there is no socket, and would go on
// saying so for a while after there is one.
func (c *Client) reach(ctx context.Context) error {
	if c.conn.GetState() == connectivity.Ready {
		return nil
	}
	if err := c.probe(ctx); err != nil {
		return err
	}
	c.conn.Connect()
	waiting, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	for state := c.conn.GetState(); state != connectivity.Ready && state != connectivity.Shutdown; state = c.conn.GetState() {
		if !c.conn.WaitForStateChange(waiting, state) {
			break // the call says what is wrong
		}
		if c.conn.GetState() == connectivity.Idle {
			c.conn.Connect()
		}
	}
	return ctx.Err()
}

// probe asks the system whether the socket can be connected to. The error is a
// SocketError or ctx's.
func (c *Client) probe(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", c.socket)
	switch {
	case err == nil:
		return conn.Close() // nothing was said
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return newSocketError(c.socket, err)
}

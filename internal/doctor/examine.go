package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/retry"
	"github.com/plegd/plegd/internal/sysclock"
)

const (
	// DefaultFor is how long is listened: long enough for what goes on all the time,
	// such as probes and restarts, and short enough for who waits.
	DefaultFor = 30 * time.Second
	// MinFor leaves something to judge by.
	MinFor = 5 * time.Second
	// gap is how long nobody listens before the last question, settle how long is
	// listened after it.
	gap, settle = 5 * time.Second, 3 * time.Second
)

// ErrConfig is wrapped by errors about a Config.
var ErrConfig = errors.New("invalid configuration")

// Config says which runtime is examined, and for how long.
type Config struct {
	// Endpoint is unix:///path or an absolute path. Required.
	Endpoint string
	// For is how long is listened, DefaultFor if 0.
	For time.Duration
	// RPCTimeout bounds each call, cri.DefaultRPCTimeout if 0.
	RPCTimeout time.Duration
	// Dialer replaces the dialing of the socket, in tests; the socket itself is not
	// looked at then.
	Dialer func(ctx context.Context, path string) (net.Conn, error)
	// Listening is told which runtime it is when listening begins. It may be nil.
	Listening func(runtime, version string)
	// During is called when listening begins, and its context ends with the examination:
	// to make something happen that can be told of. It may be nil.
	During func(ctx context.Context) error
}

// Examine gathers what Judge needs. It takes For and some seconds more, and ends
// before that with ctx, or at once if there is no runtime to talk to: what was seen
// until then is returned either way. The error wraps ErrConfig, is that of During, or that
// of ctx where nothing was seen.
func Examine(ctx context.Context, cfg Config) (Observed, error) {
	path, err := cri.ParseEndpoint(cfg.Endpoint)
	if err != nil {
		return Observed{}, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if cfg.For == 0 {
		cfg.For = DefaultFor
	}
	if cfg.For < MinFor {
		return Observed{}, fmt.Errorf("%w: to listen for %v: must be at least %v", ErrConfig, cfg.For, MinFor)
	}
	o := Observed{Endpoint: cfg.Endpoint, Began: time.Now(), Whole: true}
	if cfg.Dialer == nil {
		if o.Socket, o.SocketErr = look(path); o.SocketErr != nil {
			return o, nil
		}
		o.Others, o.OthersErr = others(path)
	} else {
		o.OthersErr = errors.New("it is not a socket of this machine")
	}
	parts := &inParts{}
	var clients [2]*cri.Client
	for i := range clients {
		c, err := cri.Dial(cri.Config{Endpoint: cfg.Endpoint, RPCTimeout: cfg.RPCTimeout, Clock: sysclock.New(), Dialer: cfg.Dialer, Observer: parts})
		if err != nil {
			return o, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		defer func() { _ = c.Close() }()
		clients[i] = c
	}
	v, err := clients[0].Version(ctx)
	if ctx.Err() != nil {
		o.Whole = false
		return o, ctx.Err()
	}
	o.Runtime, o.Version, o.VersionErr = v.Name, v.Version, err
	if err != nil {
		return o, nil
	}
	return o, o.watch(ctx, cfg, clients, parts)
}

// look says whether there is a socket that this process may connect to.
func look(path string) (s SocketState, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, fmt.Errorf("%s is not there", path)
	case err != nil:
		return s, err
	case info.Mode()&fs.ModeSocket == 0:
		return s, fmt.Errorf("%s is no socket", path)
	}
	s.Mode = info.Mode().Perm().String()
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.UID, s.GID = st.Uid, st.Gid
	}
	conn, err := net.DialTimeout("unix", path, cri.DefaultRPCTimeout)
	if err != nil {
		return s, err
	}
	s.Agent = ofAgent(conn)
	return s, conn.Close()
}

// watch listens and lists.
func (o *Observed) watch(ctx context.Context, cfg Config, clients [2]*cri.Client, parts *inParts) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := newPoller(clients[0], parts)
	p.round(ctx) // what there was before is not what happens
	var listeners [2]*listener
	for i := range listeners {
		listeners[i] = listen(ctx, clients[i])
	}
	var running sync.WaitGroup
	var failed error
	running.Go(func() { p.run(ctx) })
	if cfg.During != nil {
		running.Go(func() {
			if err := cfg.During(ctx); err != nil && ctx.Err() == nil {
				failed = err
				cancel()
			}
		})
	}
	if cfg.Listening != nil {
		cfg.Listening(o.Runtime, o.Version)
	}
	o.From = time.Now()
	_ = retry.Sleep(ctx, cfg.For)
	o.To = time.Now()
	for i, l := range listeners {
		s, clipped := l.stop()
		o.Streams[i] = s
		o.Clipped = o.Clipped || clipped
	}
	if o.streamed() {
		o.GapFrom = time.Now()
		_ = retry.Sleep(ctx, gap)
		o.GapTo = time.Now()
		again := listen(ctx, clients[0])
		_ = retry.Sleep(ctx, settle)
		o.After, _ = again.stop()
	}
	o.Whole = ctx.Err() == nil
	cancel()
	running.Wait()
	o.Facts, o.Lists, o.Calls, o.Statuses = p.facts, p.lists, p.calls, p.statuses
	o.Clipped = o.Clipped || p.clipped
	return failed
}

// streamed reports whether there is a stream at all, to be opened again.
func (o *Observed) streamed() bool { return unsupported(&o.Streams[0]) == nil }

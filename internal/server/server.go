package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/crowd"
	"github.com/plegd/plegd/internal/unixsock"
	"github.com/plegd/plegd/internal/watch"
)

const (
	// headerTimeout and readTimeout bound how slowly a request may come. Only that
	// for the log level has a body, of one word.
	headerTimeout, readTimeout = 5 * time.Second, 10 * time.Second
	// writeTimeout cuts a client that reads too slowly; the largest answer, the
	// pods of a full node, takes a local reader well under a second.
	writeTimeout = 15 * time.Second
	// idleTimeout is longer than a scrape interval, so that scrapers keep their
	// connection.
	idleTimeout = 2 * time.Minute
	// maxHeader is ample for what is asked here.
	maxHeader = 16 << 10
	// maxConns on each address. One more takes the place of one without a request,
	// or waits: on TCP in the kernel's queue, on the socket behind the splitter.
	maxConns = 128
	// maxStreams of them may be streams, which last: the rest is left to those who
	// ask for health, metrics and pods.
	maxStreams = maxConns * 3 / 4
	// maxSilence of a stream, whatever its client asks for. Once a client has sent a
	// byte more than its request, net/http notices that it is gone by a write alone.
	maxSilence = 30 * time.Second
	// maxProfiles at once: some are made as a whole before any of it is sent. Each may
	// take maxProfile, for the same reason.
	maxProfiles, maxProfile = 4, time.Minute
	// othersMay is the permission bit that lets every user connect.
	othersMay fs.FileMode = 0o002
	// shutdownTimeout is how long answers in progress may take at the end.
	shutdownTimeout = 500 * time.Millisecond
)

// Source is what is served. *pleg.Generator is one once it is there.
type Source interface {
	watch.Source
	Status() pleg.Status
	Pod(key string) (pleg.Pod, error)
}

// Config says what to serve and where.
type Config struct {
	// Listen is the TCP address, host:port; "" serves nothing on TCP.
	Listen string
	// Socket is the path of the unix socket; "" serves none.
	Socket string
	// Health is asked at each request for health. Required.
	Health func() pleg.Health
	// Source returns what to read from, or why there is nothing yet. Required.
	Source func() (Source, error)
	// Turns are shared with what else the process serves; nil for Turns of its own.
	Turns *watch.Turns
	// Metrics serves /metrics. Required.
	Metrics http.Handler
	// API serves the API and the page on TCP too. An address that isn't loopback
	// then needs a Token.
	API bool
	// Token is what clients of the API on TCP have to give; "" for none.
	Token string
	// RPC serves gRPC on the unix socket too, until its context ends; nil if nothing does.
	RPC func(ctx context.Context, lis net.Listener) error
	// SocketMode are the permission bits of the socket; 0 for unixsock.GroupMode.
	SocketMode fs.FileMode
	// SocketGroup is the socket's group; nil for that of the process.
	SocketGroup *int
	// Logger may be nil.
	Logger *slog.Logger
	// LogLevel is what /debug/loglevel reads and sets; nil is a level of its own.
	LogLevel *slog.LevelVar
}

// AddressError says which address could not be taken.
type AddressError struct {
	Field   string // of Config: Listen or Socket
	Address string
	Err     error
}

// Error names the address once.
func (e *AddressError) Error() string { return fmt.Sprintf("%s: %v", e.Address, e.Err) }

// Unwrap returns what was wrong.
func (e *AddressError) Unwrap() error { return e.Err }

var errPublic = errors.New("is not a loopback address: without a token the API is not served there")

// Server serves on the addresses that New took.
type Server struct {
	cfg    Config
	limits limits
	tcp    net.Listener     // nil if there is none
	unix   *unixsock.Socket // nil if there is none
}

// limits are those that tests make shorter.
type limits struct{ read, write, silence time.Duration }

// New takes the addresses. The error is an AddressError, and then none is taken. Run or Close gives them back.
func New(cfg Config) (*Server, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.LogLevel == nil {
		cfg.LogLevel = new(slog.LevelVar)
	}
	if cfg.Turns == nil {
		cfg.Turns = watch.NewTurns()
	}
	s := &Server{cfg: cfg, limits: limits{read: readTimeout, write: writeTimeout, silence: maxSilence}}
	if cfg.Listen != "" {
		lis, err := net.Listen("tcp", cfg.Listen)
		if err != nil {
			return nil, &AddressError{Field: "Listen", Address: cfg.Listen, Err: unixsock.Cause(err)}
		}
		s.tcp = lis
		addr, ok := lis.Addr().(*net.TCPAddr)
		public := ok && !addr.IP.IsLoopback()
		if public && cfg.API && cfg.Token == "" {
			_ = s.Close() // nobody has been served
			return nil, &AddressError{Field: "Listen", Address: cfg.Listen, Err: errPublic}
		}
		if public {
			cfg.Logger.Warn("metrics and health are served to the network, without authentication", "address", addr.String())
		}
		cfg.Logger.Info("serving metrics and health", "address", lis.Addr().String())
		if cfg.API {
			cfg.Logger.Info("serving the API and the page too", "url", "http://"+lis.Addr().String()+"/", "token", cfg.Token != "")
		}
	}
	if cfg.Socket != "" {
		mode := cmp.Or(cfg.SocketMode, unixsock.GroupMode)
		sock, err := unixsock.ListenFor(cfg.Socket, mode, cfg.SocketGroup)
		if err != nil {
			_ = s.Close() // nobody has been served
			return nil, &AddressError{Field: "Socket", Address: cfg.Socket, Err: unixsock.Cause(err)}
		}
		s.unix = sock
		cfg.Logger.Info("serving the API", "socket", cfg.Socket)
		if mode&othersMay != 0 {
			cfg.Logger.Warn("every user of this machine may use the socket: read the pods, set the log level, take profiles, have the runtime listed", "socket", cfg.Socket, "mode", fmt.Sprintf("%#o", mode))
		}
	}
	return s, nil
}

// Close gives the addresses of a Server back that was never run.
func (s *Server) Close() error {
	var errs []error
	if s.tcp != nil {
		errs = append(errs, s.tcp.Close())
	}
	if s.unix != nil {
		errs = append(errs, s.unix.Close())
	}
	return errors.Join(errs...)
}

// Run serves until ctx ends, then lets answers in progress end for a moment
// and gives the addresses back. It returns nil then.
func (s *Server) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if s.tcp != nil {
		s.serve(ctx, group, s.tcp, s.onTCP())
	}
	if s.unix != nil {
		parts := newSplitter(s.unix, s.cfg.Logger)
		group.Go(func() error { return parts.run(ctx) })
		s.serve(ctx, group, parts.http, s.onSocket())
		if s.cfg.RPC == nil {
			_ = parts.rpc.Close() // what comes there is closed
		} else {
			group.Go(func() error { return s.cfg.RPC(ctx, parts.rpc) })
		}
	}
	return group.Wait()
}

// serve runs one http.Server in the group.
func (s *Server) serve(ctx context.Context, group *errgroup.Group, lis net.Listener, h http.Handler) {
	room := crowd.New(crowd.Config{Max: maxConns, Settle: crowd.Settle, Logger: s.cfg.Logger.With("address", lis.Addr().String())})
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: s.limits.read, WriteTimeout: s.limits.write,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ConnState: connState,
		// Streams end with the server, at once.
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	group.Go(func() error {
		err := srv.Serve(room.Door(lis))
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return fmt.Errorf("HTTP on %s: %w", lis.Addr(), err)
	})
	group.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close() // cuts who is still reading
		}
		return nil
	})
}

// connState tells the crowd which connections have a request.
func connState(conn net.Conn, state http.ConnState) {
	g, ok := conn.(*crowd.Guest)
	if !ok {
		return
	}
	switch state {
	case http.StateActive:
		g.Begin()
	case http.StateIdle:
		g.End()
	default: // it is new, or closed, which the guest sees itself
	}
}

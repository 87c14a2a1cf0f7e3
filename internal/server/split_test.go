package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/unixsock"
)

const splitTimeout = 30 * time.Second

// splitting is a splitter that runs until the end of the test, with a server on
// each of its branches: each answers with the name of its branch and all that it
// was sent until the client closes its half.
type splitting struct {
	path  string
	log   *logtest.Buffer
	serve func() // begins to serve; called by splitted
}

func splitted(t *testing.T, wait time.Duration) *splitting {
	t.Helper()
	s := splittedLater(t, wait)
	s.serve()
	return s
}

// splittedLater is splitted without servers, until serve is called.
func splittedLater(t *testing.T, wait time.Duration) *splitting {
	t.Helper()
	s := &splitting{path: filepath.Join(t.TempDir(), "s"), log: &logtest.Buffer{}}
	lis, err := unixsock.Listen(s.path, unixsock.GroupMode)
	if err != nil {
		t.Fatal(err)
	}
	sp := newSplitter(lis, slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	sp.wait = wait
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- sp.run(ctx) }()
	var served sync.WaitGroup
	s.serve = func() {
		for name, b := range map[string]*branch{"http:": sp.http, "grpc:": sp.rpc} {
			served.Go(func() {
				for {
					conn, err := b.Accept()
					if err != nil {
						return
					}
					_ = conn.SetDeadline(time.Now().Add(splitTimeout))
					all, _ := io.ReadAll(conn)
					_, _ = conn.Write(append([]byte(name), all...))
					_ = conn.Close()
				}
			})
		}
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_, _ = sp.http.Close(), sp.rpc.Close()
		served.Wait()
	})
	return s
}

func (s *splitting) dial(t *testing.T) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(splitTimeout))
	return conn
}

// A connection goes by its first bytes to one server or the other, however they
// come, and that server gets all of them.
func TestSplitByTheFirstBytes(t *testing.T) {
	s := splitted(t, splitTimeout)
	for _, tt := range []struct{ sent, want string }{
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore", "grpc:"},
		{"PRI * HTTP/2.0\r\n", "grpc:"},
		{"PRI * HTTP/1.1\r\n\r\n", "http:"},
		{"GET / HTTP/1.1\r\n\r\n", "http:"},
		{"POST / HTTP/1.1\r\n\r\n", "http:"},
		{"PRIX", "http:"},
		{"\x00", "http:"},
	} {
		for _, parts := range [][]string{{tt.sent}, strings.Split(tt.sent, "")} {
			conn := s.dial(t)
			for _, part := range parts {
				if _, err := conn.Write([]byte(part)); err != nil {
					t.Fatal(err)
				}
			}
			_ = conn.CloseWrite()
			got, err := io.ReadAll(conn)
			if err != nil || string(got) != tt.want+tt.sent {
				t.Errorf("%q in %d parts: %q, %v", tt.sent, len(parts), got, err)
			}
		}
	}
	// Who has connected is said once to everybody, and each time to who looks closely.
	if n := s.log.Count("level=INFO"); n != 1 || s.log.Count("pid=") != s.log.Count("uid=") || s.log.Count("level=DEBUG") < 14 {
		t.Errorf("the log has %d lines of level info:\n%s", n, s.log)
	}
	if line := s.log.Lines()[0]; logtest.Attr(line, "pid") == "0" || logtest.Attr(line, "pid") == "" {
		t.Errorf("a connection without a process: %s", line)
	}
}

// Who says nothing, or stops in the middle of the first bytes, is closed.
func TestSplitClosesTheSilent(t *testing.T) {
	s := splitted(t, 50*time.Millisecond)
	for _, sent := range []string{"", "PRI * HT"} {
		conn := s.dial(t)
		_, _ = conn.Write([]byte(sent))
		if got, err := io.ReadAll(conn); len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: %q, %v", sent, got, err)
		}
	}
}

// Thousands who say nothing keep nobody out, and are closed rather than kept.
func TestSplitFloodOfTheSilent(t *testing.T) {
	s := splitted(t, splitTimeout)
	var silent []*net.UnixConn
	for range 2000 {
		silent = append(silent, s.dial(t))
	}
	for _, sent := range []string{"GET /", preface} {
		conn := s.dial(t)
		_, _ = conn.Write([]byte(sent))
		_ = conn.CloseWrite()
		if got, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(got), sent) {
			t.Errorf("%q: %q, %v", sent, got, err)
		}
	}
	open := 0
	for _, conn := range silent {
		_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			open++
		}
	}
	if open > maxUndecided {
		t.Errorf("%d silent connections are open", open)
	}
}

// What was said in time counts, also if this machine comes to read it late.
func TestSplitReadsLate(t *testing.T) {
	lis, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	for sent, want := range map[string]string{"GET /": "GET /", preface: preface, "": "", "PRI": ""} {
		client, err := net.Dial("unix", lis.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn, err := lis.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(client, sent)
		_ = conn.SetReadDeadline(time.Now().Add(-time.Second))
		head, is, err := readPreface(conn)
		if string(head) != want || is != (want == preface) || (want == "") != errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("of %q it reads %q, %v, %v", sent, head, is, err)
		}
		_, _ = client.Close(), conn.Close()
	}
}

// Who has said what they want waits for a server that is busy, however many others
// come and say nothing; when too many wait, the next one is told so.
func TestSplitKeepsWhoWaits(t *testing.T) {
	s := splittedLater(t, splitTimeout)
	var waiting []*net.UnixConn
	ask := func(n int) {
		for range n {
			conn := s.dial(t)
			if _, err := io.WriteString(conn, "GET /"); err != nil {
				t.Fatal(err)
			}
			_ = conn.CloseWrite()
			waiting = append(waiting, conn)
		}
	}
	ask(maxWaiting - 1)
	for range 2 * maxUndecided {
		s.dial(t)
	}
	ask(1)
	decided := func() int { return s.log.Count("level=DEBUG") }
	for end := time.Now().Add(splitTimeout); decided() < maxWaiting; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d of %d are decided", decided(), maxWaiting)
		}
	}
	over := s.dial(t)
	_, _ = io.WriteString(over, "GET /")
	resp, err := http.ReadResponse(bufio.NewReader(over), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var said problem
	if err := json.NewDecoder(resp.Body).Decode(&said); err != nil || resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(said.Error, "256 wait") {
		t.Errorf("%v, %+v, %v", resp.Status, said, err)
	}
	s.serve()
	for i, conn := range waiting {
		if got, err := io.ReadAll(conn); err != nil || string(got) != "http:GET /" {
			t.Fatalf("who waits, number %d: %q, %v", i, got, err)
		}
	}
}

// Both protocols are answered on the one socket of a server.
func TestSocketServesBoth(t *testing.T) {
	rpc := make(chan string, 1)
	s := serve(t, func(cfg *Config) {
		cfg.RPC = func(ctx context.Context, lis net.Listener) error {
			defer context.AfterFunc(ctx, func() { _ = lis.Close() })()
			for {
				conn, err := lis.Accept()
				if err != nil {
					return nil
				}
				who, err := unixsock.PeerOf(conn)
				if err != nil || who.PID != int32(os.Getpid()) || who.UID != uint32(os.Getuid()) {
					t.Errorf("peer %+v, %v", who, err)
				}
				head := make([]byte, len(preface))
				_, _ = io.ReadFull(conn, head)
				rpc <- string(head)
				_ = conn.Close()
			}
		}
	})
	conn, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(preface))
	if got := <-rpc; got != preface {
		t.Errorf("gRPC got %q", got)
	}
	if got := s.ask(t, http.MethodGet, "/readyz", true); got.code != http.StatusOK {
		t.Errorf("HTTP got %+v", got)
	}
}

// The socket has the mode and the group that it was given, and warns if everybody
// may connect.
func TestSocketModeAndGroup(t *testing.T) {
	gid := os.Getgid()
	if os.Getuid() == 0 {
		gid = 31999
	}
	s := serve(t, func(cfg *Config) { cfg.SocketMode, cfg.SocketGroup = 0o606, &gid })
	info, err := os.Stat(s.socket)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o606 {
		t.Errorf("mode %o", got)
	}
	if got := groupOf(info); got != gid {
		t.Errorf("group %d", got)
	}
	if s.log.Count("every user of this machine") != 1 {
		t.Errorf("no warning:\n%s", s.log)
	}
	if s := serve(t, nil); s.log.Count("every user") != 0 {
		t.Errorf("a warning:\n%s", s.log)
	}
}

func groupOf(info os.FileInfo) int {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return -1
	}
	return int(stat.Gid)
}

// flapping is a listener that fails every other time.
type flapping struct {
	net.Listener
	fails atomic.Bool // once more
	n     int
}

// Accept implements [net.Listener].
func (f *flapping) Accept() (net.Conn, error) {
	time.Sleep(time.Second)
	if f.n++; f.fails.Load() && f.n%2 == 0 {
		return nil, syscall.EMFILE
	}
	here, there := net.Pipe()
	_ = there.Close()
	return here, nil
}

// Errors that come and go are told once, and that they are over when they have been for
// a minute.
func TestSplitTellsOfErrorsThatComeAndGoOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis := &flapping{Listener: bufconn.Listen(1)}
		lis.fails.Store(true)
		log := &logtest.Buffer{}
		sp := newSplitter(lis, log.Logger())
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- sp.run(ctx) }()
		count := func(failing, over int) {
			t.Helper()
			if n, m := log.Count("no connection can be accepted"), log.Count("connections are accepted again"); n != failing || m != over {
				t.Errorf("%d times failing, %d times over, want %d and %d", n, m, failing, over)
			}
		}
		time.Sleep(10 * time.Minute)
		count(1, 0)
		lis.fails.Store(false)
		time.Sleep(50 * time.Second)
		count(1, 0)
		time.Sleep(20 * time.Second)
		count(1, 1)
		lis.fails.Store(true)
		time.Sleep(time.Minute)
		count(2, 1)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// late is a listener that takes its time to close, and accepts somebody meanwhile.
type late struct {
	net.Listener
	closing, gone chan struct{}
}

// Accept implements [net.Listener].
func (l *late) Accept() (net.Conn, error) {
	<-l.closing
	here, there := net.Pipe()
	_ = there.Close()
	return here, nil
}

// Close implements [net.Listener].
func (l *late) Close() error {
	close(l.closing)
	time.Sleep(time.Second)
	close(l.gone)
	return nil
}

// What has ended doesn't listen any more, also if somebody came just then: the next
// agent would take the socket for one in use.
func TestSplitEndsWithItsListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis := &late{bufconn.Listen(1), make(chan struct{}), make(chan struct{})}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := newSplitter(lis, (&logtest.Buffer{}).Logger()).run(ctx); err != nil {
			t.Error(err)
		}
		select {
		case <-lis.gone:
		default:
			t.Error("it still listens")
			<-lis.gone
		}
	})
}

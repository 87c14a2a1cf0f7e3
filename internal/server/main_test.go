package server

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/writertest"
)

func TestMain(m *testing.M) {
	if !writertest.Read(openEvents) {
		goleak.VerifyTestMain(m)
	}
}

// fakeSource is a generator with one pod, or none and a reason. It has no
// events; see realSource.
type fakeSource struct {
	missing error
	pods    []pleg.Pod
	health  func() pleg.Health
}

func (f *fakeSource) get() (Source, error) {
	if f.missing != nil {
		return nil, f.missing
	}
	return f, nil
}

func (f *fakeSource) Status() pleg.Status { return pleg.Status{Mode: pleg.ModeHybrid, Node: "n1"} }

func (f *fakeSource) Pods() ([]pleg.Pod, pleg.Position) {
	return f.pods, pleg.Position{Epoch: [8]byte{0x9f}, Seq: 7}
}

func (f *fakeSource) Health() pleg.Health { return f.health() }

func (f *fakeSource) Busy() bool { return false }

func (f *fakeSource) Oldest() pleg.Position { _, at := f.Pods(); return at }

func (f *fakeSource) Subscribe(*pleg.Position) (*pleg.Subscription, error) {
	return nil, errors.New("no events")
}

func (f *fakeSource) Pod(key string) (pleg.Pod, error) {
	for _, p := range f.pods {
		if p.Key == key {
			return p, nil
		}
	}
	return pleg.Pod{}, pleg.ErrNoPod
}

// served is a running server and clients of both its addresses.
type served struct {
	source *fakeSource
	socket string
	tcp    string
	log    *logtest.Buffer
	stop   func() // ends it and checks that this was in time and without an error

	mu     sync.Mutex
	health pleg.Health
}

// serve runs a server until the end of the test.
func serve(t *testing.T, edit func(*Config)) *served {
	t.Helper()
	return serveWithin(t, limits{read: readTimeout, write: writeTimeout, silence: maxSilence}, edit)
}

// serveWithin is serve with other limits.
func serveWithin(t *testing.T, within limits, edit func(*Config)) *served {
	t.Helper()
	s := &served{
		source: &fakeSource{pods: []pleg.Pod{{Key: "u1", UID: "u1", Namespace: "default", Name: "web", Labels: map[string]string{"a": "<b>"}}}},
		socket: filepath.Join(t.TempDir(), "run", "plegd.sock"), log: &logtest.Buffer{},
		health: pleg.Health{Ready: true, Live: true, Listed: true, Checks: []pleg.Check{{Name: pleg.CheckArbiter, OK: true}, {Name: pleg.CheckRelist, OK: true, Reason: "last 1s ago"}}},
	}
	cfg := Config{
		Listen: "127.0.0.1:0", Socket: s.socket, Source: s.source.get,
		Health:  s.healthNow,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "plegd_up 1\n") }),
		Logger:  s.log.Logger(),
	}
	s.source.health = s.healthNow
	if edit != nil {
		edit(&cfg)
	}
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv.limits = within
	if srv.tcp != nil {
		s.tcp = srv.tcp.Addr().String()
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		begin := time.Now()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		if took := time.Since(begin); took > patience {
			t.Errorf("the end took %v", took)
		}
	})
	t.Cleanup(s.stop)
	return s
}

func (s *served) healthNow() pleg.Health { s.mu.Lock(); defer s.mu.Unlock(); return s.health }

func (s *served) setHealth(h pleg.Health) { s.mu.Lock(); defer s.mu.Unlock(); s.health = h }

// answer is what a request got.
type answer struct {
	code   int
	header http.Header
	body   string
}

// ask sends a request to TCP, or to the socket.
func (s *served) ask(t *testing.T, method, path string, unix bool) answer {
	t.Helper()
	network, addr := "tcp", s.tcp
	if unix {
		network, addr = "unix", s.socket
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	ctx, cancel := context.WithTimeout(t.Context(), patience) // a stream would last
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://plegd"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// missing reports whether nothing is at path.
func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist)
}

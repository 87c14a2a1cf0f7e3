package criserver

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/watch"
	"github.com/plegd/plegd/store"
)

// subscribing is a source that subscribes as a test says.
type subscribing struct {
	Source
	subscribe func(*pleg.Position) (*pleg.Subscription, error)
}

func (s subscribing) Subscribe(from *pleg.Position) (*pleg.Subscription, error) {
	return s.subscribe(from)
}

// followed follows such a source, in a bubble; end ends that.
func followed(t *testing.T, subscribe func(*Server) (*pleg.Subscription, error)) (s *Server, end func()) {
	t.Helper()
	s = &Server{hub: newHub(), shelf: newShelf()}
	s.cfg.Logger = slog.New(slog.DiscardHandler)
	src := subscribing{empty{}, func(*pleg.Position) (*pleg.Subscription, error) { return subscribe(s) }}
	s.cfg.Source = func() (Source, string, error) { return src, "", nil }
	var group sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	group.Go(func() {
		if err := s.follow(ctx); err != nil {
			t.Error(err)
		}
	})
	return s, func() {
		cancel()
		group.Wait()
	}
}

// A client that were let in before the hub has subscribed would miss what comes
// in between.
func TestNoStreamBeforeTheHubHasSubscribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s, end := followed(t, func(*Server) (*pleg.Subscription, error) {
			<-gate
			return nil, pleg.ErrStopped
		})
		if err := s.GetContainerEvents(nil, unopened{t: t}); !errors.Is(err, errStarting) || status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
		close(gate)
		end()
		if err := s.GetContainerEvents(nil, unopened{t: t}); !errors.Is(err, errStopping) {
			t.Error(err)
		}
	})
}

// The same holds when events were missed: the streams that were open end, and
// there are no new ones until the hub has subscribed again.
func TestNoStreamAfterMissedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		calls := 0
		var before *reader
		s, end := followed(t, func(s *Server) (*pleg.Subscription, error) {
			if calls++; calls > 1 {
				<-gate
				return nil, pleg.ErrStopped
			}
			s.hub.open() // as after a first subscription, which has now expired
			var err error
			if before, err = s.hub.join(t.Context()); err != nil {
				t.Error(err)
			}
			return nil, pleg.ErrExpired
		})
		synctest.Wait()
		select {
		case <-before.cut:
			if !errors.Is(before.why, errMissed) {
				t.Error(before.why)
			}
		default:
			t.Error("the open stream goes on")
		}
		if err := s.GetContainerEvents(nil, unopened{t: t}); !errors.Is(err, errStarting) {
			t.Error(err)
		}
		close(gate)
		end()
	})
}

// When events can't be read that is no end of the agent: streams end, the log says
// so once, and there are streams again when events are.
func TestEventsThatCantBeRead(t *testing.T) {
	n := start(t, simruntime.Config{})
	n.quiet()
	log := &logtest.Buffer{}
	var server *Server
	var before *reader
	calls := 0
	src := subscribing{n.gen, func(from *pleg.Position) (*pleg.Subscription, error) {
		switch calls++; calls {
		case 1:
			server.hub.open() // as after a subscription, whose next read fails
			var err error
			if before, err = server.hub.join(t.Context()); err != nil {
				t.Error(err)
			}
			return nil, errors.New("page 7 is no page")
		case 2:
			return nil, errors.New("page 8 is no page")
		}
		return n.gen.Subscribe(from)
	}}
	cfg := Config{Socket: filepath.Join(t.TempDir(), "cri.sock"), Untrusted: ReadThrough, Logger: log.Logger()}
	cfg.Source = func() (Source, string, error) { return src, n.gen.Endpoint(), nil }
	var err error
	server, err = New(cfg)
	n.must(err)
	inBackground(t, server.Run)
	c := runtimeapi.NewRuntimeServiceClient(dial(t, cfg.Socket))
	var stream grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]
	eventually(t, "a stream", func() error {
		if stream, err = c.GetContainerEvents(n.ctx(), &runtimeapi.GetEventsRequest{}); err == nil {
			_, err = stream.Header()
		}
		if md, _ := stream.Header(); err == nil && md == nil {
			_, err = stream.Recv()
		}
		return err
	})
	select {
	case <-before.cut:
		if !errors.Is(before.why, errMissed) {
			t.Error(before.why)
		}
	default:
		t.Error("the stream from before goes on")
	}
	if log.Count("can't be read") != 1 || log.Count("page 7") != 1 || log.Count("page 8") != 0 {
		t.Errorf("log:\n%s", log)
	}
	sandbox, _ := n.pod("a")
	if ev, err := stream.Recv(); err != nil || ev.GetContainerId() != sandbox {
		t.Errorf("%v, %v, want an event of %s", ev, err, sandbox)
	}
	if log.Count("read again") != 1 {
		t.Errorf("log:\n%s", log)
	}
}

// On a quiet node no event tells that events are read again, and the log says so.
func TestTroubleEndsOnAQuietNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gen, err := pleg.New(pleg.Config{Endpoint: "unix:///nowhere/cri.sock"}) // is not run: nothing happens in it
		if err != nil {
			t.Fatal(err)
		}
		defer gen.Close()
		log, calls := &logtest.Buffer{}, 0
		_, end := followed(t, func(s *Server) (*pleg.Subscription, error) {
			s.cfg.Logger = log.Logger()
			if calls++; calls <= 2 {
				return nil, errors.New("page 7 is no page")
			}
			return gen.Subscribe(nil)
		})
		time.Sleep(4 * time.Second) // after one and after two, and a fifth more
		synctest.Wait()
		if log.Count("can't be read") != 1 || log.Count("read again") != 0 || calls != 3 {
			t.Errorf("%d calls, log:\n%s", calls, log)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if log.Count("can't be read") != 1 || log.Count("read again") != 1 || calls != 3 {
			t.Errorf("%d calls, log:\n%s", calls, log)
		}
		end()
	})
}

// A client that comes a moment too early is let in as soon as that is right.
func TestStreamWaitsForTheHub(t *testing.T) {
	n := start(t, simruntime.Config{})
	n.quiet()
	asked, gate := make(chan struct{}), make(chan struct{})
	src := subscribing{n.gen, func(from *pleg.Position) (*pleg.Subscription, error) {
		close(asked)
		<-gate
		return n.gen.Subscribe(from)
	}}
	cfg := Config{Socket: filepath.Join(t.TempDir(), "cri.sock"), Untrusted: ReadThrough}
	cfg.Source = func() (Source, string, error) { return src, n.gen.Endpoint(), nil }
	server, err := New(cfg)
	n.must(err)
	inBackground(t, server.Run)
	<-asked
	stream, err := runtimeapi.NewRuntimeServiceClient(dial(t, cfg.Socket)).GetContainerEvents(n.ctx(), &runtimeapi.GetEventsRequest{})
	n.must(err)
	close(gate)
	_, err = stream.Header()
	n.must(err)
	sandbox, _ := n.pod("a")
	if ev, err := stream.Recv(); err != nil || ev.GetContainerId() != sandbox || ev.GetContainerEventType() != created {
		t.Errorf("%v, %v, want the creation of %s", ev, err, sandbox)
	}
}

// busy is a source in which a storm comes in all the time.
type busy struct {
	Source
	asked atomic.Int64
}

func (b *busy) Busy() bool {
	b.asked.Add(1)
	return true
}

// While a storm comes in the hub gives way to it, and tells each event all the same.
func TestHubGivesWay(t *testing.T) {
	n := start(t, simruntime.Config{})
	n.quiet()
	src := &busy{Source: n.gen}
	cfg := Config{Socket: filepath.Join(t.TempDir(), "cri.sock"), Untrusted: ReadThrough}
	cfg.Source = func() (Source, string, error) { return src, n.gen.Endpoint(), nil }
	server, err := New(cfg)
	n.must(err)
	inBackground(t, server.Run)
	stream, err := runtimeapi.NewRuntimeServiceClient(dial(t, cfg.Socket)).GetContainerEvents(n.ctx(), &runtimeapi.GetEventsRequest{})
	n.must(err)
	_, err = stream.Header()
	n.must(err)
	sandbox, container := n.pod("a")
	for _, want := range []string{sandbox, sandbox, container, container} {
		if ev, err := stream.Recv(); err != nil || ev.GetContainerId() != want {
			t.Errorf("%v, %v, want an event of %s", ev, err, want)
		}
	}
	if src.asked.Load() < 3 { // after each but perhaps the last
		t.Errorf("it was asked %d times whether it is busy", src.asked.Load())
	}
}

// What is told in a second is bounded, and while a storm comes in it is a small part of
// that; but no smaller for a few clients than for many.
func TestHubsPace(t *testing.T) {
	for _, tc := range []struct {
		name        string
		readers     int
		busy        bool
		events      int
		least, most time.Duration
	}{
		{"one, in peace", 1, false, 5000, 900 * time.Millisecond, 1100 * time.Millisecond},
		{"a hundred, in peace", 100, false, 1000, 500 * time.Millisecond, 700 * time.Millisecond},
		{"one, in a storm", 1, true, 4000, 900 * time.Millisecond, 1100 * time.Millisecond},
		{"ten, in a storm", 10, true, 400, 700 * time.Millisecond, 1100 * time.Millisecond},
		{"a hundred, in a storm", 100, true, 40, 900 * time.Millisecond, 1100 * time.Millisecond},
		{"as many as may be, in a storm", maxReaders, true, 8, 900 * time.Millisecond, 1100 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{hub: newHub(), shelf: newShelf()}
				s.cfg.Turns = watch.NewTurns()
				s.hub.open()
				var readers []*reader
				for range tc.readers {
					r, err := s.hub.join(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					readers = append(readers, r)
				}
				var src Source = empty{}
				if tc.busy {
					src = &busy{Source: empty{}}
				}
				begin, told := time.Now(), 0
				for range tc.events {
					var err error
					if told, err = s.pass(t.Context(), src, &pleg.Event{Type: store.ContainerStarted}, told); err != nil {
						t.Fatal(err)
					}
					for _, r := range readers {
						if len(r.events) != 1 {
							t.Fatal("an event was not told")
						}
						<-r.events
					}
				}
				if took := time.Since(begin); took < tc.least || took > tc.most {
					t.Errorf("took %v, want %v to %v", took, tc.least, tc.most)
				}
			})
		})
	}
}

package field_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/simruntime"
)

// serveAPI serves the agent's API on a socket until the returned function is
// called.
func (f *field) serveAPI() (socket string, stop func()) {
	f.t.Helper()
	socket = filepath.Join(f.t.TempDir(), "api.sock")
	g := f.g()
	s, err := server.New(server.Config{
		Socket: socket, Health: g.Health, Source: func() (server.Source, error) { return g, nil }, Metrics: http.NotFoundHandler(),
	})
	f.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return socket, func() { cancel(); f.must(<-done) }
}

// get asks the API on a connection of its own.
func (f *field) get(socket, path string) (string, error) {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	resp, err := client.Get("http://plegd" + path)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// slowClient asks for a path and reads so slowly that it never ends. The
// returned function waits until it was cut off.
func (f *field) slowClient(socket, path string) (cut func()) {
	f.t.Helper()
	conn, err := net.Dial("unix", socket)
	f.must(err)
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: plegd\r\n\r\n", path)
	f.must(err)
	b := make([]byte, 1)
	_, err = conn.Read(b)
	f.must(err)
	return func() {
		f.t.Helper()
		f.must(conn.SetReadDeadline(time.Now().Add(patience)))
		f.until("the server to cut the slow client off", func() bool {
			if _, err := conn.Read(b); err != nil {
				f.t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
			return connections(socket) == 0
		})
		f.must(conn.Close())
	}
}

// TestC56_SlowReaderBlocksNobody: a client that reads the pods one byte at a
// time holds up neither writes nor other clients, while the store has to grow,
// and is cut off.
func TestC56_SlowReaderBlocksNobody(t *testing.T) {
	t.Parallel()
	f := newField(t)
	heavy := func(c *runtimeapi.ContainerStatus) {
		c.Message = strings.Repeat("m", 8<<10) // which lists don't carry
		c.State, c.FinishedAt, c.Reason = exited, time.Now().UnixNano(), "Error"
	}
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	var sandboxes []string
	for i := range size(100, 300) {
		uid := fmt.Sprintf("N%d", i)
		sandboxes = append(sandboxes, f.sandbox("s"+uid, uid, ""))
		f.container("c"+uid, sandboxes[i], uid, running, heavy)
	}
	f.start()
	f.streamUp()
	f.eventually()
	f.hold()
	f.settled()
	socket, stop := f.serveAPI()
	cut := f.slowClient(socket, "/v1/pods")
	began := time.Now()

	small := f.fileSize()
	for i := range size(200, 2000) {
		n := i % len(sandboxes)
		f.container(fmt.Sprintf("m%d", i), sandboxes[n], fmt.Sprintf("N%d", n), running, heavy, attempt(uint32(i)))
	}
	f.relists(1)
	f.exits(x, 0)
	f.event(evStopped, x, a)
	f.soon(x, "Died/0")
	f.byStream(x, 3)
	f.eventually()
	if grown := f.fileSize(); grown <= small {
		t.Errorf("the file did not grow from %d bytes", small)
	}
	if body, err := f.get(socket, "/v1/pods/U1"); err != nil || !strings.Contains(body, `"exited"`) {
		t.Errorf("another client: %v, %.200s", err, body)
	}
	t.Logf("all of that in %v; the slow client is cut off after 15 s", time.Since(began))
	f.neverUnready()
	cut()
	stop()
	f.finish()
}

// TestC56Variation_ReaderOfTheJournalThatStopped: a subscriber that begins at the
// oldest event and doesn't go on, while a thousand more are written; when it
// goes on, it has all of them.
func TestC56Variation_ReaderOfTheJournalThatStopped(t *testing.T) {
	t.Parallel()
	f := newField(t)
	a := f.sandbox("A", "U1", "10.0.0.5")
	x := f.container("X", a, "U1", running)
	f.start()
	f.trusted()
	f.soon(x, "Started")
	f.settled()
	oldest := f.g().Oldest()
	sub, err := f.g().Subscribe(&oldest)
	f.must(err)
	first, err := sub.Next(t.Context())
	f.must(err)
	for n := range 2 {
		var ids, sandboxes []string
		for i := range 15 {
			uid := fmt.Sprintf("N%d-%d", n, i)
			sandboxes = append(sandboxes, f.sandbox("s"+uid, uid, ""))
			for j := range 10 {
				ids = append(ids, f.container(fmt.Sprintf("m%d-%d-%d", n, i, j), sandboxes[i], uid, exited, attempt(uint32(j))))
			}
		}
		f.eventually()
		f.drop(ids...)
		for _, s := range sandboxes {
			f.must(f.rt.DropSandbox(s))
		}
		f.eventually()
	}
	f.eventually()
	f.exits(x, 0)
	f.event(evStopped, x, a)
	f.soon(x, "Died/0")
	end := f.g().Position()
	got := []uint64{first.Position.Seq}
	for got[len(got)-1] < end.Seq {
		ev, err := sub.Next(t.Context())
		f.must(err)
		if ev.Position.Seq != got[len(got)-1]+1 {
			t.Fatalf("after %d comes %d", got[len(got)-1], ev.Position.Seq)
		}
		got = append(got, ev.Position.Seq)
	}
	if len(got) < 1000 {
		t.Errorf("only %d events", len(got))
	}
	f.neverUnready()
	f.finish()
}

// TestC58_NoPings: on an idle node nothing is sent that a server with gRPC's
// default policy would hold against its client. The runtime judges pings at
// five minutes; the agent's would have to be as seldom, so in some seconds none
// at all may come. At full size they are twelve minutes.
func TestC58_NoPings(t *testing.T) {
	t.Parallel()
	f := newField(t)
	f.pod("a")
	f.start()
	f.trusted()
	f.settled()
	calls := f.rt.CallStats("").Started
	idle := size(5*time.Second, 12*time.Minute)
	time.Sleep(idle)
	if p := f.rt.Keepalive(); p.Pings > 0 || p.Strikes > 0 || p.GoAways > 0 {
		t.Errorf("pings: %+v", p)
	}
	if n := f.rt.CallStats("GetContainerEvents").Started; n != 1 {
		t.Errorf("%d streams", n)
	}
	if s := f.g().Status(); s.Stream.Reconnects != 0 || s.Relist.State != "stretched" {
		t.Errorf("%+v", s.Relist)
	}
	// Two for each list, of which jitter brings some more; and Version each minute.
	if n, most := f.rt.CallStats("").Started-calls, 2*(int(idle/periodL)*11/10+4)+int(idle/time.Minute); n > most {
		t.Errorf("%d calls in %v of idleness, at most %d", n, idle, most)
	}
	f.finish()
}

// TestC58Variation_NoPingsInTrouble: nor are there any while calls hang, lists
// come late, many events come and the runtime is frozen: what might tempt a
// client to ask whether anybody is there.
func TestC58Variation_NoPingsInTrouble(t *testing.T) {
	t.Parallel()
	f := newField(t, func(s *setup) { s.agent.RPCTimeout = time.Second })
	sandbox, x := f.pod("a")
	f.start()
	f.trusted()
	f.soon(x, "Started")
	f.settled()
	slow := f.both("Containers", simruntime.Rule{Delay: 1200 * time.Millisecond})
	f.until("lists that fail", func() bool { return f.g().Status().Relist.Failures > 1 })
	slow()
	failing := f.rule(simruntime.Rule{Method: "ContainerStatus", Code: codes.Unavailable})
	for range 200 {
		f.event(evStarted, x, sandbox)
		time.Sleep(time.Millisecond)
	}
	failing.Remove()
	f.rt.Freeze()
	f.until("lists that fail", func() bool { return f.g().Status().Relist.Failures > 1 })
	f.rt.Thaw()
	f.trusted()
	if p := f.rt.Keepalive(); p.Strikes > 0 || p.GoAways > 0 {
		t.Errorf("pings: %+v", p)
	}
	if n := f.g().Status().Stream.Reconnects; n != 0 {
		t.Errorf("%d reconnections", n)
	}
	f.wants(x, "Created", "Started")
	f.logsOf("trouble (relist_failing)", 6) // twice on purpose, and on a slow machine now and then in between
	f.logsOf("recovered (relist_failing)", 6)
	f.finish()
}

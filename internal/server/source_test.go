package server

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

// patience bounds every wait for what should happen soon.
const patience = 30 * time.Second

// generate runs a generator on a simulated runtime until the end of the test,
// and waits for its first list.
func generate(t *testing.T) (*pleg.Generator, *simruntime.Runtime) {
	t.Helper()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	gen, err := pleg.New(pleg.Config{Endpoint: endpoint, NodeName: "n1", RelistPeriod: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- gen.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("generator: %v", err)
		}
	})
	eventually(t, "the runtime is listed", func() bool { return gen.Health().Listed })
	return gen, rt
}

// of makes a server serve a generator.
func of(gen *pleg.Generator) func(*Config) {
	return func(c *Config) {
		c.Source = func() (Source, error) { return gen, nil }
		c.Health = gen.Health
	}
}

// play lets pods come and go until the end of the test.
func play(t *testing.T, rt *simruntime.Runtime) {
	t.Helper()
	load, err := simruntime.NewWorkload(rt, simruntime.WorkloadConfig{Seed: 1, Pods: 6, Rate: 300})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- load.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// history reads the next n events after a position, from a subscription, as JSON.
func history(t *testing.T, gen *pleg.Generator, after pleg.Position, n int) (events []*pleg.Event, lines []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	sub, err := gen.Subscribe(&after)
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		ev, err := sub.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		events, lines = append(events, ev), append(lines, line(t, ev))
	}
	return events, lines
}

// line is an event as it is read over HTTP.
func line(t *testing.T, ev *pleg.Event) string {
	t.Helper()
	b, err := ev.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if ev.Type == store.SequenceSkipped {
		return string(b)
	}
	return strings.TrimSuffix(string(b), "}") + `,"pod_key":"` + ev.PodKey() + `"}`
}

// an open stream, and what it has said so far.
type reading struct {
	t    *testing.T
	resp *http.Response
	text *bufio.Reader
	stop context.CancelFunc
}

// open begins to read a stream from the socket. Headers are pairs.
func (s *served) open(t *testing.T, path string, headers ...string) *reading {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://plegd"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.socket)
	}}
	resp, err := transport.RoundTrip(req) //nolint:bodyclose // close does it
	if err != nil {
		cancel()
		t.Fatalf("%s: %v", path, err)
	}
	r := &reading{t: t, resp: resp, text: bufio.NewReader(resp.Body), stop: cancel}
	t.Cleanup(r.close)
	return r
}

func (r *reading) close() {
	r.stop()
	_ = r.resp.Body.Close()
}

// line reads one line, "" at the end.
func (r *reading) line() string {
	r.t.Helper()
	line, err := r.text.ReadString('\n')
	if err == io.EOF && line == "" {
		return ""
	}
	if err != nil {
		r.t.Fatalf("after %q: %v", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// rest reads to the end.
func (r *reading) rest() (lines []string) {
	r.t.Helper()
	for line := r.line(); line != ""; line = r.line() {
		lines = append(lines, line)
	}
	return lines
}

// isEvent reports whether a line of a stream is an event.
func isEvent(line string) bool { return strings.HasPrefix(line, `{"epoch":`) }

// events reads until there are n events.
func (r *reading) events(n int) (lines []string) {
	r.t.Helper()
	for len(lines) < n {
		line := r.line()
		if line == "" {
			r.t.Fatalf("it ended after %d events, want %d", len(lines), n)
		}
		if isEvent(line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// message is one server-sent event.
type message struct{ id, event, data string }

// message reads one.
func (r *reading) message() (m message) {
	r.t.Helper()
	for {
		line := r.line()
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "":
			return m
		case "id":
			m.id = value
		case "event":
			m.event = value
		case "data":
			m.data = value
		default:
			r.t.Fatalf("line %q", line)
		}
	}
}

// eventually polls until done is true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v it is still not so that %s", patience, what)
		}
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

// roomy is a runtime that loses no event of a flood.
var roomy = simruntime.Config{SubscriberBuffer: 100_000}

// flood runs many short lives: four events each, some 500 bytes as JSON.
func flood(t *testing.T, rt *simruntime.Runtime, lives int) (last string) {
	t.Helper()
	pod := newPod(t, rt, fmt.Sprintf("flood-%d", lives))
	for i := range lives {
		last = life(t, rt, pod, fmt.Sprintf("c%d", i), 0)
	}
	return last
}

// position is that of the agent's newest event.
func (d agentDir) position(t *testing.T) pleg.Position {
	t.Helper()
	code, body, err := d.get("/v1/status")
	var status pleg.Status
	if err == nil {
		err = json.Unmarshal([]byte(body), &status)
	}
	if err != nil || code != http.StatusOK {
		t.Fatalf("status: %d %v %s", code, err, body)
	}
	p, err := pleg.ParsePosition(status.Position)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// awaitSeq waits until the agent has published that many events.
func (d agentDir) awaitSeq(t *testing.T, seq uint64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d events are published", seq), func() bool { return d.position(t).Seq >= seq })
}

// The reader's end is the agent's, and no fault.
func TestStdoutClosed(t *testing.T) {
	t.Parallel()
	t.Run("while events come", func(t *testing.T) {
		rt, endpoint := simtest.Start(t, simruntime.Config{})
		dir := newAgentDir(t)
		c := start(t, dir.args(endpoint)...)
		dir.awaitReady(t)
		pod := newPod(t, rt, "web")
		if _, err := c.out.Read(make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		_ = c.out.Close()
		life(t, rt, pod, "app", 0)
		if code := c.code(stopLimit); code != exitOK {
			t.Errorf("code %d", code)
		}
	})
	t.Run("while nothing happens", func(t *testing.T) {
		_, endpoint := simtest.Start(t, simruntime.Config{})
		dir := newAgentDir(t)
		c := start(t, dir.args(endpoint)...)
		dir.awaitReady(t)
		_ = c.out.Close()
		if code := c.code(readerPoll + stopLimit); code != exitOK {
			t.Errorf("code %d", code)
		}
	})
}

// A reader that stops reading costs nothing but its own events, and can't hold
// up the end.
func TestStdoutBlocked(t *testing.T) {
	t.Parallel()
	const lives = 400 // some 800 KiB, and a pipe holds 64
	rt, endpoint := simtest.Start(t, roomy)
	dir := newAgentDir(t)
	c := start(t, dir.args(endpoint)...)
	dir.awaitReady(t)
	flood(t, rt, lives)
	dir.awaitSeq(t, 4*lives)
	fresh := newPod(t, rt, "fresh")
	eventually(t, "the pods go on", func() bool {
		_, body, err := dir.get("/v1/pods")
		return err == nil && strings.Contains(body, fresh)
	})
	c.terminate()
}

// When it reads again, it gets everything.
func TestStdoutReadLate(t *testing.T) {
	t.Parallel()
	const lives = 400
	rt, endpoint := simtest.Start(t, roomy)
	dir := newAgentDir(t)
	c := start(t, dir.args(endpoint)...)
	dir.awaitReady(t)
	last := flood(t, rt, lives)
	dir.awaitSeq(t, 4*lives)
	events := c.read().await(t, "the last life is told", ends(last))
	checkOrder(t, events)
	if first := events[0].Position.Seq; first != 1 {
		t.Errorf("the first event is number %d", first)
	}
	c.terminate()
}

// A reader that was slower than the journal's retention is told so: the agent
// ends rather than leave out what nobody would miss.
func TestStdoutSlowerThanRetention(t *testing.T) {
	t.Parallel()
	const lives = 2300 // more than memory holds too
	rt, endpoint := simtest.Start(t, roomy)
	dir := newAgentDir(t)
	c := start(t, dir.args(endpoint, "--retention-entries", "100")...)
	dir.awaitReady(t)
	flood(t, rt, lives)
	dir.awaitSeq(t, 4*lives)
	r := c.read()
	if code := c.code(patience); code != exitExpired {
		t.Errorf("code %d", code)
	}
	<-r.done
	events := r.all(t)
	checkOrder(t, events) // what it did get has no hole
	line := lastLine(c.stderr.String())
	if !strings.HasPrefix(line, "plegd: stdout: its reader was slower than the retention of the journal: position ") ||
		!strings.Contains(line, fmt.Sprintf("position %s expired, oldest is %s/", events[len(events)-1].Position, events[0].Position.Epoch)) {
		t.Errorf("said %q", line)
	}
}

// A log that nobody reads holds up nothing either.
func TestStderrBlocked(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	c := startAs(t, childConfig{blockStderr: true}, dir.args(endpoint, "--log-level", "debug")...)
	r := c.read()
	dir.awaitReady(t)
	for range 100 { // each is logged, and again when it is over
		rt.Restart()
	}
	id := life(t, rt, newPod(t, rt, "web"), "app", 0)
	r.await(t, "the life is told", ends(id))
	c.terminate()
}

// blockedWriter is a pipe that nobody reads until let go.
type blockedWriter struct {
	free chan struct{}
	buf  bytes.Buffer
}

func (w *blockedWriter) Write(p []byte) (int, error) {
	<-w.free
	return w.buf.Write(p)
}

func TestLogWriter(t *testing.T) {
	w := &blockedWriter{free: make(chan struct{})}
	l := newLogWriter(w)
	for i := range 3 * logQueue { // would never end if it waited
		fmt.Fprintf(l, "line %d\n", i)
	}
	close(w.free)
	eventually(t, "the queue is drained", func() bool { return len(l.lines) == 0 })
	fmt.Fprintln(l, "the end")
	l.close()
	<-l.done
	got := w.buf.String()
	if !strings.HasPrefix(got, "line 0\nline 1\n") || !strings.HasSuffix(got, "\nthe end\n") {
		t.Errorf("written: %.60q ... %q", got, got[len(got)-60:])
	}
	lost := 0
	for line := range strings.Lines(got) { // more than one, when the writer began late
		n := 0
		if _, err := fmt.Sscanf(line, "plegd: log lines lost since stderr was blocked: %d", &n); err == nil {
			lost += n
		}
	}
	if lines := strings.Count(got, "\nline ") + 1; lines+lost != 3*logQueue {
		t.Errorf("%d lines and %d lost of %d", lines, lost, 3*logQueue)
	}
}

func TestLogWriterGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &blockedWriter{free: make(chan struct{})}
		l := newLogWriter(w)
		fmt.Fprintln(l, "x")
		begin := time.Now()
		l.close() // would never end if it waited for the writer
		if took := time.Since(begin); took != lastWords {
			t.Errorf("gave up after %v", took)
		}
		close(w.free)
		<-l.done
	})
}

// The bytes on stdout are those of the one encoder of events.
func TestFormatJSONIsTheEncodersOwn(t *testing.T) {
	ev := &store.Event{
		Position: pleg.Position{Epoch: [8]byte{1}, Seq: 1}, Type: store.ContainerDied, Reason: "a<b && c>d",
		Container: store.EventContainer{ID: "c"},
	}
	want, err := ev.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	got, err := formatJSON(ev)
	if err != nil || string(got) != string(want)+"\n" || !strings.Contains(string(got), `"reason":"a<b && c>d"`) {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}

// Text is for people: one line, whatever a pod is called.
func TestFormatText(t *testing.T) {
	epoch := [8]byte{0x9f, 1, 2, 3, 4, 5, 6, 7}
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC).UnixNano()
	pod := store.EventPod{UID: "u", Namespace: "shop", Name: "web-1", IP: "10.0.0.1"}
	ctr := store.EventContainer{ID: "0123456789abcdef", Name: "app", Attempt: 2}
	for _, tc := range []struct {
		ev   store.Event
		want string
	}{
		{store.Event{Type: store.SandboxReady, Pod: pod, SandboxID: "s1", ObservedAt: at, Source: 2},
			"~2026-01-02T03:04:05.006Z  SandboxReady      shop/web-1                    -               ip=10.0.0.1 id=s1 source=relist"},
		{store.Event{Type: store.ContainerDied, Pod: pod, Container: ctr, SandboxID: "s1", OccurredAt: at, ExitKnown: true, ExitCode: 137, Reason: "OOMKilled", Source: 1},
			" 2026-01-02T03:04:05.006Z  ContainerDied     shop/web-1                    app#2           exit=137 reason=OOMKilled id=0123456789abc source=stream"},
		{store.Event{Type: store.ContainerDied, Pod: pod, Container: ctr, ObservedAt: at, Source: 3, Inferred: true, Incarnation: 2},
			"~2026-01-02T03:04:05.006Z  ContainerDied     shop/web-1                    app#2           exit=unknown id=0123456789abc incarnation=2 source=inspect inferred"},
		{store.Event{Type: store.ContainerChanged, Pod: pod, Container: ctr, OccurredAt: at, Change: store.ChangeAmended, Changed: []string{"exit_code", "reason"}, Source: 3},
			" 2026-01-02T03:04:05.006Z  ContainerChanged  shop/web-1                    app#2           change=amended changed=exit_code,reason id=0123456789abc source=inspect"},
		{store.Event{Type: store.SequenceSkipped, From: 8, To: 1024, ObservedAt: at},
			"~2026-01-02T03:04:05.006Z  SequenceSkipped   -                             -               from=8 to=1024"},
		{store.Event{Type: store.ContainerDied, Pod: store.EventPod{Namespace: "a\n", Name: "b\x1b[31m"}, Container: ctr, OccurredAt: at, Reason: "x\r\ty", Source: 1},
			" 2026-01-02T03:04:05.006Z  ContainerDied     a\ufffd/b\ufffd[31m                     app#2           exit=unknown reason=x\ufffd\ufffdy id=0123456789abc source=stream"},
	} {
		tc.ev.Position = pleg.Position{Epoch: epoch, Seq: 42}
		got, err := formatText(&tc.ev)
		if want := "9f01020304050607/42    " + tc.want + "\n"; err != nil || string(got) != want {
			t.Errorf("%v\n got %q\nwant %q", err, got, want)
		}
	}
}

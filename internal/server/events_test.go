package server

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/selection"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/timestamps"
)

// What is read over HTTP, in both forms, while it happens and after, is what a
// subscription reads: the same bytes in the same order, and the keys of pods.
func TestEventsAreThoseOfASubscription(t *testing.T) {
	gen, rt := generate(t)
	s := serve(t, of(gen))
	begin := gen.Position()
	since := "/v1/events?since=" + begin.String()
	live, sse := s.open(t, since), s.open(t, since, "Accept", "text/html, text/event-stream;q=0.9")
	if got := live.resp.Header.Get("Content-Type"); got != "application/x-ndjson" {
		t.Errorf("content type %q", got)
	}
	if got := s.open(t, since, "Accept", "text/event-stream;q=0, application/json").resp.Header.Get("Content-Type"); got == "text/event-stream" {
		t.Error("events are sent as what the client doesn't want")
	}
	if got := sse.resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type %q", got)
	}
	play(t, rt)
	const n = 400
	events, want := history(t, gen, begin, n)
	if diff := cmp.Diff(want, live.events(n)); diff != "" {
		t.Errorf("live (-want +got):\n%s", diff)
	}
	late := s.open(t, since+"&limit=400").rest()
	if diff := cmp.Diff(want, late[1:len(late)-1]); diff != "" {
		t.Errorf("late (-want +got):\n%s", diff)
	}
	if want := bookmark(events[n-1].Position.String()); late[0] != bookmark(begin.String()) || late[n+1] != want {
		t.Errorf("it begins with %s and ends with %s", late[0], late[n+1])
	}
	if m := sse.message(); m != (message{begin.String(), lineBookmark, bookmark(begin.String())}) {
		t.Errorf("the first message is %v", m)
	}
	for i, ev := range events {
		if m := sse.message(); m != (message{ev.Position.String(), string(ev.Type), want[i]}) {
			t.Fatalf("message %d is %v, want %s", i, m, want[i])
		}
	}
}

func bookmark(position string) string {
	return fmt.Sprintf(`{"type":"Bookmark","position":%q}`, position)
}

// A reader that breaks off again and again and goes on with Last-Event-ID, as a
// browser does, reads everything once. Where its first request began doesn't
// count then.
func TestResumeWithLastEventID(t *testing.T) {
	gen, rt := generate(t)
	s := serve(t, of(gen))
	begin := gen.Position()
	play(t, rt)
	const n = 300
	_, want := history(t, gen, begin, n)
	rng := rand.New(rand.NewPCG(1, 2))
	var got []string
	id := begin.String()
	for round := 0; len(got) < n; round++ {
		path := []string{"/v1/events", "/v1/events?snapshot=true", "/v1/events?since=1h"}[round%3]
		r := s.open(t, path, "Accept", "text/event-stream", "Last-Event-ID", id)
		for range rng.IntN(40) {
			m := r.message()
			id = m.id
			if isEvent(m.data) {
				got = append(got, m.data)
			}
		}
		r.close()
	}
	if diff := cmp.Diff(want, got[:n]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Filters choose as package selection does, values of one key being alternatives.
func TestEventFilters(t *testing.T) {
	gen, rt := generate(t)
	s := serve(t, of(gen))
	begin := gen.Position()
	play(t, rt)
	events, _ := history(t, gen, begin, 300)
	of := slices.IndexFunc(events, func(ev *pleg.Event) bool { return ev.Container.Name != "" })
	some := events[of].Pod
	for query, filter := range map[string]selection.Filter{
		"":                                       {},
		"namespace=" + some.Namespace:            {Namespaces: []string{some.Namespace}},
		"namespace=nobody":                       {Namespaces: []string{"nobody"}},
		"pod=" + some.Name + "&pod=no":           {Pods: []string{some.Name, "no"}},
		"uid=" + some.UID:                        {UIDs: []string{some.UID}},
		"container=" + events[of].Container.Name: {Containers: []string{events[of].Container.Name}},
		"type=ContainerDied&type=SandboxReady":   {Types: []string{"ContainerDied", "SandboxReady"}},
		"source=stream&type=ContainerStarted":    {Sources: []string{"stream"}, Types: []string{"ContainerStarted"}},
		"selector=" + url.QueryEscape("io.kubernetes.pod.name in (nobody, "+some.Name+")"): {Labels: "io.kubernetes.pod.name in (nobody, " + some.Name + ")"},
	} {
		chosen, err := selection.New(filter)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, ev := range events {
			if chosen.Event(ev) {
				want = append(want, line(t, ev))
			}
		}
		lines := s.open(t, "/v1/events?follow=false&since="+begin.String()+"&"+query).rest()
		got := lines[1 : len(lines)-1] // more has happened since
		if len(got) < len(want) {
			t.Errorf("%s: %d events, want %d and more", query, len(got), len(want))
			continue
		}
		if diff := cmp.Diff(want, append([]string(nil), got[:len(want)]...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
		if !strings.HasPrefix(lines[len(lines)-1], `{"type":"Bookmark"`) {
			t.Errorf("%s: it ends with %s", query, lines[len(lines)-1])
		}
	}
}

// A snapshot has the pods as of a position, and the events after it follow
// without gap or overlap.
func TestSnapshotAndTail(t *testing.T) {
	gen, rt := generate(t)
	s := serve(t, of(gen))
	play(t, rt)
	history(t, gen, gen.Position(), 100)
	r := s.open(t, "/v1/events?snapshot=true")
	pods := map[string]bool{}
	var end struct {
		Position string
		End      bool `json:"snapshot_end"`
	}
	for !end.End {
		line := r.line()
		var pod struct{ Status pleg.Pod }
		if strings.HasPrefix(line, `{"type":"Pod",`) {
			if err := json.Unmarshal([]byte(line), &pod); err != nil {
				t.Fatal(err)
			}
			pods[pod.Status.Key] = true
		} else if err := json.Unmarshal([]byte(line), &end); err != nil || end.Position == "" {
			t.Fatalf("%s: %v", line, err)
		}
	}
	if len(pods) == 0 {
		t.Error("there are no pods")
	}
	at, err := pleg.ParsePosition(end.Position)
	if err != nil {
		t.Fatal(err)
	}
	_, want := history(t, gen, at, 50)
	if diff := cmp.Diff(want, r.events(50)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	once := s.open(t, "/v1/events?snapshot=true&follow=false").rest()
	if last := once[len(once)-1]; !strings.HasSuffix(last, `"snapshot_end":true}`) {
		t.Errorf("a snapshot alone ends with %s", last)
	}
}

// A time, or how long ago, begins with the first event that was observed then or
// later.
func TestSinceATime(t *testing.T) {
	gen, rt := generate(t)
	s := serve(t, of(gen))
	begin := gen.Position()
	play(t, rt)
	events, want := history(t, gen, begin, 100)
	at := time.Unix(0, events[60].ObservedAt)
	first := 60
	for first > 0 && events[first-1].ObservedAt >= events[60].ObservedAt {
		first-- // of the same moment
	}
	for _, since := range []string{
		at.UTC().Format(time.RFC3339Nano),
		at.In(time.FixedZone("", 2*3600)).Format(time.RFC3339Nano), // with a plus sign that nobody escaped
	} {
		if got := s.open(t, "/v1/events?since="+since).events(1); got[0] != want[first] {
			t.Errorf("since %s: %s, want %s", since, got[0], want[first])
		}
	}
	if got := s.open(t, "/v1/events?since=1h").events(1); got[0] != want[0] {
		t.Errorf("since an hour: %s, want %s", got[0], want[0])
	}
}

// A stream that nothing comes on says so again and again, and lasts longer than
// the server's bounds for one request.
func TestStreamsLast(t *testing.T) {
	gen, rt := generate(t)
	s := serveWithin(t, limits{read: 50 * time.Millisecond, write: 100 * time.Millisecond, silence: maxSilence}, of(gen))
	r := s.open(t, "/v1/events?keepalive=1s&type=ContainerDied")
	if first, second := r.line(), r.line(); first != second || first != bookmark(gen.Position().String()) {
		t.Errorf("it says %s and %s", first, second)
	}
	if _, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: "web", UID: "u1"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is told", func() bool { return gen.Position().Seq > 0 })
	for line := r.line(); line != bookmark(gen.Position().String()); line = r.line() {
		if isEvent(line) {
			t.Fatalf("not selected: %s", line)
		}
	}
}

// A client that does not read is cut, and costs no other anything.
func TestSlowReaderIsCut(t *testing.T) {
	gen, rt := generate(t)
	s := serveWithin(t, limits{read: readTimeout, write: 300 * time.Millisecond, silence: maxSilence}, of(gen))
	begin := gen.Position()
	for i := range 400 {
		if _, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: fmt.Sprint("p", i), UID: fmt.Sprint("u", i), Labels: map[string]string{"pad": strings.Repeat("x", 2000)}}); err != nil {
			t.Fatal(err)
		}
	}
	const n = 800 // created and ready
	_, want := history(t, gen, begin, n)
	slow, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fmt.Fprintf(slow, "GET /v1/events?since=%s HTTP/1.1\r\nHost: x\r\n\r\n", begin)
	eventually(t, "it is cut", func() bool { return strings.Contains(s.log.String(), "a reader of events was cut") })
	_ = slow.SetReadDeadline(time.Now().Add(patience))
	text, err := io.ReadAll(slow)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("after %d bytes: %v", len(text), err)
	}
	if lines := strings.Count(string(text), `{"epoch":`); lines >= n {
		t.Errorf("all %d events were sent", lines)
	}
	if diff := cmp.Diff(want, s.open(t, "/v1/events?since="+begin.String()).events(n)); diff != "" {
		t.Errorf("another reader (-want +got):\n%s", diff)
	}
}

// Streams are bounded, so that they leave connections to those who ask for
// health; HEAD is none, and one that ends makes room.
func TestStreamsAreBounded(t *testing.T) {
	gen, _ := generate(t)
	s := serve(t, of(gen))
	open := make([]*reading, maxStreams)
	for i := range open {
		open[i] = s.open(t, "/v1/events")
		open[i].line()
	}
	more := s.open(t, "/v1/events")
	if line := more.line(); more.resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(line, "at most 96") || more.resp.Header.Get("Retry-After") == "" {
		t.Errorf("one more: %d %s", more.resp.StatusCode, line)
	}
	for path, want := range map[string]int{"/readyz": 200, "/v1/pods": 200} {
		if got := s.ask(t, "GET", path, true); got.code != want {
			t.Errorf("%s: %d", path, got.code)
		}
	}
	if head := s.ask(t, "HEAD", "/v1/events", true); head.code != 200 || head.body != "" || head.header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("HEAD: %d %q", head.code, head.body)
	}
	open[7].close()
	eventually(t, "there is room", func() bool { return s.ask(t, "GET", "/v1/events?follow=false", true).code == 200 })
}

// A client that has gone is noticed, however long a silence it asked for, and though it
// has sent more than its request: the server doesn't read on then.
func TestStreamsOfThoseWhoHaveGoneEnd(t *testing.T) {
	gen, _ := generate(t)
	s := serveWithin(t, limits{read: readTimeout, write: writeTimeout, silence: time.Second}, of(gen))
	for range maxStreams {
		conn := s.unread(t, "/v1/events?keepalive=1h")
		text := bufio.NewReader(conn)
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		for line := ""; !strings.Contains(line, lineBookmark); {
			var err error
			if line, err = text.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprint(conn, "G")
		_ = conn.Close()
	}
	eventually(t, "there is room", func() bool { return s.ask(t, "GET", "/v1/events?follow=false", true).code == 200 })
}

// At the end of the server streams end too, at once and not as if that was all.
func TestStreamsEndWithTheServer(t *testing.T) {
	gen, _ := generate(t)
	s := serve(t, of(gen))
	r := s.open(t, "/v1/events")
	first := r.line()
	s.stop() // in time
	if rest := r.rest(); len(rest) != 1 || !strings.HasPrefix(rest[0], `{"type":"Error","error":"the agent stops`) {
		t.Errorf("after %s it says %q", first, rest)
	}
}

// Positions that can't be read on from are gone, and the answer says from where
// reading can go on.
func TestExpired(t *testing.T) {
	gen, _ := generate(t)
	s := serve(t, of(gen))
	now := gen.Position()
	late, other := now, now
	late.Seq += 1000
	other.Epoch = timestamps.Epoch{1}
	for _, at := range []pleg.Position{late, other} {
		for _, method := range []string{"GET", "HEAD"} {
			if got := s.ask(t, method, "/v1/events?since="+at.String(), true); got.code != 410 {
				t.Errorf("%s since %s: %d %s", method, at, got.code, got.body)
			}
		}
		got := s.ask(t, "GET", "/v1/events?since="+at.String(), true)
		var p problem
		if err := json.Unmarshal([]byte(got.body), &p); err != nil || p.Oldest != gen.Oldest().String() || p.Newest != now.String() || !strings.Contains(p.Error, at.String()) {
			t.Errorf("since %s: %s, %v", at, got.body, err)
		}
	}
}

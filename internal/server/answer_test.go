package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/unsent"
)

// largePods runs a generator that knows n pods of some 2.5 KB.
func largePods(t *testing.T, n int) *pleg.Generator {
	t.Helper()
	gen, rt := generate(t)
	for i := range n {
		if _, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: fmt.Sprint("p", i), UID: fmt.Sprint("u", i), Labels: map[string]string{"pad": strings.Repeat("x", 2000)}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the pods are known", func() bool { pods, _ := gen.Pods(); return len(pods) == n })
	return gen
}

// unread asks and doesn't read the answer.
func (s *served) unread(t *testing.T, path string) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	return conn
}

// Answers of pods that are made and not taken are bounded, of all kinds together;
// when their clients have gone there is room again.
func TestUnreadAnswersAreBounded(t *testing.T) {
	gen := largePods(t, 500)
	s := serveWithin(t, limits{read: readTimeout, write: 2 * patience, silence: maxSilence}, of(gen))
	paths := []string{"/v1/pods", "/debug/dump", "/v1/events?snapshot=true"}
	smallest := maxUnsent
	for _, path := range []string{"/v1/pods", "/debug/dump", "/v1/events?snapshot=true&follow=false"} {
		got := s.ask(t, "GET", path, true)
		if got.code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, got.code, got.body)
		}
		smallest = min(smallest, len(got.body))
	}
	var conns []net.Conn
	for i := range maxUnsent/smallest + 2*len(paths) { // the last of a kind are refused
		conns = append(conns, s.unread(t, paths[i%len(paths)]))
	}
	for _, path := range paths {
		var got answer
		eventually(t, path+" is refused", func() bool {
			got = s.ask(t, "HEAD", path, true)
			return got.code == http.StatusServiceUnavailable
		})
		if got = s.ask(t, "GET", path, true); !strings.Contains(got.body, "32 MiB of answers") || got.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %.200s", path, got.code, got.body)
		}
	}
	for path, want := range map[string]int{"/readyz": 200, "/v1/status": 200, "/v1/events?follow=false": 200} {
		if got := s.ask(t, "GET", path, true); got.code != want {
			t.Errorf("%s: %d %s", path, got.code, got.body)
		}
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	for _, path := range paths {
		eventually(t, path+" is answered", func() bool { return s.ask(t, "HEAD", path, true).code == http.StatusOK })
	}
}

// A snapshot has to be taken as a whole in the time for one answer, however many
// pieces of it are taken.
func TestSnapshotTakenTooSlowlyIsCut(t *testing.T) {
	gen := largePods(t, 1000)
	s := serveWithin(t, limits{read: readTimeout, write: 500 * time.Millisecond, silence: maxSilence}, of(gen))
	conn := s.unread(t, "/v1/events?snapshot=true&follow=false")
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	var text strings.Builder
	for b := make([]byte, 4<<10); ; time.Sleep(5 * time.Millisecond) { // all of it takes 3 s
		n, err := conn.Read(b)
		text.Write(b[:n])
		if err != nil {
			break
		}
	}
	if strings.Contains(text.String(), `"snapshot_end":true`) || s.log.Count("a reader of events was cut") != 1 {
		t.Errorf("after %d bytes:\n%s", text.Len(), s.log)
	}
}

// countedSource counts how many want its pods at once.
type countedSource struct {
	*fakeSource
	mu         sync.Mutex
	most, asks int
}

func (c *countedSource) Pods() ([]pleg.Pod, pleg.Position) {
	c.mu.Lock()
	c.asks++
	c.most = max(c.most, c.asks)
	c.mu.Unlock()
	time.Sleep(20 * time.Millisecond)
	c.mu.Lock()
	c.asks--
	c.mu.Unlock()
	return c.fakeSource.Pods()
}

// Only so many copies of all pods are made at once; the others wait their turn.
func TestAnswersAreMadeInTurns(t *testing.T) {
	var source countedSource
	s := serve(t, func(c *Config) { c.Source = func() (Source, error) { return &source, nil } })
	source.fakeSource = s.source
	var clients sync.WaitGroup
	for i := range 5 * maxMaking {
		path := []string{"/v1/pods", "/debug/dump"}[i%2]
		clients.Go(func() {
			if got := s.ask(t, "GET", path, true); got.code != http.StatusOK {
				t.Errorf("%s: %d %s", path, got.code, got.body)
			}
		})
	}
	clients.Wait()
	if source.most > maxMaking {
		t.Errorf("%d at once", source.most)
	}
}

// What there is no room for isn't made, and what is larger than all there may be is,
// when nothing else waits.
func TestAnswersWithoutRoomAreNotMade(t *testing.T) {
	const most = 10_000
	pods := make([]pleg.Pod, 1000) // of more than most
	for _, tc := range []struct {
		what           string
		taken          int
		begins, ends   bool
		largest, least int // bytes that are made
	}{
		{"no byte is left", most, false, false, 0, 0},
		{"half is", most / 2, true, false, most/2 + 1000, most / 2},
		{"all is", 0, true, true, 1 << 20, most},
	} {
		m := &room{making: make(chan struct{}, 1), unsent: unsent.New(most, time.Minute)}
		if _, ok := m.unsent.Take(tc.taken); !ok {
			t.Fatal("no room at first")
		}
		begins, size := false, 0
		r := httptest.NewRequest(http.MethodGet, "/v1/pods", nil)
		_, err := prepare(r.WithContext(context.WithValue(r.Context(), roomKey{}, m)), func(p *prepared) error {
			begins = true
			err := p.podsIn(podList{}, pods)
			size = p.size
			return err
		})
		if begins != tc.begins || tc.ends != (err == nil) || !tc.ends && !errors.Is(err, errUnsent) || size < tc.least || size > tc.largest {
			t.Errorf("%s: made %v, %d bytes, %v", tc.what, begins, size, err)
		}
	}
}

// An answer in pieces is what was put into it, and JSON.
func TestPrepared(t *testing.T) {
	for _, n := range []int{0, 1, 3, 400} {
		p, pods := &prepared{fits: func(int) bool { return true }}, make([]pleg.Pod, n)
		for i := range pods {
			pods[i].Key, pods[i].Labels = fmt.Sprint(i), map[string]string{"a": "<" + strings.Repeat("x", 97*i)}
		}
		if err := p.podsIn(podList{Position: "here"}, pods); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if sent, err := p.WriteTo(&text); err != nil || int(sent) != p.size || text.Len() != p.size {
			t.Errorf("%d bytes are sent of %d: %v", sent, p.size, err)
		}
		want, err := encode(struct {
			Position string     `json:"position"`
			Pods     []pleg.Pod `json:"pods"`
		}{"here", pods})
		if err != nil || text.String() != string(want) {
			t.Errorf("%d pods: %.300s\nwant %.300s, %v", n, text.String(), want, err)
		}
		if err := json.Unmarshal([]byte(text.String()), new(any)); err != nil {
			t.Error(err)
		}
		if largest := (len(p.parts)) * partBytes; largest > p.size+partBytes {
			t.Errorf("%d bytes are held for %d", largest, p.size)
		}
	}
	if _, err := (&prepared{parts: [][]byte{{1}, {2}}}).WriteTo(brokenWriter{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Profiles are bounded: some are made as a whole before any of it is sent.
func TestProfilesAreBounded(t *testing.T) {
	s := serve(t, nil)
	var got answer
	eventually(t, "one is refused", func() bool {
		s.unread(t, "/debug/pprof/heap?seconds=60")
		got = s.ask(t, "GET", "/debug/pprof/allocs", true)
		return got.code != http.StatusOK
	})
	if got.code != http.StatusServiceUnavailable || !strings.Contains(got.body, "at most 4 at a time") {
		t.Errorf("%d %s", got.code, got.body)
	}
}

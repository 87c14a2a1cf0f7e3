package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	pleg "github.com/plegd/plegd"
)

// put sends a body to the socket.
func (s *served) put(t *testing.T, path, body string) answer {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", s.socket)
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://plegd"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(text)}
}

// How much is logged can be read and set on the socket; that is all that can be
// changed.
func TestLogLevel(t *testing.T) {
	level := new(slog.LevelVar)
	s := serve(t, func(c *Config) { c.LogLevel, c.API = level, true })
	if got := s.ask(t, "GET", "/debug/loglevel", true); got.code != 200 || got.body != `{"level":"info"}`+"\n" {
		t.Errorf("%d %s", got.code, got.body)
	}
	for _, body := range []string{"", "loud", "DEBUG", "debug debug", "debug" + strings.Repeat(" ", 1000)} {
		if got := s.put(t, "/debug/loglevel", body); got.code != 400 || !strings.Contains(got.body, "debug, info, warn, error") {
			t.Errorf("%.20q: %d %s", body, got.code, got.body)
		}
	}
	if level.Level() != slog.LevelInfo {
		t.Errorf("level %v", level)
	}
	for _, word := range []string{"debug", "error\n", "warn", "info"} {
		if got := s.put(t, "/debug/loglevel", word); got.code != 200 || !strings.Contains(got.body, strings.TrimSpace(word)) {
			t.Errorf("%q: %d %s", word, got.code, got.body)
		}
		if got := levelName(level.Level()); got != strings.TrimSpace(word) {
			t.Errorf("%q: level %s", word, got)
		}
	}
	for path, code := range map[string]int{"/debug/dump": 405, "/v1/pods": 405, "/": 405, "/debug/loglevel/": 404} {
		if got := s.put(t, path, "debug"); got.code != code {
			t.Errorf("PUT %s: %d", path, got.code)
		}
	}
	if got := s.ask(t, "POST", "/debug/loglevel", true); got.code != 405 || got.header.Get("Allow") != "GET, HEAD, PUT" {
		t.Errorf("POST: %d, allowed %q", got.code, got.header.Get("Allow"))
	}
	if got := s.raw(t, "PUT /debug/loglevel HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 5\r\n\r\ndebug"); got.code != 404 {
		t.Errorf("PUT on TCP: %d", got.code)
	}
}

// A dump has what there is, also when that is little, and stacks if asked for.
func TestDump(t *testing.T) {
	gen, rt := generate(t)
	s := serve(t, of(gen))
	play(t, rt)
	eventually(t, "there are pods", func() bool { pods, _ := gen.Pods(); return len(pods) > 0 })
	for _, stacks := range []bool{false, true} {
		path := "/debug/dump"
		if stacks {
			path += "?goroutines=true"
		}
		var d struct {
			dump
			Pods []pleg.Pod
		}
		got := s.ask(t, "GET", path, true)
		if err := json.Unmarshal([]byte(got.body), &d); err != nil || d.Status == nil || d.Status.Node != "n1" || len(d.Pods) == 0 || !d.Health.Live || d.LogLevel != "info" {
			t.Errorf("%s: %d %v %.500s", path, got.code, err, got.body)
		}
		if strings.Contains(d.Goroutines, "TestDump") != stacks {
			t.Errorf("%s: stacks are %.200q", path, d.Goroutines)
		}
	}
}

func TestDumpWithoutGenerator(t *testing.T) {
	s := serve(t, nil)
	s.source.missing = errors.New("no CRI runtime found")
	s.setHealth(pleg.Health{Live: true})
	got := s.ask(t, "GET", "/debug/dump", true)
	var d dump
	if err := json.Unmarshal([]byte(got.body), &d); err != nil || got.code != 200 || d.Error != "no CRI runtime found" || d.Status != nil || !d.Health.Live {
		t.Errorf("%d %v %s", got.code, err, got.body)
	}
}

// go tool pprof finds what it asks for.
func TestProfiles(t *testing.T) {
	s := serve(t, nil)
	for path, part := range map[string]string{
		"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=1": "goroutine profile", "/debug/pprof/cmdline": "server.test",
		"/debug/pprof/symbol": "num_symbols", "/debug/pprof/heap": "", "/debug/pprof/trace?seconds=0.01": "",
	} {
		if got := s.ask(t, "GET", path, true); got.code != 200 || !strings.Contains(got.body, part) || got.body == "" {
			t.Errorf("%s: %d %.100s", path, got.code, got.body)
		}
	}
	for _, path := range []string{"profile", "trace", "heap"} {
		for _, seconds := range []string{"61", "1000000", "60.5", "1e9", "Inf", "NaN", "-1", "0"} {
			if got := s.ask(t, "GET", "/debug/pprof/"+path+"?seconds="+seconds, true); got.code != 400 || !strings.Contains(got.body, `parameter seconds \"`+seconds) || !strings.Contains(got.body, "at most 60") {
				t.Errorf("%s of %s seconds: %d %.100s", path, seconds, got.code, got.body)
			}
		}
	}
	if got := s.ask(t, "GET", "/debug/pprof/nothing", true); got.code != 404 {
		t.Errorf("unknown profile: %d", got.code)
	}
}

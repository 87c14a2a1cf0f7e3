package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
)

// TCP shows health and metrics, the socket health and the API, and nothing can
// be changed on either.
func TestWhatIsServedWhere(t *testing.T) {
	s := serve(t, nil)
	for _, tc := range []struct {
		path      string
		tcp, unix int
	}{
		{"/livez", 200, 200},
		{"/readyz", 200, 200},
		{"/readyz?verbose", 200, 200},
		{"/metrics", 200, 404},
		{"/v1/status", 404, 200},
		{"/v1/pods", 404, 200},
		{"/v1/pods/u1", 404, 200},
		{"/v1/pods/nobody", 404, 404},
		{"/v1/pods/", 404, 404},
		{"/openapi.json", 404, 200},
		{"/", 404, 200},
		{"/page/nothing.js", 404, 404},
		{"/debug/dump", 404, 200},
		{"/debug/pprof/", 404, 200},
		{"/livez/x", 404, 404},
	} {
		for unix, want := range map[bool]int{false: tc.tcp, true: tc.unix} {
			if got := s.ask(t, "GET", tc.path, unix); got.code != want {
				t.Errorf("GET %s, unix %v: %d, want %d", tc.path, unix, got.code, want)
			}
			head := s.ask(t, "HEAD", tc.path, unix)
			if head.code != want || head.body != "" {
				t.Errorf("HEAD %s, unix %v: %d with %q, want %d", tc.path, unix, head.code, head.body, want)
			}
			if want != 200 {
				continue
			}
			for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
				if got := s.ask(t, method, tc.path, unix); got.code != http.StatusMethodNotAllowed || got.header.Get("Allow") != "GET, HEAD" {
					t.Errorf("%s %s, unix %v: %d, allowed %q", method, tc.path, unix, got.code, got.header.Get("Allow"))
				}
			}
		}
	}
}

func TestAPI(t *testing.T) {
	s := serve(t, nil)
	status := s.ask(t, "GET", "/v1/status", true)
	var st pleg.Status
	if err := json.Unmarshal([]byte(status.body), &st); err != nil || st.Node != "n1" {
		t.Errorf("status %q: %v", status.body, err)
	}
	if got := status.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("content type %q", got)
	}
	pods := s.ask(t, "GET", "/v1/pods", true)
	if !strings.HasPrefix(pods.body, `{"position":"9f00000000000000/7","pods":[{"key":"u1",`) || !strings.Contains(pods.body, `"<b>"`) {
		t.Errorf("pods %s", pods.body)
	}
	if one := s.ask(t, "GET", "/v1/pods/u1", true); !strings.HasPrefix(one.body, `{"key":"u1",`) {
		t.Errorf("pod %s", one.body)
	}
	if none := s.ask(t, "GET", "/v1/pods/u2", true); none.code != 404 || !strings.HasPrefix(none.body, `{"error":`) {
		t.Errorf("unknown pod: %d %s", none.code, none.body)
	}
	s.source.pods = nil
	if pods := s.ask(t, "GET", "/v1/pods", true); !strings.Contains(pods.body, `"pods":[]`) {
		t.Errorf("no pods: %s", pods.body)
	}
}

// Before there is a generator, the API says why.
func TestNoGeneratorYet(t *testing.T) {
	s := serve(t, nil)
	s.source.missing = errors.New("no CRI runtime found")
	for _, path := range []string{"/v1/status", "/v1/pods", "/v1/pods/u1"} {
		if got := s.ask(t, "GET", path, true); got.code != 503 || !strings.Contains(got.body, "no CRI runtime found") {
			t.Errorf("%s: %d %s", path, got.code, got.body)
		}
	}
}

// What was never listed is unknown, and must not look like an empty node or a
// pod that is gone.
func TestPodsAreUnknownUntilListedOrRestored(t *testing.T) {
	s := serve(t, nil)
	unlisted := pleg.Health{Live: true, Checks: []pleg.Check{{Name: pleg.CheckRelist, Reason: "no relist has succeeded yet: nobody listens"}}}
	restored, fresh := pleg.Pod{Key: "r1", Restored: true}, pleg.Pod{Key: "s1"}
	for _, tc := range []struct {
		name                 string
		pods                 []pleg.Pod
		list, one, another   int // codes of all pods, the first of them, and one that isn't there
		listListed, oneKnown int // the same once there was a list
	}{
		{"nothing known", nil, 503, 503, 503, 200, 404},
		{"restored", []pleg.Pod{restored}, 200, 200, 503, 200, 200},
		{"only the stream has spoken", []pleg.Pod{fresh}, 503, 200, 503, 200, 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.source.pods = tc.pods
			first := "/v1/pods/r1"
			if len(tc.pods) > 0 {
				first = "/v1/pods/" + tc.pods[0].Key
			}
			s.setHealth(unlisted)
			for path, want := range map[string]int{"/v1/pods": tc.list, first: tc.one, "/v1/pods/nobody": tc.another} {
				got := s.ask(t, "GET", path, true)
				if got.code != want {
					t.Errorf("%s: %d, want %d", path, got.code, want)
				}
				if want == 503 && !strings.HasPrefix(got.body, `{"error":"pods are not known yet: no relist has succeeded yet: nobody listens"}`) {
					t.Errorf("%s: %s", path, got.body)
				}
			}
			s.setHealth(pleg.Health{Live: true, Listed: true})
			for path, want := range map[string]int{"/v1/pods": tc.listListed, first: tc.oneKnown, "/v1/pods/nobody": 404} {
				if got := s.ask(t, "GET", path, true); got.code != want {
					t.Errorf("listed, %s: %d, want %d", path, got.code, want)
				}
			}
		})
	}
}

// Whatever is asked, an error is JSON.
func TestUnknownPathsAndMethodsAreJSONErrors(t *testing.T) {
	s := serve(t, nil)
	for _, tc := range []struct {
		method, path string
		code         int
		want         string
	}{
		{"GET", "/v2/pods", 404, `{"error":"no such path: /v2/pods%s"}`},
		{"POST", "/livez", 405, `{"error":"method POST is not allowed: only GET, HEAD"}`},
	} {
		for _, unix := range []bool{false, true} {
			got := s.ask(t, tc.method, tc.path, unix)
			elsewhere := "; the API and the page are on the unix socket, and here only with --http-api"
			if unix {
				elsewhere = ""
			}
			if got.code != tc.code || got.body != strings.Replace(tc.want, "%s", elsewhere, 1)+"\n" || got.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s %s, unix %v: %d %s %q", tc.method, tc.path, unix, got.code, got.header.Get("Content-Type"), got.body)
			}
		}
	}
	if got := s.ask(t, "GET", "/metrics", true); got.code != 404 || got.body != `{"error":"no such path: /metrics; metrics are on --http-listen"}`+"\n" {
		t.Errorf("metrics on the unix socket: %d %q", got.code, got.body)
	}
	if got := s.ask(t, "GET", "//v1//pods", true); got.code/100 != 3 || got.header.Get("Location") != "/v1/pods" || got.body != "" {
		t.Errorf("unclean path: %d to %q, %q", got.code, got.header.Get("Location"), got.body)
	}
	long := strings.Repeat("x", maxKey+1)
	if got := s.ask(t, "GET", "/v1/pods/"+long, true); got.code != http.StatusBadRequest || len(got.body) > 200 || !strings.Contains(got.body, "at most 1024 bytes") {
		t.Errorf("a long key: %d %q", got.code, got.body)
	}
	if got := s.ask(t, "GET", "/v1/pods/"+long[1:], true); got.code != http.StatusNotFound {
		t.Errorf("the longest key: %d %q", got.code, got.body)
	}
}

func TestHealth(t *testing.T) {
	s := serve(t, nil)
	good := pleg.Check{Name: pleg.CheckArbiter, OK: true}
	for _, tc := range []struct {
		name          string
		health        pleg.Health
		path          string
		code          int
		want, verbose string
	}{
		{"ready", pleg.Health{Ready: true, Live: true, Checks: []pleg.Check{good, {Name: "relist", OK: true, Reason: "last 1s ago"}}}, "/readyz", 200,
			"ok", "[+]arbiter ok\n[+]relist ok: last 1s ago\nreadyz check passed\n"},
		{"degraded", pleg.Health{Ready: true, Live: true, Checks: []pleg.Check{good, {Name: "stream", Ready: true, Reason: "down: EOF"}}}, "/readyz", 200,
			"ok", "[+]arbiter ok\n[-]stream degraded: down: EOF\nreadyz check passed\n"},
		{"not ready says why unasked", pleg.Health{Live: true, Checks: []pleg.Check{good, {Name: "relist", Reason: "no\nrelist\tyet"}}}, "/readyz", 503,
			"[+]arbiter ok\n[-]relist failed: no relist yet\nreadyz check failed\n", "[+]arbiter ok\n[-]relist failed: no relist yet\nreadyz check failed\n"},
		{"alive though not ready", pleg.Health{Live: true, Checks: []pleg.Check{good, {Name: "relist", Reason: "x"}}}, "/livez", 200,
			"ok", "[+]arbiter ok\nlivez check passed\n"},
		{"not alive", pleg.Health{Checks: []pleg.Check{{Name: pleg.CheckArbiter, Reason: "no progress for 31s"}}}, "/livez", 503,
			"[-]arbiter failed: no progress for 31s\nlivez check failed\n", "[-]arbiter failed: no progress for 31s\nlivez check failed\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s.setHealth(tc.health)
			for path, want := range map[string]string{tc.path: tc.want, tc.path + "?verbose": tc.verbose} {
				for _, unix := range []bool{false, true} {
					if got := s.ask(t, "GET", path, unix); got.code != tc.code || got.body != want {
						t.Errorf("%s: %d\n%s\nwant %d\n%s", path, got.code, got.body, tc.code, want)
					}
				}
			}
		})
	}
}

// Requests that are too large are refused, and clients that neither send nor
// read don't hold up the end.
func TestBadClients(t *testing.T) {
	s := serve(t, nil)
	s.source.pods = make([]pleg.Pod, 20_000) // more than socket buffers take
	for what, request := range map[string]string{
		"header": "GET /livez HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 2*maxHeader) + "\r\n\r\n",
		"query":  "GET /v1/pods?pod=" + strings.Repeat("x", 2*maxHeader) + " HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		big, err := net.Dial("tcp", s.tcp)
		if err != nil {
			t.Fatal(err)
		}
		defer big.Close()
		fmt.Fprint(big, request)
		_ = big.SetReadDeadline(time.Now().Add(5 * time.Second))
		line := make([]byte, len("HTTP/1.1 431"))
		if _, err := big.Read(line); err != nil || string(line) != "HTTP/1.1 431" {
			t.Errorf("huge %s: %q, %v", what, line, err)
		}
	}

	silent, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	fmt.Fprint(silent, "GET /v1/po")
	lazy, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer lazy.Close()
	fmt.Fprint(lazy, "GET /v1/pods HTTP/1.1\r\nHost: x\r\n\r\n")
	if _, err := lazy.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if got := s.ask(t, "GET", "/livez", true); got.code != 200 {
		t.Errorf("livez: %d", got.code)
	}
	s.stop() // in time
}

// Clients that keep their connections for later don't keep others out: the one
// that was idle for longest is closed when it becomes crowded.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	s := serve(t, nil)
	var first net.Conn
	for i := range 2 * maxConns {
		conn, err := net.Dial("unix", s.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := conn.Read(make([]byte, len("HTTP/1.1 200"))); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if i == 0 {
			first = conn
		}
	}
	if got := s.ask(t, "GET", "/livez", true); got.code != 200 {
		t.Errorf("livez: %d", got.code)
	}
	if _, err := io.Copy(io.Discard, first); err != nil {
		t.Errorf("the connection that was idle for longest is still open: %v", err)
	}
}

func TestListen(t *testing.T) {
	t.Run("nothing", func(t *testing.T) {
		s := serve(t, func(c *Config) { c.Listen, c.Socket = "", "" })
		if s.tcp != "" || !missing(s.socket) {
			t.Error("something is served")
		}
	})
	t.Run("loopback", func(t *testing.T) {
		if s := serve(t, nil); strings.Contains(s.log.String(), "WARN") {
			t.Errorf("warned: %s", s.log)
		}
	})
	t.Run("the network", func(t *testing.T) {
		if s := serve(t, func(c *Config) { c.Listen = ":0" }); !strings.Contains(s.log.String(), "WARN") {
			t.Errorf("no warning: %s", s.log)
		}
	})
	t.Run("taken", func(t *testing.T) {
		s := serve(t, nil)
		other := s.socket + "2"
		_, err := New(Config{Listen: s.tcp, Socket: other})
		if err == nil || !strings.Contains(err.Error(), s.tcp) || !strings.Contains(err.Error(), "in use") {
			t.Errorf("error %v", err)
		}
		if !missing(other) {
			t.Error("the socket was made all the same")
		}
	})
}

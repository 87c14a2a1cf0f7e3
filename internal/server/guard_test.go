package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

const someToken = "c0ffee00c0ffee00c0ffee00"

// raw sends a request to TCP as it stands.
func (s *served) raw(t *testing.T, request string) answer {
	t.Helper()
	conn, err := net.Dial("tcp", s.tcp)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprint(conn, request)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// asks the TCP address with a Host header and more.
func (s *served) as(t *testing.T, host, path string, headers ...string) answer {
	t.Helper()
	return s.raw(t, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n", path, host, strings.Join(append(headers, ""), "\r\n")))
}

// With API, TCP has it and the page, but not what is for debugging.
func TestAPIOnTCP(t *testing.T) {
	s := serve(t, func(c *Config) { c.API = true })
	for path, want := range map[string]int{
		"/livez": 200, "/metrics": 200, "/v1/status": 200, "/v1/pods": 200, "/v1/pods/u1": 200, "/openapi.json": 200, "/": 200,
		"/page/main.js": 200, "/page/style.css": 200, "/page/": 404, "/page/..%2fserver.go": 404, "/page/nothing.js": 404,
		"/debug/dump": 404, "/debug/pprof/": 404, "/debug/loglevel": 404,
	} {
		if got := s.as(t, "localhost", path); got.code != want {
			t.Errorf("%s: %d, want %d", path, got.code, want)
		}
	}
}

// Who comes by a name that isn't this server's was sent by a page that lets its
// own name point here. Addresses of loopback, or of the connection, are no such
// names. Health and metrics don't mind, they tell nothing of pods.
func TestHost(t *testing.T) {
	for _, listen := range []string{"127.0.0.1:0", "localhost:0", "0.0.0.0:0"} {
		s := serve(t, func(c *Config) { c.Listen, c.API, c.Token = listen, true, someToken })
		_, port, _ := net.SplitHostPort(s.tcp)
		s.tcp = net.JoinHostPort("127.0.0.1", port)
		for host, want := range map[string]int{
			"localhost": 200, "LOCALHOST": 200, "localhost:" + port: 200, "127.0.0.1": 200, "127.0.0.1:" + port: 200, "[::1]:80": 200, "[::1]": 200, "127.0.0.2": 200,
			"": 421, "evil.example": 421, "evil.example:" + port: 421, "localhost.evil.example": 421, "127.0.0.1.nip.io": 421, "10.1.2.3": 421, "evil.localhost": 421,
		} {
			for _, path := range []string{"/v1/pods", "/v1/events?follow=false", "/"} {
				if want == 200 && strings.HasPrefix(path, "/v1/events") {
					continue // this source has none
				}
				if got := s.as(t, host, path, "Authorization: Bearer "+someToken); got.code != want {
					t.Errorf("%s, host %q, %s: %d, want %d: %s", listen, host, path, got.code, want, got.body)
				}
			}
			if got := s.as(t, host, "/livez"); got.code != 200 {
				t.Errorf("host %q, /livez: %d", host, got.code)
			}
		}
	}
}

// A name that was configured is this server's.
func TestHostOfListen(t *testing.T) {
	g := guard{listen: "node-7.example"}
	for host, want := range map[string]bool{"node-7.example": true, "Node-7.example:10359": true, "node-8.example": false} {
		if got := g.knows(&http.Request{Host: host}); got != want {
			t.Errorf("%s: %v", host, got)
		}
	}
}

// With a token, nothing of pods is told without it; the page is, since it asks
// for it.
func TestToken(t *testing.T) {
	s := serve(t, func(c *Config) { c.API, c.Token = true, someToken })
	for header, want := range map[string]int{
		"X: y": 401, "Authorization: Bearer": 401, "Authorization: Bearer ": 401, "Authorization: " + someToken: 401,
		"Authorization: Basic " + someToken: 401, "Authorization: Bearer " + someToken[1:]: 401, "Authorization: Bearer " + someToken + "0": 401,
		"Authorization: Bearer " + someToken: 200, "authorization: bearer  " + someToken: 200,
	} {
		for _, path := range []string{"/v1/status", "/v1/pods", "/v1/pods/u1"} {
			got := s.as(t, "localhost", path, header)
			if got.code != want {
				t.Errorf("%q, %s: %d, want %d", header, path, got.code, want)
			}
			if want == 401 && (got.header.Get("WWW-Authenticate") != `Bearer realm="plegd"` || strings.Contains(got.body, someToken)) {
				t.Errorf("%q: %v %s", header, got.header, got.body)
			}
		}
	}
	for _, path := range []string{"/", "/page/main.js", "/openapi.json", "/livez", "/metrics"} {
		if got := s.as(t, "localhost", path); got.code != 200 {
			t.Errorf("%s without a token: %d", path, got.code)
		}
	}
	if got := s.as(t, "localhost", "/v1/pods?token="+someToken); got.code != 401 {
		t.Errorf("a token in the query: %d", got.code)
	}
	if got := s.ask(t, "GET", "/v1/pods", true); got.code != 200 {
		t.Errorf("the socket asks for a token: %d", got.code)
	}
	if strings.Contains(s.log.String(), someToken) {
		t.Error("the log has the token")
	}
}

// Without a token the API is served on loopback alone.
func TestAPIOnTheNetworkNeedsAToken(t *testing.T) {
	cfg := Config{Listen: ":0", API: true, Health: nil, Metrics: http.NotFoundHandler()}
	if srv, err := New(cfg); err == nil || !strings.Contains(err.Error(), "not a loopback address") {
		t.Errorf("%v, %v", srv, err)
	}
	cfg.Token = someToken
	srv, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	_ = srv.Close()
}

// Browsers are told to take nothing for something else, to show nothing inside a
// foreign page, and to let the page use nothing but its own files.
func TestSecurityHeaders(t *testing.T) {
	s := serve(t, func(c *Config) { c.API = true })
	for _, path := range []string{"/", "/page/main.js", "/page/icon.svg", "/v1/pods", "/v1/nothing", "/openapi.json", "/livez"} {
		h := s.as(t, "localhost", path, "Origin: http://evil.example").header
		policy := h.Get("Content-Security-Policy")
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" ||
			!strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %v", path, h)
		}
		for name := range h {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: %s lets other pages read it", path, name)
			}
		}
	}
}

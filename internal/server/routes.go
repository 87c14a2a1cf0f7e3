package server

import (
	"net/http"
	"slices"
)

// place is where something is served, as a set.
type place uint8

const (
	// always on TCP: what tells nothing of pods.
	always place = 1 << iota
	// guarded is what TCP has with Config.API, behind the guard.
	guarded
	// open is what TCP has with Config.API for everybody who names the right host:
	// the page itself, which has to be there before it can ask for the token, and
	// the API's description.
	open
	// local is what the unix socket has.
	local
)

// A route is one path and what it takes. The description at /openapi.json is
// compared with the list of them by a test.
type route struct {
	pattern string // of the mux. With GET it takes HEAD too; other methods get 405
	where   place
	params  []string // of the query; any are taken where it is nil
	handle  http.HandlerFunc
	plain   bool // is no part of the API, and not described
	stream  bool // is answered for as long as its client stays
	profile bool // is as large as it happens to be
}

var (
	podParams   = []string{"namespace", "pod", "uid", "container", "selector"}
	eventParams = append(slices.Clone(podParams), "type", "source", "since", "snapshot", "keepalive", "follow", "limit")
	none        = []string{}
)

// routes lists everything that is served.
func (s *Server) routes() []route {
	return []route{
		// Probes and scrapers send what they like.
		{pattern: "GET /livez", where: always | local, handle: s.livez},
		{pattern: "GET /readyz", where: always | local, handle: s.readyz},
		{pattern: "GET /metrics", where: always, handle: s.cfg.Metrics.ServeHTTP},

		{pattern: "GET /v1/status", where: guarded | local, params: none, handle: s.status},
		{pattern: "GET /v1/pods", where: guarded | local, params: podParams, handle: s.pods},
		{pattern: "GET /v1/pods/{key}", where: guarded | local, params: none, handle: s.pod},
		{pattern: "GET /v1/events", where: guarded | local, params: eventParams, handle: s.events, stream: true},
		{pattern: "GET /openapi.json", where: open | local, params: none, handle: description},

		{pattern: "GET /{$}", where: open | local, params: none, handle: pageFile, plain: true},
		{pattern: "GET /page/{file}", where: open | local, params: none, handle: pageFile, plain: true},

		{pattern: "GET /debug/dump", where: local, params: []string{"goroutines"}, handle: s.dump},
		{pattern: "GET /debug/loglevel", where: local, params: none, handle: s.logLevel},
		{pattern: "PUT /debug/loglevel", where: local, params: none, handle: s.setLogLevel},
		{pattern: "GET /debug/pprof/", where: local, handle: profile, plain: true, profile: true},
	}
}

// onTCP returns the handler of the TCP address, onSocket that of the unix socket.
func (s *Server) onTCP() http.Handler {
	in := always
	if s.cfg.API {
		in |= guarded | open
	}
	return s.handler(in)
}

func (s *Server) onSocket() http.Handler { return s.handler(local) }

// handler serves the routes that are in one of these places. It bounds the
// streams of its address: so they leave connections to those who ask for health.
func (s *Server) handler(in place) http.Handler {
	mux := http.NewServeMux()
	streams, profiles := make(chan struct{}, maxStreams), make(chan struct{}, maxProfiles)
	guard := s.newGuard()
	for _, r := range s.routes() {
		where := r.where & in
		if where == 0 {
			continue
		}
		h := checkParams(r.params, r.handle)
		switch {
		case r.stream:
			h = bounded(streams, errTooManyStreams, h)
		case r.profile:
			h = bounded(profiles, errTooManyProfiles, h)
		}
		switch where {
		case guarded:
			h = guard.host(guard.token(h))
		case open:
			h = guard.host(h)
		}
		mux.Handle(r.pattern, h)
	}
	elsewhere := func(string) string { return "" }
	switch in {
	case always:
		elsewhere = func(string) string {
			return "; the API and the page are on the unix socket, and here only with --http-api"
		}
	case local:
		elsewhere = func(path string) string {
			if path == "/metrics" {
				return "; metrics are on --http-listen"
			}
			return ""
		}
	}
	return newRoom().in(jsonErrors(mux, elsewhere))
}

// bounded refuses what would be one too many. HEAD takes no place.
func bounded(places chan struct{}, full error, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			h.ServeHTTP(w, r)
			return
		}
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			h.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "10")
			writeError(w, http.StatusServiceUnavailable, full)
		}
	})
}

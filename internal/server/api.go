package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	pleg "github.com/plegd/plegd"
)

// public is what TCP serves.
func (s *Server) public() http.Handler {
	mux := http.NewServeMux()
	s.addHealth(mux)
	mux.Handle("GET /metrics", s.cfg.Metrics)
	return jsonErrors(mux)
}

// api is what the unix socket serves.
func (s *Server) api() http.Handler {
	mux := http.NewServeMux()
	s.addHealth(mux)
	mux.HandleFunc("GET /v1/status", s.status)
	mux.HandleFunc("GET /v1/pods", s.pods)
	mux.HandleFunc("GET /v1/pods/{key}", s.pod)
	return jsonErrors(mux)
}

// jsonErrors gives the mux's own answers, to paths it doesn't know and methods
// it doesn't take, the form of all other errors.
func jsonErrors(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		own := &ownAnswer{header: w.Header()}
		h.ServeHTTP(own, r) // sets Allow and says which error it is
		switch own.code {
		case http.StatusNotFound:
			writeError(w, own.code, fmt.Errorf("no such path: %.200s", r.URL.Path))
		case http.StatusMethodNotAllowed:
			writeError(w, own.code, fmt.Errorf("method %.20s is not allowed: only %s", r.Method, w.Header().Get("Allow")))
		default: // a redirect to the cleaned path
			w.WriteHeader(own.code)
		}
	})
}

// ownAnswer takes the answer of a mux that has no handler, without its text.
type ownAnswer struct {
	header http.Header
	code   int
}

// Header implements [http.ResponseWriter].
func (a *ownAnswer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *ownAnswer) WriteHeader(code int) { a.code = code }

// Write implements [http.ResponseWriter].
func (a *ownAnswer) Write(b []byte) (int, error) { return len(b), nil }

// addHealth adds what both serve. A pattern with GET takes HEAD too, and the
// mux answers other methods with 405.
func (s *Server) addHealth(mux *http.ServeMux) {
	mux.HandleFunc("GET /livez", s.livez)
	mux.HandleFunc("GET /readyz", s.readyz)
}

// status answers with what the generator says of itself.
func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	src, err := s.cfg.Source()
	if err != nil {
		writeError(w, http.StatusServiceUnavailable, err)
		return
	}
	writeJSON(w, http.StatusOK, src.Status())
}

// podList is the answer to /v1/pods. Reading events from the position on
// continues the list without gap or overlap.
type podList struct {
	Position string     `json:"position"`
	Pods     []pleg.Pod `json:"pods"`
}

// pods answers with all pods. What was never listed is unknown, and unknown is
// never empty: without a full list in this run, or pods of an earlier one, an
// empty answer would say that the node has no pods.
func (s *Server) pods(w http.ResponseWriter, _ *http.Request) {
	src, err := s.cfg.Source()
	if err != nil {
		writeError(w, http.StatusServiceUnavailable, err)
		return
	}
	unlisted := s.unlisted() // asked first, so that a list that is told of is also in the pods
	pods, at := src.Pods()
	if unlisted != nil && !slices.ContainsFunc(pods, func(p pleg.Pod) bool { return p.Restored }) {
		writeError(w, http.StatusServiceUnavailable, unlisted)
		return
	}
	if pods == nil {
		pods = []pleg.Pod{}
	}
	writeJSON(w, http.StatusOK, podList{Position: at.String(), Pods: pods})
}

// pod answers with one pod. Before the first full list of this run nobody knows
// that there is none, not even from restored pods: it may have come since.
func (s *Server) pod(w http.ResponseWriter, r *http.Request) {
	src, err := s.cfg.Source()
	if err != nil {
		writeError(w, http.StatusServiceUnavailable, err)
		return
	}
	unlisted := s.unlisted()
	pod, err := src.Pod(r.PathValue("key"))
	switch {
	case errors.Is(err, pleg.ErrNoPod) && unlisted != nil:
		writeError(w, http.StatusServiceUnavailable, unlisted)
	case errors.Is(err, pleg.ErrNoPod):
		writeError(w, http.StatusNotFound, err)
	case err != nil:
		writeError(w, http.StatusInternalServerError, err)
	default:
		writeJSON(w, http.StatusOK, pod)
	}
}

// unlisted says why there was no full list in this run yet, nil if there was.
func (s *Server) unlisted() error {
	h := s.cfg.Health()
	if h.Listed {
		return nil
	}
	why := "the runtime was not listed yet"
	for _, c := range h.Checks {
		if c.Name == pleg.CheckRelist && c.Reason != "" {
			why = c.Reason
		}
	}
	return fmt.Errorf("pods are not known yet: %s", why)
}

// writeError answers with an error as JSON.
func writeError(w http.ResponseWriter, code int, err error) {
	writeJSON(w, code, map[string]string{"error": err.Error()})
}

// writeJSON answers with a value as JSON. A client that is gone, or was cut,
// needs no answer.
func writeJSON(w http.ResponseWriter, code int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

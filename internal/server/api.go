package server

import (
	"encoding/json"
	"errors"
	"net/http"

	pleg "github.com/plegd/plegd"
)

// public is what TCP serves.
func (s *Server) public() http.Handler {
	mux := http.NewServeMux()
	s.addHealth(mux)
	mux.Handle("GET /metrics", s.cfg.Metrics)
	return mux
}

// api is what the unix socket serves.
func (s *Server) api() http.Handler {
	mux := http.NewServeMux()
	s.addHealth(mux)
	mux.HandleFunc("GET /v1/status", s.status)
	mux.HandleFunc("GET /v1/pods", s.pods)
	mux.HandleFunc("GET /v1/pods/{key}", s.pod)
	return mux
}

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

// pods answers with all pods.
func (s *Server) pods(w http.ResponseWriter, _ *http.Request) {
	src, err := s.cfg.Source()
	if err != nil {
		writeError(w, http.StatusServiceUnavailable, err)
		return
	}
	pods, at := src.Pods()
	if pods == nil {
		pods = []pleg.Pod{}
	}
	writeJSON(w, http.StatusOK, podList{Position: at.String(), Pods: pods})
}

// pod answers with one pod.
func (s *Server) pod(w http.ResponseWriter, r *http.Request) {
	src, err := s.cfg.Source()
	if err != nil {
		writeError(w, http.StatusServiceUnavailable, err)
		return
	}
	pod, err := src.Pod(r.PathValue("key"))
	switch {
	case errors.Is(err, pleg.ErrNoPod):
		writeError(w, http.StatusNotFound, err)
	case err != nil:
		writeError(w, http.StatusInternalServerError, err)
	default:
		writeJSON(w, http.StatusOK, pod)
	}
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

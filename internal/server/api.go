package server

import (
	_ "embed"
	"fmt"
	"net/http"

	"github.com/plegd/plegd/internal/selection"
	"github.com/plegd/plegd/internal/watch"
)

// maxKey is ample for the key of a pod, bytes.
const maxKey = 1024

// openAPI is the description of the API, written by hand.
//
//go:embed openapi.json
var openAPI []byte

// description answers with it.
func description(w http.ResponseWriter, _ *http.Request) {
	setHeaders(w.Header(), "application/json")
	_, _ = w.Write(openAPI)
}

// source is what to read from. Without one it answers why, and is nil.
func (s *Server) source(w http.ResponseWriter) Source {
	src, err := s.cfg.Source()
	if err != nil {
		writeError(w, http.StatusServiceUnavailable, err)
		return nil
	}
	return src
}

// status answers with what the generator says of itself.
func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	if src := s.source(w); src != nil {
		writeJSON(w, http.StatusOK, src.Status())
	}
}

// podList is the answer to /v1/pods, with the pods in pods. Reading events from the
// position on continues the list without gap or overlap.
type podList struct {
	Position string `json:"position"`
}

// pods answers with the pods that are selected, or why they are not known yet.
func (s *Server) pods(w http.ResponseWriter, r *http.Request) {
	chosen, err := selection.New(filterOf(paramsOf(r)))
	if err != nil {
		writeError(w, http.StatusBadRequest, badFilter(err))
		return
	}
	src := s.source(w)
	if src == nil {
		return
	}
	writePrepared(w, r, func(p *prepared) error {
		pods, at, err := watch.Pods(src, chosen)
		if err != nil {
			return err
		}
		return p.podsIn(podList{Position: at.String()}, pods)
	})
}

// pod answers with one pod, or why it is not known whether there is one.
func (s *Server) pod(w http.ResponseWriter, r *http.Request) {
	src := s.source(w)
	if src == nil {
		return
	}
	key := r.PathValue("key")
	if len(key) > maxKey {
		writeError(w, http.StatusBadRequest, fmt.Errorf("key %.80q: must be at most %d bytes long", key, maxKey))
		return
	}
	writePrepared(w, r, func(p *prepared) error {
		pod, err := watch.Pod(src, key)
		if err != nil {
			return err
		}
		return p.object(&pod)
	})
}

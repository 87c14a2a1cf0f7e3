package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/selection"
	"github.com/plegd/plegd/internal/watch"
)

var (
	errTooManyStreams  = fmt.Errorf("too many streams are open: at most %d are served at a time", maxStreams)
	errTooManyProfiles = fmt.Errorf("too many profiles are being taken: at most %d at a time", maxProfiles)
)

// problem is what every error is answered with, but those of health and
// metrics. The positions are there where the one that was asked for can't be
// read on from.
type problem struct {
	Error  string `json:"error"`
	Oldest string `json:"oldest,omitempty"`
	Newest string `json:"newest,omitempty"`
}

// newProblem turns an error into the answer and its code.
func newProblem(err error) (int, problem) {
	var expired *pleg.ExpiredError
	switch {
	case errors.As(err, &expired):
		return http.StatusGone, problem{Error: err.Error(), Oldest: expired.Oldest.String(), Newest: expired.Newest.String()}
	case errors.Is(err, watch.ErrRequest), errors.Is(err, selection.ErrFilter):
		return http.StatusBadRequest, problem{Error: err.Error()}
	case errors.Is(err, pleg.ErrNoPod):
		return http.StatusNotFound, problem{Error: err.Error()}
	case errors.Is(err, errUnsent), errors.Is(err, watch.ErrUnknown), errors.Is(err, pleg.ErrStopped), errors.Is(err, watch.ErrStopping):
		return http.StatusServiceUnavailable, problem{Error: err.Error()}
	}
	return http.StatusInternalServerError, problem{Error: err.Error()}
}

// writeProblem answers with an error and the code that fits.
func writeProblem(w http.ResponseWriter, err error) {
	code, p := newProblem(err)
	if errors.Is(err, errUnsent) {
		w.Header().Set("Retry-After", "10")
	}
	writeJSON(w, code, p)
}

// writeError answers with an error as JSON.
func writeError(w http.ResponseWriter, code int, err error) {
	writeJSON(w, code, problem{Error: err.Error()})
}

// writeJSON answers with a value as JSON. A client that is gone, or was cut,
// needs no answer.
func writeJSON(w http.ResponseWriter, code int, v any) {
	setHeaders(w.Header(), "application/json")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
}

// setHeaders sets those of every answer that is no page: nothing keeps it, and
// no browser takes it for something else, or shows it inside a foreign page.
func setHeaders(h http.Header, contentType string) {
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}

// jsonErrors gives the mux's own answers, to paths it doesn't know and methods
// it doesn't take, the form of all other errors. elsewhere says where
// else a path may be.
func jsonErrors(mux *http.ServeMux, elsewhere func(path string) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		asked := r.URL.EscapedPath()
		clean := strings.TrimSuffix(asked, "/") == strings.TrimSuffix(path.Clean(asked), "/") // else the mux redirects
		if pattern != "" && clean {
			mux.ServeHTTP(w, r)
			return
		}
		own := &ownAnswer{header: w.Header()}
		h.ServeHTTP(own, r) // sets Allow and says which error it is
		switch own.code {
		case http.StatusNotFound:
			writeError(w, own.code, fmt.Errorf("no such path: %.200s%s", r.URL.Path, elsewhere(r.URL.Path)))
		case http.StatusMethodNotAllowed:
			writeError(w, own.code, fmt.Errorf("method %.20s is not allowed: only %s", r.Method, w.Header().Get("Allow")))
		default: // a redirect to the cleaned path, whose text is HTML
			w.Header().Del("Content-Type")
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

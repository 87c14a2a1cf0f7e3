package server

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	httppprof "net/http/pprof"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	pleg "github.com/plegd/plegd"
)

// dump is all that the agent knows of itself, with the pods, and the errors of their
// last inspections, in pods. What needs a generator is absent until there is one.
type dump struct {
	At         time.Time    `json:"at"`
	LogLevel   string       `json:"log_level"`
	Error      string       `json:"error,omitempty"` // why there is no generator yet
	Health     pleg.Health  `json:"health"`
	Status     *pleg.Status `json:"status,omitempty"` // with the reinspection queue
	Position   string       `json:"position,omitempty"`
	Goroutines string       `json:"goroutines,omitempty"`
}

// dump answers with it, and with the stacks of all goroutines if asked for.
func (s *Server) dump(w http.ResponseWriter, r *http.Request) {
	stacks, err := boolParam(paramsOf(r), "goroutines", false)
	if err != nil {
		writeError(w, http.StatusBadRequest, err)
		return
	}
	writePrepared(w, r, func(p *prepared) error { return s.dumpInto(p, stacks) })
}

func (s *Server) dumpInto(p *prepared, stacks bool) error {
	d := dump{At: time.Now().UTC(), LogLevel: levelName(s.cfg.LogLevel.Level()), Health: s.cfg.Health()}
	var pods []pleg.Pod
	src, err := s.cfg.Source()
	if err != nil {
		d.Error = err.Error()
	} else {
		st := src.Status()
		all, at := src.Pods()
		d.Status, d.Position, pods = &st, at.String(), all
	}
	if stacks {
		var b bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&b, 2) // 2 is the form of a panic; writes to memory don't fail
		d.Goroutines = b.String()
	}
	if src == nil {
		return p.object(d)
	}
	return p.podsIn(d, pods)
}

// levels are what can be set.
var levels = []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}

func levelName(l slog.Level) string { return strings.ToLower(l.String()) }

// logLevel answers with the least level that is logged.
func (s *Server) logLevel(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"level": levelName(s.cfg.LogLevel.Level())})
}

// setLogLevel sets it to the word that is the body.
func (s *Server) setLogLevel(w http.ResponseWriter, r *http.Request) {
	const longest = 16 // bytes, and more than any of the words
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longest))
	word := strings.TrimSpace(string(body))
	for _, level := range levels {
		if err == nil && word == levelName(level) {
			old := s.cfg.LogLevel.Level()
			s.cfg.LogLevel.Set(level)
			s.cfg.Logger.Info("log level is set", "from", levelName(old), "to", word)
			s.logLevel(w, r)
			return
		}
	}
	writeError(w, http.StatusBadRequest, fmt.Errorf("log level %.20q: the body must be one of debug, info, warn, error", word))
}

// profile serves what go tool pprof asks for.
func profile(w http.ResponseWriter, r *http.Request) {
	most := maxProfile.Seconds()
	if v := r.URL.Query().Get("seconds"); v != "" {
		if seconds, err := strconv.ParseFloat(v, 64); err == nil && !(seconds > 0 && seconds <= most) { // of NaN too
			writeError(w, http.StatusBadRequest, &paramError{"seconds", v, fmt.Sprintf("must be above 0, and at most %v", most)})
			return
		}
	}
	switch strings.TrimPrefix(r.URL.Path, "/debug/pprof/") {
	case "cmdline":
		httppprof.Cmdline(w, r)
	case "profile":
		httppprof.Profile(w, r)
	case "symbol":
		httppprof.Symbol(w, r)
	case "trace":
		httppprof.Trace(w, r)
	default:
		httppprof.Index(w, r)
	}
}

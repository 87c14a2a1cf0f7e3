package server

import (
	"fmt"
	"net/http"
	"strings"

	pleg "github.com/plegd/plegd"
)

// livez answers whether the agent is alive. What the runtime does is no matter
// here: restarting the agent wouldn't help.
func (s *Server) livez(w http.ResponseWriter, r *http.Request) {
	h := s.cfg.Health()
	var checks []pleg.Check
	for _, c := range h.Checks {
		if c.Name == pleg.CheckArbiter {
			checks = append(checks, c)
		}
	}
	writeHealth(w, r, "livez", h.Live, checks)
}

// readyz answers whether what is served can be relied on.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	h := s.cfg.Health()
	writeHealth(w, r, "readyz", h.Ready, h.Checks)
}

// writeHealth writes "ok", or the checks when one of them fails or ?verbose is
// given, in the form of Kubernetes' own health endpoints.
func writeHealth(w http.ResponseWriter, r *http.Request, name string, ok bool, checks []pleg.Check) {
	setHeaders(w.Header(), "text/plain; charset=utf-8")
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if ok && !r.URL.Query().Has("verbose") {
		fmt.Fprint(w, "ok")
		return
	}
	var b strings.Builder
	for _, c := range checks {
		b.WriteString(checkLine(c))
	}
	verdict := "failed"
	if ok {
		verdict = "passed"
	}
	fmt.Fprintf(&b, "%s check %s\n", name, verdict)
	fmt.Fprint(w, b.String())
}

// checkLine is one check in a line. Degraded is what is wrong but leaves the
// answers good.
func checkLine(c pleg.Check) string {
	sign, word := "-", "failed"
	switch {
	case c.OK:
		sign, word = "+", "ok"
	case c.Ready:
		word = "degraded"
	}
	line := fmt.Sprintf("[%s]%s %s", sign, c.Name, word)
	if c.Reason != "" {
		line += ": " + strings.Join(strings.Fields(c.Reason), " ")
	}
	return line + "\n"
}

package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/selection"
	"github.com/plegd/plegd/internal/watch"
)

// paramError says which parameter is wrong, and what is allowed.
type paramError struct{ name, value, reason string }

// Error names the parameter, its value and what is allowed.
func (e *paramError) Error() string {
	return fmt.Sprintf("parameter %.80s %.80q: %s", e.name, e.value, e.reason)
}

// repeatable are the parameters whose values are alternatives.
var repeatable = []string{"namespace", "pod", "uid", "container", "type", "source"}

type paramsKey struct{}

// checkParams refuses what a route doesn't take, which would have no effect,
// and leaves the rest to paramsOf. A nil list takes everything.
func checkParams(allowed []string, h http.Handler) http.Handler {
	if allowed == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			writeError(w, http.StatusBadRequest, fmt.Errorf("query %.80q: %w", r.URL.RawQuery, err))
			return
		}
		if err := checkNames(values, allowed); err != nil {
			writeError(w, http.StatusBadRequest, err)
			return
		}
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), paramsKey{}, values)))
	})
}

// paramsOf returns the parameters of a request that passed checkParams.
func paramsOf(r *http.Request) url.Values {
	values, _ := r.Context().Value(paramsKey{}).(url.Values)
	return values
}

func checkNames(values url.Values, allowed []string) error {
	for name, given := range values {
		switch {
		case len(allowed) == 0:
			return &paramError{name, given[0], "this path takes no parameters"}
		case !slices.Contains(allowed, name):
			return &paramError{name, given[0], "no such parameter; allowed are " + strings.Join(allowed, ", ")}
		case name == "selector" && given[0] == "": // elsewhere that is none
			return &paramError{name, given[0], "must not be empty"}
		case len(given) > 1 && !slices.Contains(repeatable, name):
			return &paramError{name, given[1], "may be given once"}
		}
	}
	return nil
}

// filterOf reads the parameters that choose.
func filterOf(p url.Values) selection.Filter {
	return selection.Filter{
		Namespaces: p["namespace"], Pods: p["pod"], UIDs: p["uid"], Containers: p["container"],
		Labels: p.Get("selector"), Types: p["type"], Sources: p["source"],
	}
}

// badFilter names the parameter of a filter that is wrong.
func badFilter(err error) error {
	var key *selection.KeyError
	if !errors.As(err, &key) {
		return err
	}
	return &paramError{key.Key, key.Value, key.Reason}
}

// eventRequest is what is asked of /v1/events.
type eventRequest struct {
	watch watch.Request
	limit int // events; 0 for all
}

// newEventRequest reads the parameters of /v1/events, and the header with which
// a browser goes on where a stream broke off: it repeats the first request, so
// where that began doesn't count then.
func newEventRequest(r *http.Request, now time.Time) (eventRequest, error) {
	p := paramsOf(r)
	req := eventRequest{}
	var err error
	if req.watch.Selection, err = selection.New(filterOf(p)); err != nil {
		return req, badFilter(err)
	}
	if req.watch.Snapshot, err = boolParam(p, "snapshot", false); err != nil {
		return req, err
	}
	follow, err := boolParam(p, "follow", true)
	if err != nil {
		return req, err
	}
	req.watch.Once = !follow
	if err := req.readSince(p, now); err != nil {
		return req, err
	}
	if v := p.Get("keepalive"); p.Has("keepalive") {
		d, err := time.ParseDuration(v)
		if err != nil || d < watch.KeepaliveMin || d > watch.KeepaliveMax {
			return req, &paramError{"keepalive", v, fmt.Sprintf("must be a duration from %v to %v, such as 30s", watch.KeepaliveMin, watch.KeepaliveMax)}
		}
		req.watch.Keepalive = d
	}
	if v := p.Get("limit"); p.Has("limit") {
		if req.limit, err = strconv.Atoi(v); err != nil || req.limit <= 0 {
			return req, &paramError{"limit", v, "must be a whole number above 0"}
		}
	}
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		at, err := pleg.ParsePosition(id)
		if err != nil {
			return req, fmt.Errorf("header Last-Event-ID %.80q: must be a position, EPOCH/SEQ", id)
		}
		req.watch.Position, req.watch.Time, req.watch.Snapshot = &at, time.Time{}, false
	}
	return req, nil
}

// readSince reads where to begin: a position, a time, or how long ago.
func (req *eventRequest) readSince(p url.Values, now time.Time) error {
	if !p.Has("since") {
		return nil
	}
	v := p.Get("since")
	bad := func(reason string) error { return &paramError{"since", v, reason} }
	if req.watch.Snapshot {
		return bad("not with snapshot=true: the events that follow a snapshot begin where it ends")
	}
	if strings.Contains(v, "/") {
		at, err := pleg.ParsePosition(v)
		if err != nil {
			return bad("must be EPOCH/SEQ, as events have it: 16 lower-case hex digits, a slash and a number")
		}
		req.watch.Position = &at
		return nil
	}
	if d, err := time.ParseDuration(v); err == nil {
		if d <= 0 {
			return bad("must be a positive duration, such as 10m")
		}
		req.watch.Time = now.Add(-d)
		return nil
	}
	// A plus sign that was not escaped, as in 12:00:00+02:00, arrives as a space.
	at, err := time.Parse(time.RFC3339Nano, strings.ReplaceAll(v, " ", "+"))
	switch {
	case err != nil:
		return bad("must be a position EPOCH/SEQ, a time in RFC 3339, or a duration such as 10m")
	case at.After(now):
		return bad("must not be in the future")
	case at.Unix() < 0:
		return bad("must not be before 1970")
	}
	req.watch.Time = at
	return nil
}

func boolParam(p url.Values, name string, otherwise bool) (bool, error) {
	if !p.Has(name) {
		return otherwise, nil
	}
	switch v := p.Get(name); v {
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, &paramError{name, v, "must be true or false"}
	}
}

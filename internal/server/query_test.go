package server

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	pleg "github.com/plegd/plegd"
)

// Every mistake in a query is named, with its value and what is allowed.
func TestBadQueries(t *testing.T) {
	gen, _ := generate(t)
	s := serve(t, of(gen))
	tomorrow := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	long := strings.Repeat("x", 1025)
	for _, tc := range []struct {
		path string
		want []string // parts of the message
	}{
		{"/v1/status?verbose", []string{"parameter verbose", "takes no parameters"}},
		{"/v1/pods/u1?full=true", []string{"parameter full", `"true"`, "takes no parameters"}},
		{"/v1/pods?type=ContainerDied", []string{"parameter type", `"ContainerDied"`, "allowed are namespace, pod, uid, container, selector"}},
		{"/v1/pods?namespace=", []string{"parameter namespace", `""`, "must not be empty"}},
		{"/v1/pods?selector=", []string{"parameter selector", `""`, "must not be empty"}},
		{"/v1/events?selector", []string{"parameter selector", `""`, "must not be empty"}},
		{"/v1/pods?selector=a+in", []string{"parameter selector", `"a in"`}},
		{"/v1/pods?selector=a&selector=b", []string{"parameter selector", `"b"`, "once"}},
		{"/v1/pods?pod=" + long, []string{"parameter pod", "at most 1024 bytes"}},
		{"/v1/pods?pod=%zz", []string{"query", "%zz"}},
		{"/v1/pods?pod=a;uid=b", []string{"query", "semicolon"}},
		{"/v1/events?nmaespace=x", []string{"parameter nmaespace", "no such parameter", "namespace, pod"}},
		{"/v1/events?type=Exploded", []string{"parameter type", `"Exploded"`, "must be one of SandboxCreated"}},
		{"/v1/events?source=guess", []string{"parameter source", `"guess"`, "stream, relist, inspect"}},
		{"/v1/events?follow=1", []string{"parameter follow", `"1"`, "true or false"}},
		{"/v1/events?snapshot", []string{"parameter snapshot", `""`, "true or false"}},
		{"/v1/events?follow=true&follow=false", []string{"parameter follow", "once"}},
		{"/v1/events?keepalive=10ms", []string{"parameter keepalive", `"10ms"`, "from 1s to 1h"}},
		{"/v1/events?keepalive=2h", []string{"parameter keepalive", "from 1s to 1h"}},
		{"/v1/events?keepalive=soon", []string{"parameter keepalive", `"soon"`}},
		{"/v1/events?limit=0", []string{"parameter limit", `"0"`, "above 0"}},
		{"/v1/events?limit=-1", []string{"parameter limit", `"-1"`, "above 0"}},
		{"/v1/events?limit=99999999999999999999", []string{"parameter limit", "above 0"}},
		{"/v1/events?since=", []string{"parameter since", `""`, "EPOCH/SEQ", "RFC 3339", "10m"}},
		{"/v1/events?since=yesterday", []string{"parameter since", `"yesterday"`, "RFC 3339"}},
		{"/v1/events?since=-10m", []string{"parameter since", `"-10m"`, "positive"}},
		{"/v1/events?since=9F3C5A7E01B2D4C6/1", []string{"parameter since", "lower-case"}},
		{"/v1/events?since=0000000000000000/1", []string{"parameter since"}},
		{"/v1/events?since=9f3c5a7e01b2d4c6/9007199254740992", []string{"parameter since"}},
		{"/v1/events?since=" + tomorrow, []string{"parameter since", "future"}},
		{"/v1/events?since=0001-01-01T00:00:00Z", []string{"parameter since", "before 1970"}},
		{"/v1/events?since=1h&snapshot=true", []string{"parameter since", "snapshot"}},
		{"/debug/dump?goroutines=yes", []string{"parameter goroutines", `"yes"`, "true or false"}},
		{"/debug/loglevel?level=debug", []string{"parameter level", "takes no parameters"}},
		{"/openapi.json?x=y", []string{"parameter x", "takes no parameters"}},
	} {
		got := s.ask(t, "GET", tc.path, true)
		var p problem
		if err := json.Unmarshal([]byte(got.body), &p); err != nil || got.code != http.StatusBadRequest || len(p.Error) > 600 {
			t.Errorf("%.80s: %d %s", tc.path, got.code, got.body)
			continue
		}
		for _, part := range tc.want {
			if !strings.Contains(p.Error, part) {
				t.Errorf("%.80s: %q is not in %q", tc.path, part, p.Error)
			}
		}
	}
	bad := s.open(t, "/v1/events", "Last-Event-ID", "42")
	if line := bad.line(); bad.resp.StatusCode != http.StatusBadRequest || !strings.Contains(line, `header Last-Event-ID \"42\": must be a position`) {
		t.Errorf("bad Last-Event-ID: %d %s", bad.resp.StatusCode, line)
	}
}

// FuzzEventQuery: whatever is asked is understood or refused with 400, and never
// begins both at a position and at a time.
func FuzzEventQuery(f *testing.F) {
	for _, seed := range []string{"", "since=10m", "since=9f3c5a7e01b2d4c6/1&limit=3", "snapshot=true&follow=false", "since=2026-01-02T03:04:05+02:00", "selector=a%20in%20(b)", "type=x&keepalive=1s"} {
		f.Add(seed, "9f3c5a7e01b2d4c6/1")
	}
	f.Fuzz(func(t *testing.T, query, id string) {
		values, err := url.ParseQuery(query)
		if err != nil || checkNames(values, eventParams) != nil {
			return
		}
		r := &http.Request{URL: &url.URL{RawQuery: query}, Header: http.Header{"Last-Event-Id": {id}}}
		seen := false
		checkParams(eventParams, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			seen = true
			req, err := newEventRequest(r, time.Unix(1_700_000_000, 0))
			if err != nil {
				if err.Error() == "" {
					t.Error("an error without a word")
				}
				return
			}
			begins := 0
			for _, is := range []bool{req.watch.Position != nil, !req.watch.Time.IsZero(), req.watch.Snapshot} {
				if is {
					begins++
				}
			}
			if begins > 1 || req.limit < 0 {
				t.Errorf("%+v", req)
			}
		})).ServeHTTP(nil, r)
		if !seen {
			t.Error("what is allowed was refused")
		}
	})
}

// /v1/pods takes the filters that say something of pods.
func TestPodFilters(t *testing.T) {
	s := serve(t, nil)
	for query, want := range map[string]int{
		"namespace=default": 1, "namespace=other": 0, "namespace=other&namespace=default": 1, "pod=web": 1, "pod=web&namespace=other": 0,
		"uid=u1": 1, "container=nginx": 0, "selector=a": 1, "selector=!a": 0,
	} {
		got := s.ask(t, "GET", "/v1/pods?"+query, true)
		var list struct {
			podList
			Pods []pleg.Pod
		}
		if err := json.Unmarshal([]byte(got.body), &list); err != nil || got.code != 200 || len(list.Pods) != want || list.Position == "" {
			t.Errorf("%s: %d %s, want %d pods", query, got.code, got.body, want)
		}
	}
}

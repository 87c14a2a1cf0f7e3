package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/simruntime"
)

// describe loads the description, which must be valid.
func describe(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openAPI)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return doc
}

// The description has the paths, methods and parameters that are served, and no
// others.
func TestDescriptionIsOfWhatIsServed(t *testing.T) {
	doc := describe(t)
	described := map[string][]string{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			params := []string{}
			for _, p := range op.Parameters {
				if p.Value.In == openapi3.ParameterInQuery {
					params = append(params, p.Value.Name)
				}
			}
			described[method+" "+path] = params
		}
	}
	served := map[string][]string{}
	for _, r := range (&Server{cfg: Config{Metrics: http.NotFoundHandler()}}).routes() {
		if !r.plain {
			served[r.pattern] = slices.Clone(r.params)
		}
	}
	// These two take whatever they are sent, and look at one parameter.
	served["GET /livez"], served["GET /readyz"] = []string{"verbose"}, []string{"verbose"}
	served["GET /metrics"] = []string{}
	for _, lists := range []map[string][]string{described, served} {
		for _, list := range lists {
			slices.Sort(list)
		}
	}
	if diff := cmp.Diff(served, described); diff != "" {
		t.Errorf("(-served +described):\n%s", diff)
	}
}

// The values that parameters may have are described as they are taken.
func TestDescriptionOfParameters(t *testing.T) {
	doc := describe(t)
	gen, _ := generate(t)
	s := serve(t, of(gen))
	for _, p := range doc.Paths.Find("/v1/events").Get.Parameters {
		schema := p.Value.Schema.Value
		if schema.Items != nil {
			schema = schema.Items.Value
		}
		for _, value := range schema.Enum {
			if got := s.ask(t, "GET", fmt.Sprintf("/v1/events?follow=false&%s=%s", p.Value.Name, value), true); got.code != 200 {
				t.Errorf("%s=%s is described, and refused: %s", p.Value.Name, value, got.body)
			}
		}
	}
}

// closed makes the objects of a description refuse fields that it doesn't name:
// whoever reads it may rely on nothing else being there.
func closed(doc *openapi3.T) {
	seen := map[*openapi3.Schema]bool{}
	var walk func(ref *openapi3.SchemaRef)
	walk = func(ref *openapi3.SchemaRef) {
		if ref == nil || seen[ref.Value] {
			return
		}
		s := ref.Value
		seen[s] = true
		if len(s.Properties) > 0 {
			no := false
			s.AdditionalProperties = openapi3.AdditionalProperties{Has: &no}
		}
		for _, p := range s.Properties {
			walk(p)
		}
		walk(s.Items)
	}
	for _, s := range doc.Components.Schemas {
		walk(s)
	}
}

// What is really answered is as it is described: pods in all states, lines of all
// kinds, statuses and errors.
func TestAnswersAreAsDescribed(t *testing.T) {
	doc := describe(t)
	closed(doc)
	gen, rt := generate(t)
	s := serve(t, of(gen))
	begin := gen.Position()
	play(t, rt)
	if _, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: "bare", BareLabels: true}); err != nil {
		t.Fatal(err)
	}
	history(t, gen, begin, 300)

	check := func(schema, what, text string) {
		t.Helper()
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatalf("%s: %v in %s", what, err, text)
		}
		if err := doc.Components.Schemas[schema].Value.VisitJSON(value, openapi3.MultiErrors()); err != nil {
			t.Errorf("%s: %v\n%.600s", what, err, text)
		}
	}
	for path, want := range map[string]struct {
		code   int
		schema string
	}{
		"/v1/status": {200, "Status"}, "/v1/pods": {200, "PodList"}, "/debug/dump?goroutines=true": {200, "Dump"}, "/debug/loglevel": {200, "LogLevel"},
		"/v1/pods/nobody": {404, "Error"}, "/v1/pods?x=y": {400, "Error"}, "/v1/events?since=0123456789abcdef/1": {410, "Error"}, "/v2": {404, "Error"},
	} {
		got := s.ask(t, "GET", path, true)
		if got.code != want.code {
			t.Errorf("%s: %d", path, got.code)
		}
		check(want.schema, path, got.body)
	}
	types := map[string]bool{}
	for _, line := range s.open(t, "/v1/events?follow=false&since="+begin.String()).rest() {
		check("Line", "a line", line)
		types[typeOf(t, line)] = true
	}
	for _, line := range s.open(t, "/v1/events?follow=false&snapshot=true").rest() {
		check("Line", "a line", line)
		types[typeOf(t, line)] = true
	}
	if len(types) < 8 || !types[linePod] || !types[lineBookmark] || !types["ContainerDied"] {
		t.Errorf("lines are only of %v", slices.Sorted(maps.Keys(types)))
	}
	r := s.open(t, "/v1/events")
	r.line()
	s.stop()
	check("Line", "the last line", r.line())
}

func typeOf(t *testing.T, line string) string {
	t.Helper()
	var of struct{ Type string }
	if err := json.Unmarshal([]byte(line), &of); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return of.Type
}

// The description answers with itself.
func TestDescriptionIsServed(t *testing.T) {
	s := serve(t, nil)
	got := s.ask(t, "GET", "/openapi.json", true)
	if got.code != 200 || got.body != string(openAPI) || !strings.HasPrefix(got.header.Get("Content-Type"), "application/json") {
		t.Errorf("%d %v %.100s", got.code, got.header, got.body)
	}
}

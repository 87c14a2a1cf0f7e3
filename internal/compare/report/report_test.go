package report_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/internal/compare/report"
	"github.com/plegd/plegd/internal/compare/report/reporttest"
	"github.com/plegd/plegd/store"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func TestTextIsGolden(t *testing.T) {
	r := reporttest.Report()
	var b bytes.Buffer
	if err := report.Text(&b, r); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "report.txt")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The JSON form holds all of the report.
func TestJSONIsWhole(t *testing.T) {
	r := reporttest.Report()
	var b bytes.Buffer
	if err := report.JSON(&b, r); err != nil {
		t.Fatal(err)
	}
	var got compare.Report
	dec := json.NewDecoder(&b)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r, &got); diff != "" {
		t.Error(diff)
	}
}

// The page loads nothing, and what pods are called is never markup.
func TestHTMLLoadsNothingAndEscapes(t *testing.T) {
	page, err := report.HTML(reporttest.Report())
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, bad := range []string{"<script>alert", "<img", "http://", "https://", "src=", "@import", "url(http", "</script><"} {
		if strings.Contains(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", ""), bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, good := range []string{"default-src 'none'", "&lt;script&gt;alert", "missed", "Verdict"} {
		if !strings.Contains(text, good) {
			t.Errorf("the page lacks %q", good)
		}
	}
}

// A page of a report without anything is a page too.
func TestHTMLOfNothing(t *testing.T) {
	r := compare.Judge(compare.Input{From: 1, To: 2, Late: time.Second})
	page, err := report.HTML(r)
	if err != nil || !strings.Contains(string(page), "Nothing happened on the runtime") {
		t.Errorf("%v", err)
	}
	var b bytes.Buffer
	if err := report.Text(&b, r); err != nil || !strings.Contains(b.String(), "0 transitions") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// Names are the runtime's, and a terminal takes control characters for commands.
func TestTextIsHarmless(t *testing.T) {
	r := reporttest.Report()
	r.Transitions[r.Modes[0].Findings[0].Transition].Pod.Name = "x\x1b[2Jy" + strings.Repeat("z", 11_000)
	var b bytes.Buffer
	if err := report.Text(&b, r); err != nil || strings.Contains(b.String(), "\x1b") || !strings.Contains(b.String(), "x\uFFFD[2Jy") || strings.Contains(b.String(), strings.Repeat("z", 1000)) {
		t.Errorf("%v\n%q", err, b.String())
	}
}

// A page has so many transitions at most, those that were not told well first.
func TestPageIsBounded(t *testing.T) {
	r := &compare.Report{Counts: map[store.EventType]int{store.ContainerCreated: 7000}, Late: time.Second, From: 1, To: 2}
	for i := range 7000 {
		r.Transitions = append(r.Transitions, compare.Transition{Type: store.ContainerCreated, ID: fmt.Sprintf("id-%d-", i), At: int64(i), Told: []int64{int64(i)}})
	}
	r.Modes = []compare.ModeReport{{Mode: compare.Mode{Name: "evented"}, Findings: []compare.Finding{{Fault: compare.Late, Type: store.ContainerCreated, Transition: 6999, What: "x"}}}}
	page, err := report.HTML(r)
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for id, want := range map[string]bool{"id-0-": true, "id-4998-": true, "id-4999-": false, "id-6999-": true} {
		if strings.Contains(text, `"`+id+`"`) != want {
			t.Errorf("the page has %s: %v", id, !want)
		}
	}
	if !strings.Contains(text, `"left":2000`) || len(text) > 4<<20 {
		t.Errorf("a page of %d bytes", len(text))
	}
}

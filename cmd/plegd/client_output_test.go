package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// A place in the journal is a position, a time, or so long before now.
func TestWhen(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]string{
		"10m":                       "2026-01-02T02:54:05Z",
		"0s":                        "2026-01-02T03:04:05Z",
		"2026-01-01T00:00:00Z":      "2026-01-01T00:00:00Z",
		"2026-01-01T00:00:00+01:00": "2025-12-31T23:00:00Z",
		"2026-01-01T00:00:00.5Z":    "2026-01-01T00:00:00.5Z",
		"2000000h":                  "1970-01-01T00:00:00.000000001Z", // before all events
		"1969-01-01T00:00:00Z":      "1970-01-01T00:00:00.000000001Z",
		"9f010203040506ab/42":       "9f010203040506ab/42",
	} {
		var w when
		v := whenValue{&w, func() time.Time { return now }}
		if err := v.Set(text); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := w.at.UTC().Format(time.RFC3339Nano)
		if w.position != nil {
			got = w.position.String()
		}
		if got != want || !w.set() || v.String() != text {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "now", "-1s", "2026-01-01", "42", "/", "9f010203040506ab/", "9f010203040506ab/042"} {
		var w when
		if err := (whenValue{&w, time.Now}).Set(text); err == nil || w.set() {
			t.Errorf("%q is taken", text)
		}
	}
}

// What is made harmless means the same, in JSON and in YAML.
func TestHarmless(t *testing.T) {
	for _, text := range []string{"plain", "ü€\U0001f600\u2028", "\x00\x1b[31m\x7f\u0080\u009b31m\u009f\u00a0\ufffe\uffff\ufffd"} {
		raw, err := marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		safe := harmless(raw)
		if strings.ContainsFunc(string(safe), func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
			t.Errorf("%q has control characters", safe)
		}
		doc, err := yaml.JSONToYAML(safe)
		if err != nil {
			t.Fatalf("%q: %v", safe, err)
		}
		var fromJSON, fromYAML string
		if err := json.Unmarshal(safe, &fromJSON); err != nil || fromJSON != text {
			t.Errorf("%q is read as %q, %v", safe, fromJSON, err)
		}
		if err := yaml.Unmarshal(doc, &fromYAML); err != nil || fromYAML != text {
			t.Errorf("%q is read as %q, %v", doc, fromYAML, err)
		}
	}
}

// A table that goes on keeps its columns, and writes its header once.
func TestTable(t *testing.T) {
	tab := &table{header: []string{"A", "B"}}
	var b strings.Builder
	write := func(rows ...[]cell) {
		t.Helper()
		for _, row := range rows {
			tab.add(row...)
		}
		if err := tab.write(&b); err != nil {
			t.Fatal(err)
		}
	}
	write()
	write([]cell{field("längst"), field("")}, []cell{field("x"), field("yy")})
	write([]cell{field("z"), field("y")})
	write([]cell{field("much longer"), field("y")})
	write([]cell{field("z"), field("y")})
	want := "A       B\nlängst  -\nx       yy\nz       y\nmuch longer  y\nz            y\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", &b, want)
	}
}

// Numbers in templates are as they were written, however large.
func TestTemplateNumbers(t *testing.T) {
	var f form
	f.allowed = []string{formTemplate}
	if err := f.Set("go-template={{.n}} {{.missing}}"); err != nil {
		t.Fatal(err)
	}
	got, err := f.execute([]byte(`{"n":9007199254740991}`), false)
	if err != nil || string(got) != "9007199254740991 <no value>\n" {
		t.Errorf("%q, %v", got, err)
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// noList is what a runtime says that can't list.
const noList = "the disk is on fire"

// decoded reads JSON into what cmp compares.
func decoded(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// httpJSON asks the agent's HTTP API.
func (d agentDir) httpJSON(t *testing.T, path string) any {
	t.Helper()
	code, body, err := d.get(path)
	if err != nil || code != 200 {
		t.Fatalf("%s: %d, %v", path, code, err)
	}
	return decoded(t, body)
}

// Pods are told as over HTTP.
func TestPodsAreThoseOfHTTP(t *testing.T) {
	t.Parallel()
	dir, rt, _ := told(t)
	stays := newPod(t, rt, "stays")
	id, err := rt.CreateContainer(stays, simruntime.ContainerSpec{Name: "app", Attempt: 2})
	if err == nil {
		err = rt.StartContainer(id)
	}
	if err == nil {
		err = rt.ExitContainer(id, 7, "Error")
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the exit is known", func() bool {
		_, out, _ := dir.ask("pod", "uid-stays")
		return strings.Contains(out, "7 Error")
	})
	// Positions go on, so both are asked until nothing came between.
	same := func(path string, args ...string) {
		diff := ""
		for deadline := time.Now().Add(patience / 6); time.Now().Before(deadline); {
			if diff = cmp.Diff(dir.httpJSON(t, path), decoded(t, dir.mustAsk(t, append(args, "-o", "json")...))); diff == "" {
				return
			}
		}
		t.Errorf("HTTP (-), command (+): %s", diff)
	}
	same("/v1/pods", "pods")
	same("/v1/pods/uid-stays", "pod", "default/stays")
	if got := dir.mustAsk(t, "pods", "-o", "name"); got != "default/db\ndefault/stays\ndefault/web\nshop/api\n" {
		t.Errorf("names %q", got)
	}
	if got := dir.mustAsk(t, "pods", "-o", "name", "-l", "app=api"); got != "shop/api\n" {
		t.Errorf("names %q", got)
	}
	if got := dir.mustAsk(t, "pods", "--container", "app", "-o", "go-template={{range .pods}}{{.key}} {{.position}};{{end}}"); !regexp.MustCompile(`^uid-stays [0-9a-f]{16}/\d+;\n$`).MatchString(got) {
		t.Errorf("template: %q", got)
	}
	if got := dir.mustAsk(t, "pod", "uid-stays", "-o", "yaml"); !strings.Contains(got, "\nkey: uid-stays\n") || !strings.Contains(got, "  exit_code: 7\n") {
		t.Errorf("%s", got)
	}
	if code, out, stderr := dir.ask("events", "-n", "nowhere"); code != exitOK || out != "" || stderr != "plegd: no events\n" {
		t.Errorf("events: code %d, %q, %q", code, out, stderr)
	}
	if code, out, stderr := dir.ask("events", "-n", "nowhere", "-o", "json"); code != exitOK || out+stderr != "" {
		t.Errorf("events as JSON: code %d, %q, %q", code, out, stderr)
	}
	if code, out, stderr := dir.ask("pods", "-n", "nowhere"); code != exitOK || out != "" || stderr != "plegd: no pods\n" {
		t.Errorf("code %d, %q, %q", code, out, stderr)
	}
	for _, name := range []string{"uid-nobody", "default/nobody", "sandbox:nobody"} {
		for _, newer := range []string{"--newer=false", "--newer"} {
			code, out, stderr := dir.ask("pod", name, newer)
			if code != exitFailure || out != "" || !strings.HasPrefix(stderr, fmt.Sprintf("plegd: pod %q: no such pod", name)) ||
				strings.Contains(stderr, "by its name a pod is NAMESPACE/NAME") == strings.Contains(name, "/") {
				t.Errorf("code %d, %q, %q", code, out, stderr)
			}
		}
	}
}

// --newer has the runtime asked: what no event told is there then.
func TestPodNewer(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	c := start(t, dir.args(endpoint, "--mode", "generic", "--relist-period", "1h", "--output", "none")...)
	dir.awaitReady(t)
	web := newPod(t, rt, "web")
	if code, _, _ := dir.ask("pod", "default/web"); code != exitFailure {
		t.Errorf("code %d for a pod that was not listed yet", code)
	}
	if got := dir.mustAsk(t, "pod", "default/web", "--newer"); !strings.Contains(got, "state       ready\n") {
		t.Errorf("%s", got)
	}
	if err := rt.StopPodSandbox(web); err != nil {
		t.Fatal(err)
	}
	if got := dir.mustAsk(t, "pod", "uid-web"); !strings.Contains(got, "state       ready\n") {
		t.Errorf("%s", got)
	}
	if got := dir.mustAsk(t, "pod", "uid-web", "--newer"); !strings.Contains(got, "state       notready\n") {
		t.Errorf("%s", got)
	}

	// A runtime that hangs is not waited for longer than --timeout.
	if _, err := rt.AddRule(simruntime.Rule{Hang: true}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"pod", "uid-web", "--newer"}, {"relist"}} {
		code, out, stderr := dir.ask(append(args, "--timeout", "200ms")...)
		if code != exitTimeout || out != "" || stderr != "plegd: plegd at "+dir.socket()+" has not answered after 200ms: --timeout has passed\n" {
			t.Errorf("%q: code %d, %q, %q", args, code, out, stderr)
		}
	}
	c.terminate()
}

// A relist says what it found that nobody had told.
func TestRelist(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	c := start(t, dir.args(endpoint, "--mode", "generic", "--relist-period", "1h", "--output", "none")...)
	dir.awaitReady(t)
	if got := dir.mustAsk(t, "relist"); !regexp.MustCompile(`^relist took [\d.]+m?s and found nothing new\n$`).MatchString(got) {
		t.Errorf("%q", got)
	}
	newPod(t, rt, "web")
	got := strings.Split(dir.mustAsk(t, "relist"), "\n")
	if len(got) < 3 || !strings.HasPrefix(got[0], "POSITION ") || !strings.Contains(got[1], "SandboxCreated    default/web") ||
		!regexp.MustCompile(`^relist took [\d.]+m?s and found \d events?$`).MatchString(got[len(got)-2]) {
		t.Errorf("%q", got)
	}
	newPod(t, rt, "db")
	var result relistResult
	if err := json.Unmarshal([]byte(dir.mustAsk(t, "relist", "-o", "json")), &result); err != nil {
		t.Fatal(err)
	}
	// What had to be inspected after the list before may be told only now.
	ofDB := func(ev json.RawMessage) bool { return strings.Contains(string(ev), `"name": "db"`) }
	if !slices.ContainsFunc(result.Events, ofDB) || !strings.Contains(result.Position, "/") || result.Seconds <= 0 {
		t.Errorf("%+v", result)
	}
	// A list that fails is said to.
	if _, err := rt.AddRule(simruntime.Rule{Code: codes.Internal, Message: noList}); err != nil {
		t.Fatal(err)
	}
	code, out, stderr := dir.ask("relist")
	if code != exitUnavailable || out != "" || !strings.Contains(stderr, noList) {
		t.Errorf("code %d, %q, %q", code, out, stderr)
	}
	c.terminate()
}

// The status says what HTTP says, in the fields that both have.
func TestStatusIsThatOfHTTP(t *testing.T) {
	t.Parallel()
	dir, rt, _ := told(t)
	var within func(path string, part, whole any) string
	within = func(path string, part, whole any) string {
		p, ok := part.(map[string]any)
		w, ok2 := whole.(map[string]any)
		if !ok || !ok2 {
			return cmp.Diff(whole, part)
		}
		for key, v := range p {
			if key == "journal" {
				delete(v.(map[string]any), "epoch") // HTTP has it in the positions only
			}
			if key == "conditions" {
				continue // compared by name below
			}
			if _, there := w[key]; !there {
				return path + "." + key + " is of the command alone"
			}
			if diff := within(path+"."+key, v, w[key]); diff != "" {
				return path + "." + key + ": " + diff
			}
		}
		return ""
	}
	diff := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if diff = within("", decoded(t, dir.mustAsk(t, "status", "-o", "json")), dir.httpJSON(t, "/v1/status")); diff == "" {
			break // nothing happened between the two
		}
	}
	if diff != "" {
		t.Errorf("HTTP (-), command (+): %s", diff)
	}
	got := dir.mustAsk(t, "status")
	if !regexp.MustCompile(`(?s)^health         ready\nnode           n1, mode hybrid\nruntime        containerd v2.4.2 at /.*\nstream         up for .*, \d+ events, 0 lost.*\nrelist         every .*\ninspections    0 waiting.*\nqueue          0 events\nepoch          [0-9a-f]{16}\njournal        \d+ events, \d+ bytes, positions [0-9a-f]{16}/0 to [0-9a-f]{16}/\d+\n$`).MatchString(got) {
		t.Errorf("%s", got)
	}
	// What is wrong is said, with the reason.
	if _, err := rt.AddRule(simruntime.Rule{Code: codes.Internal, Message: noList}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "trouble is told", func() bool {
		got = dir.mustAsk(t, "status")
		return strings.Contains(got, "health         ready, but something is wrong\n               relist_failing: ") && strings.Contains(got, noList)
	})
	eventually(t, "trouble is told", func() bool {
		return strings.Contains(dir.mustAsk(t, "status", "-o", "go-template={{range .health.conditions}}{{.name}} {{end}}"), "relist_failing")
	})
}

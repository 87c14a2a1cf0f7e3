package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/selection"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/internal/unixsock"
)

// Every mistake on the command line of a client gives one line that names what
// was given and what is allowed, and code 2, without an agent being asked.
func TestClientBadUsage(t *testing.T) {
	long := "/" + strings.Repeat("x", unixsock.MaxPath)
	const at = "9f010203040506ab/42"
	for _, tc := range []struct {
		args string
		want []string // parts of the line
	}{
		{"events extra", []string{`plegd events takes no arguments, but got "extra"`}},
		{"pods extra", []string{`plegd pods takes no arguments, but got "extra"`}},
		{"status extra", []string{`plegd status takes no arguments, but got "extra"`}},
		{"relist extra", []string{`plegd relist takes no arguments, but got "extra"`}},
		{"top extra", []string{`plegd top takes no arguments, but got "extra"`}},
		{"pod", []string{"plegd pod takes one argument, KEY|NAMESPACE/NAME", "see plegd pod --help"}},
		{"pod a b", []string{`plegd pod takes one argument, but got "b" too`}},
		{"pod a/b/c", []string{`pod "a/b/c"`, "must be a key", "NAMESPACE/NAME"}},
		{"pod /b", []string{`pod "/b"`, "NAMESPACE/NAME"}},
		{"wait frobnicate", []string{`"frobnicate"`, "plegd wait"}},
		{"wait pod --for=ready", []string{"plegd wait pod takes one argument, KEY|NAMESPACE/NAME"}},
		{"wait pod a/b", []string{"--for is required", "ready, notready, removed, created"}},
		{"wait pod a/b --for=running", []string{"--for", `"running"`, "ready, notready, removed, created"}},
		{"wait pod a/ --for=ready", []string{`pod "a/"`, "KEY|NAMESPACE/NAME"}},
		{"wait container a/b/c", []string{"--for is required", "running, exited, removed"}},
		{"wait container a/b/c --for=ready", []string{"--for", `"ready"`, "running, exited, removed"}},
		{"wait container c --for=exited", []string{`container "c"`, "KEY/NAME|NAMESPACE/POD/NAME"}},
		{"wait container a/b/c/d --for=exited", []string{`container "a/b/c/d"`, "KEY/NAME|NAMESPACE/POD/NAME"}},
		{"wait container a/b/ --for=exited", []string{`container "a/b/"`, "KEY/NAME|NAMESPACE/POD/NAME"}},
		{"wait pod a/b --for=ready --timeout 0s", []string{"--timeout", `"0s"`, "positive duration"}},
		{"status --timeout soon", []string{"--timeout", `"soon"`, "positive duration"}},
		{"status --socket tcp://127.0.0.1:1", []string{"--socket", "tcp://127.0.0.1:1", "unix:///path"}},
		{"status --socket=", []string{`--socket ""`, "unix:///path"}},
		{"status --socket " + long, []string{"--socket", "108 bytes", "107"}},
		{"status --color sometimes", []string{"--color", `"sometimes"`, "auto, always, never"}},
		{"status -o wide", []string{"--output", `"wide"`, "table, json, yaml, go-template=TEMPLATE"}},
		{"pods -o cloudevents", []string{"--output", `"cloudevents"`, "table, wide, json, yaml, name, go-template=TEMPLATE"}},
		{"pod x -o name", []string{"--output", `"name"`, "table, json, yaml, go-template=TEMPLATE"}},
		{"relist -o text", []string{"--output", `"text"`, "table, json, yaml, go-template=TEMPLATE"}},
		{"events -o text", []string{"--output", `"text"`, "table, json, yaml, cloudevents, go-template=TEMPLATE"}},
		{"events -o json=x", []string{"--output", `"json=x"`, "must be one of"}},
		{"events -o go-template", []string{"--output", `"go-template"`, "template after it"}},
		{"events -o go-template=", []string{"--output", `"go-template="`, "template after it"}},
		{"events -o go-template={{.type", []string{"--output", "unclosed action"}},
		{"events -o go-template={{frobnicate}}", []string{"--output", `function "frobnicate" not defined`}},
		{"events --follow --no-follow", []string{"--follow and --no-follow", "leave one of them out"}},
		{"events --since 42", []string{"--since", `"42"`, "EPOCH/SEQ", "RFC 3339", "duration"}},
		{"events --since=-5m", []string{"--since", `"-5m"`, "negative"}},
		{"events --since 9f010203040506ab/x", []string{"--since", "EPOCH/SEQ"}},
		{"events --since 0000000000000000/1", []string{"--since", "epoch of zeros"}},
		{"events --since 2999-01-01T00:00:00Z", []string{"--since 2999-01-01T00:00:00Z", "future"}},
		{"events --until yesterday", []string{"--until", `"yesterday"`, "RFC 3339"}},
		{"events --since 1m --until 2m", []string{"--until 2m", "later than --since 1m"}},
		{"events --since " + at + " --until " + at, []string{"--until " + at, "later than --since " + at}},
		{"events --limit 0", []string{"--limit", `"0"`, "above 0"}},
		{"events --type ContainerStopped", []string{"--type", `"ContainerStopped"`, "ContainerDied"}},
		{"events --source kubelet", []string{"--source", `"kubelet"`, "stream, relist, inspect"}},
		{"events --pod=", []string{`--pod ""`, "must not be empty"}},
		{"events --selector=", []string{"--selector", `""`, "must not be empty"}},
		{"events --namespace a,,b", []string{"--namespace", "must not be empty"}},
		{"events -l app==web,,", []string{"--selector", `"app==web,,"`}},
		{"pods -l =", []string{"--selector", `"="`}},
		{"top -l =", []string{"--selector", `"="`}},
		{"pods --type ContainerDied", []string{"--type", "see plegd pods --help"}},
		{"events --kubelet-view --type ContainerDied", []string{"--type and --source", "--kubelet-view"}},
		{"events --kubelet-view --source stream", []string{"--type and --source", "--kubelet-view"}},
		{"events --kubelet-view -o cloudevents", []string{"--output cloudevents", "--kubelet-view", "--output json"}},
		{"top --interval 0s", []string{"--interval", `"0s"`, "positive duration"}},
	} {
		t.Run(tc.args, func(t *testing.T) {
			var out, errs strings.Builder
			err := execute(strings.Fields(tc.args), streams{&out, &errs, func(string) string { return "" }})
			if code := exitCode(err); code != exitUsage {
				t.Fatalf("code %d, want %d: %v", code, exitUsage, err)
			}
			for _, part := range tc.want {
				if !strings.Contains(oneLine(err), part) {
					t.Errorf("%q is not in %q", part, oneLine(err))
				}
			}
			if out.Len()+errs.Len() > 0 {
				t.Errorf("also written: %s%s", &out, &errs)
			}
		})
	}
}

// Where the socket was named is said when it is at fault; a flag wins.
func TestClientSocketVariable(t *testing.T) {
	env := func(key string) string { return map[string]string{socketEnv: "tcp://x:1"}[key] }
	std := streams{&strings.Builder{}, &strings.Builder{}, env}
	err := execute([]string{"status"}, std)
	if exitCode(err) != exitUsage || !strings.HasPrefix(err.Error(), socketEnv+` "tcp://x:1": must be`) {
		t.Errorf("error %v", err)
	}
	err = execute([]string{"status", "--socket", "/nonexistent/plegd.sock"}, std)
	if exitCode(err) != exitUnavailable || !strings.Contains(err.Error(), "/nonexistent/plegd.sock") || strings.Contains(err.Error(), socketEnv) {
		t.Errorf("error %v", err)
	}
	std.getenv = func(key string) string { return map[string]string{socketEnv: "/nonexistent/plegd.sock"}[key] }
	for _, cmd := range []string{"status", "top"} {
		if err = execute([]string{cmd}, std); exitCode(err) != exitUnavailable || !strings.HasSuffix(err.Error(), "(the socket is that of "+socketEnv+")") {
			t.Errorf("%s: error %v", cmd, err)
		}
	}
}

// Without an agent each command names the socket and says what to do, with a
// code of its own.
func TestClientWithoutAgent(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []string{"events", "pods", "pods --watch", "pod x", "status", "relist", "top"} {
		for socket, want := range map[string]string{
			filepath.Join(dir, "none"): "no such file or directory: is plegd running",
			file:                       "it is another kind of file; see --socket",
		} {
			var out, errs strings.Builder
			err := execute(append(strings.Fields(cmd), "--socket", socket), streams{&out, &errs, func(string) string { return "" }})
			if exitCode(err) != exitUnavailable || !strings.Contains(err.Error(), "socket "+socket) || !strings.Contains(err.Error(), want) {
				t.Errorf("plegd %s: code %d, %v", cmd, exitCode(err), err)
			}
			if out.Len()+errs.Len() > 0 {
				t.Errorf("plegd %s: also written: %s%s", cmd, &out, &errs)
			}
		}
	}
}

// Nor is another server taken for one.
func TestClientOfAnotherServer(t *testing.T) {
	_, runtime := simtest.Start(t, simruntime.Config{}) // gRPC, but another service
	silent := filepath.Join(t.TempDir(), "s")
	lis, err := net.Listen("unix", silent)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // a server that hangs up on what it doesn't understand
		defer close(done)
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "220 mail.example\r\n")
			_ = conn.Close()
		}
	}()
	defer func() {
		_ = lis.Close()
		<-done
	}()
	for _, cmd := range []string{"events", "pods", "pods --watch", "pod x", "status", "relist", "top"} {
		for socket, want := range map[string]struct {
			code int
			text string
		}{
			runtime: {exitUnavailable, "something else answers there: a CRI runtime"},
			silent:  {exitTimeout, silent + " has not answered after 300ms"},
		} {
			var out, errs strings.Builder
			args := append(strings.Fields(cmd), "--socket", socket)
			if socket == silent {
				args = append(args, "--timeout", "300ms")
			}
			err := execute(args, streams{&out, &errs, func(string) string { return "" }})
			if exitCode(err) != want.code || !strings.Contains(err.Error(), want.text) {
				t.Errorf("plegd %s: code %d, %v", cmd, exitCode(err), err)
			}
			if out.Len()+errs.Len() > 0 {
				t.Errorf("plegd %s: also written: %s%s", cmd, &out, &errs)
			}
		}
	}
}

// The shell is told which values there are.
func TestClientCompletion(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"events", "--type", ""}, selection.Words(selection.EventTypes)},
		{[]string{"events", "--source", ""}, selection.Words(selection.Sources)},
		{[]string{"events", "-o", ""}, []string{"table", "json", "yaml", "cloudevents", "go-template="}},
		{[]string{"pods", "--output", ""}, []string{"table", "wide", "json", "yaml", "name", "go-template="}},
		{[]string{"status", "--color", ""}, []string{"auto", "always", "never"}},
		{[]string{"wait", "pod", "--for", ""}, []string{"ready", "notready", "removed", "created"}},
		{[]string{"wait", "container", "--for", ""}, []string{"running", "exited", "removed"}},
	} {
		var out, errs strings.Builder
		if err := execute(append([]string{"__complete"}, tc.args...), streams{&out, &errs, os.Getenv}); err != nil {
			t.Fatal(err)
		}
		got := strings.Fields(out.String())
		if i := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, ":") }); i >= 0 {
			got = got[:i] // what the shell is to do beside
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%q: %q, want %q", tc.args, got, tc.want)
		}
	}
}

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/plegd/plegd/client"
	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// What is waited for is reached before, while or after one waits, or never.
func TestWait(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	agent := start(t, dir.args(endpoint, "--output", "none")...)
	dir.awaitReady(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pods, containers := map[string]string{}, map[string]string{}
	// act does something to the runtime: "pod NAME", "stop NAME", "remove NAME",
	// "create|start|fail|delete NAME CONTAINER", "again NAME CONTAINER" for the next attempt.
	act := func(step string) {
		f := strings.Fields(step)
		pod, err := pods[f[1]], error(nil)
		var ctr string
		if len(f) > 2 {
			ctr = containers[f[1]+"/"+f[2]]
		}
		switch f[0] {
		case "pod":
			pods[f[1]], err = rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: f[1], UID: "uid-" + f[1]})
		case "stop":
			err = rt.StopPodSandbox(pod)
		case "remove":
			err = rt.RemovePodSandbox(pod)
		case "create", "again":
			attempt := uint32(0)
			if f[0] == "again" {
				attempt = 1
			}
			containers[f[1]+"/"+f[2]], err = rt.CreateContainer(pod, simruntime.ContainerSpec{Name: f[2], Attempt: attempt})
		case "start":
			err = rt.StartContainer(ctr)
		case "fail":
			err = rt.ExitContainer(ctr, 7, "Error")
		case "delete":
			err = rt.RemoveContainer(ctr)
		default:
			t.Fatalf("step %q", step)
		}
		must(err)
	}
	for _, tc := range []struct {
		args   string
		before string // steps that the agent knows of, with semicolons between
		during string // steps while one waits, each after the line that is its turn
		code   int
		want   string // stdout, with semicolons between lines
		stderr string
	}{
		{args: "pod default/a --for=ready", before: "pod a", want: "pod default/a is ready"},
		{args: "pod uid-a1 --for=ready", before: "pod a1", want: "pod uid-a1 is ready"},
		{args: "pod default/a2 --for=created", before: "pod a2; stop a2", want: "pod default/a2 is notready"},
		{args: "pod default/b --for=ready", during: "pod b", want: "pod default/b does not exist; pod default/b is created; pod default/b is ready"},
		{args: "pod default/b1 --for=created", during: "pod b1", want: "pod default/b1 does not exist; pod default/b1 is created"},
		{args: "pod default/c --for=notready", before: "pod c", during: "stop c", want: "pod default/c is ready; pod default/c is notready"},
		{args: "pod default/d --for=removed", before: "pod d", during: "stop d; remove d", want: "pod default/d is ready; pod default/d is notready; pod default/d is removed"},
		{args: "pod default/e --for=removed", want: "pod default/e does not exist"},
		// Removed meanwhile, and there again.
		{args: "pod default/f --for=ready", before: "pod f; stop f", during: "remove f; pod f",
			want: "pod default/f is notready; pod default/f is removed; pod default/f is created; pod default/f is ready"},
		{args: "pod default/g --for=ready --timeout 1s", code: exitTimeout, want: "pod default/g does not exist",
			stderr: `plegd: pod "default/g" is not ready after 1s, it does not exist: --timeout has passed`},
		{args: "pod default/h --for=notready --timeout 1s", before: "pod h", code: exitTimeout, want: "pod default/h is ready",
			stderr: `plegd: pod "default/h" is not notready after 1s, it is ready: --timeout has passed`},

		{args: "container default/i/app --for=running", before: "pod i; create i app; start i app", want: "container default/i/app is running"},
		{args: "container uid-i1/app --for=running", before: "pod i1", during: "create i1 app; start i1 app",
			want: "container uid-i1/app does not exist; container uid-i1/app is created; container uid-i1/app is running"},
		{args: "container default/j/app --for=exited", before: "pod j; create j app; start j app; fail j app", want: "container default/j/app is exited, exit code 7 Error"},
		{args: "container default/k/app --for=exited", during: "pod k; create k app; start k app; fail k app",
			want: "container default/k/app does not exist; container default/k/app is created; container default/k/app is running; container default/k/app is exited, exit code 7 Error"},
		{args: "container default/l/app --for=removed", before: "pod l; create l app; start l app; fail l app", during: "delete l app",
			want: "container default/l/app is exited, exit code 7 Error; container default/l/app is removed"},
		{args: "container g/app --for=running --timeout 1s", code: exitTimeout, want: "container g/app does not exist",
			stderr: `plegd: container "g/app": no pod has the key "g"; by its name a container is NAMESPACE/POD/NAME` + "\n" +
				`plegd: container "g/app" is not running after 1s, it does not exist: --timeout has passed`},
		// A pod's name without its namespace: what is there must not count as removed.
		{args: "pod q --for=removed", before: "pod q", code: exitUsage,
			stderr: `plegd: pod "q": no pod has the key "q", but there is the pod default/q; by its name a pod is NAMESPACE/NAME`},
		{args: "container q/app --for=removed", code: exitUsage,
			stderr: `plegd: container "q/app": no pod has the key "q", but there is the pod default/q; by its name a container is NAMESPACE/POD/NAME`},
		{args: "container default/q --for=removed", code: exitUsage,
			stderr: `plegd: container "default/q": no pod has the key "default", but there is the pod default/q; by its name a container is NAMESPACE/POD/NAME`},
		{args: "pod q --for=ready --timeout 1s", code: exitTimeout, want: "pod q does not exist",
			stderr: `plegd: pod "q": no pod has the key "q", but there is the pod default/q; by its name a pod is NAMESPACE/NAME` + "\n" +
				`plegd: pod "q" is not ready after 1s, it does not exist: --timeout has passed`},
		{args: "pod nobody --for=removed", want: "pod nobody does not exist",
			stderr: `plegd: pod "nobody": no pod has the key "nobody"; by its name a pod is NAMESPACE/NAME`},
		// A key that has gone is not looked for among the names, and a pod that is there by its key has no such container.
		{args: "pod 11111111-2222-3333-4444-555555555555 --for=removed", want: "pod 11111111-2222-3333-4444-555555555555 does not exist"},
		{args: "container uid-q/nobody --for=removed", want: "container uid-q/nobody does not exist"},
		{args: "container default/m/app --for=removed", before: "pod m; create m other", want: "container default/m/app does not exist"},
		// With its pod, all of it goes.
		{args: "container default/n/app --for=removed", before: "pod n; create n app", during: "remove n", want: "container default/n/app is created; container default/n/app is removed"},
		// The next attempt counts, and not the one before it.
		{args: "container default/o/app --for=exited --timeout 1s", before: "pod o; create o app; start o app; fail o app; again o app; start o app", code: exitTimeout,
			want:   "container default/o/app is running",
			stderr: `plegd: container "default/o/app" is not exited after 1s, it is running: --timeout has passed`},
		{args: "container default/p/app --for=running", before: "pod p; create p app; start p app; fail p app", during: "again p app; start p app",
			want: "container default/p/app is exited, exit code 7 Error; container default/p/app is created; container default/p/app is running"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			steps := func(text string) []string {
				return strings.FieldsFunc(text, func(r rune) bool { return r == ';' })
			}
			for _, step := range steps(tc.before) {
				act(step)
			}
			if tc.before != "" {
				dir.mustAsk(t, "relist") // all of it is known then
				eventually(t, "nothing is to be asked", func() bool {
					return dir.mustAsk(t, "status", "-o", "go-template={{len .reinspections}}") == "0\n"
				})
			}
			var out, errs logtest.Buffer
			done := make(chan int)
			go func() {
				args := append([]string{"wait"}, strings.Fields(tc.args)...)
				if !strings.Contains(tc.args, "--timeout") {
					args = append(args, "--timeout=60s")
				}
				env := func(key string) string { return map[string]string{socketEnv: dir.socket()}[key] }
				err := execute(args, streams{&out, &errs, env})
				if err != nil {
					_, _ = errs.Write([]byte("plegd: " + oneLine(err) + "\n"))
				}
				done <- exitCode(err)
			}()
			if tc.during != "" {
				eventually(t, "it waits", func() bool { return out.String() != "" })
			}
			for _, step := range steps(tc.during) {
				said := out.String()
				act(step)
				if !strings.HasPrefix(strings.TrimSpace(step), "pod k") { // of which a wait for a container sees nothing
					eventually(t, "it is seen: "+step, func() bool { return out.String() != said })
				}
			}
			if code := <-done; code != tc.code {
				t.Errorf("code %d, want %d", code, tc.code)
			}
			if got := strings.Join(strings.Split(strings.TrimSpace(out.String()), "\n"), "; "); got != tc.want {
				t.Errorf("said %q\nwant %q", got, tc.want)
			}
			if got := strings.TrimSpace(errs.String()); got != tc.stderr {
				t.Errorf("stderr %q\nwant %q", got, tc.stderr)
			}
		})
	}
	agent.terminate()
}

// An agent that isn't there yet is waited for, and what an earlier run of it
// knew doesn't count before it was seen again.
func TestWaitForTheAgent(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	agent := start(t, dir.args(endpoint, "--output", "none")...)
	dir.awaitReady(t)
	web := newPod(t, rt, "web")
	dir.mustAsk(t, "wait", "pod", "default/web", "--for", "ready")
	agent.terminate()
	code, out, stderr := dir.ask("wait", "pod", "default/web", "--for", "ready", "--timeout", "300ms")
	if code != exitTimeout || out != "" || !strings.Contains(stderr, "no agent answers, trying again: socket "+dir.socket()) ||
		!strings.Contains(stderr, `pod "default/web" is not ready after 300ms, nothing is known of it since no agent has answered`) {
		t.Errorf("code %d, %q, %q", code, out, stderr)
	}
	c := start(t, "wait", "pod", "default/web", "--for", "notready", "--socket", dir.socket(), "--timeout", "60s")
	eventually(t, "it waits", func() bool { return strings.Contains(c.stderr.String(), "no agent answers") })
	if err := rt.StopPodSandbox(web); err != nil {
		t.Fatal(err)
	}
	again := start(t, dir.args(endpoint, "--output", "none", "--mode", "generic", "--relist-period", "1h")...)
	if code := c.code(patience); code != exitOK || !strings.Contains(c.stderr.String(), "an agent answers\n") {
		t.Errorf("code %d, %s", code, c.stderr)
	}
	// A state that is restored is not taken for the truth.
	again.terminate()
	if err := rt.RemovePodSandbox(web); err != nil {
		t.Fatal(err)
	}
	last := start(t, dir.args(endpoint, "--output", "none")...)
	code, out, stderr = dir.ask("wait", "pod", "default/web", "--for", "removed", "--timeout", "60s")
	if code != exitOK || out != "pod default/web does not exist\n" {
		t.Errorf("code %d, %q, %q", code, out, stderr)
	}
	// Who is asked to stop says so, and does not say that all is well.
	stopped := start(t, "wait", "pod", "default/web", "--for", "ready", "--socket", dir.socket())
	rows := stopped.scan(t)
	rows.await(t, "pod default/web does not exist")
	stopped.signal(syscall.SIGINT)
	if code := stopped.code(patience); code != exitFailure || !strings.Contains(stopped.stderr.String(), "was asked to stop before it is ready") {
		t.Errorf("code %d, %s", code, stopped.stderr)
	}
	last.terminate()
}

// An agent that answers before it knows anything is not taken for none, and who has
// waited in vain hears why nothing is known.
func TestWaitForAnAgentThatDoesNotKnow(t *testing.T) {
	t.Parallel()
	dir := newAgentDir(t)
	agent := start(t, dir.args("unix://"+filepath.Join(t.TempDir(), "none.sock"), "--output", "none")...)
	eventually(t, "the agent answers", func() bool {
		code, _, _ := dir.ask("status")
		return code == exitOK
	})
	code, out, stderr := dir.ask("wait", "pod", "default/web", "--for", "removed", "--timeout", "1s")
	for _, want := range []string{"the agent can't tell yet, trying again: plegd at " + dir.socket(), "not removed after 1s, nothing is known of it: plegd at " + dir.socket(), "none.sock"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q is not in %q", want, stderr)
		}
	}
	if code != exitTimeout || out != "" || strings.Contains(stderr, "no agent") {
		t.Errorf("code %d, %q, %q", code, out, stderr)
	}
	agent.terminate()
}

// What stands for all, and what is said of it.
func TestWaitSeen(t *testing.T) {
	one, two := int32(1), int32(2)
	sandbox := func(id, state string) *client.Sandbox { return &client.Sandbox{Id: id, State: state} }
	app := func(attempt uint32, state string, code *int32) *client.Container {
		return &client.Container{Id: fmt.Sprint("c", attempt), Name: "app", Attempt: attempt, State: state, ExitCode: code, Reason: "Error"}
	}
	made := func(c *client.Container, second int64) *client.Container {
		c.CreatedAt = &timestamppb.Timestamp{Seconds: second}
		return c
	}
	pod := waitTarget{text: "ns/p"}
	container := waitTarget{text: "ns/p/app", container: "app"}
	for i, step := range []struct {
		target  waitTarget
		state   string
		pods    []*client.Pod
		word    string
		reached bool
	}{
		{pod, stateRemoved, nil, "does not exist", true},
		{pod, stateReady, nil, "does not exist", false},
		{pod, stateReady, []*client.Pod{{Sandboxes: []*client.Sandbox{sandbox("s", "created")}}}, "is created", false},
		{pod, stateCreated, []*client.Pod{{Sandboxes: []*client.Sandbox{sandbox("s", "notready")}}}, "is notready", true},
		{pod, stateNotReady, []*client.Pod{{Sandboxes: []*client.Sandbox{sandbox("s", "notready")}, Containers: []*client.Container{app(0, "running", nil)}}}, "is notready", true},
		// One that is notready and gets a new sandbox isn't over.
		{pod, stateNotReady, []*client.Pod{{Sandboxes: []*client.Sandbox{sandbox("s2", "created"), sandbox("s", "notready")}}}, "is created", false},
		// What is left of one without a sandbox is not nothing.
		{pod, stateRemoved, []*client.Pod{{Containers: []*client.Container{app(0, "exited", nil)}}}, "has no sandbox", false},
		{container, stateExited, []*client.Pod{{Containers: []*client.Container{app(0, "exited", nil)}}}, "is exited", true},
		// Of several attempts the last one counts, unless an earlier one is livelier.
		{container, stateExited, []*client.Pod{{Containers: []*client.Container{app(0, "exited", &one), app(1, "exited", &two), {Name: "other", State: "running"}}}}, "is exited, exit code 2 Error", true},
		{container, stateExited, []*client.Pod{{Containers: []*client.Container{app(0, "running", nil), app(1, "exited", &two)}}}, "is running", false},
		// Of several pods of that name the newer one does.
		{container, stateExited, []*client.Pod{
			{Containers: []*client.Container{made(app(0, "exited", &one), 9)}}, {Containers: []*client.Container{made(app(1, "exited", &two), 5)}},
		}, "is exited, exit code 1 Error", true},
	} {
		s := waitSeen{target: step.target, state: step.state}
		s.look(step.pods)
		if s.word() != step.word || s.reached() != step.reached {
			t.Errorf("step %d: %q, %v; want %q, %v", i, s.word(), s.reached(), step.word, step.reached)
		}
		if s.look(nil); step.pods != nil && s.word() != "is removed" {
			t.Errorf("step %d: afterwards %q", i, s.word())
		}
	}
}

// What is said to who has waited in vain.
func TestWaitSeenLast(t *testing.T) {
	ready := []*client.Pod{{Sandboxes: []*client.Sandbox{{Id: "s", State: "ready"}}}}
	unmet := &client.UnmetError{Err: context.DeadlineExceeded, Why: fmt.Errorf("%w: not now", client.ErrUnavailable)}
	gone := &client.UnmetError{Err: context.DeadlineExceeded, Why: &client.SocketError{Socket: "s", Err: syscall.ECONNREFUSED}}
	for _, tt := range []struct {
		known bool
		err   error
		want  string
	}{
		{false, context.DeadlineExceeded, "nothing is known of it since no agent has answered"},
		{false, gone, "nothing is known of it since no agent has answered"},
		{false, unmet, "nothing is known of it: plegd is not available: not now"},
		{true, context.DeadlineExceeded, "it is ready"},
		{true, gone, "it is ready"},
		{true, unmet, "it is ready, as far as is known: plegd is not available: not now"},
	} {
		s := waitSeen{target: waitTarget{text: "ns/p"}, state: stateRemoved}
		if tt.known {
			s.look(ready)
		}
		if got := s.last(tt.err); got != tt.want {
			t.Errorf("known %v, %v: %q, want %q", tt.known, tt.err, got, tt.want)
		}
	}
}

package main

import (
	"bufio"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// Who follows loses nothing and gets nothing twice while the agent is stopped,
// and killed, and started again; and is told of each once.
func TestEventsOverRestarts(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	load, err := simruntime.NewWorkload(rt, simruntime.WorkloadConfig{Seed: 1, Pods: 5, Rate: 100})
	if err != nil {
		t.Fatal(err)
	}
	loaded := make(chan error, 1)
	go func() { loaded <- load.Run(t.Context()) }()
	t.Cleanup(func() { <-loaded })

	dir := newAgentDir(t)
	agent := start(t, dir.args(endpoint, "--output", "none")...)
	dir.awaitReady(t)
	first := dir.position(t)
	c := start(t, "events", "--socket", dir.socket(), "--follow", "--since", first.String(), "-o", "json")
	told := c.read()
	t.Cleanup(func() { _ = c.cmd.Process.Kill() }) // before what reads waits for its end
	for n, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL, syscall.SIGKILL} {
		seen := len(told.all(t))
		eventually(t, "something is told", func() bool { return len(told.all(t)) > seen+10 })
		agent.signal(sig)
		<-agent.ended
		eventually(t, "the end is noticed", func() bool { return strings.Count(c.stderr.String(), "lost the agent") == n+1 })
		agent = start(t, dir.args(endpoint, "--output", "none")...)
		dir.awaitReady(t)
		eventually(t, "the new one is found", func() bool { return strings.Count(c.stderr.String(), "the agent is back") == n+1 })
	}
	seen := len(told.all(t))
	eventually(t, "something is told", func() bool { return len(told.all(t)) > seen+10 })
	c.terminate()
	<-told.done
	got := told.all(t)
	checkOrder(t, got)
	want := dir.mustAsk(t, "events", "-o", "json", "--since", first.String(), "--until", got[len(got)-1].Position.String())
	if diff := cmp.Diff(want, lines(t, got)); diff != "" {
		t.Errorf("the journal (-) and what was told (+):\n%s", diff)
	}
	if got := strings.Count(c.stderr.String(), "\n"); got != 6 {
		t.Errorf("said in %d lines, want 6:\n%s", got, c.stderr)
	}
	agent.terminate()
}

// Views that follow one another go on when the agent is back.
func TestTopOverARestart(t *testing.T) {
	t.Parallel()
	_, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	agent := start(t, dir.args(endpoint, "--output", "none")...)
	dir.awaitReady(t)
	c := start(t, "top", "--socket", dir.socket(), "--interval", "20ms")
	views := c.scan(t)
	eventually(t, "there is a view", func() bool { return views.count("ready") > 0 })
	agent.signal(syscall.SIGKILL)
	<-agent.ended
	eventually(t, "the end is noticed", func() bool { return strings.Contains(c.stderr.String(), "lost the agent") })
	agent = start(t, dir.args(endpoint, "--output", "none")...)
	dir.awaitReady(t)
	eventually(t, "the new one is found", func() bool { return strings.Contains(c.stderr.String(), "the agent is back") })
	seen := views.count("ready")
	eventually(t, "there is another view", func() bool { return views.count("ready") > seen })
	if got := strings.Count(c.stderr.String(), "\n"); got != 2 {
		t.Errorf("said in %d lines, want 2:\n%s", got, c.stderr)
	}
	c.terminate()
	agent.terminate()
}

// A reader that has enough is no error, whether more comes or not.
func TestClientStdoutClosed(t *testing.T) {
	t.Parallel()
	dir, rt, _ := told(t)
	for _, args := range [][]string{{"events", "--follow", "--since", "1h"}, {"events", "--follow"}, {"pods", "--watch"}, {"top", "--interval", "50ms"}} {
		c := start(t, append(args, "--socket", dir.socket())...)
		if args[len(args)-1] != "--follow" { // which has nothing to say
			line, err := bufio.NewReader(c.out).ReadString('\n')
			if err != nil || line == "" {
				t.Errorf("%q: %q, %v", args, line, err)
			}
		}
		_ = c.out.Close()
		if code := c.code(patience); code != exitOK || c.stderr.String() != "" {
			t.Errorf("%q: code %d, %s", args, code, c.stderr)
		}
	}
	// A file that is full is one.
	code, _, stderr := dir.askInto(t, "/dev/full", "events")
	if code != exitFailure || strings.Count(stderr, "no space left") != 1 {
		t.Errorf("code %d, %s", code, stderr)
	}
	_ = rt
}

// Pods are watched over a restart of the agent too, and told when they change.
func TestPodsWatch(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	agent := start(t, dir.args(endpoint, "--output", "none")...)
	dir.awaitReady(t)
	newPod(t, rt, "still") // of which nothing changes
	web := newPod(t, rt, "web")
	c := start(t, "pods", "--watch", "--socket", dir.socket())
	rows := c.scan(t)
	asJSON := start(t, "pods", "--watch", "-o", "go-template={{.name}} {{len .containers}}", "--socket", dir.socket())
	jsonRows := asJSON.scan(t)
	jsonRows.await(t, "still 0")
	jsonRows.await(t, "web 0")
	rows.await(t, "default web ready 0/0 0")
	id, err := rt.CreateContainer(web, simruntime.ContainerSpec{Name: "app"})
	if err == nil {
		err = rt.StartContainer(id)
	}
	if err != nil {
		t.Fatal(err)
	}
	rows.await(t, "default web ready 1/1 0")
	agent.terminate()
	agent = start(t, dir.args(endpoint, "--output", "none")...)
	dir.awaitReady(t)
	if err := rt.StopPodSandbox(web); err != nil {
		t.Fatal(err)
	}
	rows.await(t, "default web notready 0/1 0")
	if err := rt.RemovePodSandbox(web); err != nil {
		t.Fatal(err)
	}
	rows.await(t, "default web removed 0/0 0")
	jsonRows.await(t, "web 1")
	for _, n := range []int{rows.count("default still ready 0/0 0"), jsonRows.count("still 0")} {
		if n > 3 { // at first, restored by the new agent, and seen by it
			t.Errorf("%d times: a pod of which nothing changes", n)
		}
	}
	all := rows.all()
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			t.Errorf("twice in a row: %s", all[i])
		}
	}
	c.terminate()
	asJSON.terminate()
	agent.terminate()
}

// What happens to a sandbox is of no container, and yet is told of the pods that
// are chosen by one.
func TestPodsWatchOfContainer(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	agent := start(t, dir.args(endpoint, "--output", "none")...)
	dir.awaitReady(t)
	web, db := newPod(t, rt, "web"), newPod(t, rt, "db")
	for pod, name := range map[string]string{web: "app", db: "side"} {
		id, err := rt.CreateContainer(pod, simruntime.ContainerSpec{Name: name})
		if err == nil {
			err = rt.StartContainer(id)
		}
		if err == nil {
			err = rt.ExitContainer(id, 0, "") // nothing will happen to it any more
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c := start(t, "pods", "--watch", "--container", "app", "--socket", dir.socket())
	rows := c.scan(t)
	rows.await(t, "default web ready 0/1 0")
	for _, pod := range []string{db, web} {
		if err := rt.StopPodSandbox(pod); err != nil {
			t.Fatal(err)
		}
	}
	rows.await(t, "default web notready 0/1 0")
	for _, row := range rows.all() {
		if strings.Contains(row, " db ") {
			t.Errorf("of a pod without the container: %s", row)
		}
	}
	c.terminate()
	agent.terminate()
}

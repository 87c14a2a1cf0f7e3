package pleg_test

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// check returns one check of health.
func (a *agent) check(name string) pleg.Check {
	a.t.Helper()
	for _, c := range a.g.Health().Checks {
		if c.Name == name {
			return c
		}
	}
	a.t.Fatalf("health has no check %s", name)
	return pleg.Check{}
}

// TestHealthBeforeTheFirstRelist says that there was none and of what, with no
// age reckoned from nothing; it recovers when the runtime comes, with one
// line in the log at each end.
func TestHealthBeforeTheFirstRelist(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cri.sock")
	log := new(logtest.Buffer)
	a := startAgent(t, pleg.Config{Endpoint: path, RelistPeriod: 50 * time.Millisecond, Logger: log.Logger()}, nil)
	waitFor(t, "a line in the log", func() bool { return log.Count("condition="+pleg.ConditionNeverRelisted) == 1 })
	time.Sleep(300 * time.Millisecond)
	h, c := a.g.Health(), a.check(pleg.CheckRelist)
	if h.Ready || !h.Live || !strings.Contains(c.Reason, path) || !strings.Contains(c.Reason, "no relist") {
		t.Errorf("health %+v", h)
	}
	if time.Since(c.Since) > time.Minute || regexp.MustCompile(`\d{4,}h|\d+y`).MatchString(c.Reason) {
		t.Errorf("an absurd age: %+v", c)
	}
	rt := simtest.New(t, simruntime.Config{})
	_, container := pod(t, rt, "a")
	lis, err := simruntime.Listen(path)
	must(t, err)
	simtest.Serve(t, rt, lis)
	waitFor(t, "health", func() bool { return a.g.Health().Ready })
	if cached(a.g)[container] != "running" {
		t.Error("ready, but the pod can't be read")
	}
	waitFor(t, "the stream", func() bool { return a.check(pleg.CheckStream).OK })
	a.settle()
	waitFor(t, "the end of the trouble in the log", func() bool { return log.Count("recovered") > 0 })
	time.Sleep(300 * time.Millisecond) // more would have to come with it
	if told(a.read())[container][1] != "ContainerStarted" || len(told(a.read())[container]) != 2 {
		t.Errorf("told %v", told(a.read())[container])
	}
	a.finish()
	if bad, good := log.Count("msg=trouble"), log.Count("msg=recovered condition="+pleg.ConditionNeverRelisted+" "); bad != 1 || good != 1 || log.Count("recovered") != 1 {
		t.Errorf("%d lines at the start of the trouble, %d at its end: want one each\n%s", bad, good, log)
	}
}

// TestHealthWhenRelistsAreTooOld: not ready once the last good relist is older
// than threshold and period; the reason is the list's own error.
func TestHealthWhenRelistsAreTooOld(t *testing.T) {
	t.Parallel()
	rt, path := simtest.Start(t, simruntime.Config{})
	a := startAgent(t, pleg.Config{Endpoint: path, RelistPeriod: 50 * time.Millisecond, RelistThreshold: 500 * time.Millisecond, RelistPeriodMax: 100 * time.Millisecond}, nil)
	waitFor(t, "health", func() bool { return a.g.Health().Ready })
	rt.Down()
	waitFor(t, "a note of failing lists", func() bool { c := a.check(pleg.CheckRelist); return !c.OK && c.Ready })
	waitFor(t, "not ready", func() bool { return !a.g.Health().Ready })
	if c := a.check(pleg.CheckRelist); !strings.Contains(c.Reason, "allowed are 500ms") || !strings.Contains(c.Reason, path) {
		t.Errorf("relist: %+v", c)
	}
	rt.Up()
	waitFor(t, "health", func() bool { return a.g.Health().Ready && a.check(pleg.CheckRelist).OK })
	a.finish()
}

// TestHealthWithEndlessPeriods: period and threshold are more than a Duration
// holds together, which is no reason to call the first relist too old.
func TestHealthWithEndlessPeriods(t *testing.T) {
	t.Parallel()
	const endless = 200 * 365 * 24 * time.Hour
	_, path := simtest.Start(t, simruntime.Config{})
	a := startAgent(t, pleg.Config{Endpoint: path, RelistPeriod: endless, RelistPeriodMax: endless, RelistThreshold: endless}, nil)
	waitFor(t, "health", func() bool { return a.g.Health().Ready })
	a.finish()
}

// TestPodAddressIsKept: a pod keeps its address when it has ended, and so do
// its events.
func TestPodAddressIsKept(t *testing.T) {
	t.Parallel()
	rt, path := simtest.Start(t, simruntime.Config{DualStack: true})
	sandbox, container := pod(t, rt, "a")
	a := startAgent(t, pleg.Config{Endpoint: path, RelistPeriod: 50 * time.Millisecond}, nil)
	a.settle()
	before, err := a.g.Pod("uid-a")
	must(t, err)
	if before.IP == "" || len(before.IPs) != 2 || before.Labels["app"] != "a" || before.Name != "a" || before.Namespace != "default" {
		t.Fatalf("pod %+v", before)
	}
	seen := len(a.read())
	must(t, rt.ExitContainer(container, 0, ""))
	must(t, rt.StopPodSandbox(sandbox))
	a.settle()
	after, err := a.g.Pod("uid-a")
	must(t, err)
	if after.IP != before.IP || after.Sandboxes[0].State != "notready" {
		t.Errorf("after its end: %+v", after)
	}
	for _, ev := range a.read()[seen:] {
		if ev.Pod.IP != before.IP {
			t.Errorf("%s with address %q", ev.Type, ev.Pod.IP)
		}
	}
	a.finish()
}

// TestPodWithoutUID is kept under its sandbox's id.
func TestPodWithoutUID(t *testing.T) {
	t.Parallel()
	rt, path := simtest.Start(t, simruntime.Config{})
	sandbox, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: "bare", BareLabels: true})
	must(t, err)
	container := run(t, rt, sandbox, "app")
	a := startAgent(t, pleg.Config{Endpoint: path, RelistPeriod: 50 * time.Millisecond}, nil)
	a.settle()
	p, err := a.g.Pod("sandbox:" + sandbox)
	must(t, err)
	if p.Key != "sandbox:"+sandbox || p.UID != "" || len(p.Containers) != 1 || p.Containers[0].ID != container {
		t.Errorf("pod %+v", p)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if p, err := a.g.PodNewer(ctx, "sandbox:"+sandbox); err != nil || len(p.Containers) != 1 {
		t.Errorf("looked at anew: %+v, %v", p, err)
	}
	if _, err := a.g.PodNewer(ctx, "nobody"); !errors.Is(err, pleg.ErrNoPod) {
		t.Errorf("a pod that isn't there: %v", err)
	}
	a.finish()
}

// TestFullStatus: what the runtime says of each sandbox and container is
// served field by field as it said it, after a restart too.
func TestFullStatus(t *testing.T) {
	t.Parallel()
	rt, path := simtest.Start(t, simruntime.Config{Seed: 13, DualStack: true})
	cfg := pleg.Config{Endpoint: path, StateDir: t.TempDir(), RelistPeriod: 50 * time.Millisecond}
	a := startAgent(t, cfg, nil)
	a.streamUp()
	workload(t, rt, 13, 200, 2*time.Millisecond)
	a.settle()
	a.fullStatus(rt)
	a.finish()
	a = startAgent(t, cfg, nil)
	a.fullStatus(rt)
	a.finish()
}

// fullStatus compares the statuses that are served with the runtime's.
func (a *agent) fullStatus(rt *simruntime.Runtime) {
	a.t.Helper()
	sandboxes, containers := map[string]*runtimeapi.PodSandboxStatus{}, map[string]*runtimeapi.ContainerStatus{}
	tr := rt.Truth()
	for _, s := range tr.Sandboxes {
		sandboxes[s.GetId()] = s
	}
	for _, c := range tr.Containers {
		containers[c.Status.GetId()] = c.Status
	}
	pods, _ := a.g.Pods()
	n := 0
	for _, p := range pods {
		for _, s := range p.Sandboxes {
			if n++; !proto.Equal(s.Status(), sandboxes[s.ID]) {
				a.t.Errorf("sandbox:\nserved  %v\nruntime %v", s.Status(), sandboxes[s.ID])
			}
		}
		for _, c := range p.Containers {
			if n++; !proto.Equal(c.Status(), containers[c.ID]) {
				a.t.Errorf("container:\nserved  %v\nruntime %v", c.Status(), containers[c.ID])
			}
		}
	}
	if n != len(sandboxes)+len(containers) {
		a.t.Errorf("%d statuses are served, the runtime has %d", n, len(sandboxes)+len(containers))
	}
}

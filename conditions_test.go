package pleg_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// trouble is what a condition's test can break.
type trouble struct {
	t      *testing.T
	rt     *simruntime.Runtime
	a      *agent
	faulty *storetest.Faulty
	step   atomic.Int64 // of the wall clock, ns
	heal   []func()
}

// fails lets calls fail until the trouble is healed.
func (tr *trouble) fails(methods []string, code codes.Code, id string) {
	for _, m := range methods {
		rule := simtest.Rule(tr.t, tr.rt, simruntime.Rule{Method: m, ID: id, Code: code, Message: "out of order"})
		tr.heal = append(tr.heal, rule.Remove)
	}
}

var (
	lists    = []string{"ListPodSandbox", "ListContainers", "StreamPodSandboxes", "StreamContainers"}
	statuses = []string{"PodSandboxStatus", "ContainerStatus"}
)

// TestConditions: each condition appears when its cause does, alone, with a
// reason that names the cause and a time; it goes with its cause; one line says
// each; and it makes the node unready only where what is served is no good.
func TestConditions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		mode    pleg.Mode
		cause   func(*trouble)
		wait    time.Duration // until the conditions hold
		want    []string      // conditions
		unready bool
		reason  []string // parts of the first one's
		healed  time.Duration
	}{
		{name: pleg.ConditionRelistFailing, cause: func(tr *trouble) { tr.fails(lists, codes.Internal, "") }, wait: 20 * time.Second,
			want: []string{pleg.ConditionRelistFailing}, reason: []string{"relists are failing", "out of order"}, healed: 15 * time.Second},
		{name: "too large", cause: func(tr *trouble) { tr.fails(lists[1:], codes.ResourceExhausted, "") }, wait: 20 * time.Second,
			want: []string{pleg.ConditionRelistFailing}, reason: []string{"answer is too large"}, healed: 15 * time.Second},
		{name: pleg.ConditionRelistOld, cause: func(tr *trouble) { tr.fails(lists, codes.ResourceExhausted, "") }, wait: 4 * time.Minute,
			want: []string{pleg.ConditionRelistOld, pleg.ConditionRelistFailing}, unready: true,
			reason: []string{"allowed are 3m0s and a period of 4s", "answer is too large"}, healed: 15 * time.Second},
		{name: pleg.ConditionStreamDown, cause: func(tr *trouble) {
			tr.fails([]string{"GetContainerEvents"}, codes.Unavailable, "")
			tr.rt.EndStreams(codes.OK)
		}, wait: 20 * time.Second, want: []string{pleg.ConditionStreamDown}, reason: []string{"down: ", "out of order"}, healed: time.Minute},
		{name: "no stream", cause: func(tr *trouble) {
			tr.fails([]string{"GetContainerEvents"}, codes.Unimplemented, "")
			tr.rt.EndStreams(codes.OK)
		}, wait: 20 * time.Second, want: []string{pleg.ConditionStreamDown}, reason: []string{"unsupported: ", "GetContainerEvents"}, healed: 6 * time.Minute},
		{name: pleg.ConditionInspectionFailing, mode: pleg.ModeGeneric, cause: func(tr *trouble) {
			tr.fails(statuses, codes.Internal, "")
			for i := range 7 {
				sandbox, _ := pod(tr.t, tr.rt, fmt.Sprint("sick", i))
				must(tr.t, tr.rt.StopPodSandbox(sandbox))
				time.Sleep(2 * time.Second)
			}
		}, wait: 30 * time.Second, want: []string{pleg.ConditionInspectionFailing},
			reason: []string{"of pod default/sick0, ", " since 20", "out of order", "default/sick4", "some of 2 more pods"}, healed: 5 * time.Minute},
		{name: pleg.ConditionStoreDegraded, cause: func(tr *trouble) {
			tr.faulty.FailBefore(-1, fmt.Errorf("state file x: %w", store.ErrFull))
			tr.heal = append(tr.heal, func() { tr.faulty.FailBefore(0, nil) })
			pod(tr.t, tr.rt, "new")
		}, wait: 20 * time.Second, want: []string{pleg.ConditionStoreDegraded}, reason: []string{"can't be written", store.ErrFull.Error()}, healed: 15 * time.Second},
		{name: pleg.ConditionArbiterStuck, cause: func(tr *trouble) {
			tr.heal = append(tr.heal, tr.faulty.Hold()) // a disk that hangs
			pod(tr.t, tr.rt, "new")
		}, wait: 40 * time.Second, want: []string{pleg.ConditionArbiterStuck}, unready: true, reason: []string{"no progress for 4"}, healed: 15 * time.Second},
		{name: pleg.ConditionClockStepped, cause: func(tr *trouble) { tr.step.Store(-int64(time.Hour)) }, wait: 20 * time.Second,
			want: []string{pleg.ConditionClockStepped}, reason: []string{"stepped by -1h0m0s"}, healed: 10 * time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, simruntime.Config{Seed: 51}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
				tr := &trouble{t: t, rt: rt}
				log, reg := new(logtest.Buffer), prometheus.NewPedanticRegistry()
				cfg.Logger, cfg.Registerer, cfg.RelistPeriodMax, cfg.Mode = log.Logger(), reg, 4*time.Second, tc.mode
				cfg.Clock = sysclock.New()
				wall := cfg.Clock.Wall
				cfg.Clock.Wall = func() time.Time { return wall().Add(time.Duration(tr.step.Load())) }
				pod(t, rt, "healthy")
				tr.a = startAgent(t, pleg.WithStore(cfg, func(s store.Store) store.Store {
					tr.faulty = storetest.NewFaulty(s)
					return tr.faulty
				}), nil)
				time.Sleep(time.Minute)
				if h := tr.a.g.Health(); !h.Ready || len(h.Conditions) != 0 {
					t.Fatalf("before: %+v", h)
				}
				if log.Count("trouble")+log.Count("recovered") != 0 {
					t.Errorf("a good start is trouble:\n%s", log)
				}
				begun := time.Now()
				tc.cause(tr)
				time.Sleep(tc.wait)
				synctest.Wait()
				h := tr.a.g.Health()
				var names []string
				for _, c := range h.Conditions {
					names = append(names, c.Name)
				}
				if !slices.Equal(names, tc.want) || h.Ready == tc.unready || h.Live == slices.Contains(tc.want, pleg.ConditionArbiterStuck) {
					t.Fatalf("conditions %v, ready %v, want %v; %+v", names, h.Ready, tc.want, h)
				}
				for _, part := range tc.reason {
					if !strings.Contains(h.Conditions[0].Reason, part) {
						t.Errorf("%q is not in %q", part, h.Conditions[0].Reason)
					}
				}
				now := time.Now()
				for _, c := range h.Conditions {
					since := c.Since.Add(-time.Duration(tr.step.Load()))
					if since.Before(begun) || since.After(now) {
						t.Errorf("%s since %v, which is not from %v to %v", c.Name, since, begun, now)
					}
					for _, check := range h.Checks {
						if check.Name == c.Check && (check.OK || check.Ready == tc.unready) {
							t.Errorf("%s holds, but its check is %+v", c.Name, check)
						}
					}
				}
				if got, want := livez(t, tr.a.g), map[bool]int{true: http.StatusServiceUnavailable, false: http.StatusOK}[slices.Contains(tc.want, pleg.ConditionArbiterStuck)]; got != want {
					t.Errorf("/livez answers %d, want %d", got, want)
				}
				for name, value := range conditionMetrics(t, reg) {
					if value != slices.Contains(tc.want, name) {
						t.Errorf("metric of %s is %v", name, value)
					}
				}
				for _, f := range tr.heal {
					f()
				}
				time.Sleep(tc.healed)
				synctest.Wait()
				if h := tr.a.g.Health(); !h.Ready || len(h.Conditions) != 0 || livez(t, tr.a.g) != http.StatusOK {
					t.Errorf("after: %+v", h)
				}
				time.Sleep(time.Minute)
				for _, name := range tc.want {
					if starts, ends := log.Count("msg=trouble condition="+name+" "), log.Count("msg=recovered condition="+name+" "); starts != 1 || ends != 1 {
						t.Errorf("%s: %d lines at the start, %d at the end", name, starts, ends)
					}
				}
				for _, line := range log.Lines() {
					if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
						if !strings.Contains(line, "msg=trouble ") && !strings.Contains(line, `msg="trouble has another reason" `) {
							t.Errorf("another line tells of it: %s", line)
						}
					}
				}
				if n := log.Count("msg=trouble"); n != len(tc.want) {
					t.Errorf("%d conditions were told:\n%s", n, log)
				}
				tr.a.finish()
			})
		})
	}
}

// conditionMetrics reads plegd_condition: all conditions are there.
func conditionMetrics(t *testing.T, reg prometheus.Gatherer) map[string]bool {
	t.Helper()
	families, err := reg.Gather()
	must(t, err)
	values := map[string]bool{}
	for _, f := range families {
		if f.GetName() == "plegd_condition" {
			for _, m := range f.GetMetric() {
				values[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue() == 1
			}
		}
	}
	for _, name := range pleg.Conditions {
		if _, ok := values[name]; !ok {
			t.Errorf("no metric of %s", name)
		}
	}
	return values
}

// TestConditionStateReset: a damaged state file is told of for as long as the
// run lasts, since whoever reads positions has to know.
func TestConditionStateReset(t *testing.T) {
	t.Parallel()
	_, path := simtest.Start(t, simruntime.Config{})
	log := new(logtest.Buffer)
	cfg := pleg.Config{Endpoint: path, StateDir: t.TempDir(), RelistPeriod: 50 * time.Millisecond, Logger: log.Logger()}
	a := startAgent(t, cfg, nil)
	a.settle()
	a.finish()
	file := filepath.Join(cfg.StateDir, store.FileName)
	must(t, os.WriteFile(file, []byte(strings.Repeat("not a state file ", 1000)), 0o600))
	a = startAgent(t, cfg, nil)
	waitFor(t, "readiness", func() bool { return a.g.Health().Ready })
	c := a.check(pleg.CheckState)
	if c.OK || !c.Ready || !strings.Contains(c.Reason, a.g.OpenReport().SetAside) || a.g.OpenReport().SetAside == "" || time.Since(c.Since) > time.Minute {
		t.Errorf("%+v", c)
	}
	waitFor(t, "the stream", func() bool { return a.check(pleg.CheckStream).OK })
	if h := a.g.Health(); len(h.Conditions) != 1 || h.Conditions[0].Name != pleg.ConditionStateReset {
		t.Errorf("%+v", h.Conditions)
	}
	a.finish()
	if n := log.Count("level=ERROR"); n != 1 {
		t.Errorf("%d lines tell of it:\n%s", n, log)
	}
}

// TestConditionStateResetLater: the same for a state file that turns out to be
// damaged while the agent runs.
func TestConditionStateResetLater(t *testing.T) {
	t.Parallel()
	rt, path := simtest.Start(t, simruntime.Config{})
	var disk *storetest.Faulty
	cfg := pleg.Config{Endpoint: path, StateDir: t.TempDir(), RelistPeriod: 50 * time.Millisecond}
	cfg = pleg.WithStore(cfg, func(s store.Store) store.Store {
		disk = storetest.NewFaulty(s)
		return disk
	})
	a := startAgent(t, cfg, nil)
	a.settle()
	if c := a.check(pleg.CheckState); !c.OK {
		t.Fatalf("before: %+v", c)
	}
	disk.OnRenew(func(error) error { disk.FailBefore(0, nil); return nil })
	disk.FailBefore(-1, store.ErrDamaged)
	_, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: "new", UID: "uid-new"})
	must(t, err)
	const want = "earlier positions are lost, the old state file was set aside as "
	waitFor(t, "a fresh file", func() bool { return strings.Contains(a.check(pleg.CheckState).Reason, want) })
	if c := a.check(pleg.CheckState); c.OK || !c.Ready || time.Since(c.Since) > time.Minute {
		t.Errorf("%+v", c)
	}
	a.settle()
	a.finish()
}

// livez asks /livez as the kubelet does, of a server that is there for this
// question alone: one that waits for others would stop virtual time.
func livez(t *testing.T, g *pleg.Generator) (code int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "api.sock")
	srv, err := server.New(server.Config{
		Socket: path, Health: g.Health, Source: func() (server.Source, error) { return g, nil }, Metrics: http.NotFoundHandler(),
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	resp, err := client.Get("http://plegd/livez")
	must(t, err)
	_, err = io.Copy(io.Discard, resp.Body)
	must(t, errors.Join(err, resp.Body.Close()))
	cancel()
	must(t, <-done)
	return resp.StatusCode
}

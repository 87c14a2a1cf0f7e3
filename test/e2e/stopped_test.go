package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// stoppedFor is how long the agent is frozen.
const stoppedFor = 20 * time.Second

// hangs is from when on a call counts as hanging. Far above what one takes on a busy machine.
const hangs = 5 * time.Second

// creator makes and removes containers that are never started, which is the fastest way to events:
// two for each.
type creator struct {
	pod  *pod
	made atomic.Int64 // calls that returned

	mu      sync.Mutex
	since   time.Time // of the call in flight
	longest time.Duration
	errs    []error
}

// timed makes one call.
func (c *creator) timed(f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	start := time.Now()
	c.mu.Lock()
	c.since = start
	c.mu.Unlock()
	err := f(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.longest = max(c.longest, time.Since(start))
	c.since = time.Time{}
	if err != nil {
		c.errs = append(c.errs, err)
		return
	}
	c.made.Add(1)
}

// inFlight is how long the present call has lasted.
func (c *creator) inFlight() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		return 0
	}
	return time.Since(c.since)
}

// start makes containers until the context ends; done is closed then.
func (c *creator) start(ctx context.Context) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			var id string
			c.timed(func(ctx context.Context) error {
				r, err := c.pod.rt.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
					PodSandboxId: c.pod.sandbox,
					Config: &runtimeapi.ContainerConfig{
						Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprintf("made-%d", i)},
						Image:    &runtimeapi.ImageSpec{Image: imageName},
						Labels:   map[string]string{labelPodName: c.pod.name, labelPodNamespace: namespace, labelPodUID: c.pod.uid},
						Linux:    &runtimeapi.LinuxContainerConfig{},
					},
					SandboxConfig: c.pod.config,
				})
				id = r.GetContainerId()
				return err
			})
			c.timed(func(ctx context.Context) error {
				_, err := c.pod.rt.cri.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
				return err
			})
		}
	}()
	return done
}

// watchdogCode is what plegd ends with when its watchdog has killed the agent.
const watchdogCode = 10

// A subscriber of containerd 2.x that does not read holds up every call that makes an event. This
// measures how soon a frozen plegd does so, and how its thaw, its death or its watchdog frees them.
func TestAgentStopped(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flags []string
		end   func(*testing.T, *watched) // frees the calls; returns when it has done its part
		dead  bool                       // the agent is gone after that
	}{
		{"SIGCONT", nil, func(t *testing.T, w *watched) {
			mustSignal(t, w.cmd.Process.Pid, syscall.SIGCONT)
		}, false},
		{"SIGKILL", nil, func(t *testing.T, w *watched) { w.kill(t) }, true},
		{"watchdog", []string{"--watchdog", "30s"}, func(t *testing.T, w *watched) {
			select {
			case <-w.exited:
			case <-time.After(longWait):
				t.Fatal("the watchdog does not end a stopped agent")
			}
			if code := w.cmd.ProcessState.ExitCode(); code != watchdogCode {
				t.Errorf("plegd ended with code %d, want %d", code, watchdogCode)
			}
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // they wait more than they compute
			needBinary(t)
			w := &watched{rt: startContainerd(t, containerd2), dir: workDir(t, "plegd")}
			w.restart(t, tt.flags...)
			w.awaitStream(t, streamUp)
			c := &creator{pod: w.rt.runPod(t, "stopped", func(p *runtimeapi.PodSandboxConfig) {
				if len(tt.flags) > 0 {
					// Large events soon fill what lies between the two, long before the watchdog's limit.
					p.Annotations = map[string]string{"large": strings.Repeat("x", 32<<10)}
				}
			})}
			w.awaitTrace(t, settle, c.pod.sandbox, "Created Ready")
			pid := w.cmd.Process.Pid
			if len(tt.flags) > 0 {
				pid = onlyChild(t, pid)
			}

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			mustSignal(t, pid, syscall.SIGSTOP)
			stopped := time.Now()
			done := c.start(ctx)
			hung := c.awaitHang(t, stopped)
			events := c.made.Load()
			lists := time.Now()
			if _, err := w.rt.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); err != nil {
				t.Errorf("list beside hanging calls: %v", err)
			}
			listed := time.Since(lists)
			if len(tt.flags) == 0 {
				time.Sleep(time.Until(stopped.Add(stoppedFor)))
			}
			if n := c.made.Load(); n != events {
				t.Errorf("a call that hung came back by itself: %d calls, then %d", events, n)
			}

			tt.end(t, w)
			ended := time.Now()
			eventually(t, settle, "calls go on", func() error {
				if n := c.made.Load(); n == events {
					return fmt.Errorf("still %d", n)
				}
				return nil
			})
			t.Logf("%s: the first call hung %v after SIGSTOP, behind %d events; it took %v; %s came %v after SIGSTOP, and %v later it was free; a list took %v meanwhile",
				tt.name, hung.Round(10*time.Millisecond), events, c.slowest().Round(10*time.Millisecond), tt.name,
				ended.Sub(stopped).Round(10*time.Millisecond), time.Since(ended).Round(time.Millisecond), listed.Round(time.Millisecond))
			cancel()
			<-done
			for _, err := range c.errs {
				t.Errorf("a call failed: %v", err)
			}

			if tt.dead {
				w.restart(t, tt.flags...)
			}
			w.awaitReady(t)
			p := w.rt.runPod(t, "after")
			w.lives(t, p, "main", "3")
			w.awaitTruth(t, w.rt)
			checkOnce(t, w.awaitTold(t))
		})
	}
}

// awaitHang waits until a call hangs, and returns how long after the stop it was made.
func (c *creator) awaitHang(t *testing.T, stopped time.Time) (after time.Duration) {
	t.Helper()
	eventually(t, longWait, "a call hangs beside a plegd that is stopped", func() error {
		d := c.inFlight()
		if d < hangs {
			return fmt.Errorf("after %v and %d calls the present one has taken %v", time.Since(stopped), c.made.Load(), d)
		}
		after = time.Since(stopped) - d
		return nil
	})
	return after
}

// slowest is how long the longest call took that has returned.
func (c *creator) slowest() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.longest
}

// onlyChild is the one child of a process: of a watchdog, the agent. A child belongs to the thread
// that made it.
func onlyChild(t *testing.T, pid int) (child int) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for _, file := range files {
		children, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, children...)
	}
	if _, err := fmt.Sscan(string(all), &child); err != nil {
		t.Fatalf("children of plegd are %q: %v", all, err)
	}
	return child
}

func mustSignal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("%v to plegd: %v", sig, err)
	}
}

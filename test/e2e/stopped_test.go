package e2e

import (
	"context"
	"fmt"
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

// A subscriber of containerd 2.x that does not read holds up every call that makes an event. This
// measures how soon a frozen plegd does so, and how its thaw or its death frees them. It is why
// plegd never waits while it reads, and why something has to watch over it.
func TestAgentStopped(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*testing.T, *watched)
	}{
		{"SIGCONT", func(t *testing.T, w *watched) { w.mustSignal(t, syscall.SIGCONT) }},
		{"SIGKILL", func(t *testing.T, w *watched) { w.kill(t) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			needBinary(t)
			w := &watched{rt: startContainerd(t, containerd2), dir: workDir(t, "plegd")}
			w.restart(t)
			w.awaitStream(t, streamUp)
			c := &creator{pod: w.rt.runPod(t, "stopped")}
			w.awaitTrace(t, settle, c.pod.sandbox, "Created Ready")

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w.mustSignal(t, syscall.SIGSTOP)
			stopped := time.Now()
			done := c.start(ctx)
			hung := time.Duration(0)
			eventually(t, longWait, "a call hangs beside a plegd that is stopped", func() error {
				if d := c.inFlight(); d < hangs {
					return fmt.Errorf("after %v and %d calls, the longest so far took %v", time.Since(stopped), c.made.Load(), d)
				}
				hung = time.Since(stopped) - c.inFlight()
				return nil
			})
			events := c.made.Load()
			time.Sleep(time.Until(stopped.Add(stoppedFor)))
			if n := c.made.Load(); n != events {
				t.Errorf("a call that hung came back by itself: %d calls, then %d", events, n)
			}
			lists := time.Now()
			if _, err := w.rt.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{}); err != nil {
				t.Errorf("list beside hanging calls: %v", err)
			}
			listed := time.Since(lists)

			freed := time.Now()
			tt.end(t, w)
			eventually(t, settle, "calls go on", func() error {
				if n := c.made.Load(); n == events {
					return fmt.Errorf("still %d", n)
				}
				return nil
			})
			t.Logf("%s: the first call hung %v after SIGSTOP, behind %d events; it took %v, and came back %v after %s; a list took %v meanwhile",
				tt.name, hung.Round(10*time.Millisecond), events, c.longest.Round(10*time.Millisecond),
				time.Since(freed).Round(time.Millisecond), tt.name, listed.Round(time.Millisecond))
			cancel()
			<-done
			for _, err := range c.errs {
				t.Errorf("a call failed: %v", err)
			}

			if tt.name == "SIGKILL" {
				w.restart(t)
			}
			w.awaitReady(t)
			p := w.rt.runPod(t, "after")
			w.lives(t, p, "main", "3")
			w.awaitTruth(t, w.rt)
			checkOnce(t, w.awaitTold(t))
		})
	}
}

func (w *watched) mustSignal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := w.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("%v to plegd: %v", sig, err)
	}
}

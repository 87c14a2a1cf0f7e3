package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// churn makes, ends and removes pods, and keeps a ledger of what it did. Which pods, codes and times
// a seed decides; how they interleave, the machine does.
type churn struct {
	rt      *containerd
	seed    uint64
	workers int
	lenient bool // calls may fail: the runtime is taken down meanwhile

	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	lives map[string]*life
	pods  int
	errs  []error
}

// life is what the ledger says of one sandbox or container. Times that are zero have not come; each
// is taken on the side where the statement is sure: born after the runtime said so, ended likewise,
// leaving before it was asked to remove.
type life struct {
	id        string
	container bool
	uid       string
	attempt   uint32
	code      int32 // as the runtime itself told it, valid once ended

	born, ended, leaving, gone time.Time
}

// callTimeout bounds a call of the churn. A frozen runtime may use all of it.
const callTimeout = 45 * time.Second

// startChurn starts the workers.
func startChurn(rt *containerd, seed uint64, workers int, lenient bool) *churn {
	ctx, cancel := context.WithCancel(context.Background())
	c := &churn{rt: rt, seed: seed, workers: workers, lenient: lenient, cancel: cancel, lives: map[string]*life{}}
	for worker := range workers {
		c.wg.Go(func() { c.work(ctx, worker) })
	}
	return c
}

// end lets each worker finish the step it is at, and so leaves pods in every state.
func (c *churn) end() error {
	c.cancel()
	c.wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.errs...)
}

// ledger is a copy of what was done, and how many pods there were.
func (c *churn) ledger() (lives []life, pods int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lives {
		lives = append(lives, *l)
	}
	return lives, c.pods
}

func (c *churn) work(ctx context.Context, worker int) {
	rng := rand.New(rand.NewPCG(c.seed, uint64(worker)))
	for n := 0; ctx.Err() == nil; n++ {
		err := c.onePod(ctx, rng, fmt.Sprintf("churn-%d-%d", worker, n))
		if err == nil {
			continue
		}
		if !c.lenient {
			c.mu.Lock()
			c.errs = append(c.errs, err)
			c.mu.Unlock()
			return
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// onePod leads a pod through its life. Each call is made with a context of its own: the end of the
// churn lies between two calls, never in one.
func (c *churn) onePod(ctx context.Context, rng *rand.Rand, name string) error {
	call, cancel := context.WithTimeout(context.Background(), callTimeout)
	p, err := c.rt.tryRunPod(call, name)
	cancel()
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.pods++
	c.mu.Unlock()
	c.birth(&life{id: p.sandbox, uid: p.uid})

	var containers []string
	for i := range 1 + rng.IntN(2) {
		name := fmt.Sprintf("c%d", i)
		for attempt := range uint32(1 + rng.IntN(2)) { // some are restarted
			code := rng.IntN(120)
			args := []string{"exit", fmt.Sprint(code), (time.Duration(rng.IntN(1500)) * time.Millisecond).String()}
			if rng.IntN(4) == 0 {
				args = []string{"pause"}
			}
			call, cancel := context.WithTimeout(context.Background(), callTimeout)
			id, err := p.tryRun(call, name, attempt, args...)
			cancel()
			if err != nil {
				return err
			}
			c.birth(&life{id: id, container: true, uid: p.uid, attempt: attempt})
			containers = append(containers, id)
			if !pause(ctx, time.Duration(rng.IntN(800))*time.Millisecond) {
				return nil
			}
			if args[0] == "pause" {
				break // it stays
			}
			if err := c.awaitExit(ctx, id); err != nil || ctx.Err() != nil {
				return err
			}
			if attempt == 0 && rng.IntN(3) == 0 { // as the kubelet clears away the dead
				if err := c.removeContainer(id); err != nil {
					return err
				}
				containers = containers[:len(containers)-1]
			}
		}
	}
	if !pause(ctx, time.Duration(rng.IntN(2500))*time.Millisecond) {
		return nil
	}
	if err := c.stopPod(p, containers); err != nil {
		return err
	}
	if !pause(ctx, time.Duration(rng.IntN(2500))*time.Millisecond) {
		return nil
	}
	return c.removePod(p, containers)
}

// pause waits, and says whether the churn still goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (c *churn) birth(l *life) {
	l.born = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lives[l.id] = l
}

// awaitExit waits for a container that ends by itself, and notes its code.
func (c *churn) awaitExit(ctx context.Context, id string) error {
	deadline := time.Now().Add(callTimeout)
	for {
		ended, err := c.noteExit(id)
		switch {
		case ended || err != nil:
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("container %s does not exit", id)
		case !pause(ctx, 50*time.Millisecond):
			return nil
		}
	}
}

// noteExit asks the runtime for a container's exit code and notes it.
func (c *churn) noteExit(id string) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	r, err := c.rt.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return false, fmt.Errorf("status of container %s: %w", id, err)
	}
	if r.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.lives[id]; l.ended.IsZero() {
		l.ended, l.code = time.Now(), r.GetStatus().GetExitCode()
	}
	return true, nil
}

func (c *churn) stopPod(p *pod, containers []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if _, err := c.rt.cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.sandbox}); err != nil {
		return fmt.Errorf("stop pod %s: %w", p.name, err)
	}
	for _, id := range containers {
		switch ended, err := c.noteExit(id); {
		case err != nil:
			return err
		case !ended:
			return fmt.Errorf("pod %s is stopped, but its container %s has not ended", p.name, id)
		}
	}
	c.mark([]string{p.sandbox}, func(l *life, now time.Time) { l.ended = now })
	return nil
}

func (c *churn) mark(ids []string, set func(*life, time.Time)) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		set(c.lives[id], now)
	}
}

func leaves(l *life, now time.Time) { l.leaving = now }
func left(l *life, now time.Time)   { l.gone = now }

func (c *churn) removePod(p *pod, containers []string) error {
	all := append([]string{p.sandbox}, containers...)
	c.mark(all, leaves)
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if _, err := c.rt.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.sandbox}); err != nil {
		return fmt.Errorf("remove pod %s: %w", p.name, err)
	}
	c.mark(all, left)
	return nil
}

func (c *churn) removeContainer(id string) error {
	c.mark([]string{id}, leaves)
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, err := c.rt.cri.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	if err != nil && status.Code(err) != codes.NotFound {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	c.mark([]string{id}, left)
	return nil
}

package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/retry"
)

const (
	// labelOwner marks what a load has made; see owner.
	labelOwner = "plegd.io/compare"
	// removeTimeout bounds the removal of everything.
	removeTimeout = 2 * time.Minute
	// removers is how many pods are removed at once.
	removers = 8
)

// owner is a process that makes pods: its id and the time at which it started,
// in ticks since the boot, since ids come again.
type owner struct {
	pid    int
	start  uint64
	random uint64 // makes the UIDs of its pods new
}

func newOwner() (owner, error) {
	pid := os.Getpid()
	start, err := startOf(pid)
	return owner{pid: pid, start: start, random: rand.Uint64()}, err
}

// String is the label's value.
func (o owner) String() string { return fmt.Sprintf("%d.%d", o.pid, o.start) }

// alive reports whether the process that a label names still runs. One whose
// label can't be read is somebody else's.
func alive(label string) bool {
	p, s, ok := strings.Cut(label, ".")
	pid, err := strconv.Atoi(p)
	if err != nil || !ok {
		return true
	}
	start, err := startOf(pid)
	return err == nil && strconv.FormatUint(start, 10) == s
}

// startOf returns when a process started, in ticks since the machine did.
func startOf(pid int) (uint64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("when process %d started: %w", pid, err)
	}
	st, err := p.Stat()
	if err != nil {
		return 0, fmt.Errorf("when process %d started: %w", pid, err)
	}
	return st.Starttime, nil
}

// removeStale removes the pods of loads that don't run any more.
func (p *Pods) removeStale(ctx context.Context) error {
	n, err := p.removeWhere(ctx, func(label string) bool { return !alive(label) })
	if n > 0 {
		p.tell(fmt.Sprintf("removed %d pods that a comparison left behind", n))
	}
	if err != nil {
		return fmt.Errorf("pods that a comparison left behind: %w", err)
	}
	return nil
}

// Remove implements trial.Load: it removes what this load has made, whatever
// has become of its context.
func (p *Pods) Remove() error {
	p.Halt()
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	if _, err := p.removeWhere(ctx, func(label string) bool { return label == p.owner.String() }); err != nil {
		return fmt.Errorf("pods of the load are left, with label %s; the next comparison with a load on this runtime removes them: %w", labelOwner, err)
	}
	return nil
}

// removeWhere removes the pods with a label that fits, and makes sure that they
// are gone.
func (p *Pods) removeWhere(ctx context.Context, fits func(label string) bool) (removed int, err error) {
	var last error
	for try := 0; ; try++ {
		pods, err := p.client.ListPodSandbox(ctx, nil)
		if err != nil {
			return removed, err
		}
		var mine []string
		for _, s := range pods {
			if label := s.GetLabels()[labelOwner]; label != "" && fits(label) {
				mine = append(mine, s.GetId())
			}
		}
		if len(mine) == 0 {
			return removed, nil
		}
		const tries = 5
		if try == tries || ctx.Err() != nil {
			return removed, fmt.Errorf("%d are left: %w", len(mine), errors.Join(last, ctx.Err()))
		}
		if try == 0 {
			removed = len(mine)
		} else {
			_ = retry.Sleep(ctx, retryPause)
		}
		group := errgroup.Group{}
		group.SetLimit(removers)
		for _, id := range mine {
			group.Go(func() error { return p.removePod(ctx, id) })
		}
		last = group.Wait()
	}
}

// removePod stops and removes one pod.
func (p *Pods) removePod(ctx context.Context, sandbox string) error {
	if sandbox == "" {
		return nil
	}
	_, err := call(ctx, callTimeout, p.api.StopPodSandbox, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox})
	if err != nil && !cri.NotFound(err) {
		return fmt.Errorf("stop pod: %w", err)
	}
	_, err = call(ctx, callTimeout, p.api.RemovePodSandbox, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox})
	if err != nil && !cri.NotFound(err) {
		return fmt.Errorf("remove pod: %w", err)
	}
	return nil
}

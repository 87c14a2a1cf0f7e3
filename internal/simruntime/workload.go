package simruntime

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Defaults of WorkloadConfig.
const (
	DefaultPods = 10
	DefaultRate = 5 // transitions a second
)

// WorkloadConfig describes the pods that a Workload makes.
type WorkloadConfig struct {
	// Seed decides everything: names, order, exit codes. The same seed on a
	// fresh Runtime makes the same history but for its times.
	Seed uint64

	// Pods is how many pods there are at a time. Default 10.
	Pods int

	// Rate is the mean number of transitions a second. Default 5.
	Rate float64

	// Containers is how many each pod has. Default: one to three. If it is
	// given, the pods of the beginning are put there without events, as by
	// Runtime.Fill: a full node, not one that fills up. So call Fill before
	// anybody may list.
	Containers int

	// ExitAtOnce is the share of containers that exit as soon as they are
	// started.
	ExitAtOnce float64
}

// Workload plays a kubelet: it runs pods, lets their containers exit, restarts
// them with the next attempt, removes old ones, and replaces whole pods. It
// must be the only one to start and remove its pods; others may make more. While
// the runtime is frozen it waits.
type Workload struct {
	cfg  WorkloadConfig
	r    *Runtime
	rng  *rand.Rand
	fast *rand.Rand // which containers exit at once
	pods []*wpod
	made int // pods ever made
}

// NewWorkload prepares a workload; Run or Step make it happen.
func NewWorkload(r *Runtime, cfg WorkloadConfig) (*Workload, error) {
	if cfg.Pods < 0 || cfg.Rate < 0 || cfg.Containers < 0 {
		return nil, fmt.Errorf("workload config: %d pods of %d containers at rate %v: negative", cfg.Pods, cfg.Containers, cfg.Rate)
	}
	if !(cfg.ExitAtOnce >= 0 && cfg.ExitAtOnce <= 1) {
		return nil, fmt.Errorf("workload config: share %v of containers that exit at once: not from 0 to 1", cfg.ExitAtOnce)
	}
	if cfg.Pods == 0 {
		cfg.Pods = DefaultPods
	}
	if cfg.Rate == 0 {
		cfg.Rate = DefaultRate
	}
	return &Workload{cfg: cfg, r: r, rng: newRand(cfg.Seed, "workload"), fast: newRand(cfg.Seed, "exits at once")}, nil
}

// Run fills the node with pods at once and then goes on at the configured rate
// until the context ends. It returns nil then.
func (w *Workload) Run(ctx context.Context) error {
	if err := w.Fill(); err != nil && !errors.Is(err, ErrDown) {
		return err
	}
	for {
		// A step makes one to a few transitions; the pause pays for them.
		n, err := w.Step()
		if err != nil {
			return err
		}
		jitter := 0.5 + w.rng.Float64()
		pause := time.NewTimer(time.Duration(jitter * float64(max(n, 1)) / w.cfg.Rate * float64(time.Second)))
		select {
		case <-ctx.Done():
			pause.Stop()
			return nil
		case <-pause.C:
		}
	}
}

// Fill runs pods until there are as many as configured, with all their
// containers started. It fails with ErrDown while the runtime is down and pods
// are run one by one.
func (w *Workload) Fill() error {
	for len(w.pods) < w.cfg.Pods {
		w.pods = append(w.pods, w.newPod())
	}
	for i := range w.pods {
		for w.cfg.Containers > 0 && w.pods[i].sandboxID == "" {
			if err := w.put(w.pods[i]); err != nil {
				return err
			}
		}
		for w.pods[i].sandboxID == "" || w.pods[i].next(wabsent, wcreated) != nil {
			if err := w.forgive(w.pods[i], w.advance(w.pods[i])); err != nil {
				return fmt.Errorf("workload: fill: %w", err)
			}
		}
	}
	return nil
}

// put adds a pod with all its containers at once and quietly.
func (w *Workload) put(p *wpod) error {
	var specs []ContainerSpec
	for _, c := range p.ctrs {
		specs = append(specs, ContainerSpec{Name: c.name, Image: c.image})
	}
	var ids []string
	err := w.r.change(false, func() (err error) {
		p.sandboxID, ids, err = w.r.putPod(p.spec, specs)
		return err
	})
	if errors.Is(err, ErrReserved) {
		w.replace(p)
		return nil
	}
	for i, id := range ids {
		p.ctrs[i].id, p.ctrs[i].state = id, wrunning
	}
	return err
}

// Step lets one pod do its next thing and returns how many transitions that
// made. While the runtime is down only running containers do something: they
// exit.
func (w *Workload) Step() (int, error) {
	if w.r.Frozen() {
		return 0, nil
	}
	for len(w.pods) < w.cfg.Pods {
		w.pods = append(w.pods, w.newPod())
	}
	return w.step(w.pods[w.rng.IntN(len(w.pods))])
}

func (w *Workload) step(p *wpod) (int, error) {
	before := w.r.lastTransition()
	err := w.forgive(p, w.advance(p))
	if errors.Is(err, ErrDown) { // somebody else may stop the runtime
		err = nil
	}
	return int(w.r.lastTransition() - before), err
}

// forgive deals with what doesn't end a workload: a start that was to fail, a
// pod that an earlier workload of this seed left, and objects of ours that
// somebody else removed or changed (crictl on the demo's socket).
func (w *Workload) forgive(p *wpod, err error) error {
	switch {
	case errors.Is(err, ErrStartFailed):
		return nil
	case errors.Is(err, ErrReserved):
		w.replace(p)
		return nil
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrState):
		p.leaving = true
		return nil
	}
	return err
}

// advance does a pod's next thing.
func (w *Workload) advance(p *wpod) error {
	if p.sandboxID == "" {
		id, err := w.r.RunPodSandbox(p.spec)
		p.sandboxID = id
		return err
	}
	if p.leaving {
		return w.leave(p)
	}
	if c := p.next(wcreated); c != nil {
		c.state = wrunning
		err := w.r.StartContainer(c.id)
		switch {
		case errors.Is(err, ErrStartFailed), err == nil && c.brief:
			c.state = wexited
		case err != nil:
			c.state = wcreated
		}
		return err
	}
	if c := p.next(wabsent, wexited); c != nil {
		return w.create(p, c)
	}
	if w.chance(shareLeave) {
		p.leaving = true
		return w.leave(p)
	}
	c := p.ctrs[w.rng.IntN(len(p.ctrs))]
	how := exits[w.rng.IntN(len(exits))]
	if err := w.r.ExitContainer(c.id, how.code, how.reason); err != nil {
		return err
	}
	c.state = wexited
	return nil
}

// create makes a container anew and removes the dead one before last, as the
// kubelet does.
func (w *Workload) create(p *wpod, c *wcontainer) error {
	spec := ContainerSpec{Name: c.name, Image: c.image, Attempt: c.attempt}
	if c.state == wexited {
		spec.Attempt++
	}
	if w.chance(shareFailStart) {
		spec.FailStart = "exec: \"/no-such-command\": no such file or directory"
	}
	brief := w.fast.Float64() < w.cfg.ExitAtOnce
	if brief {
		spec.ExitAtOnce = new(exits[w.fast.IntN(len(exits))].code)
	}
	id, err := w.r.CreateContainer(p.sandboxID, spec)
	if err != nil {
		return err
	}
	old := c.previous
	c.previous, c.id, c.attempt, c.state, c.brief = c.id, id, spec.Attempt, wcreated, brief
	if old == "" {
		return nil
	}
	return w.r.RemoveContainer(old)
}

// leave stops a pod and, at its next turn, removes it and makes room for
// another. Some go at once.
func (w *Workload) leave(p *wpod) error {
	st, err := w.r.PodSandboxStatus(p.sandboxID)
	if err == nil && st.State == sandboxReady && !w.chance(50) {
		return w.r.StopPodSandbox(p.sandboxID)
	}
	if err == nil {
		err = w.r.RemovePodSandbox(p.sandboxID)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	w.replace(p)
	return nil
}

func (w *Workload) replace(p *wpod) {
	for i, o := range w.pods {
		if o == p {
			w.pods[i] = w.newPod()
		}
	}
}

func (w *Workload) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (r *Runtime) lastTransition() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.history.seq
}

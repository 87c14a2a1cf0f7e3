package trial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/runtimes"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/internal/unixsock"
)

const (
	// lookPeriod is how often the runtime is looked at: one Version call and one
	// read of /proc.
	lookPeriod = time.Second
	// lookTimeout bounds the call.
	lookTimeout = 2 * time.Second
	// DefaultGoneAfter is how long it may be silent before it counts as gone for
	// good: a restart of containerd on a full node takes some seconds.
	DefaultGoneAfter = 15 * time.Second
)

// runtime is the runtime that is compared on, as the trial itself sees it.
type runtime struct {
	endpoint, name, version string
	client                  *cri.Client
	gone                    chan struct{} // closed once it counts as gone
	goneAt                  int64         // when it last answered; of watch until gone is closed
	stop                    context.CancelFunc
	done                    chan struct{}

	mu      sync.Mutex
	pid     int
	unknown string // why its CPU isn't known
	last    int64  // CPU of the present process, ns
	uses    []use
}

// watchRuntime finds out who answers and looks at it until close.
func watchRuntime(ctx context.Context, endpoint string, goneAfter time.Duration) (*runtime, error) {
	path, err := cri.ParseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	v, err := runtimes.Probe(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("runtime %s: %w", endpoint, err)
	}
	r := &runtime{endpoint: path, name: v.Name, version: v.Version, gone: make(chan struct{}), done: make(chan struct{})}
	r.client, err = cri.Dial(cri.Config{Endpoint: endpoint, RPCTimeout: lookTimeout, Clock: sysclock.New()})
	if err != nil {
		return nil, err
	}
	r.identify()
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	go r.watch(ctx, goneAfter)
	return r, nil
}

func (r *runtime) close() {
	r.stop()
	<-r.done
	_ = r.client.Close()
}

// watch looks until ctx ends or the runtime counts as gone.
func (r *runtime) watch(ctx context.Context, goneAfter time.Duration) {
	defer close(r.done)
	ticker := time.NewTicker(lookPeriod)
	defer ticker.Stop()
	answered, down := time.Now(), false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		_, err := r.client.Version(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if down {
				r.identify() // another process may answer now
			}
			answered, down = time.Now(), false
		default:
			down = true
			if time.Since(answered) > goneAfter {
				r.goneAt = answered.UnixNano()
				close(r.gone)
				return
			}
		}
		r.measure()
	}
}

// identify finds the process that listens on the socket.
func (r *runtime) identify() {
	pid, err := listener(r.endpoint)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.pid, r.unknown = 0, err.Error()
		return
	}
	if pid == r.pid {
		return
	}
	cpu, err := compare.ProcessCPU(pid)
	if err != nil {
		r.pid, r.unknown = 0, fmt.Sprintf("its process %d can't be read: %v", pid, err)
		return
	}
	r.pid, r.unknown, r.last = pid, "", cpu
	r.uses = append(r.uses, use{at: time.Now().UnixNano()})
}

// measure reads its processor time.
func (r *runtime) measure() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pid == 0 {
		return
	}
	cpu, err := compare.ProcessCPU(r.pid)
	if err != nil {
		return // it has ended; whoever answers next is found then
	}
	r.uses = append(r.uses, use{at: time.Now().UnixNano(), cpu: cpu - r.last})
	r.last = cpu
}

// use is the processor time used since the one before, ns. Where another process
// takes over there is one of 0.
type use struct{ at, cpu int64 }

// report says what is known of it between two times.
func (r *runtime) report(from, to int64) compare.Runtime {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := compare.Runtime{Endpoint: r.endpoint, Name: r.name, Version: r.version, PID: r.pid, Unknown: r.unknown}
	for i := 1; i < len(r.uses); i++ {
		before, now := r.uses[i-1].at, r.uses[i]
		if before < from || now.at > to || now.at <= before {
			continue
		}
		out.CPU += time.Duration(now.cpu)
		out.Series = append(out.Series, compare.CPUPoint{At: now.at, Share: float64(now.cpu) / float64(now.at-before)})
	}
	return out
}

// errNoPeer: the kernel doesn't say who listens.
var errNoPeer = errors.New("the kernel does not say which process listens on the socket; it may be in another pid namespace")

// listener returns the process that listens on a unix socket.
func listener(path string) (int, error) {
	conn, err := net.DialTimeout("unix", path, lookTimeout)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	peer, err := unixsock.PeerOf(conn)
	switch {
	case err != nil:
		return 0, err
	case peer.PID <= 0:
		return 0, errNoPeer
	case peer.PID == 1 && os.Getpid() != 1:
		return 0, errors.New("the socket was made by process 1, for the runtime that it starts")
	}
	return int(peer.PID), nil
}

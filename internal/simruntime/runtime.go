package simruntime

import (
	"fmt"
	"math/rand/v2"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is one simulated container runtime. Its methods may be called from
// any goroutine. They do what the CRI calls of the same names do, at once and
// without a socket; Serve offers the same over gRPC.
type Runtime struct {
	cfg   Config
	calls *callLog
	rules *ruleSet
	hub   *hub
	lane  *lane
	gate  *gate
	pings pingLog

	mu         sync.Mutex
	profile    Profile
	sandboxes  *table[*sandbox]
	containers *table[*container]
	members    map[string][]*container // by sandbox id, which need not exist
	names      map[string]string       // reserved name → id of its owner
	ids        *rand.Rand
	habits     *rand.Rand // for the shares of the profile
	pods       uint32     // sandboxes ever run, for their addresses
	filled     int        // pods ever made by Fill
	ticket     uint64     // of the last event sent, see hub.admit
	history    history

	up      bool
	down    chan struct{}   // closed when the present run of the runtime ends
	loops   int             // Serve calls that are running
	serving int             // Serve calls that listen now
	sockets []*unixListener // those of them that have a socket file
	killed  bool            // the last end of the runtime was a Kill
	changed *sync.Cond      // on mu: up, loops or serving changed
}

// sandbox and container hold what CRI would answer about them. A status is
// replaced, never changed in place, so that answers and events can share it.
type sandbox struct {
	status *runtimeapi.PodSandboxStatus
	name   string // reserved
}

type container struct {
	status    *runtimeapi.ContainerStatus
	sandboxID string
	name      string // reserved
	failStart string
	stopCode  int32
	exits     *int32 // the code with which it exits as soon as it is started
}

// New makes a runtime that is up and empty.
func New(cfg Config) (*Runtime, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Runtime{
		cfg:        cfg,
		calls:      newCallLog(cfg.Keep),
		rules:      &ruleSet{seed: cfg.Seed},
		hub:        newHub(cfg),
		gate:       newGate(),
		sandboxes:  newTable[*sandbox](),
		containers: newTable[*container](),
		members:    map[string][]*container{},
		names:      map[string]string{},
		ids:        newRand(cfg.Seed, "ids"),
		habits:     newRand(cfg.Seed, "habits"),
		profile:    cfg.Profile,
		history:    history{keep: cfg.Keep},
		up:         true,
		down:       make(chan struct{}),
	}
	r.lane = &lane{hub: r.hub}
	r.changed = sync.NewCond(&r.mu)
	return r, nil
}

// change runs one change of the model. If the change sends events itself, as
// containerd's create, start and remove do, it waits with StallProducers until
// the event queue has taken them. Exits are told of by monitors of their own,
// so what makes a container exit never waits.
func (r *Runtime) change(sends bool, f func() error) error {
	r.mu.Lock()
	before := r.ticket
	err := f()
	ticket := r.ticket
	r.mu.Unlock()
	if sends && ticket != before {
		r.hub.admit(ticket)
	}
	return err
}

// changeUp is change for what only a running runtime can do.
func (r *Runtime) changeUp(sends bool, f func() error) error {
	return r.change(sends, func() error {
		if !r.up {
			return ErrDown
		}
		return f()
	})
}

// reserve takes a name for an id. containerd refuses a second pod or container
// of one name and attempt until the first is removed.
func (r *Runtime) reserve(name, id string) error {
	if owner, taken := r.names[name]; taken {
		return fmt.Errorf("name %q of %s: %w", name, owner, ErrReserved)
	}
	r.names[name] = id
	return nil
}

func (r *Runtime) now() int64 { return r.cfg.Wall().UnixNano() }

// Truth is the runtime's state at one moment, read at once (two list calls are
// not). The statuses are shared with the runtime and must not be changed.
type Truth struct {
	Sandboxes  []*runtimeapi.PodSandboxStatus
	Containers []TrueContainer
}

// TrueContainer is one container of a Truth. CRI's own status doesn't say to
// which sandbox a container belongs.
type TrueContainer struct {
	SandboxID string
	Status    *runtimeapi.ContainerStatus
}

// Truth returns the runtime's state as it is, whatever rules make the calls
// answer.
func (r *Runtime) Truth() Truth {
	r.mu.Lock()
	defer r.mu.Unlock()
	var t Truth
	for sb := range r.sandboxes.all {
		t.Sandboxes = append(t.Sandboxes, sb.status)
	}
	for c := range r.containers.all {
		t.Containers = append(t.Containers, TrueContainer{SandboxID: c.sandboxID, Status: c.status})
	}
	return t
}

package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/plegd/plegd/internal/compare"
)

const (
	// readyTimeout is how long the modes may take to list everything once and to
	// inspect it. Each ends that sooner by itself, unless it hangs.
	readyTimeout = compare.StartTime + time.Minute
	// endTimeout is how long they may take for the closing relist and their end;
	// a generator stops within two seconds whatever the runtime does.
	endTimeout = 15 * time.Second
	// maxSettle bounds the wait for what happened last to be told.
	maxSettle = time.Minute
	// settleSlack is what a relist may take beyond its period.
	settleSlack = 500 * time.Millisecond
	// MaxFor bounds a trial whose length is a number of transitions.
	MaxFor = time.Hour
)

// Load is what makes pods come and go during a trial.
type Load interface {
	// Begin starts it. It goes on until Halt, and returns as soon as it has begun.
	Begin(ctx context.Context) error
	// Halt ends it and leaves everything as it is.
	Halt()
	// Remove takes away what it has made. It is called in any case, also if Begin failed.
	Remove() error
	// History is what happened, if the load knows it, else nil. It is called
	// last of all.
	History() ([]compare.Happened, error)
	// Words describes it.
	Words() string
}

// Config says what to do.
type Config struct {
	Modes       []compare.Mode
	Endpoint    string
	RPCTimeout  time.Duration
	For         time.Duration // 0: until there were enough transitions, at most MaxFor
	Transitions int           // 0: no matter
	Late        time.Duration
	GoneAfter   time.Duration // a runtime that is silent for so long is gone; 0: DefaultGoneAfter
	Load        Load          // nil: the node's own
	Child       []string      // the command of a child: a program that calls compare.Run
	// Tell is told in words what the trial is about to do. It may be nil.
	Tell func(string)
}

// ErrNoMode: no mode could be run.
var ErrNoMode = errors.New("no mode could be run")

// Run runs a trial until it is done or ctx ends, which ends only the
// measurement. The error is about what kept the trial from giving a report, or,
// beside a report, about what could not be cleaned up.
func Run(ctx context.Context, cfg Config) (report *compare.Report, err error) {
	if cfg.Tell == nil {
		cfg.Tell = func(string) {}
	}
	dir, err := os.MkdirTemp("", "plegd-compare")
	if err != nil {
		return nil, fmt.Errorf("directory for the state of the modes: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t := &trial{cfg: cfg, seen: map[seen]bool{}, enough: make(chan struct{})}
	defer t.kill()
	return t.run(ctx, dir)
}

// trial is a trial that runs.
type trial struct {
	cfg    Config
	kids   []*kid
	notes  []string
	cut    string        // why the measurement ended before it was to
	enough chan struct{} // closed when there were enough transitions

	mu   sync.Mutex
	from int64         // of the measurement, 0 before it
	seen map[seen]bool // transitions that some mode has told
}

// seen names a transition.
type seen struct{ id, typ string }

func (t *trial) run(ctx context.Context, dir string) (*compare.Report, error) {
	rt, err := watchRuntime(ctx, t.cfg.Endpoint, cmp.Or(t.cfg.GoneAfter, DefaultGoneAfter))
	if err != nil {
		return nil, err
	}
	defer rt.close()
	for i, m := range t.cfg.Modes {
		k, err := startKid(t.cfg.Child, compare.Child{
			Mode: m, Endpoint: t.cfg.Endpoint, StateDir: filepath.Join(dir, strconv.Itoa(i)), RPCTimeout: t.cfg.RPCTimeout,
		}, t.took)
		if err != nil {
			return nil, err
		}
		t.kids = append(t.kids, k)
	}
	t.cfg.Tell(fmt.Sprintf("starting %s on %s %s", names(t.cfg.Modes), rt.name, rt.version))
	if err := t.awaitReady(ctx); err != nil {
		return nil, err
	}
	load := t.cfg.Load
	removed := false
	remove := func() error {
		if load == nil || removed {
			return nil
		}
		removed = true
		return load.Remove()
	}
	defer func() { _ = remove() }()
	from := time.Now().UnixNano()
	t.mu.Lock()
	t.from = from
	t.mu.Unlock()
	if load != nil {
		if err := load.Begin(ctx); err != nil {
			return nil, errors.Join(err, remove())
		}
	}
	to := max(from, t.measure(ctx, rt)) // it may have gone before
	if load != nil {
		load.Halt()
	}
	settled := t.settle(ctx, rt)
	closing := time.Now().UnixNano()
	t.end(settled)
	removeErr := remove()
	in := compare.Input{
		From: from, To: to, Close: closing, Late: t.cfg.Late, Load: t.words(), Cut: t.cut, Runtime: rt.report(from, to), Notes: t.notes,
	}
	for _, k := range t.kids {
		in.Traces = append(in.Traces, k.result())
	}
	if load != nil {
		var err error
		if in.History, err = load.History(); err != nil {
			in.Notes = append(in.Notes, fmt.Sprintf("the history of the runtime could not be read: %v", err))
		}
	}
	report := compare.Judge(in)
	var own compare.Sample
	compare.Usage(&own)
	report.OwnCPU = time.Duration(own.CPU)
	return report, removeErr
}

// words describes the load.
func (t *trial) words() string {
	if t.cfg.Load == nil {
		return "the node's own"
	}
	return t.cfg.Load.Words()
}

// took counts the transitions that were told, if so many of them end the measurement.
func (t *trial) took(l compare.Line) {
	if t.cfg.Transitions == 0 || l.Event == nil || l.Event.Change != "" || l.Event.ID == "" {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	// What happened before is told again by a slower mode, with its time.
	if t.from == 0 || l.Event.OccurredAt != 0 && l.Event.OccurredAt < t.from {
		return
	}
	t.seen[seen{l.Event.ID, string(l.Event.Type)}] = true
	if len(t.seen) == t.cfg.Transitions {
		select {
		case <-t.enough:
		default:
			close(t.enough)
		}
	}
}

// kill ends the children that are left.
func (t *trial) kill() {
	for _, k := range t.kids {
		k.kill()
		<-k.ended
	}
}

func (t *trial) note(format string, args ...any) {
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

func names(modes []compare.Mode) string {
	var all []string
	for _, m := range modes {
		all = append(all, m.Name)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

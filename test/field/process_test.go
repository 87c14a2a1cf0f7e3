package field_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/store"
)

// agentEnv makes this test binary an agent with the configuration that is its
// value. It writes its events to stdout, a line of JSON each, and its log to
// stderr, until somebody ends it.
const agentEnv = "PLEGD_FIELD_AGENT"

type processConfig struct {
	Endpoint, StateDir                        string
	RelistPeriod, RelistPeriodMax, RPCTimeout time.Duration
	From                                      *pleg.Position // nil: from the newest event on
}

// beAgent is the agent in its own process. It returns an error only, since it
// is there to be killed.
func beAgent(text string) error {
	var c processConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	g, err := pleg.New(pleg.Config{
		Endpoint: c.Endpoint, StateDir: c.StateDir, RelistPeriod: c.RelistPeriod, RelistPeriodMax: c.RelistPeriodMax,
		RPCTimeout: c.RPCTimeout, Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	if c.From == nil {
		c.From = new(g.Position())
	}
	sub, err := g.Subscribe(c.From)
	if err != nil {
		return err
	}
	ran := make(chan error, 1)
	go func() { ran <- g.Run(context.Background()) }()
	out := json.NewEncoder(os.Stdout)
	for {
		ev, err := sub.Next(context.Background())
		if err == nil {
			err = out.Encode(ev)
		}
		if err != nil {
			return errors.Join(err, <-ran)
		}
	}
}

// process is a life of the agent as a process of its own.
type process struct {
	f    *field
	cmd  *exec.Cmd
	read sync.WaitGroup
	once sync.Once
}

// startProcess is start, but for the sampler: what such an agent shows is not
// looked at.
func (f *field) startProcess() *process {
	f.t.Helper()
	text, err := json.Marshal(processConfig{
		Endpoint: f.path, StateDir: f.cfg.StateDir, RelistPeriod: f.cfg.RelistPeriod, RelistPeriodMax: f.cfg.RelistPeriodMax,
		RPCTimeout: f.cfg.RPCTimeout, From: f.at,
	})
	f.must(err)
	p := &process{f: f, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), agentEnv+"="+string(text))
	p.cmd.Stderr = &f.log.buf
	out, err := p.cmd.StdoutPipe()
	f.must(err)
	f.must(p.cmd.Start())
	f.t.Cleanup(func() { p.end() })
	f.lives++
	p.read.Go(func() {
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return // what is no whole line was not told
			}
			var ev pleg.Event
			if err := json.Unmarshal(line, &ev); err != nil {
				f.t.Errorf("told %q: %v", line, err)
				continue
			}
			f.mu.Lock()
			f.events = append(f.events, ev)
			f.at = new(ev.Position)
			f.mu.Unlock()
		}
	})
	return p
}

// end kills the process and returns how it ended, the first time.
func (p *process) end() (err error) {
	p.once.Do(func() {
		_ = p.cmd.Process.Kill() // it may have ended by itself
		p.read.Wait()            // before Wait, which closes the pipe
		err = p.cmd.Wait()
	})
	return err
}

// kill ends the process by SIGKILL and checks that it got so far, and that it
// had written whatever it had told (D1).
func (p *process) kill() {
	f := p.f
	f.t.Helper()
	err := p.end()
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		f.t.Fatalf("the agent ended with %v", err)
	}
	if ws, ok := ended.Sys().(syscall.WaitStatus); !ok || ws.Signal() != syscall.SIGKILL {
		f.t.Errorf("G4: the agent ended by itself: %v", err)
	}
	db, err := store.OpenBoltReadOnly(filepath.Join(f.cfg.StateDir, store.FileName))
	f.must(err)
	snap, err := db.Load()
	f.must(errors.Join(err, db.Close()))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at != nil && (snap.Meta.Epoch != f.at.Epoch || snap.Meta.Last < f.at.Seq) {
		f.t.Errorf("D1: %v was told, but the file ends with %v/%d", f.at, snap.Meta.Epoch, snap.Meta.Last)
	}
}

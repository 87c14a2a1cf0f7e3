package main

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

// An agent that is killed again and again tells everything, and nothing twice:
// each run's stdout begins where the published positions of the run before
// end, and --since replays all of it.
func TestKilledAgain(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	load, err := simruntime.NewWorkload(rt, simruntime.WorkloadConfig{Seed: 1, Pods: 5, Rate: 200})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	loaded := make(chan error, 1)
	go func() { loaded <- load.Run(ctx) }()
	t.Cleanup(func() { <-loaded })

	dir := newAgentDir(t)
	var told []store.Event // as read from stdout over all runs
	for n := range 4 {
		c := start(t, dir.args(endpoint)...)
		r := c.read()
		dir.awaitReady(t)
		time.Sleep(500 * time.Millisecond)
		if n < 3 {
			c.signal(syscall.SIGKILL)
			<-c.ended
		} else {
			c.terminate()
		}
		<-r.done
		events := r.all(t)
		if len(events) < 10 {
			t.Fatalf("run %d told %d events", n, len(events))
		}
		if n > 0 {
			last, first := told[len(told)-1].Position, events[0].Position
			if first.Epoch != last.Epoch || first.Seq <= last.Seq {
				t.Errorf("run %d begins at %s, the run before ended at %s", n, first, last)
			}
			if events[0].Type != store.SequenceSkipped {
				t.Errorf("run %d begins with %s after a kill", n, events[0].Type)
			}
		}
		checkOrder(t, events)
		told = append(told, events...)
	}

	// The replay has what was told, and what a killed run published but could
	// not write to its stdout any more.
	c := start(t, dir.args(endpoint, "--since", told[0].Position.String())...)
	r := c.read()
	end := told[len(told)-1].Position
	replayed := r.await(t, "the replay is done", func(ev store.Event) bool { return ev.Position.Seq >= end.Seq })
	c.terminate()
	checkOrder(t, append([]store.Event{told[0]}, replayed...))
	at := map[uint64]store.Event{}
	for _, ev := range replayed {
		at[ev.Position.Seq] = ev
	}
	for _, ev := range told[1:] {
		got := at[ev.Position.Seq]
		if fmt.Sprint(got) != fmt.Sprint(ev) {
			t.Errorf("replayed %v, told as %v", got, ev)
		}
	}
}

// What --since can't give is an error that says why, and from where it can go on.
func TestSinceExpired(t *testing.T) {
	t.Parallel()
	_, endpoint := simtest.Start(t, simruntime.Config{})
	dir := newAgentDir(t)
	c := start(t, dir.args(endpoint)...)
	dir.awaitReady(t)
	epoch := dir.position(t).Epoch
	c.terminate()
	for since, what := range map[string]string{
		"9f00000000000001/7":       "is of another epoch (the state it belongs to is lost, or another agent's), oldest is " + epoch.String() + "/0",
		epoch.String() + "/999999": "was not given out yet, newest is " + epoch.String() + "/0",
	} {
		code, out, stderr := run(t, dir.args(endpoint, "--since", since)...)
		want := fmt.Sprintf("plegd: --since: position %s %s", since, what)
		if code != exitExpired || out != "" || lastLine(stderr) != want {
			t.Errorf("--since %s: code %d, stdout %q, %q; want %q", since, code, out, lastLine(stderr), want)
		}
	}
	// It has released the state.
	again := start(t, dir.args(endpoint, "--since", epoch.String()+"/0")...)
	dir.awaitReady(t)
	again.terminate()
}

// A state that can't be used ends the agent at once, with a code for each
// reason and one line that says what to do something about.
func TestStateRefused(t *testing.T) {
	t.Parallel()
	_, endpoint := simtest.Start(t, simruntime.Config{})
	used := func(t *testing.T) agentDir {
		dir := newAgentDir(t)
		c := start(t, dir.args(endpoint)...)
		dir.awaitReady(t)
		c.terminate()
		return dir
	}
	refused := func(t *testing.T, args []string, code int, parts ...string) {
		t.Helper()
		got, out, stderr := run(t, args...)
		line := lastLine(stderr)
		if got != code || out != "" || !strings.HasPrefix(line, "plegd: ") {
			t.Errorf("code %d, want %d; stdout %q; %q", got, code, out, line)
		}
		for _, part := range parts {
			if !strings.Contains(line, part) {
				t.Errorf("%q is not in %q", part, line)
			}
		}
	}
	t.Run("locked", func(t *testing.T) {
		dir := newAgentDir(t)
		c := start(t, dir.args(endpoint)...)
		dir.awaitReady(t)
		refused(t, dir.args(endpoint, "--socket", ""), exitLocked, dir.state(), fmt.Sprintf("pid %d", c.cmd.Process.Pid))
		for _, cmd := range []string{"show", "check"} {
			refused(t, []string{"state", cmd, "--state-dir", dir.state()}, exitLocked, dir.state(), fmt.Sprintf("pid %d", c.cmd.Process.Pid))
		}
		c.terminate()
	})
	t.Run("unwritable", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		refused(t, newAgentDir(t).args(endpoint, "--state-dir", file+"/state"), exitUnwritable, file+"/state", "not writable")
		refused(t, newAgentDir(t).args(endpoint, "--state-dir", "/proc/plegd"), exitUnwritable, "/proc/plegd", "not writable")
	})
	t.Run("newer", func(t *testing.T) {
		dir := used(t)
		makeNewer(t, filepath.Join(dir.state(), store.FileName))
		refused(t, dir.args(endpoint), exitNewerSchema, dir.state(), "newer version", "99")
		refused(t, []string{"state", "show", "--state-dir", dir.state()}, exitNewerSchema, dir.state(), "99")
		refused(t, []string{"state", "check", "--state-dir", dir.state()}, exitNewerSchema, dir.state(), "99")
	})
	t.Run("of another endpoint", func(t *testing.T) {
		_, other := simtest.Start(t, simruntime.Config{})
		refused(t, used(t).args(other), exitForeign, endpoint, other)
	})
	t.Run("of another node", func(t *testing.T) {
		refused(t, used(t).args(endpoint, "--node-name", "n2"), exitForeign, `"n1"`, `"n2"`)
	})
	t.Run("of another runtime", func(t *testing.T) {
		dir := newAgentDir(t)
		path := filepath.Join(string(dir), "cri.sock")
		for _, name := range []string{"containerd", "cri-o"} {
			rt := simtest.New(t, simruntime.Config{Profile: simruntime.Profile{Name: name, Version: "1"}})
			stop := serveAt(t, rt, path)
			if name == "cri-o" {
				refused(t, dir.args(path), exitForeign, "cri-o", "containerd", "state directory")
			} else {
				c := start(t, dir.args(path)...)
				dir.awaitReady(t)
				c.terminate()
			}
			stop()
		}
	})
}

// makeNewer lets a state file say that a later version wrote it.
func makeNewer(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := "plegd state schema 99"
	value := fmt.Sprintf("%s %08x", text, crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli)))
	err = db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("schema"), []byte(value)) })
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

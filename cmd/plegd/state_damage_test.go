package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// someState makes a state file that no agent has run on: containers and events.
func someState(t *testing.T, events int) string {
	t.Helper()
	dir := t.TempDir()
	db, _, err := store.OpenBolt(store.BoltConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	batch := &store.Batch{
		Meta: storetest.Meta(storetest.Epoch, 1), Events: storetest.Events(1, events, 1),
		Tombstones: []*store.Record{storetest.Tombstone("gone", "s", 1)}, Asks: []*store.Ask{storetest.Ask("c0", 1)},
	}
	for i := range 50 {
		batch.Records = append(batch.Records, storetest.Container(fmt.Sprint("c", i), "s", i))
	}
	if err := errors.Join(db.Commit(batch), db.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// change changes a closed state file behind plegd's back.
func change(t *testing.T, dir string, fn func(tx *bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(filepath.Join(dir, store.FileName), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(fn), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// A check that does not end counts as damage, and says how long it was given.
func TestStateCheckThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	dir := someState(t, 10)
	code, out, stderr := run(t, "state", "check", "--state-dir", dir, "--timeout", "1us")
	if code != exitDamaged || !strings.Contains(out, "bbolt's check  check did not end in 1µs") || strings.Contains(out, "\nok\n") ||
		!strings.Contains(stderr, store.FileName) || !strings.HasSuffix(stderr, "check did not end in 1µs\n") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("code %d\n%s%s", code, out, stderr)
	}
	code, out, _ = run(t, "state", "check", "--state-dir", dir, "--timeout", "1us", "--output", "json")
	if code != exitDamaged || !strings.Contains(out, `"ok": false`) || !strings.Contains(out, `"bbolt": "check did not end in 1µs"`) {
		t.Errorf("code %d\n%s", code, out)
	}
}

// A file whose name begins with a dash is checked like any other.
func TestStateCheckOfAFileLikeAFlag(t *testing.T) {
	t.Setenv(childEnv, "plegd")
	if err := checkByBbolt(t.Context(), "-none", patience); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("got error %v", err)
	}
}

// The commands read no file that an agent uses, and say whose it is.
func TestStateInUse(t *testing.T) {
	t.Parallel()
	_, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	c := start(t, dir.args(endpoint, "--output", "none")...)
	dir.awaitReady(t)
	for _, cmd := range []string{"show", "check", "export", "compact"} {
		code, out, stderr := run(t, "state", cmd, "--state-dir", dir.state())
		if code != exitLocked || out != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, fmt.Sprint("pid ", c.cmd.Process.Pid)) {
			t.Errorf("%s: code %d, %q %q", cmd, code, out, stderr)
		}
	}
	c.terminate()
}

// jsonLines decodes lines of JSON.
func jsonLines[T any](t *testing.T, text string) (out []T) {
	t.Helper()
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		var v T
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			t.Fatalf("%v: %q", err, s.Text())
		}
		out = append(out, v)
	}
	return out
}

// What is exported is what run has told, line by line.
func TestStateExport(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	c := start(t, dir.args(endpoint)...)
	r := c.read()
	dir.awaitReady(t)
	told := r.await(t, "the exit is told", ends(life(t, rt, newPod(t, rt, "web"), "app", 7)))
	c.terminate()
	code, out, stderr := run(t, "state", "export", "--state-dir", dir.state())
	if code != exitOK || stderr != "" {
		t.Fatalf("code %d: %s", code, stderr)
	}
	var lines strings.Builder
	for _, e := range told {
		line, err := formatJSON(&e)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(line)
	}
	if !strings.HasPrefix(out, lines.String()) || len(told) < 5 {
		t.Errorf("told:\n%sexported:\n%s", &lines, out)
	}
	code, out, stderr = run(t, "state", "export", "--state-dir", dir.state(), "--records")
	if records := jsonLines[shownRecord](t, out); code != exitOK || stderr != "" || len(records) != 2 {
		t.Errorf("code %d: %s\n%s", code, stderr, out)
	}
}

// What can't be read is left out, counted, and no reason to hide the rest.
func TestStateExportOfDamage(t *testing.T) {
	t.Parallel()
	dir := someState(t, 2500)
	garbage := func(tx *bolt.Tx) error {
		journal, containers := tx.Bucket([]byte("journal")), tx.Bucket([]byte("containers"))
		return errors.Join(
			journal.Put([]byte{0, 0, 0, 0, 0, 0, 0, 1}, []byte("garbage")), journal.Put([]byte{0, 0, 0, 0, 0, 0, 8, 0}, []byte("garbage")),
			containers.Put([]byte("c7"), []byte("garbage")))
	}
	change(t, dir, garbage)
	code, out, stderr := run(t, "state", "export", "--state-dir", dir)
	events := jsonLines[store.Event](t, out)
	if code != exitDamaged || !strings.HasSuffix(stderr, "entries that can't be read: 2\n") || len(events) != 2498 || events[2497].Position.Seq != 2500 {
		t.Errorf("code %d, %d events: %s", code, len(events), stderr)
	}
	code, out, stderr = run(t, "state", "export", "--state-dir", dir, "--records")
	records := jsonLines[shownRecord](t, out)
	if code != exitDamaged || !strings.HasSuffix(stderr, "entries that can't be read: 1\n") || len(records) != 50 || records[49].State != "removed" {
		t.Errorf("code %d, %d records: %s", code, len(records), stderr)
	}
}

func TestStateCompact(t *testing.T) {
	t.Parallel()
	dir := someState(t, 20_000)
	change(t, dir, func(tx *bolt.Tx) error {
		journal := tx.Bucket([]byte("journal"))
		for c, n := journal.Cursor(), 0; n < 19_000; n++ {
			if k, _ := c.First(); k == nil || c.Delete() != nil {
				return errors.New("no entry to delete")
			}
		}
		return nil
	})
	var sizes compactedState
	code, out, stderr := run(t, "state", "compact", "--state-dir", dir, "--output", "json")
	if err := json.Unmarshal([]byte(out), &sizes); err != nil || code != exitOK {
		t.Fatalf("code %d: %s%s", code, out, stderr)
	}
	info, err := os.Stat(filepath.Join(dir, store.FileName))
	if err != nil || info.Size() != sizes.After || sizes.After > sizes.Before/2 {
		t.Errorf("%+v, and the file has %d bytes", sizes, info.Size())
	}
	code, out, stderr = run(t, "state", "compact", "--state-dir", dir)
	if code != exitOK || !strings.Contains(out, fmt.Sprintf("size before    %d bytes\nsize after     ", sizes.After)) {
		t.Errorf("code %d: %s%s", code, out, stderr)
	}
	if code, out, _ := run(t, "state", "check", "--state-dir", dir); code != exitOK || !strings.Contains(out, "numbers 19001 to 20000") {
		t.Errorf("code %d: %s", code, out)
	}
}

// A start after an unclean stop has bbolt check the file, and sets it aside if
// that finds it damaged; a start after a clean stop is spared that.
func TestStartChecksAfterAnUncleanStop(t *testing.T) {
	t.Parallel()
	_, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	setAside := func() string {
		t.Helper()
		aside, err := filepath.Glob(filepath.Join(dir.state(), store.FileName+".damaged-*"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(aside, " ")
	}
	args := dir.args(endpoint, "--output", "none")
	c := start(t, args...)
	dir.awaitReady(t)
	c.terminate()

	condemned := childConfig{env: []string{verdictEnv + "=page 7 is upside down"}}
	c = startAs(t, condemned, args...)
	dir.awaitReady(t)
	if aside := setAside(); aside != "" {
		t.Errorf("after a clean stop %s was set aside", aside)
	}
	c.signal(syscall.SIGKILL)
	c.code(patience)

	c = start(t, args...) // sound, as bbolt says
	dir.awaitReady(t)
	if aside := setAside(); aside != "" || strings.Contains(c.stderr.String(), "could not be checked") {
		t.Errorf("set aside: %q\n%s", aside, c.stderr)
	}
	c.signal(syscall.SIGKILL)
	c.code(patience)

	c = startAs(t, condemned, args...)
	dir.awaitReady(t)
	if aside, log := setAside(), c.stderr.String(); aside == "" || !strings.Contains(log, "state is lost") || !strings.Contains(log, aside) || !strings.Contains(log, "page 7 is upside down") {
		t.Errorf("set aside: %q\n%s", aside, log)
	}
	c.terminate()
}

// Single values that can't be read are left out at a start and said to be; the
// runtime is asked again, so nothing is missing for long.
func TestStartLeavesOutDamagedValues(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	newPod(t, rt, "web")
	pod := newPod(t, rt, "other")
	dir := newAgentDir(t)
	args := dir.args(endpoint, "--output", "none")
	c := start(t, args...)
	dir.awaitReady(t)
	c.terminate()
	change(t, dir.state(), func(tx *bolt.Tx) error { return tx.Bucket([]byte("sandboxes")).Put([]byte(pod), []byte("garbage")) })
	c = start(t, args...)
	dir.awaitReady(t)
	eventually(t, "the pod is there again", func() bool {
		_, body, err := dir.get("/v1/pods")
		return err == nil && strings.Contains(body, pod)
	})
	c.terminate()
	if log := c.stderr.String(); strings.Count(log, "values of the state can't be read") != 1 || !strings.Contains(log, "values=1") || strings.Contains(log, "state is lost") {
		t.Errorf("log is\n%s", log)
	}
	if code, out, stderr := run(t, "state", "check", "--state-dir", dir.state()); code != exitOK || !strings.Contains(out, "2 sandboxes") {
		t.Errorf("code %d: %s%s", code, out, stderr)
	}
}

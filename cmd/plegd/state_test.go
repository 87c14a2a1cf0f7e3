package main

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	bolt "go.etcd.io/bbolt"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// usedState is a state file with one pod, one running and one exited container.
func usedState(t *testing.T) agentDir {
	t.Helper()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	c := start(t, dir.args(endpoint, "--mode", "generic")...)
	r := c.read()
	dir.awaitReady(t)
	pod := newPod(t, rt, "web")
	runs, err := rt.CreateContainer(pod, simruntime.ContainerSpec{Name: "runs"})
	if err == nil {
		err = rt.StartContainer(runs)
	}
	exits, err2 := rt.CreateContainer(pod, simruntime.ContainerSpec{Name: "exits"})
	if err2 == nil {
		err2 = rt.StartContainer(exits)
	}
	if err != nil || err2 != nil || rt.ExitContainer(exits, 7, "") != nil {
		t.Fatal(err, err2)
	}
	r.await(t, "the exit is told", func(ev store.Event) bool { return ev.Type == store.ContainerDied })
	r.await(t, "the start is told", func(ev store.Event) bool { return ev.Type == store.ContainerStarted && ev.Container.ID == runs })
	c.terminate()
	return dir
}

// masks are what differs between runs of a golden test.
var masks = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`/tmp/[^\s",:;]+`), "PATH"},
	{regexp.MustCompile(`\b[0-9a-f]{16}/\d+`), "POSITION"},
	{regexp.MustCompile(`\b[0-9a-f]{16}\b`), "EPOCH"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`\d+ bytes`), "N bytes"},
	{regexp.MustCompile(`("(?:bytes|size|running_seconds)": )[0-9.]+`), "${1}N"},
	{regexp.MustCompile(`running time   \S+`), "running time   N"},
}

func masked(s string) string {
	for _, m := range masks {
		s = m.re.ReplaceAllString(s, m.with)
	}
	return s
}

// golden compares with a file of testdata; -update writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got), -update accepts it:\n%s", name, diff)
	}
}

func TestStateShowAndCheck(t *testing.T) {
	t.Parallel()
	dir := usedState(t)
	for _, cmd := range []string{"show", "check"} {
		for _, form := range []string{"text", "json"} {
			code, out, stderr := run(t, "state", cmd, "--state-dir", dir.state(), "--output", form)
			if code != exitOK || stderr != "" {
				t.Errorf("%s: code %d: %s", cmd, code, stderr)
			}
			if form == "json" && !json.Valid([]byte(out)) {
				t.Errorf("%s: no JSON: %s", cmd, out)
			}
			golden(t, "state-"+cmd+"."+form, masked(out))
		}
	}
	// The file may be named itself.
	if code, out, _ := run(t, "state", "check", "--state-dir", filepath.Join(dir.state(), store.FileName)); code != exitOK || !strings.HasSuffix(out, "\nok\n") {
		t.Errorf("code %d: %s", code, out)
	}
}

// Who knows an id of a pod finds it, also that of what was removed.
func TestStateShowPod(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	c := start(t, dir.args(endpoint)...)
	r := c.read()
	dir.awaitReady(t)
	mine := newPod(t, rt, "mine")
	other := life(t, rt, newPod(t, rt, "other"), "app", 0)
	gone := life(t, rt, mine, "app", 7)
	r.await(t, "one life is told", ends(other))
	r.await(t, "the other is told", ends(gone))
	c.terminate()

	show := func(id string) (code int, shown shownState, stderr string) {
		code, out, stderr := run(t, "state", "show", id, "--state-dir", dir.state(), "--output", "json")
		if code == exitOK {
			if err := json.Unmarshal([]byte(out), &shown); err != nil {
				t.Fatal(err)
			}
		}
		return code, shown, stderr
	}
	for _, id := range []string{gone, gone[:shortID], mine, mine[:shortID], "uid-mine"} {
		code, shown, stderr := show(id)
		if code != exitOK || len(shown.Records) != 2 || shown.Records[0].ID != mine || shown.Records[1].ID != gone ||
			shown.Records[1].State != "removed" || shown.Records[1].ExitCode == nil || *shown.Records[1].ExitCode != 7 {
			t.Errorf("%s: code %d, %+v %s", id, code, shown.Records, stderr)
		}
	}
	if code, _, stderr := show("nosuch"); code != exitFailure || !strings.Contains(stderr, `no pod, sandbox or container "nosuch"`) {
		t.Errorf("code %d: %s", code, stderr)
	}
	if code, _, stderr := show(""); code != exitUsage || !strings.Contains(stderr, `ID "": must be`) {
		t.Errorf("code %d: %s", code, stderr)
	}
}

// A beginning that names of several pods have is refused, but for one that is a
// name itself. Names of one pod are no contradiction.
func TestPodOfAmbiguousID(t *testing.T) {
	db, _, err := store.OpenBolt(store.BoltConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	batch := &store.Batch{Meta: storetest.Meta(storetest.Epoch, 1)}
	for _, id := range []string{"a", "ab", "ba", "bb"} {
		batch.Records = append(batch.Records, storetest.Container(id, "s-"+id, 1))
	}
	if err := db.Commit(batch); err != nil {
		t.Fatal(err)
	}
	batch.Records = append(batch.Records, storetest.Container("uid-s-x", "s-ab", 1))
	for _, tc := range []struct{ id, pod, refused string }{
		{id: "a", pod: "uid-s-a"},
		{id: "b", refused: "ba and bb"},
		{id: "uid-s-b", refused: "uid-s-ba and uid-s-bb"},
		{id: "uid-s-ba", pod: "uid-s-ba"},
		{id: "uid-s-x", pod: "uid-s-ab"},
	} {
		pod, err := podOf(db, batch.Records, tc.id)
		if pod != tc.pod || (err != nil) != (tc.refused != "") {
			t.Errorf("%s: pod %q, %v", tc.id, pod, err)
		}
		if err != nil && (exitCode(err) != exitUsage || !strings.Contains(err.Error(), tc.refused)) {
			t.Errorf("%s: %v", tc.id, err)
		}
	}
}

// A single value that can't be read is named, and doesn't hide the others.
func TestStateWithDamagedValue(t *testing.T) {
	t.Parallel()
	dir := usedState(t)
	path := filepath.Join(dir.state(), store.FileName)
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	var id string
	err = db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("containers"))
		k, v := b.Cursor().First()
		id = string(k)
		bad := append([]byte(nil), v...)
		bad[len(bad)/2] ^= 0xff
		return b.Put([]byte(id), bad)
	})
	if err != nil || db.Close() != nil {
		t.Fatal(err)
	}
	code, out, stderr := run(t, "state", "check", "--state-dir", dir.state())
	if code != exitDamaged || !strings.Contains(out, "damaged        containers \""+id+"\": ") || strings.HasSuffix(out, "ok\n") {
		t.Errorf("check: code %d\n%s", code, out)
	}
	if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "plegd: state file "+path) {
		t.Errorf("check: %q", stderr)
	}
	code, out, _ = run(t, "state", "check", "--state-dir", dir.state(), "--output", "json")
	if code != exitDamaged || !strings.Contains(out, `"ok": false`) || !strings.Contains(out, id) {
		t.Errorf("check: code %d\n%s", code, out)
	}
	code, out, _ = run(t, "state", "show", "--state-dir", dir.state())
	if code != exitOK || !strings.Contains(out, "unreadable     1 entries") || !strings.Contains(out, "default/web") {
		t.Errorf("show: code %d\n%s", code, out)
	}
}

// A reader such as head that has seen enough is no failure.
func TestClosedStdoutIsNoError(t *testing.T) {
	t.Parallel()
	dir := usedState(t)
	for _, args := range [][]string{{"state", "show", "--state-dir", dir.state()}, {"state", "show", "--state-dir", dir.state(), "--output", "json"}, {"help"}, {"version"}} {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), childEnv+"=plegd")
		r, w := pipe(t)
		_ = r.Close()
		cmd.Stdout = w
		var stderr strings.Builder
		cmd.Stderr = &stderr
		err := cmd.Run()
		_ = w.Close()
		if err != nil || stderr.Len() > 0 {
			t.Errorf("plegd %s: %v: %s", strings.Join(args, " "), err, &stderr)
		}
	}
}

// What is no sound state file at all is one line, and stays as it is.
func TestStateThatCannotBeRead(t *testing.T) {
	t.Parallel()
	dir := usedState(t)
	sound, err := os.ReadFile(filepath.Join(dir.state(), store.FileName))
	if err != nil {
		t.Fatal(err)
	}
	torn := append([]byte(nil), sound...)
	for i := 8192; i < len(torn); i++ {
		torn[i] = 0xa5
	}
	for _, tc := range []struct {
		name    string
		content []byte
		code    int
		want    string
	}{
		{"cut in the middle", sound[:len(sound)/2], exitDamaged, "damaged"},
		{"torn pages", torn, exitDamaged, "damaged"},
		{"something else", []byte(strings.Repeat("not a state file\n", 4096)), exitDamaged, "damaged"},
		{"empty", []byte{}, exitDamaged, "damaged"},
		{"missing", nil, exitFailure, "no agent has run there yet"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), store.FileName)
			if tc.content != nil {
				if err := os.WriteFile(path, tc.content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, cmd := range []string{"show", "check"} {
				code, out, stderr := run(t, "state", cmd, "--state-dir", path)
				if code != tc.code || out != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "plegd: ") ||
					!strings.Contains(stderr, tc.want) || !strings.Contains(stderr, path) {
					t.Errorf("%s: code %d, want %d; stdout %q; %q", cmd, code, tc.code, out, stderr)
				}
			}
			code, out, _ := run(t, "state", "check", "--state-dir", path, "--output", "json")
			var u unreadableState
			if err := json.Unmarshal([]byte(out), &u); code != tc.code || (err == nil) != (code == exitDamaged) {
				t.Errorf("check: code %d, %v: %s", code, err, out)
			} else if err == nil && (u.Path != path || u.Size != int64(len(tc.content)) || u.OK || !strings.Contains(u.Error, tc.want)) {
				t.Errorf("check: %+v", u)
			}
			if after, err := os.ReadFile(path); tc.content != nil && (err != nil || string(after) != string(tc.content)) {
				t.Errorf("the file was changed: %v", err)
			}
		})
	}
}

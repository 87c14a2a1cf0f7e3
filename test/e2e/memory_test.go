package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/store"
)

const (
	// memoryBound is what plegd may have of its own at 250 containers with a full journal, in KiB.
	memoryBound = 40 << 10

	memoryContainers = 250
	memoryJournal    = 50_000 // entries, the default of --retention-entries
)

// startSimulated starts plegd's simulated runtime, and ends it when the test ends.
func startSimulated(t *testing.T, flags ...string) (socket string) {
	t.Helper()
	needBinary(t)
	socket = filepath.Join(workDir(t, "sim"), "cri.sock")
	cmd := exec.Command(binary(), append([]string{"simulate", "--socket", socket}, flags...)...)
	var out logtest.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatalf("simulate: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	eventually(t, settle, "simulated runtime listens", func() error {
		_, err := os.Stat(socket)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out.String())
		}
		return nil
	})
	return socket
}

// fillJournal writes events into the state of an agent that has ended, until the journal is full:
// what the agent itself wrote last, again and again under new numbers.
func fillJournal(t *testing.T, dir, socket, node string) {
	t.Helper()
	b, _, err := store.OpenBolt(store.BoltConfig{Dir: dir, Runtime: store.RuntimeID{Endpoint: socket, Node: node}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	state, err := b.Load()
	if err != nil {
		t.Fatal(err)
	}
	j := b.Journal()
	events, err := b.Events(j.First-1, 1000)
	if err != nil || len(events) < 100 {
		t.Fatalf("%d events to copy, %v", len(events), err)
	}
	meta, last := state.Meta, j.Last
	for n := j.Entries; n < memoryJournal; {
		batch := &store.Batch{}
		for i := 0; i < len(events) && n < memoryJournal; i++ {
			e := events[i]
			last++
			n++
			e.Position.Seq, e.Running = last, meta.Running
			batch.Events = append(batch.Events, e)
		}
		meta.Last, meta.Reserved, meta.Next = last, last, last+1
		batch.Meta = meta
		if err := b.Commit(batch); err != nil {
			t.Fatal(err)
		}
	}
}

var rssAnon = regexp.MustCompile(`RssAnon:\s+(\d+) kB`)

// rss is what the process has of its own, in KiB: not what it maps of files, as bbolt does.
func (a *agent) rss(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	m := rssAnon.FindSubmatch(status)
	if m == nil {
		t.Fatalf("no RssAnon in\n%s", status)
	}
	kib, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

// containers is how many plegd knows.
func containers(series map[string]float64) (n int) {
	for name, v := range series {
		if strings.HasPrefix(name, "plegd_containers{") {
			n += int(v)
		}
	}
	return n
}

// The bound on memory: RssAnon under 40 MiB at 250 containers with a full journal, while the node
// changes, relists go on each second, and all of the journal is read once.
func TestMemoryBound(t *testing.T) {
	socket := startSimulated(t, "--pods", "130", "--rate", "5", "--seed", "1")
	dir := workDir(t, "plegd")
	const node = "memory"
	w := agentConfig{endpoint: socket, dir: dir, flags: []string{"--node-name", node, "--relist-period-max", "1s"}}
	a := startAgent(t, w)
	a.awaitReady(t)
	a.await(t, settle, "containers", func([]event) error {
		if n := containers(a.metrics(t)); n < memoryContainers {
			return fmt.Errorf("%d of %d", n, memoryContainers)
		}
		return nil
	})
	a.terminate(t)
	fillJournal(t, filepath.Join(dir, "state"), socket, node)

	w.flags = append(slices.Clone(w.flags), "--since", fmt.Sprintf("%s/%d", a.all()[0].Epoch, 1))
	a = startAgent(t, w)
	a.awaitReady(t)
	a.await(t, longWait, "the whole journal is read", func(events []event) error {
		if len(events) < memoryJournal-1 {
			return fmt.Errorf("%d events", len(events))
		}
		return nil
	})
	most := 0
	const relists = `plegd_relists_total{result="success"}`
	from := a.metrics(t)[relists]
	a.await(t, longWait, "relists", func([]event) error {
		most = max(most, a.rss(t))
		time.Sleep(100 * time.Millisecond)
		if n := a.metrics(t)[relists] - from; n < 20 {
			return fmt.Errorf("%v of 20", n)
		}
		return nil
	})
	series := a.metrics(t)
	n, entries := containers(series), series["plegd_journal_entries"]
	t.Logf("RssAnon at most %d KiB at %d containers with %v entries in the journal", most, n, entries)
	if n < memoryContainers || entries < memoryJournal {
		t.Errorf("%d containers, %v entries: less than the bound is about", n, entries)
	}
	if most >= memoryBound {
		t.Errorf("RssAnon is %d KiB, the bound is %d KiB", most, memoryBound)
	}
}

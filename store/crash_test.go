package store_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/checkchild"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

// crashDir, when set, turns this test binary into the child of
// TestKillDuringCommits.
const crashDir = "PLEGD_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		commitForEver(dir)
	}
	if os.Getenv(checkEnv) != "" {
		os.Exit(checkchild.Main(os.Args[len(os.Args)-1], os.Stdin, os.Stdout))
	}
	store.VerifyNoLeaks(m)
}

// crashBatch is commit number n: five events, and records that say n.
func crashBatch(n int) *store.Batch {
	batch := &store.Batch{Meta: storetest.Meta(storetest.Epoch, int64(n)), Events: storetest.Events(uint64(1+5*n), 5, int64(n))}
	for i := range 5 {
		batch.Records = append(batch.Records, storetest.Sandbox(fmt.Sprintf("s%d", i), n))
	}
	batch.Records = append(batch.Records, storetest.Container(fmt.Sprintf("c%d", n), "s0", n))
	if n >= 50 {
		batch.Gone = []store.Key{{Kind: store.KindContainer, ID: fmt.Sprintf("c%d", n-50)}}
	}
	return batch
}

// commitForEver goes on where the state ends and says each commit that was
// acknowledged. Between commits it moves to a new file.
func commitForEver(dir string) {
	b, report, err := store.OpenBolt(store.BoltConfig{Dir: dir, Runtime: storetest.Runtime, Retention: store.Retention{Entries: 400}})
	if err != nil || report.SetAside != "" {
		fmt.Println("failed:", report, err)
		os.Exit(1)
	}
	for n := int(b.Journal().Last) / 5; ; n++ {
		err := b.Commit(crashBatch(n))
		if n%2 == 1 { // as if the disk had failed
			err = errors.Join(err, b.Rescue(store.ErrIO))
		}
		if err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		fmt.Println(n)
	}
}

// A process that is killed at any moment, in the middle of a rescue too, loses
// no commit that it was told of and leaves none by half.
func TestKillDuringCommits(t *testing.T) {
	dir := t.TempDir()
	kills := 20
	if testing.Short() {
		kills = 4
	}
	acked := -1
	for i := range kills {
		acked = killCommitter(t, dir, acked, i)
		b, report := openBolt(t, config(dir))
		if report.SetAside != "" || report.Damaged != 0 {
			t.Fatalf("kill %d: report is %+v", i, report)
		}
		if left := contents(t, dir); len(left) != 1 {
			t.Errorf("kill %d: %d files besides the lock, want the state alone", i, len(left))
		}
		j := b.Journal()
		last := int(j.Last)/5 - 1
		// One more than was acknowledged may have been written.
		if j.Last%5 != 0 || last < acked || last > acked+1 {
			t.Fatalf("kill %d: acknowledged up to commit %d, journal is %+v", i, acked, j)
		}
		mustBeCommit(t, b, last)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		checkFile(t, dir)
		acked = last
	}
	t.Logf("%d commits survived %d kills", acked+1, kills)
	if acked < 2*kills {
		t.Errorf("only %d commits were made", acked+1)
	}
}

// killCommitter runs a child until it has made some commits, kills it, and
// returns the last one it acknowledged.
func killCommitter(t *testing.T, dir string, acked, round int) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), crashDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for seen := 0; lines.Scan(); seen++ {
		n, err := strconv.Atoi(lines.Text())
		if err != nil || n != acked+1 {
			t.Errorf("round %d: the child says %q after commit %d", round, lines.Text(), acked)
			break
		}
		acked = n
		if seen == 3+round%7 {
			// Somewhere in the middle of one of the next commits. What it still
			// says before it dies counts.
			time.AfterFunc(time.Duration(round*531)*time.Microsecond, func() { _ = cmd.Process.Kill() })
		}
	}
	_ = cmd.Process.Kill()
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("round %d: the child ended with %v", round, err)
	}
	return acked
}

// mustBeCommit fails unless the state is exactly as commit number n left it.
func mustBeCommit(t *testing.T, b *store.Bolt, n int) {
	t.Helper()
	s, err := b.Load()
	if err != nil || s.Meta.Running != int64(n) {
		t.Fatalf("meta is of commit %d, want %d; error %v", s.Meta.Running, n, err)
	}
	if want := 5 + min(n+1, 50); len(s.Records) != want {
		t.Fatalf("commit %d: got %d records, want %d", n, len(s.Records), want)
	}
	for _, r := range s.Records {
		if r.Kind == store.KindSandbox && r.Reported != int32(n) {
			t.Fatalf("commit %d: sandbox %s is of commit %d", n, r.ID, r.Reported)
		}
	}
	j := b.Journal()
	events, err := b.Events(j.First-1, 1000)
	if err != nil || len(events) != min(5*(n+1), 400) || len(events) != j.Entries {
		t.Fatalf("commit %d: got %d events and error %v; journal is %+v", n, len(events), err, j)
	}
	for i, e := range events {
		if seq := j.First + uint64(i); e.Position.Seq != seq || e.Running != int64(seq-1)/5 {
			t.Fatalf("commit %d: event %d is %+v", n, seq, e)
		}
	}
}

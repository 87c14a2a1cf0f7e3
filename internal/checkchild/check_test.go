package checkchild

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/plegd/plegd/store"
)

// childEnv says what kind of child this test binary is.
const childEnv = "PLEGD_TEST_CHECK"

var hoard [][]byte

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "check":
		os.Exit(Main(os.Args[len(os.Args)-1], os.Stdin, os.Stdout))
	case "crash":
		panic("page 5: as a fault in bbolt's goroutine")
	case "fault":
		page, err := unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
		fmt.Println(page[0], err) // as behind the end of a file that was cut
	case "deep":
		debug.SetMaxStack(1 << 20)
		fmt.Println(deep(1))
	case "starved": // as under a limit of memory
		_ = unix.Setrlimit(unix.RLIMIT_AS, &unix.Rlimit{Cur: 1, Max: 1})
		hoard = append(hoard, make([]byte, 1<<30))
	case "usage":
		fmt.Fprintln(os.Stderr, "plegd: unknown command \"bbolt-check\"")
		os.Exit(codeCrashed)
	case "replaced":
		_ = os.Remove(os.Args[0])
		c := Self(time.Minute, "-test.run=^$")
		c.Env = []string{childEnv + "=check"}
		fmt.Println(c.Check(context.Background(), os.Args[len(os.Args)-1]))
		os.Exit(0)
	case "damaged": // and its output stays open for a while; the file is made when it has ended
		until := exec.Command("sh", "-c", "while kill -0 $1 2>&-; do sleep 0.01; done; : >$2; sleep 2", "sh",
			strconv.Itoa(os.Getpid()), os.Args[len(os.Args)-1])
		until.Stdout = os.Stdout
		fmt.Println("page 5: wrong", until.Start())
		os.Exit(codeDamaged)
	case "endless":
		time.Sleep(time.Hour)
	case "hungry":
		go func() {
			for ; ; time.Sleep(time.Millisecond) {
				hoard = append(hoard, make([]byte, 1<<20))
			}
		}()
		// A check that waits for ever, as for one that goes round in circles.
		os.Exit(Main(os.Args[len(os.Args)-1], os.Stdin, os.Stdout))
	case "orphan":
		os.Exit(Main(os.Args[len(os.Args)-1], strings.NewReader(""), os.Stdout))
	case "killed":
		p, _ := os.FindProcess(os.Getpid())
		_ = p.Kill()
		select {}
	}
	goleak.VerifyTestMain(m)
}

// deep calls itself for ever.
func deep(n int) int { return deep(n+1) + 1 } //nolint:staticcheck // it never ends, which is what is tested

// checker returns one whose children are of a kind.
func checker(t *testing.T, kind string) Checker {
	t.Helper()
	c := Self(time.Minute, "-test.run=^$")
	c.Env = []string{childEnv + "=" + kind}
	return c
}

// someFile makes a sound file with a tree of some pages.
func someFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "some.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("b"))
		for i := range 500 {
			err = errors.Join(err, b.Put(fmt.Appendf(nil, "key%04d", i), make([]byte, 100)))
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// spoil changes a file's bytes.
func spoil(t *testing.T, path string, fn func(d []byte) []byte) string {
	t.Helper()
	d, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, fn(d), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// newerMeta makes both meta pages say that the root is the freelist's page, as
// a meta page that is newer than the data may: left alone, bbolt's check goes
// round in circles on that and takes more and more memory.
func newerMeta(d []byte) []byte {
	for at := 16; at < 8192; at += 4096 {
		meta := d[at : at+64]
		copy(meta[16:24], meta[32:40])
		h := fnv.New64a()
		_, _ = h.Write(meta[:56])
		binary.NativeEndian.PutUint64(meta[56:], h.Sum64())
	}
	return d
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		path    func() string
		damaged bool
		want    string // "" for a sound file, else an expression
	}{
		"sound":                {path: func() string { return someFile(t) }},
		"meta newer than data": {func() string { return spoil(t, someFile(t), newerMeta) }, true, "multiple references"},
		"no meta":              {func() string { return spoil(t, someFile(t), func(d []byte) []byte { clear(d[:8192]); return d }) }, true, "invalid"},
		// What a mapping holds behind the end of its file is a fault, or zeroes:
		// kernels differ in that.
		"cut short": {func() string { return spoil(t, someFile(t), func(d []byte) []byte { return d[:3*4096] }) }, true, "invalid freelist page|unexpected fault address"},
		"a page of noise": {func() string {
			return spoil(t, someFile(t), func(d []byte) []byte {
				for i := 4 * 4096; i < len(d); i++ {
					d[i] = 0xa5
				}
				return d
			})
		}, true, "page"},
		"not there": {func() string { return filepath.Join(t.TempDir(), "none") }, false, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := c.path()
			err := checker(t, "check").Check(t.Context(), path)
			t.Log(err)
			if (err != nil) != (c.want != "") || errors.Is(err, store.ErrDamaged) != c.damaged {
				t.Fatalf("got error %v, damaged is to be %v", err, c.damaged)
			}
			if err != nil && (!regexp.MustCompile(c.want).MatchString(err.Error()) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("got error %q, want one line that says %q", err, c.want)
			}
		})
	}
}

// A file that another process writes to is not checked.
func TestCheckOfALockedFile(t *testing.T) {
	path := someFile(t)
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = checker(t, "check").Check(t.Context(), path)
	if err == nil || errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "locked") {
		t.Errorf("got error %v", err)
	}
}

// However the child fails, the caller gets an answer, and no child is left.
func TestChildThatFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe") // to open it takes for ever
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind    string
		damaged bool
		want    string
	}{
		{"crash", true, "crashed: panic: page 5"},
		{"hungry", true, "256 MiB of memory"},
		{"fault", true, "crashed: unexpected fault address"},
		{"deep", true, "crashed: runtime: goroutine stack exceeds"},
		{"killed", false, "killed"},
		{"starved", false, "the child failed"},
		{"usage", false, "unknown command"},
		{"orphan", false, "parent process has ended"},
	} {
		err := checker(t, c.kind).Check(t.Context(), path)
		if err == nil || errors.Is(err, store.ErrDamaged) != c.damaged || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want one that says %q", c.kind, err, c.want)
		}
	}
	nothing := Checker{Command: []string{"/nonexistent"}, Timeout: time.Minute}
	if err := nothing.Check(t.Context(), path); err == nil || errors.Is(err, store.ErrDamaged) {
		t.Errorf("got error %v", err)
	}
}

// A check that never ends is given up at its deadline, or with the caller.
func TestCheckThatNeverEnds(t *testing.T) {
	endless := checker(t, "endless")
	endless.Timeout = 200 * time.Millisecond
	err := endless.Check(t.Context(), "any")
	if !errors.Is(err, ErrUnfinished) || errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "did not end in 200ms") {
		t.Errorf("got error %v", err)
	}
}

// A caller that gives up is told so, not that the check took too long, and a
// verdict that is there by then counts.
func TestCheckThatIsCalledOff(t *testing.T) {
	stop := errors.New("the agent is asked to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(200*time.Millisecond, func() { cancel(stop) })
	err := checker(t, "endless").Check(ctx, "any")
	if !errors.Is(err, stop) || errors.Is(err, ErrUnfinished) || errors.Is(err, store.ErrDamaged) {
		t.Errorf("got error %v", err)
	}

	path := filepath.Join(t.TempDir(), "ended")
	ctx, cancel = context.WithCancelCause(t.Context())
	go func() {
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(path); err == nil {
				cancel(stop)
			}
		}
	}()
	err = checker(t, "damaged").Check(ctx, path)
	if cancel(nil); !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "page 5") {
		t.Errorf("got error %v, want the verdict", err)
	}
}

// The program that runs is started, not what has its name by now.
func TestCheckByAProgramThatWasReplaced(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, program, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-test.run=^$", someFile(t))
	cmd.Env = append(os.Environ(), childEnv+"=replaced")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "<nil>\n" {
		t.Errorf("the check says %q, %v", out, err)
	}
}

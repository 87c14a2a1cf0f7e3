package writertest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// readersEnv makes a test's binary the readers of a benchmark: N:SOCKET.
const readersEnv = "PLEGD_BENCH_READERS"

// Open begins to read on a connection of its own, and returns once it has begun,
// with a function that reads on: it returns how many more events have come.
type Open func(ctx context.Context, socket string) (next func() (events int, err error), err error)

// Read is for TestMain: it reports whether this process has been the readers of
// a benchmark, which are opened by open. The process is to end then.
func Read(open Open) bool {
	what := os.Getenv(readersEnv)
	if what == "" {
		return false
	}
	if err := read(what, open, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return true
}

// read opens readers, until stdin ends, and prints how many events have come to
// all of them, 0 once all have begun.
func read(what string, open Open, in io.Reader, out io.Writer) error {
	number, socket, _ := strings.Cut(what, ":")
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var came atomic.Int64
	ended := make(chan error, n+1)
	for range n {
		next, err := open(ctx, socket)
		if err != nil {
			return err
		}
		go func() {
			for {
				events, err := next()
				if err != nil {
					ended <- err
					return
				}
				came.Add(int64(events))
			}
		}()
	}
	go func() {
		_, err := io.Copy(io.Discard, in)
		ended <- err
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for said := int64(-1); ; {
		if total := came.Load(); total != said {
			said = total
			fmt.Fprintln(out, total)
		}
		select {
		case err := <-ended:
			return err
		case <-tick.C:
		}
	}
}

// Subscribe has n readers begin, in a process of their own, and returns when all
// have. They read until stop is called. came counts what comes to all of them.
func Subscribe(b testing.TB, socket string, n int, came *atomic.Int64) (stop func()) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d:%s", readersEnv, n, socket))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "0" { // all have begun
		b.Fatalf("readers say %q", lines.Text())
	}
	read, stopping := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		for lines.Scan() {
			total, _ := strconv.ParseInt(lines.Text(), 10, 64)
			came.Store(total)
		}
		select {
		case <-stopping:
		default:
			b.Error("the readers have ended before they were to")
			came.Store(math.MaxInt64) // nobody is to wait for more
		}
	}()
	return func() {
		close(stopping)
		_ = in.Close()
		<-read
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	}
}

// Arrive waits until so many events have come.
func Arrive(came *atomic.Int64, want int) {
	for came.Load() < int64(want) {
		time.Sleep(time.Millisecond)
	}
}

package field_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// caseLabel marks the goroutines of a case.
const caseLabel = "case"

// resources is rule G5. Goroutines are told apart by the label that they
// inherit, files by the directory of the case, connections by their socket, so
// cases can run beside each other.
type resources struct {
	goroutines int    // before the first agent
	dir        string // of the case's files
	plateau    int    // goroutines of an agent that has settled
}

func (r *resources) begin(f *field) {
	r.dir = filepath.Dir(filepath.Dir(f.path)) // all temporary directories of a test share one
	r.goroutines = goroutines(f.t)
}

var profileLine = regexp.MustCompile(`^(\d+) @`)

// ofServer marks goroutines that live as long as the simulated runtime, and
// come into being while it starts.
var ofServer = regexp.MustCompile(`(simruntime\.\(\*Runtime\)\.Serve|simruntime\.\(\*Runtime\)\.serveRun|grpc\.\(\*Server\)\.Serve|grpc\.\(\*Server\)\.serverWorker)(\.func\d+)?\+`)

// goroutines counts those of a test.
func goroutines(t *testing.T) int {
	t.Helper()
	n := 0
	for _, group := range goroutineGroups(t) {
		n += group.count
	}
	return n
}

type goroutineGroup struct {
	count int
	stack string
}

func goroutineGroups(t *testing.T) (groups []goroutineGroup) {
	t.Helper()
	var buf bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&buf, 1); err != nil {
		t.Fatal(err)
	}
	label := fmt.Sprintf("%q:%q", caseLabel, t.Name())
	for block := range strings.SplitSeq(buf.String(), "\n\n") {
		block = strings.TrimSpace(block)
		if i := strings.Index(block, "\n"); strings.HasPrefix(block, "goroutine profile:") && i > 0 {
			block = block[i+1:]
		}
		if m := profileLine.FindStringSubmatch(block); m != nil && strings.Contains(block, label) && !ofServer.MatchString(block) {
			n, _ := strconv.Atoi(m[1]) // digits
			groups = append(groups, goroutineGroup{n, block})
		}
	}
	return groups
}

// openFiles returns the files below a directory that this process has open.
func openFiles(dir string) (files []string) {
	fds, _ := os.ReadDir("/proc/self/fd") // without /proc there is nothing to find
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, dir+"/") {
			files = append(files, to)
		}
	}
	return files
}

// connections counts the connections that were accepted on a unix socket.
func connections(path string) (n int) {
	const connected = "03" // SS_CONNECTED
	list, _ := os.ReadFile("/proc/net/unix")
	for line := range strings.Lines(string(list)) {
		if w := strings.Fields(line); len(w) == 8 && w[7] == path && w[5] == connected {
			n++
		}
	}
	return n
}

// settled notes the goroutines of an agent in the state that it is to return
// to.
func (f *field) settled() {
	f.t.Helper()
	f.res.plateau = goroutines(f.t)
}

// atPlateau checks that an agent that still runs holds what it held before.
func (f *field) atPlateau() {
	f.t.Helper()
	if f.res.plateau > 0 {
		f.until(fmt.Sprintf("the goroutines to return to %d (G5)", f.res.plateau), func() bool { return goroutines(f.t) <= f.res.plateau+5 })
	}
	f.until("one connection to the runtime (G5)", func() bool { return connections(f.path) <= 1 })
	// Lists come and go. Of an agent that has gone the runtime may still hold the
	// stream: it only notices when it sends the next event.
	f.until("the calls in flight to return to one stream (G5)", func() bool {
		return f.rt.CallStats("").InFlight == 0 && f.rt.CallStats("GetContainerEvents").InFlight <= f.lives
	})
}

// returned checks that an ended agent holds nothing any more.
func (f *field) returned() {
	f.t.Helper()
	// Like containerd, the runtime only notices that a client has gone when it
	// sends the next event.
	f.rt.EndStreams(codes.OK)
	f.until("no calls in flight (G5)", func() bool {
		return f.rt.CallStats("").InFlight == 0 && f.rt.CallStats("GetContainerEvents").InFlight == 0
	})
	f.until("no connection to the runtime (G5)", func() bool { return connections(f.path) == 0 })
	for end := time.Now().Add(patience); ; {
		began := time.Now()
		if goroutines(f.t) <= f.res.goroutines {
			break
		}
		pause(began)
		if time.Now().After(end) {
			for _, group := range goroutineGroups(f.t) {
				f.t.Errorf("G5: left behind: %d of %s", group.count, group.stack)
			}
			break
		}
	}
	if files := openFiles(f.res.dir); len(files) > 0 {
		f.t.Errorf("G5: still open: %v", files)
	}
}

package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// children lists the processes whose parent is pid.
func children(t *testing.T, pid int) (found []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		// PID (name) state ppid; the name may have anything in it
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, child)
		}
	}
	return found
}

// agentOf waits for the agent of a supervisor.
func (c *child) agentOf(t *testing.T) (pid int) {
	t.Helper()
	eventually(t, "there is one child", func() bool {
		found := children(t, c.cmd.Process.Pid)
		if len(found) == 1 {
			pid = found[0]
		}
		return len(found) == 1
	})
	return pid
}

// ended reports whether a process is gone.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// producer makes and removes containers for as long as the runtime lets it.
type producer struct {
	done atomic.Int64
	quit atomic.Bool
	wait sync.WaitGroup
}

func produce(t *testing.T, rt *simruntime.Runtime) *producer {
	t.Helper()
	p := new(producer)
	pod := newPod(t, rt, "busy")
	p.wait.Go(func() {
		for i := 0; !p.quit.Load(); i++ {
			id, err := rt.CreateContainer(pod, simruntime.ContainerSpec{Name: fmt.Sprint("c", i),
				Annotations: map[string]string{"pad": strings.Repeat("x", 8<<10)}}) // so that buffers are soon full
			if err == nil {
				err = rt.RemoveContainer(id)
			}
			if err != nil {
				t.Error(err)
				return
			}
			p.done.Add(1)
			time.Sleep(5 * time.Millisecond)
		}
	})
	return p
}

// moves waits until the producer has done more.
func (p *producer) moves(t *testing.T) {
	t.Helper()
	from := p.done.Load()
	eventually(t, "the runtime makes containers", func() bool { return p.done.Load() > from+20 })
}

// TestWatchdogEndsAStoppedAgent: an agent that is stopped while its event
// stream is open stops a runtime that waits for its readers, as containerd 2.x
// does. The watchdog kills it, the runtime goes on, and the next agent finds
// its state.
func TestWatchdogEndsAStoppedAgent(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{StallProducers: true, SubscriberBuffer: 1})
	dir := newAgentDir(t)
	c := start(t, dir.args(endpoint, "--watchdog", "5s", "--output", "none")...)
	dir.awaitReady(t)
	eventually(t, "the stream is read", func() bool { return rt.EventStats().Subscribers == 1 })
	p := produce(t, rt)
	defer p.wait.Wait()
	defer p.quit.Store(true)
	p.moves(t)

	agent := c.agentOf(t)
	if err := syscall.Kill(agent, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	held := false
	eventually(t, "the runtime is held up, or the agent gone", func() bool {
		from := p.done.Load()
		time.Sleep(250 * time.Millisecond)
		held = p.done.Load() == from
		return held || gone(agent)
	})
	if !held {
		t.Error("the stopped agent held up nothing: the watchdog was not needed")
	}
	p.moves(t) // for which the agent has to be gone
	if code := c.code(patience); code != exitStalled {
		t.Errorf("code %d, want %d", code, exitStalled)
	}
	if !gone(agent) {
		t.Error("the agent is still there")
	}
	if line := lastLine(c.stderr.String()); !strings.Contains(line, "no sign of life for 5s") {
		t.Errorf("it says %q", line)
	}
	again := start(t, dir.args(endpoint, "--watchdog", "5s")...)
	dir.awaitReady(t)
	p.moves(t)
	again.signal(syscall.SIGTERM)
	again.code(patience)
}

// TestWatchdogLeavesAHealthyAgentAlone, and one whose runtime is hung: that is
// no reason to kill it. The supervisor's own stops don't count either.
func TestWatchdogLeavesAHealthyAgentAlone(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{})
	dir := newAgentDir(t)
	c := start(t, dir.args(endpoint, "--watchdog", "1s")...)
	dir.awaitReady(t)
	agent := c.agentOf(t)
	// Both are found under the program's name, of which the kernel keeps 15 bytes.
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", agent))
	if want := filepath.Base(os.Args[0]); err != nil || strings.TrimSpace(string(name)) != want[:min(len(want), 15)] {
		t.Errorf("the child is called %q, %v", name, err)
	}
	simtest.Rule(t, rt, simruntime.Rule{Hang: true, IgnoreCancel: true})
	time.Sleep(2500 * time.Millisecond)
	c.signal(syscall.SIGSTOP)
	time.Sleep(2500 * time.Millisecond)
	c.signal(syscall.SIGCONT)
	time.Sleep(500 * time.Millisecond)
	if gone(agent) {
		t.Fatalf("the agent was killed:\n%s", c.stderr)
	}
	c.terminate()
	if !gone(agent) {
		t.Error("the agent outlives its supervisor")
	}
}

// TestWatchdogPassesOn what the agent ends with, and says it once.
func TestWatchdogPassesOn(t *testing.T) {
	t.Parallel()
	_, endpoint := simtest.Start(t, simruntime.Config{})
	dir := newAgentDir(t)
	code, _, stderr := run(t, dir.args(endpoint, "--watchdog", "5s", "--since", "9f00000000000000/7")...)
	if code != exitExpired || strings.Count(stderr, "plegd: ") != 1 {
		t.Errorf("code %d:\n%s", code, stderr)
	}
	c := start(t, dir.args(endpoint, "--watchdog", "5s")...)
	dir.awaitReady(t)
	if err := syscall.Kill(c.agentOf(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := c.code(patience); code != 128+int(syscall.SIGKILL) {
		t.Errorf("code %d of a killed agent", code)
	}
	if last := lastLine(c.stderr.String()); !strings.HasPrefix(last, "plegd: --watchdog: the agent was ended by a signal (killed)") {
		t.Errorf("said %q of a killed agent", last)
	}
}

// TestAgentEndsWithItsSupervisor: nobody would end it if it were stopped.
func TestAgentEndsWithItsSupervisor(t *testing.T) {
	t.Parallel()
	_, endpoint := simtest.Start(t, simruntime.Config{})
	dir := newAgentDir(t)
	c := start(t, dir.args(endpoint, "--watchdog", "1s")...)
	dir.awaitReady(t)
	agent := c.agentOf(t)
	c.signal(syscall.SIGKILL)
	eventually(t, "the agent is gone", func() bool { return gone(agent) })
	<-c.ended
	if !strings.Contains(c.stderr.String(), "supervisor of --watchdog is gone") {
		t.Errorf("it doesn't say why:\n%s", c.stderr)
	}
}

// TestSystemdWatchdog: systemd is told that the agent is ready, lives, and
// stops; while it is stopped by a signal it tells nothing, and systemd ends it.
func TestSystemdWatchdog(t *testing.T) {
	t.Parallel()
	_, endpoint := simtest.Start(t, simruntime.Config{})
	dir := newAgentDir(t)
	path := filepath.Join(string(dir), "notify.sock")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var mu sync.Mutex
	told := map[string]int{}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for b := make([]byte, 256); ; {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			mu.Lock()
			told[string(b[:n])]++
			mu.Unlock()
		}
	}()
	count := func(state string) int {
		mu.Lock()
		defer mu.Unlock()
		return told[state]
	}
	c := startAs(t, childConfig{env: []string{notifyEnv + "=" + path, "WATCHDOG_USEC=800000"}}, dir.args(endpoint)...)
	eventually(t, "systemd is told that it is ready", func() bool { return count("READY=1") == 1 })
	eventually(t, "systemd is told that it lives", func() bool { return count("WATCHDOG=1") > 5 })
	c.signal(syscall.SIGSTOP)
	time.Sleep(300 * time.Millisecond)
	before := count("WATCHDOG=1")
	time.Sleep(500 * time.Millisecond)
	if n := count("WATCHDOG=1"); n != before {
		t.Error("it tells while it is stopped")
	}
	c.signal(syscall.SIGCONT)
	eventually(t, "it tells again", func() bool { return count("WATCHDOG=1") > before })
	c.terminate()
	if count("STOPPING=1") != 1 {
		t.Errorf("told %v", told)
	}
	conn.Close()
	<-read
}

// TestSupervisedByAStrangerIsNot: a variable that was left in the environment is
// not believed.
func TestSupervisedByAStrangerIsNot(t *testing.T) {
	r, w := pipe(t)
	defer r.Close()
	defer w.Close()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, tc := range []struct {
		name, value string
		want        bool
	}{
		{"none", "", false},
		{"ours", fmt.Sprintf("%d:%d", w.Fd(), os.Getppid()), true},
		{"of another parent", fmt.Sprintf("%d:%d", w.Fd(), os.Getpid()), false},
		{"of nobody", fmt.Sprint(w.Fd()), false},
		{"no pipe", fmt.Sprintf("%d:%d", file.Fd(), os.Getppid()), false},
		{"not open", fmt.Sprintf("%d:%d", 1<<20, os.Getppid()), false},
		{"no number", fmt.Sprintf("x:%d", os.Getppid()), false},
	} {
		if fd, ok := supervised(func(string) string { return tc.value }); ok != tc.want || ok && fd != int(w.Fd()) {
			t.Errorf("%s, %q: descriptor %d, %v", tc.name, tc.value, fd, ok)
		}
	}
}

// TestNoSignOfLifeWithoutProgress: what can't go on is as bad as what is stopped.
func TestNoSignOfLifeWithoutProgress(t *testing.T) {
	r, w := pipe(t)
	defer r.Close()
	var alive atomic.Bool
	fd, err := syscall.Dup(int(w.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	left := make(chan struct{})
	stop := signsOfLife(runOptions{watchdog: 80 * time.Millisecond}, func(key string) string {
		return map[string]string{pipeEnv: fmt.Sprintf("%d:%d", fd, os.Getppid())}[key]
	}, alive.Load, func() { close(left) })
	defer stop()
	signs := make(chan struct{}, 1000)
	go func() {
		b := make([]byte, 1)
		for {
			if _, err := io.ReadFull(r, b); err != nil {
				return
			}
			signs <- struct{}{}
		}
	}()
	time.Sleep(200 * time.Millisecond)
	if len(signs) > 0 {
		t.Error("a sign of life of what makes no progress")
	}
	alive.Store(true)
	eventually(t, "there are signs of life", func() bool { return len(signs) > 3 })
	_ = r.Close()
	eventually(t, "the supervisor is missed", func() bool {
		select {
		case <-left:
			return true
		default:
			return false
		}
	})
}

// watched runs watchChild in virtual time on a child that is done for, whose
// signs of life live makes, and returns how long after that it is killed, and
// what is said of it.
func watched(t *testing.T, limit time.Duration, live func(alive chan<- struct{}, closed chan struct{})) (after time.Duration, said string) {
	t.Helper()
	child := exec.Command("true") // of which only the name of a process is needed
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		alive, closed := make(chan struct{}, 1), make(chan struct{})
		live(alive, closed)
		last := time.Now()
		err := watchChild(child, limit, alive, closed, make(chan os.Signal), make(chan struct{}))
		if !errors.Is(err, errStalled) {
			t.Errorf("got error %v", err)
		}
		// It was killed, and then waited for in vain.
		after, said = time.Since(last)-killedTimeout, err.Error()
	})
	return after, said
}

// TestWatchdogKeepsItsLimit: a stopped agent is killed within the limit, as the
// documentation says, and not before most of it has passed.
func TestWatchdogKeepsItsLimit(t *testing.T) {
	const limit = 8 * time.Second
	for _, sign := range []time.Duration{0, 10 * time.Millisecond, 500 * time.Millisecond, 990 * time.Millisecond} {
		after, said := watched(t, limit, func(alive chan<- struct{}, _ chan struct{}) {
			time.AfterFunc(sign, func() { alive <- struct{}{} })
		})
		if after -= sign; after > limit || after < limit*3/4 || !strings.Contains(said, "no sign of life for 8s") {
			t.Errorf("sign after %v: killed after %v more: %s", sign, after, said)
		}
	}
}

// TestWatchdogEndsAnAgentThatHangsAtItsEnd: it is given little time after it has
// let go of everything, whichever of its last sign and that is seen first.
func TestWatchdogEndsAnAgentThatHangsAtItsEnd(t *testing.T) {
	for range 50 {
		after, said := watched(t, time.Hour, func(alive chan<- struct{}, closed chan struct{}) {
			alive <- struct{}{}
			close(closed)
		})
		if after != killedTimeout || !strings.Contains(said, "no sign of life for 5s; it had let go of everything") {
			t.Fatalf("killed after %v: %s", after, said)
		}
	}
}

// TestOutputKubelet: what GenericPLEG would have sent comes out as lines.
func TestOutputKubelet(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{})
	dir := newAgentDir(t)
	c := start(t, dir.args(endpoint, "--output", "kubelet")...)
	dir.awaitReady(t)
	pod := newPod(t, rt, "web")
	id := life(t, rt, pod, "app", 7)
	if err := errors.Join(rt.StopPodSandbox(pod), rt.RemovePodSandbox(pod)); err != nil {
		t.Fatal(err)
	}
	var got []string
	b := make([]byte, 64<<10)
	for text := ""; len(got) < 6; {
		n, err := c.out.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		text += string(b[:n])
		got = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	}
	for i, line := range got {
		_, got[i], _ = strings.Cut(line, `,`)
	}
	for _, of := range []string{pod, id} {
		var want, lines []string
		for _, typ := range []string{"ContainerStarted", "ContainerDied", "ContainerRemoved"} {
			want = append(want, fmt.Sprintf(`"pod_uid":"uid-web","type":"%s","container_id":"%s"}`, typ, of))
		}
		for _, line := range got {
			if strings.Contains(line, of) {
				lines = append(lines, line)
			}
		}
		if !slices.Equal(lines, want) {
			t.Errorf("got  %q\nwant %q", lines, want)
		}
	}
	c.terminate()
}

package main

import (
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"

	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// terminal is plegd on a pseudo-terminal.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	tty    *os.File // kept open to look at what the child left behind
	out    *logtest.Buffer
	before *term.State
	ended  chan struct{}
}

// startOn starts plegd on a terminal of a size, with variables beside the test's
// own.
func startOn(t *testing.T, width, height uint16, env []string, args ...string) *terminal {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Cols: width, Rows: height}); err != nil {
		t.Fatal(err)
	}
	before, err := term.GetState(fd(tty))
	if err != nil {
		t.Fatal(err)
	}
	p := &terminal{t: t, master: master, tty: tty, out: &logtest.Buffer{}, before: before, ended: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], args...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = tty, tty, tty
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.cmd.Env = append(append(os.Environ(), childEnv+"=plegd", "TERM=xterm", "NO_COLOR=", "GORACE=atexit_sleep_ms=0"), env...)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(p.out, master) // until the terminal is closed
	}()
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(sync.OnceFunc(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		_ = tty.Close()
		<-copied
		_ = master.Close()
	}))
	return p
}

// awaits waits until the terminal has shown a text.
func (p *terminal) awaits(text string) {
	p.t.Helper()
	defer func() {
		if p.t.Failed() {
			p.t.Logf("shown: %q", p.out)
		}
	}()
	eventually(p.t, "the terminal shows "+text, func() bool { return strings.Contains(p.out.String(), text) })
}

// ends waits for the end, and checks the code and that the terminal is as it was.
func (p *terminal) ends(code int) {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("still running; shown: %q", p.out)
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("code %d, want %d; shown: %q", got, code, p.out)
	}
	after, err := term.GetState(fd(p.tty))
	if err != nil || *after != *p.before {
		p.t.Errorf("the terminal was %+v and is %+v, %v", p.before, after, err)
	}
}

// type types keys.
func (p *terminal) types(keys string) {
	p.t.Helper()
	if _, err := io.WriteString(p.master, keys); err != nil {
		p.t.Fatal(err)
	}
}

// Events are followed, and coloured, on a terminal only.
func TestEventsOnATerminal(t *testing.T) {
	t.Parallel()
	dir, rt, _ := told(t)
	socket := "--socket=" + dir.socket()
	t.Run("follows in colour", func(t *testing.T) {
		p := startOn(t, 200, 24, nil, "events", socket)
		time.Sleep(500 * time.Millisecond)
		for n := range 100 { // until it follows
			newPod(t, rt, "term"+string(rune('a'+n)))
			if deadline := time.Now().Add(time.Second); func() bool {
				for time.Now().Before(deadline) && !strings.Contains(p.out.String(), "SandboxReady") {
					time.Sleep(10 * time.Millisecond)
				}
				return strings.Contains(p.out.String(), "SandboxReady")
			}() {
				break
			}
		}
		p.awaits("\x1b[32mSandboxReady\x1b[0m")
		if out := p.out.String(); strings.Contains(out, "uid-web") || strings.Contains(out, "default/web") || strings.Count(out, "POSITION") != 1 {
			t.Errorf("shown: %q", out) // what was before is not
		}
		p.types("\x03")
		p.ends(exitOK)
	})
	for name, tc := range map[string]struct {
		env   []string
		args  []string
		color bool
	}{
		"colour":        {nil, nil, true},
		"NO_COLOR":      {[]string{"NO_COLOR=1"}, nil, false},
		"dumb":          {[]string{"TERM=dumb"}, nil, false},
		"never":         {nil, []string{"--color=never"}, false},
		"always":        {[]string{"NO_COLOR=1"}, []string{"--color=always"}, true},
		"never in JSON": {nil, []string{"-o", "json"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := startOn(t, 200, 24, tc.env, append([]string{"events", socket, "--no-follow", "--type", "ContainerStarted"}, tc.args...)...)
			p.ends(exitOK)
			p.awaits("ContainerStarted")
			if got := strings.Contains(p.out.String(), "\x1b["); got != tc.color {
				t.Errorf("colours %v, want %v: %q", got, tc.color, p.out)
			}
		})
	}
}

// What pods are called never speaks to a terminal.
func TestNamesAreHarmless(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	agent := start(t, dir.args(endpoint, "--output", "none")...)
	dir.awaitReady(t)
	const evil = "x\x1b]0;owned\x07\u009b31m\r\u202e"
	pod, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: evil, UID: "u" + evil, Labels: map[string]string{"l" + evil: "v" + evil}})
	if err == nil {
		_, err = rt.CreateContainer(pod, simruntime.ContainerSpec{Name: "c" + evil, Image: "i" + evil})
	}
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is known", func() bool {
		_, out, _ := dir.ask("pods")
		return strings.Contains(out, "0/1")
	})
	evilBytes := func(s string) bool {
		return strings.ContainsFunc(s, func(r rune) bool {
			return r != '\n' && (r < ' ' || r >= 0x7f && r <= 0x9f || r == 0x202e)
		})
	}
	for _, args := range []string{"pods", "pods -o wide", "pods -o name", "pod u" + evil, "events", "events --kubelet-view", "top"} {
		if got := dir.mustAsk(t, strings.Split(args, " ")...); evilBytes(got) || !strings.Contains(got, "x\ufffd]0;owned") && !strings.Contains(args, "kubelet") {
			t.Errorf("plegd %q: %q", args, got)
		}
	}
	if got := dir.mustAsk(t, "pods", "-o", "yaml"); evilBytes(strings.ReplaceAll(got, "\u202e", "")) || !strings.Contains(got, "owned") {
		t.Errorf("%q", got)
	}
	// What programs read is told as it is, but not to a terminal.
	if got := dir.mustAsk(t, "events", "-o", "go-template={{.pod.name}}", "--limit", "1"); got != evil+"\n" {
		t.Errorf("%q", got)
	}
	for _, form := range []string{"json", "yaml", "go-template={{.pod.name}}", "cloudevents"} {
		p := startOn(t, 200, 24, nil, "events", "--socket", dir.socket(), "-o", form, "--no-follow")
		p.ends(exitOK)
		p.awaits("owned")
		if got := strings.ReplaceAll(p.out.String(), "\r\n", "\n"); evilBytes(strings.ReplaceAll(got, "\u202e", "")) {
			t.Errorf("%s: %q", form, got)
		}
	}
	agent.terminate()
}

// screenOf is what a terminal shows last: the lines of the last drawing.
func (p *terminal) screenOf() []string {
	out := p.out.String()
	i := strings.LastIndex(out, screenHome)
	if i < 0 {
		return nil
	}
	out, _, _ = strings.Cut(out[i+len(screenHome):], screenEnd)
	return strings.Split(strings.TrimSuffix(out, screenRest), lineEnd)
}

// top draws anew on a terminal, as large as that is, and gives it back however
// it ends.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	agent := start(t, dir.args(endpoint, "--output", "none")...)
	dir.awaitReady(t)
	newPod(t, rt, "web")
	top := func(t *testing.T, width, height uint16) *terminal {
		t.Helper()
		return startOn(t, width, height, nil, "top", "--socket", dir.socket(), "--interval", "50ms")
	}
	for name, end := range map[string]func(*terminal){
		"q":       func(p *terminal) { p.types("xq") },
		"Ctrl-C":  func(p *terminal) { p.types("\x03") },
		"SIGTERM": func(p *terminal) { _ = p.cmd.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			p := top(t, 100, 30)
			p.awaits("default/web")
			draws := strings.Count(p.out.String(), screenHome)
			eventually(t, "it draws anew", func() bool { return strings.Count(p.out.String(), screenHome) > draws+1 })
			end(p)
			p.ends(exitOK)
			p.awaits(screenEnd)
			if out := p.out.String(); !strings.HasPrefix(out, screenBegin) || !strings.HasSuffix(out, screenEnd) {
				t.Errorf("begins %.30q, ends %.30q", out, out[max(0, len(out)-30):])
			}
		})
	}
	t.Run("lives", func(t *testing.T) {
		p := top(t, 100, 40)
		p.awaits("default/web")
		newPod(t, rt, "later")
		p.awaits("default/later")
		if err := pty.Setsize(p.master, &pty.Winsize{Cols: 30, Rows: 8}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it has the new size", func() bool {
			lines := p.screenOf()
			return len(lines) <= 8 && !slices.ContainsFunc(lines, func(l string) bool { return width(l) > 30 })
		})
		if err := pty.Setsize(p.master, &pty.Winsize{Cols: 100, Rows: 40}); err != nil {
			t.Fatal(err)
		}
		agent.terminate()
		p.awaits("lost the agent")
		agent = start(t, dir.args(endpoint, "--output", "none")...)
		dir.awaitReady(t)
		eventually(t, "it is back", func() bool {
			lines := p.screenOf()
			return len(lines) > 3 && !strings.Contains(strings.Join(lines, "\n"), "lost the agent") && strings.Contains(strings.Join(lines, "\n"), "default/later")
		})
		p.types("q")
		p.ends(exitOK)
		agent.terminate() // the one of this subtest
	})
}

// width is how wide a line is on a terminal.
func width(line string) int {
	n, escaped := 0, false
	for _, r := range line {
		switch {
		case r == '\x1b':
			escaped = true
		case escaped:
			escaped = r == '[' || r == '?' || r >= '0' && r <= '9' || r == ';'
		default:
			n++
		}
	}
	return n
}

// A panic, wherever it is, comes after the terminal was given back.
func TestTopGivesTheTerminalBack(t *testing.T) {
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	shown := &logtest.Buffer{}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(shown, master)
	}()
	for name, agent := range map[string]*agentClient{
		"beside":  {}, // without a Client, each call panics
		"drawing": {},
	} {
		o := &topOptions{clientOptions: clientOptions{std: streams{out: tty, err: io.Discard, getenv: os.Getenv}}, interval: time.Hour}
		if name == "beside" {
			o.interval = 10 * time.Millisecond
		} else {
			o.std.getenv = func(string) string { panic("drawing") }
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
				if !strings.HasSuffix(shown.String(), screenEnd) {
					eventually(t, "the terminal is given back", func() bool { return strings.HasSuffix(shown.String(), screenEnd) })
				}
			}()
			_ = o.live(t.Context(), agent, &topView{}, &topLink{})
		}()
	}
	_ = tty.Close()
	<-copied
}

// Where there is no terminal one view is written, or with --interval one after
// the other.
func TestTopWithoutATerminal(t *testing.T) {
	t.Parallel()
	dir, _, _ := told(t)
	got := dir.mustAsk(t, "top")
	if strings.Contains(got, "\x1b") || !strings.HasPrefix(got, "plegd on n1, mode hybrid, containerd v2.4.2\nready\nstream   up for ") ||
		!strings.Contains(got, "\npods     3, 3 ready\n\nPOD ") || !strings.Contains(got, "/s in the last minute, detected after ") {
		t.Errorf("%s", got)
	}
	// On a terminal there is no rate before the last minute has been read.
	p := startOn(t, 200, 24, nil, "top", "--socket", dir.socket())
	p.awaits("/s in the last minute, detected after ")
	if strings.Contains(p.out.String(), " 0.0/s") {
		t.Errorf("shown: %q", p.out)
	}
	p.types("q")
	p.ends(exitOK)
	c := start(t, "top", "--interval", "20ms", "--socket", dir.socket(), "--pod", "web")
	rows := c.scan(t)
	eventually(t, "there are more views", func() bool { return rows.count("pods 1, 1 ready") >= 3 })
	c.terminate()
}

package page

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/plegd/plegd/internal/logtest"
	_ "github.com/plegd/plegd/internal/server" // has the page: `go test` then knows when an old result is of another
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// patience bounds every wait for what should happen soon.
const patience = 30 * time.Second

var (
	plegd   string          // the binary
	browser context.Context // a running Chromium; nil if there is none
)

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (int, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("CI") == "true" {
			return 0, fmt.Errorf("the tests of the web page need Chromium; CI must not pass without them: %w", err)
		}
		fmt.Fprintf(os.Stderr, "\n*** SKIPPED the tests of the web page: %v; test/page/install.sh gets it ***\n\n", err)
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("", "page")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	plegd = filepath.Join(dir, "plegd")
	if out, err := exec.Command("go", "build", "-trimpath", "-o", plegd, "github.com/plegd/plegd/cmd/plegd").CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build plegd: %w\n%s", err, out)
	}
	ctx, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(filepath.Join(dir, "profile")), chromedp.WindowSize(1280, 900),
		chromedp.NoSandbox, // it refuses to be root with one; nothing but the page of this machine is loaded
		chromedp.DisableGPU, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.WSURLReadTimeout(patience),
	)...)
	defer stop()
	ctx, closeBrowser := chromedp.NewContext(ctx)
	defer closeBrowser()
	if err := chromedp.Do(ctx); err != nil {
		return 0, fmt.Errorf("start %s: %w", path, err)
	}
	browser = ctx
	return m.Run(), nil
}

// agent is plegd as a process with --http-api. It can be started again, on the
// same address and state.
type agent struct {
	t        *testing.T
	dir      string
	endpoint string
	address  string
	more     []string
	cmd      *exec.Cmd
}

// startAgent runs an agent on a simulated runtime until the end of the test.
func startAgent(t *testing.T, more ...string) (*agent, *simruntime.Runtime) {
	t.Helper()
	if browser == nil {
		t.Skip("there is no Chromium; test/page/install.sh gets it")
	}
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir, err := os.MkdirTemp("", "page") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, dir: dir, endpoint: endpoint, address: lis.Addr().String(), more: more}
	_ = lis.Close() // its port is given out again last of all
	a.start()
	t.Cleanup(func() { a.end(os.Kill) })
	return a, rt
}

func (a *agent) start() {
	a.t.Helper()
	a.cmd = exec.Command(plegd, append([]string{
		"run", "--runtime-endpoint", a.endpoint, "--state-dir", filepath.Join(a.dir, "state"), "--socket", filepath.Join(a.dir, "s"),
		"--http-listen", a.address, "--http-api", "--node-name", "node-7", "--output", "none", "--relist-period", "200ms",
	}, a.more...)...)
	log := &logtest.Buffer{}
	a.cmd.Stderr = log
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	eventually(a.t, "the agent listens", func() bool { return strings.Contains(log.String(), "serving the API and the page") })
}

// end ends the agent, if it runs.
func (a *agent) end(with os.Signal) {
	if a.cmd == nil {
		return
	}
	_ = a.cmd.Process.Signal(with)
	_ = a.cmd.Wait()
	a.cmd = nil
}

func (a *agent) restart(meanwhile func()) {
	a.end(syscall.SIGTERM)
	meanwhile()
	a.start()
}

// runPod makes a pod with one running container.
func runPod(t *testing.T, rt *simruntime.Runtime, name string) (container string) {
	t.Helper()
	pod, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "shop", Name: name, UID: "uid-" + name, Labels: map[string]string{"app": name}})
	if err != nil {
		t.Fatal(err)
	}
	id, err := rt.CreateContainer(pod, simruntime.ContainerSpec{Name: "nginx"})
	if err == nil {
		err = rt.StartContainer(id)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// eventually polls until done is true.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v it is still not so that %s", patience, what)
		}
	}
}

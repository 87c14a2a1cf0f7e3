package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	runtimeStartTimeout = 30 * time.Second
	runtimeStopTimeout  = 15 * time.Second
)

// Each runtime has a bridge of its own, since some run at once. A /16, since a test may have more pods
// than a /24 has addresses.
const cniConfig = `{"cniVersion": "0.4.0", "name": "e2e", "plugins": [{
  "type": "bridge", "bridge": "e2e%[1]d", "isGateway": true,
  "ipam": {"type": "host-local", "dataDir": "%[2]s/ipam", "ranges": [[{"subnet": "%[3]s0.0/16"}]]}}]}`

// bridges counts the runtimes that were started.
var bridges atomic.Int32

// containerd is a running runtime.
type containerd struct {
	flavour
	dir    string
	socket string
	net    string // what the addresses of its pods begin with
	log    *os.File
	cmd    *exec.Cmd
	gone   chan struct{} // closed when cmd has ended
	conn   *grpc.ClientConn

	cri    runtimeapi.RuntimeServiceClient
	images runtimeapi.ImageServiceClient
}

// startContainerd starts a runtime with no pods, and stops it when the test ends.
func startContainerd(t testing.TB, f flavour) *containerd {
	t.Helper()
	needRuntimes(t)
	dir := workDir(t, "ctd")
	c := &containerd{flavour: f, dir: dir, socket: filepath.Join(dir, "containerd.sock")}
	if err := c.configure(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.cleanup(t) })
	c.start(t)
	if err := c.importImage(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *containerd) configure() (err error) {
	cni := filepath.Join(c.dir, "cni")
	if err := os.Mkdir(cni, 0o700); err != nil {
		return fmt.Errorf("configure containerd: %w", err)
	}
	bridge := bridges.Add(1)
	c.net = fmt.Sprintf("10.%d.", bridge%256)
	conflist := fmt.Sprintf(cniConfig, bridge, c.dir, c.net)
	if err := os.WriteFile(filepath.Join(cni, "10-e2e.conflist"), []byte(conflist), 0o600); err != nil {
		return fmt.Errorf("configure containerd: %w", err)
	}
	if err := c.writeConfig(); err != nil {
		return err
	}
	if c.log, err = os.Create(filepath.Join(c.dir, "log")); err != nil {
		return fmt.Errorf("configure containerd: %w", err)
	}
	// The connection heals itself after a restart of the runtime.
	c.conn, err = grpc.NewClient("unix://"+c.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("configure containerd: %w", err)
	}
	c.cri = runtimeapi.NewRuntimeServiceClient(c.conn)
	c.images = runtimeapi.NewImageServiceClient(c.conn)
	return nil
}

// writeConfig writes what this version of the runtime reads at its start.
func (c *containerd) writeConfig() error {
	config := fmt.Sprintf(c.config, c.dir, imageName, runtimesDir()+"/debian/usr/lib/cni")
	if err := os.WriteFile(filepath.Join(c.dir, "config.toml"), []byte(config), 0o600); err != nil {
		return fmt.Errorf("configure containerd: %w", err)
	}
	return nil
}

// command prepares one of the runtime's own programs.
func (c *containerd) command(name string, args ...string) *exec.Cmd {
	dirs := c.path(runtimesDir())
	cmd := exec.Command(filepath.Join(dirs[0], name), args...)
	path := strings.Join(append(dirs, "/usr/sbin", "/usr/bin", "/sbin", "/bin"), ":")
	cmd.Env = append(os.Environ(), "PATH="+path)
	return cmd
}

// start starts the runtime, for the first time or again, and waits until it serves pods.
func (c *containerd) start(t testing.TB) {
	t.Helper()
	c.cmd = c.command("containerd", "--config", filepath.Join(c.dir, "config.toml"))
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	if err := c.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", c.name, err)
	}
	c.gone = make(chan struct{})
	go func(cmd *exec.Cmd, gone chan struct{}) {
		_ = cmd.Wait() // how it ended is in its log
		close(gone)
	}(c.cmd, c.gone)

	eventually(t, runtimeStartTimeout, c.name+" serves CRI", func() error {
		select {
		case <-c.gone:
			t.Fatalf("%s ended at its start:\n%s", c.name, c.logTail())
		default:
		}
		status, err := c.cri.Status(t.Context(), &runtimeapi.StatusRequest{})
		if err != nil {
			return err
		}
		for _, cond := range status.GetStatus().GetConditions() {
			// Other conditions, about deprecations say, stand in no pod's way.
			needed := cond.GetType() == runtimeapi.RuntimeReady || cond.GetType() == runtimeapi.NetworkReady
			if needed && !cond.GetStatus() {
				return fmt.Errorf("%s: %s", cond.GetType(), cond.GetMessage())
			}
		}
		return nil
	})
	c.checkVersion(t)
}

// checkVersion fails the test on another version than the one that the documentation says was
// tested: behaviour differs between them, and a result that is true of another one misleads.
func (c *containerd) checkVersion(t testing.TB) {
	t.Helper()
	want, err := c.version, error(nil)
	if want == "" {
		want, err = pinned(c.pin, c.module)
	}
	if err != nil {
		t.Fatal(err)
	}
	v, err := c.cri.Version(t.Context(), &runtimeapi.VersionRequest{})
	if err != nil {
		t.Fatalf("version of %s: %v", c.name, err)
	}
	if got := v.GetRuntimeVersion(); !sameVersion(got, want) {
		t.Fatalf("%s has version %q, but the tests are written for %s: install that one (make e2e), or look at what has changed and move the pin",
			c.name, got, want)
	}
	// Nothing depends on runc's version; who looks into a failure wants to know it.
	runc, err := exec.Command(filepath.Join(runtimesDir(), "debian/usr/sbin/runc"), "--version").Output()
	if err != nil {
		t.Fatalf("version of runc: %v", err)
	}
	line, _, _ := strings.Cut(string(runc), "\n")
	t.Logf("%s is %s on %s", c.name, v.GetRuntimeVersion(), line)
}

func (c *containerd) importImage(ctx context.Context) error {
	archive, err := buildImage()
	if err != nil {
		return err
	}
	out, err := c.command("ctr", "--address", c.socket, "--namespace", "k8s.io", "images", "import", archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import image: %w\n%s", err, out)
	}
	// The CRI plugin learns of the image by an event.
	deadline := time.Now().Add(10 * time.Second)
	for {
		r, err := c.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: imageName}})
		switch {
		case err != nil:
			return fmt.Errorf("import image: %w", err)
		case r.GetImage() != nil:
			return nil
		case time.Now().After(deadline):
			return errors.New("import image: CRI does not see it")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// stop ends the runtime with SIGTERM; pods go on.
func (c *containerd) stop(t testing.TB) { t.Helper(); c.end(t, syscall.SIGTERM) }

// kill ends the runtime with SIGKILL; pods go on.
func (c *containerd) kill(t testing.TB) { t.Helper(); c.end(t, syscall.SIGKILL) }

func (c *containerd) end(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("end %s: %v", c.name, err)
	}
	select {
	case <-c.gone:
	case <-time.After(runtimeStopTimeout):
		t.Fatalf("%s still runs %v after %v", c.name, runtimeStopTimeout, sig)
	}
}

// cleanup ends the runtime and the pods that the test has left. It reports nothing: what it can't
// end, the end of the PID namespace does.
func (c *containerd) cleanup(t testing.TB) {
	if t.Failed() {
		t.Logf("end of %s's log:\n%s", c.name, c.logTail())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if list, err := c.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}); err == nil {
		for _, sandbox := range list.GetItems() {
			_, _ = c.cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox.GetId()})
			_, _ = c.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox.GetId()})
		}
	}
	_ = c.conn.Close()
	if c.cmd != nil && c.gone != nil {
		_ = c.cmd.Process.Kill()
		<-c.gone
	}
	_ = c.log.Close()
}

// logTail is the last part of the runtime's log.
func (c *containerd) logTail() string { return tail(c.log.Name(), 4096) }

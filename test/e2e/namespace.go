package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The test binary runs as three processes, told apart by stageEnv:
//
//	outside  the process that go test started; makes the namespaces and tidies up what they leave
//	init     process 1 inside; mounts, and reaps what the shims leave behind
//	tests    runs the tests
//
// When init ends the kernel kills every process in its PID namespace, and with them go the mounts,
// the network namespaces and the bridges. Only control groups and the work folder are left.
const (
	stageEnv = "PLEGD_E2E_STAGE"
	workEnv  = "PLEGD_E2E_WORK"

	stageInit  = "init"
	stageTests = "tests"

	// kubeletCgroup is where containerd puts the control groups of pods that name no parent, as those
	// of the kubelet do here.
	kubeletCgroup = "/k8s.io"
)

// fixedFolders are where CNI keeps results and the kubelet a socket, whatever their configurations
// say.
var fixedFolders = []string{"/var/lib/cni", "/var/lib/kubelet"}

// cgroupParent holds the control groups of all test pods; the number keeps two runs apart.
func cgroupParent() string { return "/plegd-e2e-" + filepath.Base(os.Getenv(workEnv)) }

// runInNamespaces runs this test binary in namespaces of its own and returns its exit code.
func runInNamespaces() (code int, err error) {
	// Short, since the paths of unix sockets in it must fit 108 bytes.
	work, err := os.MkdirTemp("", "plegd")
	if err != nil {
		return 0, fmt.Errorf("work folder: %w", err)
	}
	if err := os.Setenv(workEnv, work); err != nil {
		return 0, err
	}
	parents := []string{cgroupParent()}
	if len(cgroups(kubeletCgroup)) == 0 {
		parents = append(parents, kubeletCgroup) // else somebody else has it
	}
	defer func() {
		err = errors.Join(err, removeCgroups(parents))
		if os.Getenv("PLEGD_E2E_KEEP") == "1" {
			fmt.Fprintln(os.Stderr, "kept", work)
			return
		}
		err = errors.Join(err, os.RemoveAll(work))
	}()

	// Only a folder can be mounted on; one that wasn't there is taken away again.
	for _, folder := range fixedFolders {
		if err := os.Mkdir(folder, 0o700); err == nil {
			defer os.Remove(folder)
		}
	}

	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupted)

	// Pdeathsig is sent when the thread ends that started the process, not the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := again(stageInit)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("enter namespaces: %w", err)
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-interrupted:
			_ = cmd.Process.Kill()
		case <-done:
		}
	}()
	return processExit(cmd.Wait())
}

// again is this very command line in another stage.
func again(stage string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), stageEnv+"="+stage)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

func processExit(err error) (int, error) {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil // -1 means killed
	}
	return 0, err
}

// runInit is process 1: it prepares the namespaces, runs the tests and reaps every orphan until
// they end.
func runInit() (code int, err error) {
	if err := isolate(); err != nil {
		return 0, err
	}
	cmd := again(stageTests)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start tests: %w", err)
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for tests: %w", err)
		case pid == cmd.Process.Pid && status.Exited():
			return status.ExitStatus(), nil
		case pid == cmd.Process.Pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		}
	}
}

// isolate gives the namespaces what a runtime expects of a machine, without touching the machine.
func isolate() error {
	type mount struct {
		source, target, fstype string
		flags                  uintptr
	}
	mounts := []mount{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		// Shims keep their sockets, and CNI its network namespaces, at fixed places in /run.
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV},
	}
	for _, folder := range fixedFolders {
		mounts = append(mounts, mount{"tmpfs", folder, "tmpfs", unix.MS_NOSUID | unix.MS_NODEV})
	}
	for _, m := range mounts {
		if err := unix.Mount(m.source, m.target, m.fstype, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return loopbackUp()
}

// loopbackUp gives a new network namespace its 127.0.0.1.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	defer unix.Close(fd)
	ifreq, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	ifreq.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifreq); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	return nil
}

// cgroups finds a control group. On version 1 each controller has a tree of its own.
func cgroups(name string) (roots []string) {
	for _, pattern := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		found, _ := filepath.Glob(pattern + name)
		roots = append(roots, found...)
	}
	return roots
}

// removeCgroups removes the control groups of the test pods, which have no process left.
func removeCgroups(parents []string) error {
	var errs []error
	for _, parent := range parents {
		for _, root := range cgroups(parent) {
			errs = append(errs, removeTree(root))
		}
	}
	return errors.Join(errs...)
}

// removeTree removes folders from the leaves up: the files in a control group can't be removed.
func removeTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, p)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("control groups: %w", err)
	}
	slices.SortFunc(dirs, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	for _, dir := range dirs {
		if err := os.Remove(dir); err != nil {
			return fmt.Errorf("control groups: %w", err)
		}
	}
	return nil
}

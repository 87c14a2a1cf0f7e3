package e2e

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// nodeName is what the kubelet calls itself; it ends the names of its static pods.
const nodeName = "e2e"

// kubeletConfig is that of a kubelet without an API server, on a machine that others use too.
//
// Control groups of pods are not the kubelet's, since it would make a tree of its own and move
// processes. Kernel parameters must be as it wants them already: see pretendSysctls. Restarts are
// held back for 1 s at most, so that a crash loop takes no minutes.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: %[1]s/manifests
fileCheckFrequency: 1s
containerRuntimeEndpoint: unix://%[2]s
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
protectKernelDefaults: true
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
address: 127.0.0.1
port: %[3]s
readOnlyPort: 0
healthzPort: 0
localStorageCapacityIsolation: false
oomScoreAdj: 0
podLogsDir: %[1]s/logs
volumePluginDir: %[1]s/plugins
resolvConf: %[1]s/resolv.conf
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
evictionHard: {memory.available: 1Mi}
`

// kubelet is a real one, which makes pods on a runtime of the tests.
type kubelet struct {
	dir  string
	port string
	log  *os.File
	cmd  *exec.Cmd
	gone chan struct{}
}

// kubeletBinary is the kubelet that `install.sh --kubelet` has built.
func kubeletBinary() string { return filepath.Join(runtimesDir(), "kubelet", "kubelet") }

// startKubelet starts a kubelet without pods, and kills it when the test ends.
func startKubelet(t *testing.T, rt *containerd) *kubelet {
	t.Helper()
	dir := workDir(t, "kubelet")
	k := &kubelet{dir: dir}
	_, k.port, _ = net.SplitHostPort(freePort(t))
	for _, sub := range []string{"manifests", "logs", "plugins", "root"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	config := fmt.Sprintf(kubeletConfig, dir, rt.socket, k.port)
	for name, content := range map[string]string{"config.yaml": config, "resolv.conf": "nameserver 127.0.0.1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if k.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	pretendSysctls(t, dir)
	t.Cleanup(func() {
		k.kill(t)
		if t.Failed() {
			t.Logf("end of the kubelet's log:\n%s", tail(k.log.Name(), 8192))
		}
		_ = k.log.Close()
	})
	k.start(t)
	return k
}

// pretendSysctls lays files over kernel parameters that the kubelet would change for the whole
// machine, and over the one folder outside its own that it writes to.
func pretendSysctls(t *testing.T, dir string) {
	t.Helper()
	mount := func(source, target, fstype string, flags uintptr) {
		if err := unix.Mount(source, target, fstype, flags, ""); err != nil {
			t.Fatalf("mount on %s: %v", target, err)
		}
		t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	}
	for name, value := range map[string]string{"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"} {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		mount(file, "/proc/sys/"+name, "", unix.MS_BIND)
	}
	mount("tmpfs", "/var/log", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV)
}

// start starts the kubelet, for the first time or again, and waits until it is healthy.
func (k *kubelet) start(t *testing.T) {
	t.Helper()
	k.cmd = exec.Command(kubeletBinary(),
		"--config", filepath.Join(k.dir, "config.yaml"),
		"--root-dir", filepath.Join(k.dir, "root"),
		"--cert-dir", filepath.Join(k.dir, "root", "pki"),
		"--hostname-override", nodeName)
	k.cmd.Stdout, k.cmd.Stderr = k.log, k.log
	if err := k.cmd.Start(); err != nil {
		t.Fatalf("start the kubelet: %v", err)
	}
	k.gone = make(chan struct{})
	go func(cmd *exec.Cmd, gone chan struct{}) {
		_ = cmd.Wait() // how it ended is in its log
		close(gone)
	}(k.cmd, k.gone)
	eventually(t, longWait, "the kubelet is healthy", func() error {
		select {
		case <-k.gone:
			t.Fatalf("the kubelet ended at its start:\n%s", tail(k.log.Name(), 4096))
		default:
		}
		code, body, err := k.get("/healthz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("healthz is %d: %s", code, body)
		}
		return err
	})
}

// kill ends the kubelet with SIGKILL; its pods go on.
func (k *kubelet) kill(t *testing.T) {
	t.Helper()
	_ = k.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
	select {
	case <-k.gone:
	case <-time.After(runtimeStopTimeout):
		t.Errorf("the kubelet still runs %v after SIGKILL", runtimeStopTimeout)
	}
}

// get asks the kubelet, whose certificate it has signed itself.
func (k *kubelet) get(path string) (code int, body string, err error) {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // loopback of this network namespace
	}}
	return fetch(client, "https://127.0.0.1:"+k.port+path)
}

// metrics are the kubelet's own.
func (k *kubelet) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	code, body, err := k.get("/metrics")
	if err != nil || code != http.StatusOK {
		t.Fatalf("metrics of the kubelet: %d, %v", code, err)
	}
	series, err := parseMetrics(body)
	if err != nil {
		t.Fatal(err)
	}
	return series
}

// staticPod is a pod with one container, as a manifest says it.
type staticPod struct {
	name  string
	args  []string
	grace int  // seconds to end in
	sick  bool // its liveness probe fails always
	label string
}

// apply writes the manifest, for the first time or anew: at once, since the kubelet watches.
func (k *kubelet) apply(t *testing.T, p staticPod) {
	t.Helper()
	type object = map[string]any
	container := object{
		"name": "main", "image": imageName, "imagePullPolicy": "Never", "args": p.args,
	}
	if p.sick {
		container["livenessProbe"] = object{
			"exec":          object{"command": []string{"/workload", "exit", "1"}},
			"periodSeconds": 1, "failureThreshold": 1, "timeoutSeconds": 5,
		}
	}
	manifest, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": p.name, "namespace": namespace, "labels": object{"app": p.name, "label": p.label}},
		"spec": object{
			"dnsPolicy": "Default", "enableServiceLinks": false,
			"terminationGracePeriodSeconds": p.grace,
			"containers":                    []object{container},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(k.dir, p.name+".json")
	if err := os.WriteFile(file, manifest, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file, k.manifest(p.name)); err != nil {
		t.Fatal(err)
	}
}

func (k *kubelet) manifest(name string) string {
	return filepath.Join(k.dir, "manifests", name+".json")
}

// withdraw removes the manifest, and so deletes the pod.
func (k *kubelet) withdraw(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(k.manifest(name)); err != nil {
		t.Fatal(err)
	}
}

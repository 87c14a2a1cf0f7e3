package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// runtimesDir is the folder that runtimes/install.sh filled.
func runtimesDir() string {
	return fromEnv("PLEGD_E2E_RUNTIMES", ".cache", "runtimes-"+runtime.Version())
}

// binary is the plegd under test.
func binary() string { return fromEnv("PLEGD_E2E_BIN", "bin", "plegd") }

// fromEnv reads a path from the environment; the default is relative to the module's root.
func fromEnv(name string, def ...string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	// go test runs in the package's folder.
	p, err := filepath.Abs(filepath.Join(append([]string{"..", ".."}, def...)...))
	if err != nil {
		return filepath.Join(def...)
	}
	return p
}

// unavailable says why real runtimes can't run here, or nothing.
func unavailable() string {
	if os.Geteuid() != 0 {
		return "not root"
	}
	release, err := os.ReadFile("/etc/os-release")
	if err != nil || !bytes.Contains(release, []byte("VERSION_CODENAME=bookworm")) {
		return "not Debian 12"
	}
	if _, err := os.Stat(filepath.Join(runtimesDir(), "installed")); err != nil {
		return "runtimes not installed (make e2e does): " + err.Error()
	}
	return ""
}

// needRuntimes skips the test where real runtimes can't run, or fails it where they must.
func needRuntimes(t testing.TB) {
	t.Helper()
	refuse(t, unavailable())
}

// needBinary is needRuntimes for tests that also run plegd.
func needBinary(t testing.TB) {
	t.Helper()
	needRuntimes(t)
	if _, err := os.Stat(binary()); err != nil {
		refuse(t, "no plegd (make build): "+err.Error())
	}
}

func refuse(t testing.TB, reason string) {
	t.Helper()
	switch {
	case reason == "":
	case os.Getenv("PLEGD_E2E_REQUIRED") == "1":
		t.Fatal("real runtimes are required here: ", reason)
	default:
		t.Skip("SKIPPED real runtime: ", reason)
	}
}

// workDir makes a folder for one test. Its path is short, unlike that of t.TempDir: unix sockets
// live in it.
func workDir(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp(os.Getenv(workEnv), name)
	if err != nil {
		t.Fatal(fmt.Errorf("work folder: %w", err))
	}
	return dir
}

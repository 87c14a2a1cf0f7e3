// Package e2e tests the plegd binary from outside, on real CRI runtimes: containerd 2.x, which has
// an event stream, 1.7, whose stream plegd must leave to others, and Debian's 1.6, which has none. It
// knows the binary by its flags, its output and its sockets only. TestMemoryBound also writes the
// state of an agent that is gone.
//
// A seeded churn (churn.go) makes and ends pods while agent or runtime is killed, frozen or upgraded;
// its ledger (ledger.go) says what must have been told, and truth.go compares what plegd serves with
// what the runtime says. TestKubelet has a real kubelet make the pods.
//
// The test binary starts itself again inside namespaces of its own (see namespace.go), so that no
// mount, shim, bridge or socket can outlive it, however it ends. That needs root; the runtimes need
// Debian 12 and what runtimes/install.sh puts into one folder. Where anything is missing the tests
// skip with a reason that starts with "SKIPPED real runtime:", or fail if PLEGD_E2E_REQUIRED is 1.
//
// Environment, each with the default that `make` uses:
//
//	PLEGD_E2E_RUNTIMES  folder filled by runtimes/install.sh (.cache/runtimes-GOVERSION)
//	PLEGD_E2E_BIN       the binary under test (bin/plegd)
//	PLEGD_E2E_REQUIRED  1 if a test that cannot run must fail
//	PLEGD_E2E_LONG      1 for the numbers of make e2e-long
//	PLEGD_E2E_SEED      the seed of the churn, to run one again
//	PLEGD_E2E_KEEP      1 to keep the folder with logs and state
package e2e

package e2e

import (
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// frozenFor is longer than the bound on a call that these agents have, so that calls fail in it.
const frozenFor = 10 * time.Second

// freeze stops every thread of the runtime until the function is called that it returns.
func (c *containerd) freeze(t testing.TB) (thaw func()) {
	t.Helper()
	signal := func(sig syscall.Signal) {
		t.Helper()
		if err := c.cmd.Process.Signal(sig); err != nil {
			t.Fatalf("%v to %s: %v", sig, c.name, err)
		}
	}
	signal(syscall.SIGSTOP)
	return func() { signal(syscall.SIGCONT) }
}

// A runtime that is frozen answers nothing and closes nothing. Calls fail, the agent says so, and
// nothing is taken for gone; once thawed, all is told.
func TestRuntimeFrozenUnderChurn(t *testing.T) {
	freezes := scale(1, 3)
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel() // they wait more than they compute
			needBinary(t)
			seed := churnSeed(t)
			w := &watched{rt: startContainerd(t, f), dir: workDir(t, "plegd")}
			started := time.Now()
			w.restart(t, "--rpc-timeout", "3s", "--relist-period-max", "2s", "--relist-threshold", "2s")
			var seen samples
			stop := seen.follow(w.agent, started)
			c := startChurn(w.rt, seed, churnWorkers, false)
			t.Cleanup(func() { _ = c.end() })
			for range freezes {
				time.Sleep(3 * time.Second)
				thaw := w.rt.freeze(t)
				thawAt := time.After(frozenFor)
				w.await(t, settle, "plegd says that the runtime does not answer", func([]event) error {
					code, body, err := w.get("/readyz?verbose")
					if err == nil && code == http.StatusOK {
						err = fmt.Errorf("readyz is %d\n%s", code, body)
					}
					return err
				})
				if code, _, err := w.get("/livez"); err != nil || code != http.StatusOK {
					t.Errorf("livez beside a frozen runtime: %d, %v", code, err)
				}
				<-thawAt
				before := len(w.all())
				thaw()
				w.awaitReady(t)
				w.await(t, settle, "events go on", func(events []event) error {
					if len(events) == before {
						return fmt.Errorf("still %d", before)
					}
					return nil
				})
			}
			told := w.settled(t, c)
			stop()

			checkOrder(t, told)
			checkOnce(t, told)
			lives, pods := c.ledger()
			t.Logf("frozen %d times for %v, %d pods, %d events; %v", freezes, frozenFor, pods, len(told), checkLedger(t, told, lives, &seen))
		})
	}
}

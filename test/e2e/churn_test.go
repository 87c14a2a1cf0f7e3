package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// churnWorkers keep a machine of two cores busy.
const churnWorkers = 3

// churnSeed decides pods and moments; PLEGD_E2E_SEED runs one again.
func churnSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("PLEGD_E2E_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("PLEGD_E2E_SEED=%d", seed)
	return seed
}

// settled ends a churn and waits until plegd serves what the runtime has; it returns what this agent
// has told.
func (w *watched) settled(t *testing.T, c *churn) []event {
	t.Helper()
	if err := c.end(); err != nil {
		t.Fatal(err)
	}
	w.awaitReady(t)
	w.awaitTruth(t, w.rt)
	return w.awaitTold(t)
}

// The agent is killed again and again while pods come, end and go. Each next one goes on where its
// reader stopped.
func TestAgentKilledUnderChurn(t *testing.T) {
	kills := scale(10, 50)
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel() // they wait more than they compute
			needBinary(t)
			seed := churnSeed(t)
			rng := rand.New(rand.NewPCG(seed, seed))
			w := &watched{rt: startContainerd(t, f), dir: workDir(t, "plegd")}
			c := startChurn(w.rt, seed, churnWorkers, false)
			t.Cleanup(func() { _ = c.end() })

			var told []event
			var seen samples
			var since []string
			for range kills {
				started := time.Now()
				w.launch(t, since...)
				stop := seen.follow(w.agent, started)
				if len(told) == 0 {
					// What came before the first event that was read, no position could bring back.
					w.await(t, settle, "first event", func(events []event) error {
						if len(events) == 0 {
							return fmt.Errorf("none")
						}
						return nil
					})
				}
				// At any moment: before it is ready too.
				time.Sleep(time.Duration(rng.IntN(2500)) * time.Millisecond)
				w.kill(t)
				stop()
				told = append(told, w.all()...)
				since = []string{"--since", told[len(told)-1].position()}
			}
			started := time.Now()
			w.launch(t, since...)
			stop := seen.follow(w.agent, started)
			time.Sleep(2 * time.Second) // some churn more
			told = append(told, w.settled(t, c)...)
			stop()

			checkOrder(t, told)
			checkOnce(t, told)
			lives, pods := c.ledger()
			t.Logf("%d kills, %d pods, %d events; %v", kills, pods, len(told), checkLedger(t, told, lives, &seen))
			checkReplay(t, w, told)
		})
	}
}

// The runtime is killed again and again while pods come, end and go, and comes back.
func TestRuntimeKilledUnderChurn(t *testing.T) {
	kills := scale(3, 15)
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel() // they wait more than they compute
			needBinary(t)
			seed := churnSeed(t)
			rng := rand.New(rand.NewPCG(seed, seed))
			w := &watched{rt: startContainerd(t, f), dir: workDir(t, "plegd")}
			started := time.Now()
			w.restart(t)
			var seen samples
			stop := seen.follow(w.agent, started)
			c := startChurn(w.rt, seed, churnWorkers, true)
			t.Cleanup(func() { _ = c.end() })
			for range kills {
				time.Sleep(time.Second + time.Duration(rng.IntN(3000))*time.Millisecond)
				w.rt.kill(t)
				time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
				w.rt.start(t)
			}
			time.Sleep(3 * time.Second) // some churn more
			told := w.settled(t, c)
			stop()

			checkOrder(t, told)
			checkOnce(t, told)
			lives, pods := c.ledger()
			t.Logf("%d kills of the runtime, %d pods, %d events; %v", kills, pods, len(told), checkLedger(t, told, lives, &seen))
		})
	}
}

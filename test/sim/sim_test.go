package sim_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
)

var (
	from    = flag.Uint64("from", 0, "first seed")
	to      = flag.Uint64("to", 19, "last seed")
	summary = flag.String("summary", "", "file that the summary is appended to, as a line of JSON")
	digests = flag.Bool("digests", false, "put a digest of all that each seed did into the summary")
	story   = flag.Bool("story", false, "print what was done in each seed, what was logged and what was told")
)

// TestSim runs seeds, one after another and on one processor, since whatever
// runs beside a seed could change what it does.
func TestSim(t *testing.T) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	total := map[string]int{}
	violations, sums := map[string]string{}, map[string]string{}
	for seed := *from; seed <= *to; seed++ {
		name := fmt.Sprint(seed)
		t.Run(name, func(t *testing.T) {
			runtime.GC()
			w := simulate(t, seed)
			for k, n := range w.counts {
				if strings.HasPrefix(k, "max: ") {
					total[k] = max(total[k], n)
				} else {
					total[k] += n
				}
			}
			if *story || len(w.bad) > 0 {
				t.Log(w.story())
			}
			if len(w.bad) > 0 {
				violations[name] = strings.Join(w.bad, "\n")
				t.Errorf("seed %d: %s\nreproduce: make sim FROM=%d TO=%d", seed, violations[name], seed, seed)
			}
			if *digests {
				sums[name] = w.digest()
			}
		})
	}
	if *to-*from >= 19 && total["events seen"] == 0 {
		t.Error("no event was seen to reach the agent: what they made observable is not judged")
	}
	total["violations"] = len(violations)
	if *summary != "" {
		line, err := json.Marshal(map[string]any{"from": *from, "to": *to, "counts": total, "violations": violations, "digests": sums})
		if err == nil {
			err = appendTo(*summary, append(line, '\n'))
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func appendTo(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// simulate runs one seed.
func simulate(t *testing.T, seed uint64) (w *world) {
	cryptotest.SetGlobalRandom(t, seed)
	p := newPlan(seed)
	dir := stateDir(t, p)
	synctest.Test(t, func(t *testing.T) { w = run(t, p, dir) })
	return w
}

// stateDir is in memory where there is such a place, but for the seeds that are
// to know a real disk.
func stateDir(t *testing.T, p plan) string {
	if !p.synced {
		if dir, err := os.MkdirTemp("/dev/shm", "plegd-sim-"); err == nil {
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			return filepath.Join(dir, "state")
		}
	}
	return filepath.Join(t.TempDir(), "state")
}

// story is all that can be said of a run.
func (w *world) story() string {
	var b strings.Builder
	fmt.Fprintln(&b, w.p)
	for _, line := range w.script {
		fmt.Fprintln(&b, line)
	}
	if *story {
		for _, line := range w.log.lines {
			fmt.Fprintln(&b, line)
		}
		for _, ev := range w.main.events {
			fmt.Fprintf(&b, "%10.6f %v %s %s\n", ev.read.Sub(w.began).Seconds(), ev.Position, ev.Type, short(ev.EntityID()))
		}
	}
	return b.String()
}

// digest is the same for two runs that did and told the same.
func (w *world) digest() string {
	h := sha256.New()
	for _, line := range w.script {
		fmt.Fprintln(h, line)
	}
	for _, line := range w.log.lines {
		fmt.Fprintln(h, line)
	}
	for _, ev := range w.main.events {
		text, _ := json.Marshal(&ev.Event)
		fmt.Fprintln(h, string(text))
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

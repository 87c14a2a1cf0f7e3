// Command steady writes an overlay for the go command in which whatever the
// runtime leaves to chance is the same in each run of a testing/synctest bubble:
// the order of select's cases and of maps, what math/rand/v2 draws without a
// seed, and when a goroutine has to make way for another. Nothing else of a
// bubble that does no I/O on a network is left to chance on one processor.
//
//	steady DIR   writes DIR/overlay.json, for go build -overlay
//
// It fails where it doesn't find in GOROOT what it replaces.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: steady DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "steady:", err)
		os.Exit(1)
	}
}

// patch is one change of a file of package runtime: old, which is there once,
// becomes new.
type patch struct{ file, old, new string }

// patches are all changes. A bubble begins with the same state each time: its
// own random numbers, and the place in the scheduler's rounds. What the runtime
// draws for itself, to sample allocations or to fill its caches of types, goes
// on as ever: how often it does depends on what ran before.
var patches = []patch{
	{"rand.go", "func rand() uint64 {\n", `func rand() uint64 {
	if getg().bubble != nil {
		return steadyRand()
	}
`},
	{"rand.go", "\n// bootstrapRand returns", `
var steady struct{ bubble, state uint64 }

// steadyRand returns the next number of a bubble.
//
//go:nosplit
func steadyRand() uint64 {
	gp := getg()
	if gp.bubble.id != steady.bubble {
		steady.bubble, steady.state = gp.bubble.id, 0
		gp.m.p.ptr().schedtick = 0
	}
	steady.state += 0xa0761d6478bd642f
	hi, lo := math.Mul64(steady.state, steady.state^0xe7037ed1a0b428db)
	return hi ^ lo
}

// steadyOr returns a number of the bubble, cheaprand's outside one.
//
//go:nosplit
func steadyOr() uint32 {
	if getg().bubble != nil {
		return uint32(steadyRand())
	}
	return cheaprand()
}

// bootstrapRand returns`},
	// The seed of all hashes, and with it the order of maps.
	{"rand.go", "\tglobalRand.state.Init(*seed)\n", "\tclear(seed[:])\n\tglobalRand.state.Init(*seed)\n"},
	{"select.go", "j := cheaprandn(uint32(norder + 1))", "j := steadyOr() % uint32(norder + 1)"},
	{"time.go", "t.rand = cheaprand()", "t.rand = steadyOr()"},
	{"sema.go", "s.ticket = cheaprand() | 1", "s.ticket = steadyOr() | 1"},
	// Nobody who runs, or is in a system call, is made to give way.
	{"proc.go", "\nfunc retake(now int64) uint32 {\n", "\nfunc retake(now int64) uint32 {\n\tif steady.bubble != 0 {\n\t\treturn 0\n\t}\n"},
}

// write makes the overlay. What is there already and is the same stays as it
// is, so that nothing is built anew.
func write(dir string) error {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	runtime := filepath.Join(strings.TrimSpace(string(root)), "src", "runtime")
	texts := map[string]string{}
	for _, p := range patches {
		if texts[p.file] == "" {
			b, err := os.ReadFile(filepath.Join(runtime, p.file))
			if err != nil {
				return err
			}
			texts[p.file] = string(b)
		}
		if n := strings.Count(texts[p.file], p.old); n != 1 {
			return fmt.Errorf("%s has %d times %q, not once: this Go is not one that the patches were made for", p.file, n, p.old)
		}
		texts[p.file] = strings.Replace(texts[p.file], p.old, p.new, 1)
	}
	replace := map[string]string{}
	for file, text := range texts {
		to := filepath.Join(dir, "runtime_"+file+".txt")
		replace[filepath.Join(runtime, file)] = to
		if err := put(to, []byte(text)); err != nil {
			return err
		}
	}
	overlay, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return err
	}
	return put(filepath.Join(dir, "overlay.json"), overlay)
}

// put writes a file unless it holds that already.
func put(path string, b []byte) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(b) {
		return nil
	}
	return os.WriteFile(path, b, 0o644)
}

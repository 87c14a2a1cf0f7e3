package field_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/store"
)

// crash ends the agent as kill -9 does: the next one starts from the state file
// as it was in the midst of the run. What this agent told after that moment
// never happened: a killed one would not have told it.
func (f *field) crash() {
	f.t.Helper()
	src := filepath.Join(f.cfg.StateDir, store.FileName)
	dir := f.t.TempDir()
	// A copy takes time, in which commits may come; two that are the same are of
	// one moment.
	var data []byte
	f.until("a copy of one moment", func() bool {
		first, err := os.ReadFile(src)
		f.must(err)
		second, err := os.ReadFile(src)
		f.must(err)
		data = second
		return bytes.Equal(first, second)
	})
	f.must(os.WriteFile(filepath.Join(dir, store.FileName), data, 0o600))
	f.stop()
	f.cfg.StateDir = dir
	g, err := pleg.New(f.cfg)
	f.must(err)
	end := g.Position()
	f.must(g.Close())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = slices.DeleteFunc(f.events, func(ev pleg.Event) bool {
		return ev.Position.Epoch == end.Epoch && ev.Position.Seq > end.Seq
	})
	f.at = &end
}

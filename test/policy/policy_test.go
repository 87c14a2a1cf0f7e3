package policy

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// rules are the checks and the files that each is for.
var rules = []struct {
	name  string
	scope func(file) bool
	check func(file) []string
}{
	{"deterministic", deterministicScope, checkDeterministic},
	{"layers", everyFile, checkLayers},
	{"surface", everyFile, checkSurface},
}

func everyFile(file) bool { return true }

// apply runs the named rule over the files, as the test of the tree does.
func apply(t *testing.T, name string, files []file) []string {
	t.Helper()
	var found []string
	for _, r := range rules {
		if r.name != name {
			continue
		}
		for _, f := range files {
			if r.scope(f) {
				found = append(found, r.check(f)...)
			}
		}
		return found
	}
	t.Fatalf("no rule %q", name)
	return nil
}

func tree(t *testing.T) []file {
	t.Helper()
	files, err := parse(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestTree(t *testing.T) {
	files := tree(t)
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			for _, v := range apply(t, r.name, files) {
				t.Error(v)
			}
		})
	}
}

// A rule about a folder that was renamed would pass for ever.
func TestRulesGuardSomething(t *testing.T) {
	files := tree(t)
	guards := map[string]func(file) bool{
		"arbiter/core*.go": func(f file) bool { return f.dir() == "arbiter" && deterministicScope(f) },
		"timestamps/*.go":  func(f file) bool { return f.dir() == "timestamps" && deterministicScope(f) },
	}
	for _, l := range layers {
		guards[path.Join(l.dir, "...")] = func(f file) bool { return f.dir() == l.dir || within(f.dir(), l.dir) }
	}
	for name, scope := range guards {
		if !slices.ContainsFunc(files, scope) {
			t.Errorf("no file matches %s", name)
		}
	}
}

func TestViolationsAreFound(t *testing.T) {
	const good = "" // no violation
	tests := []struct {
		name, rule, path, src, want string
	}{
		{"now", "deterministic", "arbiter/core.go", `import "time"; var _ = time.Now()`, "use of time.Now"},
		{"now as a value", "deterministic", "arbiter/core_x.go", `import "time"; var f = time.Now`, "use of time.Now"},
		{"now renamed", "deterministic", "timestamps/x.go", `import t "time"; var _ = t.Since(x)`, "use of time.Since"},
		{"dot import", "deterministic", "timestamps/x.go", `import . "time"; `, "dot import hides the use of clocks"},
		{"timer", "deterministic", "arbiter/core.go", `import "time"; var t *time.Timer`, "use of time.Timer"},
		{"after", "deterministic", "arbiter/core.go", `import "time"; var _ = time.After(1)`, "use of time.After"},
		{"goroutine", "deterministic", "arbiter/core.go", `func f() { go f() }`, "go statement"},
		{"send", "deterministic", "arbiter/core.go", `func f() { c <- 1 }`, "channel send"},
		{"receive", "deterministic", "arbiter/core.go", `func f() { <-c }`, "channel receive"},
		{"select", "deterministic", "arbiter/core.go", `func f() { select {} }`, "select statement"},
		{"channel", "deterministic", "arbiter/core.go", `var c chan int`, "channel type"},
		{"lock", "deterministic", "arbiter/core.go", `import "sync"`, "import of sync"},
		{"atomic in core", "deterministic", "arbiter/core.go", `import "sync/atomic"`, "import of sync/atomic"},
		{"file", "deterministic", "timestamps/x.go", `import "os"`, "import of os"},
		{"below os", "deterministic", "timestamps/x.go", `import "os/exec"`, "import of os/exec"},
		{"net", "deterministic", "arbiter/core.go", `import "net/http"`, "import of net/http"},
		{"fs", "deterministic", "arbiter/core.go", `import "io/fs"`, "import of io/fs"},
		{"log", "deterministic", "arbiter/core.go", `import "log/slog"`, "import of log/slog"},
		{"context", "deterministic", "arbiter/core.go", `import "context"`, "import of context"},
		{"rand", "deterministic", "arbiter/core.go", `import "math/rand/v2"`, "import of math/rand/v2"},
		{"runtime call", "deterministic", "arbiter/core.go", `import "google.golang.org/grpc"`, "import of google.golang.org/grpc"},
		{"durations are arithmetic", "deterministic", "arbiter/core.go", `import "time"; const d = time.Second; var t time.Time`, good},
		{"the type of a timer", "deterministic", "timestamps/x.go", `import "time"; type T struct { C <-chan time.Time }`, good},
		{"counters in timestamps", "deterministic", "timestamps/x.go", `import "sync/atomic"`, good},
		{"the loop may", "deterministic", "arbiter/loop.go", `import "sync"; func f() { go f() }`, good},
		{"a test may", "deterministic", "arbiter/core_test.go", `import "os"`, good},

		{"upwards", "layers", "timestamps/x.go", `import "github.com/plegd/plegd/store"`, "timestamps imports store"},
		{"store up", "layers", "store/x.go", `import "github.com/plegd/plegd/arbiter"`, "store imports arbiter"},
		{"below store", "layers", "store/bolt/x.go", `import "github.com/plegd/plegd/arbiter"`, "store/bolt imports arbiter"},
		{"sibling", "layers", "evented/x.go", `import "github.com/plegd/plegd/generic"`, "evented imports generic"},
		{"other sibling", "layers", "generic/x.go", `import "github.com/plegd/plegd/evented"`, "generic imports evented"},
		{"core to internal", "layers", "arbiter/x.go", `import "github.com/plegd/plegd/internal/cri"`, "arbiter imports internal/cri"},
		{"root to cmd", "layers", "x.go", `import "github.com/plegd/plegd/cmd/plegd"`, ". imports cmd/plegd"},
		{"to the root", "layers", "generic/x.go", `import "github.com/plegd/plegd"`, "generic imports ."},
		{"cri up", "layers", "internal/cri/x.go", `import "github.com/plegd/plegd/generic"`, "internal/cri imports generic"},
		{"simulation", "layers", "internal/simruntime/x.go", `import "github.com/plegd/plegd/arbiter"`, "internal/simruntime imports arbiter"},
		{"below everything", "layers", "internal/unixsock/x.go", `import "github.com/plegd/plegd/store"`, "internal/unixsock imports store"},
		{"make run", "layers", "test/makerun/x.go", `import "github.com/plegd/plegd/internal/runtimes"`, good},
		{"make run is a black box too", "layers", "test/makerun/x.go", `import "github.com/plegd/plegd/store"`, "test/makerun imports store"},
		{"black box", "layers", "test/e2e/x.go", `import "github.com/plegd/plegd"`, "test/e2e imports ."},
		{"no layer", "layers", "util/x.go", ``, "package util is in no layer"},
		{"a name that begins alike", "layers", "storex/x.go", ``, "package storex is in no layer"},
		{"downwards", "layers", "arbiter/x.go", `import "github.com/plegd/plegd/timestamps"`, good},
		{"within a layer", "layers", "store/x.go", `import "github.com/plegd/plegd/store/internal/x"`, good},
		{"cri", "layers", "generic/x.go", `import "github.com/plegd/plegd/internal/cri"`, good},
		{"a test's import", "layers", "generic/x_test.go", `import "github.com/plegd/plegd/evented"`, good},

		{"package", "surface", "util/x.go", ``, "new public package util"},
		{"module", "surface", "store/x.go", `import "github.com/example/x"`, "new dependency github.com/example/x"},
		{"module that begins alike", "surface", "store/x.go", `import "go.etcd.io/bboltx"`, "new dependency go.etcd.io/bboltx"},
		{"test module", "surface", "store/x.go", `import "go.uber.org/goleak"`, "new dependency go.uber.org/goleak"},
		{"test module in a test", "surface", "store/x_test.go", `import "go.uber.org/goleak"`, good},
		{"test module in a conformance suite", "surface", "store/storetest/x.go", `import "go.uber.org/goleak"`, good},
		{"known module", "surface", "store/x.go", `import "go.etcd.io/bbolt/errors"`, good},
		{"private package", "surface", "internal/anything/x.go", ``, good},
	}
	for _, tt := range tests {
		t.Run(tt.rule+"/"+tt.name, func(t *testing.T) {
			files, err := parse(fstest.MapFS{tt.path: {Data: []byte("package x; " + tt.src)}})
			if err != nil {
				t.Fatal(err)
			}
			found := apply(t, tt.rule, files)
			switch {
			case tt.want == good && len(found) > 0:
				t.Errorf("found %q in what is allowed", found)
			case tt.want != good && (len(found) == 0 || !strings.HasSuffix(found[0], tt.want)):
				t.Errorf("found %q, want %q", found, tt.want)
			}
		})
	}
}

func TestParseLeavesOut(t *testing.T) {
	bad := &fstest.MapFile{Data: []byte("not Go")}
	files, err := parse(fstest.MapFS{
		"a.go":            {Data: []byte("package a")},
		"nested/go.mod":   {Data: []byte("module nested")},
		"nested/x.go":     bad,
		".cache/x.go":     bad,
		"testdata/x.go":   bad,
		"b/_build/x.go":   bad,
		"b/testdata/x.go": bad,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 1 || files[0].path != "a.go" {
		t.Errorf("parsed %v, want a.go alone", files)
	}
}

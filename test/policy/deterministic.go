package policy

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// impure lists imports, each with all below it, that bring in a lock, I/O, chance or the scheduler.
var impure = []string{
	"bufio", "context", "crypto/rand", "io/fs", "io/ioutil", "log", "math/rand", "net",
	"os", "plugin", "runtime", "sync", "syscall", "testing", "unsafe",
	"golang.org/x/sync", "golang.org/x/sys", "golang.org/x/time",
	"google.golang.org/grpc", "go.etcd.io/bbolt", "github.com/prometheus/client_golang",
	module + "/internal",
}

// clockCalls lists what package time offers beyond arithmetic.
var clockCalls = []string{
	"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Ticker", "Timer", "Until",
}

// deterministicScope says whether rule 1 holds for the file.
func deterministicScope(f file) bool {
	switch {
	case f.isTest():
		return false
	case f.dir() == "timestamps":
		return true
	default:
		return f.dir() == "arbiter" && strings.HasPrefix(path.Base(f.path), "core")
	}
}

// checkDeterministic finds what would make the same input give another output.
func checkDeterministic(f file) []string {
	var found []string
	report := func(n ast.Node, format string, args ...any) {
		found = append(found, f.violation(n, format, args...))
	}

	timeName := "" // what package time is called in this file
	f.imports(func(spec *ast.ImportSpec, p string) {
		if p == "time" {
			timeName = "time"
			if spec.Name != nil {
				timeName = spec.Name.Name
			}
			if timeName == "." {
				report(spec, "dot import hides the use of clocks")
			}
		}
		// Counters of anomalies are read by the metrics while the loop runs.
		if p == "sync/atomic" && f.dir() == "timestamps" {
			return
		}
		if slices.ContainsFunc(impure, func(prefix string) bool { return within(p, prefix) }) {
			report(spec, "import of %s", p)
		}
	})

	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			report(n, "go statement")
		case *ast.SelectStmt:
			report(n, "select statement")
		case *ast.SendStmt:
			report(n, "channel send")
		case *ast.ChanType:
			// timestamps describes the timers that the shells are given; it starts and reads none.
			if f.dir() != "timestamps" {
				report(n, "channel type")
			}
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				report(n, "channel receive")
			}
		case *ast.SelectorExpr:
			// A local variable called time would be reported too; it deserves another name.
			if id, ok := n.X.(*ast.Ident); ok && timeName != "" && id.Name == timeName && slices.Contains(clockCalls, n.Sel.Name) {
				report(n, "use of time.%s", n.Sel.Name)
			}
		}
		return true
	})
	return found
}

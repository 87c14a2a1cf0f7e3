package policy

import (
	"go/ast"
	"slices"
	"strings"
)

// layer says what the packages at or below dir may import of this module. The longest dir that
// matches decides.
type layer struct {
	dir string
	may []string // folders, each with all below it; "." is the root package alone
}

// layers is rule 2. A package may always import what lies below its own layer's folder.
var layers = []layer{
	{dir: "timestamps"},
	{dir: "store", may: []string{"timestamps"}},
	{dir: "arbiter", may: []string{"timestamps", "store"}},
	{dir: "evented", may: []string{"timestamps", "store", "arbiter", "internal/cri", "internal/note", "internal/retry"}},
	{dir: "generic", may: []string{"timestamps", "store", "arbiter", "internal/cri", "internal/note", "internal/retry"}},
	{dir: ".", may: []string{"timestamps", "store", "arbiter", "evented", "generic", "internal"}},
	{dir: "api"},
	// What a client takes in with it is the API, and not the agent.
	{dir: "client", may: []string{"api", "internal/retry", "internal/unixsock"}},
	{dir: "api"},
	// A user of the client takes in nothing of the agent.
	{dir: "client", may: []string{"api", "internal/retry", "internal/unixsock"}},
	{dir: "internal", may: []string{".", "api", "timestamps", "store", "arbiter", "evented", "generic", "internal", "api"}},
	{dir: "internal/cri", may: []string{"timestamps", "store", "arbiter", "internal/unixsock"}},
	// The simulated runtime is judged by the rest: it must not share its ideas.
	{dir: "internal/simruntime", may: []string{"internal/sysclock", "internal/unixsock"}},
	{dir: "internal/note"},
	{dir: "internal/retry"},
	{dir: "internal/sysclock", may: []string{"timestamps"}},
	{dir: "internal/unixsock"},
	{dir: "cmd", may: []string{".", "api", "client", "timestamps", "store", "arbiter", "evented", "generic", "internal", "api", "client"}},
	// Black-box tests know the binary, and the shape of what it prints, by the documentation only.
	{dir: "test"},
	// `make run` chooses a runtime as plegd does.
	{dir: "test/makerun", may: []string{"internal/runtimes", "internal/unixsock"}},
}

// layerOf finds the layer of a folder, nil if there is none.
func layerOf(dir string) *layer {
	var best *layer
	for i := range layers {
		l := &layers[i]
		if (l.dir == dir || l.dir != "." && within(dir, l.dir)) && (best == nil || len(l.dir) > len(best.dir)) {
			best = l
		}
	}
	return best
}

// checkLayers finds imports against the order of the layers. Tests are free: what they import
// reaches no user.
func checkLayers(f file) []string {
	if f.isTest() {
		return nil
	}
	l := layerOf(f.dir())
	if l == nil {
		return []string{f.violation(f.ast.Name, "package %s is in no layer", f.dir())}
	}
	var found []string
	f.imports(func(spec *ast.ImportSpec, p string) {
		target, ok := inModule(p)
		if !ok || l.dir != "." && within(target, l.dir) {
			return
		}
		allowed := func(dir string) bool { return target == dir || dir != "." && within(target, dir) }
		if !slices.ContainsFunc(l.may, allowed) {
			found = append(found, f.violation(spec, "%s imports %s", f.dir(), target))
		}
	})
	return found
}

// inModule turns an import path of this module into its folder.
func inModule(importPath string) (dir string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

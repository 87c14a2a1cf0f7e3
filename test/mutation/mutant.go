package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one rule broken at one place.
type mutant struct {
	name  string // what the code does wrong then, in words; unique
	rules string // what is broken: numbers of docs/design.md, or a word where it has none
	file  string // from the module's root
	old   string // occurs exactly once in the file; "" breaks nothing
	new   string
	tests string // those to run beside the transcripts, a regular expression of names
	hangs bool   // a test that does not end within the limit counts as failed
}

// dir is the folder of the package that is broken and tested.
func (m *mutant) dir() string { return path.Dir(m.file) }

// pkg is how the Go command is told of that package.
func (m *mutant) pkg() string { return "./" + m.dir() }

// apply returns the file with the rule broken.
func (m *mutant) apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil || m.old == "" {
		return text, err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return nil, fmt.Errorf("%q: %s has %d places like\n%s", m.name, m.file, n, m.old)
	}
	return []byte(strings.Replace(string(text), m.old, m.new, 1)), nil
}

// mutants is the whole table, in the order of the rules.
func mutants() []mutant {
	var all []mutant
	for _, part := range [][]mutant{timeMutants, orderMutants, removalMutants, mergeMutants, questionMutants, relistMutants, durableMutants, shownMutants} {
		all = append(all, part...)
	}
	return all
}

// controls break nothing and run the same tests, all of a package together:
// those that fail then would fail for every mutant.
func controls(chosen []*mutant) []mutant {
	var all []mutant
	for _, m := range chosen {
		i := slices.IndexFunc(all, func(c mutant) bool {
			return c.pkg() == m.pkg() && (c.tests == coreTests) == (m.tests == coreTests)
		})
		switch {
		case i < 0:
			all = append(all, mutant{name: "nothing", file: m.file, tests: m.tests})
		case !slices.Contains(strings.Split(all[i].tests, "|"), m.tests) && m.tests != coreTests:
			all[i].tests = strings.Trim(all[i].tests+"|"+m.tests, "|")
		}
	}
	return all
}

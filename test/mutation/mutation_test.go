package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMutantsApply: every mutant still fits the code, compiles and changes something, and breaks a rule
// that it names. Whether a test notices is measured by `make mutation`.
func TestMutantsApply(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	all := mutants()
	c, err := newChecker(root, all)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for i := range all {
		m := &all[i]
		if names[m.name] || m.name == "" || m.rules == "" || m.old == "" || m.old == m.new {
			t.Errorf("%q: the name is not unique, or something is missing", m.name)
		}
		names[m.name] = true
		broken, err := m.apply(root)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := c.compiles(m, broken); err != nil {
			t.Errorf("%q doesn't compile: %v", m.name, err)
		}
	}
}

// TestMutantsThatDontCompileAreFound: the check above would notice.
func TestMutantsThatDontCompileAreFound(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	bad := []mutant{{name: "unused", file: "timestamps/tick.go", old: "return s == Span{}", new: "unused := 1; return s == Span{}"}}
	c, err := newChecker(root, bad)
	if err != nil {
		t.Fatal(err)
	}
	broken, err := bad[0].apply(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.compiles(&bad[0], broken); err == nil || !strings.Contains(err.Error(), "unused") {
		t.Errorf("an unused variable compiles: %v", err)
	}
	for _, old := range []string{"no such text", "func "} {
		m := mutant{name: old, file: "timestamps/tick.go", old: old}
		if _, err := m.apply(root); err == nil {
			t.Errorf("%q applies", old)
		}
	}
}

// TestMutantsTestsExist: the tests that are to notice are there.
func TestMutantsTestsExist(t *testing.T) {
	all := mutants()
	inDir := map[string][]string{}
	for i := range all {
		m := &all[i]
		if m.tests == "" {
			continue
		}
		if inDir[m.dir()] == nil {
			inDir[m.dir()] = testsIn(t, filepath.Join("../..", m.dir()))
		}
		if !slices.ContainsFunc(inDir[m.dir()], regexp.MustCompile(m.tests).MatchString) {
			t.Errorf("%q: no test in %s is called %s", m.name, m.dir(), m.tests)
		}
	}
}

// testsIn returns the names of a folder's tests.
func testsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		code, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range regexp.MustCompile(`(?m)^func (Test[A-Z][A-Za-z0-9_]*)\(`).FindAllSubmatch(code, -1) {
			names = append(names, string(f[1]))
		}
	}
	return names
}

// TestRunningTest: a binary that was ended says which test it was in.
func TestRunningTest(t *testing.T) {
	for out, want := range map[string]string{
		"panic: test timed out after 2m0s\n\trunning tests:\n\t\tTestSlow (2m0s)\n\ngoroutine 1\nmain.TestMain(0x1)\n": "TestSlow",
		"panic: boom\n\ngoroutine 7\nx/arbiter.TestBoom.func1(0x1)\n":                                                  "TestBoom",
		"main.TestMain(0x1)\nx/y.TestDeep(0x1)\n":                                                                      "TestDeep",
	} {
		if got := running(out); got != want {
			t.Errorf("%q: %s, want %s", out, got, want)
		}
	}
}

// TestMutationTableIsMeasured: docs/proof.md has a line for every mutant and no other.
func TestMutationTableIsMeasured(t *testing.T) {
	table, err := tableIn("../../docs/proof.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(table), "\n")
	all := mutants()
	if len(lines) != len(all)+2 {
		t.Fatalf("the table has %d mutants, there are %d: run make mutation", len(lines)-2, len(all))
	}
	for i := range all {
		if want := "| " + all[i].rules + " | " + all[i].name + " | "; !strings.HasPrefix(lines[i+2], want) || strings.HasSuffix(lines[i+2], "|  |") {
			t.Errorf("line %q is not of %q: run make mutation", lines[i+2], all[i].name)
		}
	}
}

// TestControls: what mutants are judged by is run with nothing broken, too, each
// package's tests once.
func TestControls(t *testing.T) {
	chosen := []*mutant{
		{file: "a/x.go", old: "x", tests: "^TestA"}, {file: "a/y.go", old: "x", tests: "^TestB"}, {file: "a/y.go", old: "y", tests: "^TestA"},
		{file: "b/x.go", old: "x", tests: "^TestA"}, {file: "b/x.go", old: "y", tests: coreTests}, {file: "c/x.go", old: "x"}, {file: "c/x.go", old: "y", tests: "^TestC"},
	}
	var got []string
	for _, c := range controls(chosen) {
		got = append(got, c.pkg()+" "+c.tests)
		if c.old != "" || c.new != "" {
			t.Errorf("%s is broken", c.file)
		}
	}
	if want := []string{"./a ^TestA|^TestB", "./b ^TestA", "./b " + coreTests, "./c ^TestC"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	whole, err := os.ReadFile("mutant.go")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := (&mutant{file: "mutant.go"}).apply("."); err != nil || string(text) != string(whole) {
		t.Errorf("a control is not the file as it is: %v", err)
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// testLimit is how long the tests of one mutant may take: many times what they do.
const testLimit = 2 * time.Minute

// storms is how many cases of each random test a mutant sees: three times the usual number, since some break
// what is seldom reached.
const storms = "300"

// verdict is what became of a mutant.
type verdict struct {
	transcripts []string // that differ, by file
	tests       []string // that fail, of those that the mutant names
}

// caught reports whether any test noticed.
func (v verdict) caught() bool { return len(v.transcripts)+len(v.tests) > 0 }

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (Test\S+)`)

// run builds a mutant and runs its tests.
func run(ctx context.Context, root, temp string, m *mutant) (verdict, error) {
	broken, err := m.apply(root)
	if err != nil {
		return verdict{}, err
	}
	binary, err := build(ctx, root, temp, m, broken)
	if err != nil {
		return verdict{}, err
	}
	var v verdict
	if m.dir() == "arbiter" {
		out, _, err := test(ctx, root, binary, m, "-test.run=^TestTranscripts$")
		if err != nil {
			return v, err
		}
		for _, f := range failedTest.FindAllStringSubmatch(out, -1) {
			if _, story, ok := strings.Cut(f[1], "TestTranscripts/"); ok {
				v.transcripts = append(v.transcripts, story)
			}
		}
	}
	if m.tests == "" {
		return v, nil
	}
	args := []string{"-test.run=" + m.tests}
	if m.tests != coreTests { // theirs take a moment each; others may wait for what never comes
		args = append(args, "-test.failfast")
	}
	out, hung, err := test(ctx, root, binary, m, args...)
	if err != nil {
		return v, err
	}
	for _, f := range failedTest.FindAllStringSubmatch(out, -1) {
		if name, _, _ := strings.Cut(f[1], "/"); !slices.Contains(v.tests, name) {
			v.tests = append(v.tests, name)
		}
	}
	slices.Sort(v.tests)
	switch {
	case len(v.tests) > 0:
	case hung && m.hangs:
		v.tests = []string{running(out)}
	case hung:
		return v, fmt.Errorf("%q: the tests don't end, and nobody said that they might not", m.name)
	case strings.Contains(out, "no tests to run"):
		return v, fmt.Errorf("%q: no test is called %s", m.name, m.tests)
	}
	return v, nil
}

// build compiles the tests of a mutant's package.
func build(ctx context.Context, root, temp string, m *mutant, broken []byte) (string, error) {
	file, overlay, binary := filepath.Join(temp, "broken.go"), filepath.Join(temp, "overlay.json"), filepath.Join(temp, "mutant.test")
	replace := map[string]string{filepath.Join(root, m.file): file}
	if m.tests == coreTests {
		if err := leaveOut(replace, filepath.Join(root, m.dir())); err != nil {
			return "", err
		}
	}
	replaces, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	for name, text := range map[string][]byte{file: broken, overlay: replaces} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			return "", err
		}
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-p=1", "-ldflags=-s -w", "-overlay="+overlay, "-o="+binary, m.pkg())
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%q doesn't compile: %w\n%s", m.name, err, out)
	}
	return binary, nil
}

// leaveOut takes out of the build what the tests of the arbiter's core don't need: two thirds of the time that
// a mutant takes is the compiler's.
func leaveOut(replace map[string]string, dir string) error {
	for _, glob := range []string{"loop_*_test.go", "core_explore*_test.go", "core_fuzz_test.go", "core_bench_test.go"} {
		files, err := filepath.Glob(filepath.Join(dir, glob))
		if err != nil {
			return err
		}
		for _, name := range files {
			if base := filepath.Base(name); base != "loop_rig_test.go" && base != "loop_watching_test.go" { // they help
				replace[name] = ""
			}
		}
	}
	return nil
}

// test runs the binary in its package's folder. That tests fail is no error.
func test(ctx context.Context, root, binary string, m *mutant, args ...string) (out string, hung bool, err error) {
	if m.dir() == "arbiter" {
		args = append(args, "-rapid.seed=1", "-rapid.checks="+storms, "-rapid.nofailfile", "-rapid.shrinktime=0s")
	}
	args = append(args, "-test.timeout="+testLimit.String())
	ctx, cancel := context.WithTimeout(ctx, testLimit+30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = filepath.Join(root, m.dir())
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err = cmd.Run()
	out = text.String()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return out, false, fmt.Errorf("%q: %w", m.name, err)
	}
	hung = ctx.Err() != nil || strings.Contains(out, "panic: test timed out")
	if err != nil && !hung && failedTest.FindString(out) == "" {
		if strings.Contains(out, "panic: ") || strings.Contains(out, "fatal error: ") || strings.Contains(out, "goroutine ") {
			return out + "\n--- FAIL: " + running(out) + "\n", false, nil // it took the whole binary down
		}
		return out, false, fmt.Errorf("%q: %w\n%s", m.name, err, out)
	}
	return out, hung, nil
}

var (
	stillRuns = regexp.MustCompile(`running tests:\n\s+(Test[A-Za-z0-9_]+)`)
	inStack   = regexp.MustCompile(`\.(Test[A-Za-z0-9_]+)(?:\.func\d+)*\(`)
)

// running names the test that was running when a binary ended early: by the list of the testing package, else by
// a stack.
func running(out string) string {
	if f := stillRuns.FindStringSubmatch(out); f != nil {
		return f[1]
	}
	for _, f := range inStack.FindAllStringSubmatch(out, -1) {
		if f[1] != "TestMain" { // under all of them
			return f[1]
		}
	}
	return "TestUnknown"
}

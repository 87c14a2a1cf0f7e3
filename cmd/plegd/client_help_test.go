package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// askInto is ask with a file as stdout.
func (d agentDir) askInto(t *testing.T, path string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var errs strings.Builder
	err = execute(args, streams{f, &errs, func(key string) string { return map[string]string{socketEnv: d.socket()}[key] }})
	if err != nil {
		fmt.Fprintln(&errs, "plegd:", oneLine(err))
	}
	return exitCode(err), "", errs.String()
}

// rows are the lines of a child's stdout, without their ages and addresses, which
// differ from run to run.
type rows struct {
	mu   sync.Mutex
	list []string
}

// scan reads a child's stdout to its end.
func (c *child) scan(t *testing.T) *rows {
	t.Helper()
	r := &rows{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := bufio.NewScanner(c.out); s.Scan(); {
			fields := strings.Fields(s.Text())
			r.mu.Lock()
			r.list = append(r.list, strings.Join(fields[:min(len(fields), 5)], " "))
			r.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-done
	})
	return r
}

// all returns what there was so far.
func (r *rows) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// count returns how often a row came.
func (r *rows) count(row string) (n int) {
	for _, is := range r.all() {
		if is == row {
			n++
		}
	}
	return n
}

// await waits for a row.
func (r *rows) await(t *testing.T, row string) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("rows: %q", r.all())
		}
	}()
	eventually(t, "there is a row "+row, func() bool { return r.count(row) > 0 })
}

// Command plegd is the node agent: it generates pod lifecycle events from a
// CRI runtime and keeps its state over restarts. See docs/reference.md.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // a write to a closed stdout is to be an error
	std := streams{out: os.Stdout, err: os.Stderr, getenv: os.Getenv}
	err := execute(os.Args[1:], std)
	if child := new(childError); err != nil && (!errors.As(err, &child) || child.signal != 0) { // a child has said it itself
		briefly(func() { fmt.Fprintln(std.err, "plegd:", oneLine(err)) }) // stderr may be blocked
	}
	os.Exit(exitCode(err))
}

// oneLine returns an error's text as one line, whatever it was joined of.
func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(lines, "; ")
}

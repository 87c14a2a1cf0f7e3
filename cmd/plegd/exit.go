package main

import (
	"errors"
	"fmt"
	"strings"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/client"
	"github.com/plegd/plegd/store"
)

// The exit codes. Scripts and unit files test for them, so a number never
// changes its meaning.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitExpired     = 3
	exitLocked      = 4
	exitUnwritable  = 5
	exitNewerSchema = 6
	exitForeign     = 7
	exitUnsupported = 8
	exitDamaged     = 9
	exitStalled     = 10
	exitTimeout     = 11
	exitUnavailable = 12
	exitUnfit       = 13
	exitUnjudged    = 14
)

// exits says what each code means and which errors lead to it; the first row
// with an error that fits decides.
var exits = []struct {
	code    int
	errs    []error
	meaning string
}{
	{exitOK, nil, "done, stopped as asked, or stdout was closed by its reader"},
	{exitFailure, nil, "anything else; the message says what"},
	{exitUsage, []error{errUsage, pleg.ErrConfig}, "unknown command or flag, or a value that is not allowed"},
	{exitExpired, []error{pleg.ErrExpired, client.ErrExpired, errBroken}, "position of --since, or of a reader that fell behind, is not in the journal any more; plegd compare: a threshold of --fail-on is true"},
	{exitLocked, []error{store.ErrLocked}, "state is in use by another process"},
	{exitUnwritable, []error{store.ErrUnwritable, store.ErrFull}, "state directory can't be written"},
	{exitNewerSchema, []error{store.ErrNewerSchema}, "state was written by a newer version"},
	{exitForeign, []error{store.ErrForeign}, "state describes another runtime or node"},
	{exitUnsupported, []error{pleg.ErrUnsupported}, "--mode evented, and the runtime has no event stream"},
	{exitDamaged, []error{store.ErrDamaged}, "state file is damaged"},
	{exitStalled, []error{errStalled}, "--watchdog killed an agent that gave no sign of life"},
	{exitTimeout, []error{errTimeout}, "--timeout has passed: the agent has not answered, or plegd wait has waited in vain"},
	{exitUnavailable, []error{client.ErrUnavailable}, "no agent answers at --socket, or it can't tell yet"},
	{exitUnfit, []error{errUnfit}, "plegd doctor: the runtime is not fit for evented operation"},
	{exitUnjudged, []error{errUnjudged}, "plegd doctor: the runtime could not be judged: it can't be connected to, or nothing happened"},
}

// errUsage is wrapped by every error about the command line.
var errUsage = errors.New("usage")

// usageError is an error about the command line whose text is its own.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }
func (e *usageError) Unwrap() error { return errUsage }

// usagef returns an error about the command line.
func usagef(format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...)}
}

// exitCode returns the code for what a command returned.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	var child *childError
	if errors.As(err, &child) {
		return child.code
	}
	for _, row := range exits {
		for _, target := range row.errs {
			if errors.Is(err, target) {
				return row.code
			}
		}
	}
	return exitFailure
}

// exitHelp is the table of exit codes for the help.
func exitHelp() string {
	var b strings.Builder
	b.WriteString("Exit codes:\n")
	for _, row := range exits {
		fmt.Fprintf(&b, "  %d  %s\n", row.code, row.meaning)
	}
	return b.String()
}

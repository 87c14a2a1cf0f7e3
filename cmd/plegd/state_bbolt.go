package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/checkchild"
)

const (
	// bboltCheck is the hidden command below `plegd state` that is the child in
	// which bbolt checks a file.
	bboltCheck = "bbolt-check"
	// defaultCheckTimeout bounds `plegd state check`. A file of 64 MiB takes
	// 0.1 s once it is in memory.
	defaultCheckTimeout = 30 * time.Second
	// startCheckTimeout bounds the check that a start makes after an unclean
	// stop, and so by how much that may be ready later. Without its result the
	// start goes on: our own scan of the pages has found them sound then.
	startCheckTimeout = 10 * time.Second
)

// newStateBboltCheck makes the hidden command. Its exit codes are those of
// package checkchild.
func newStateBboltCheck(std streams) *cobra.Command {
	return &cobra.Command{
		Use:    bboltCheck + " FILE",
		Short:  "Have bbolt check a file, for plegd itself",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			os.Exit(checkchild.Main(args[0], os.Stdin, std.out))
			return nil
		},
	}
}

// checkByBbolt has bbolt check a file in a child process. The error is that of
// [checkchild.Checker.Check].
func checkByBbolt(ctx context.Context, path string, timeout time.Duration) error {
	// A path that begins with a dash is no flag.
	return checkchild.Self(timeout, "state", bboltCheck, "--").Check(ctx, path)
}

// checkAtStart returns what an agent examines its state file with. It ends with
// ctx, as the agent does.
func checkAtStart(ctx context.Context) func(path string) error {
	return func(path string) error { return checkByBbolt(ctx, path, startCheckTimeout) }
}

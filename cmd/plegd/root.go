package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// streams is what a command has of its surroundings.
type streams struct {
	out, err io.Writer
	getenv   func(string) string
}

// execute runs one command line.
func execute(args []string, std streams) error {
	root := &cobra.Command{
		Use:   "plegd",
		Short: "Pod lifecycle events of a CRI runtime, exact over restarts",
		Long: "plegd generates pod lifecycle events from a CRI runtime, by its event stream and by\n" +
			"relists whose period stretches while the stream is healthy, and keeps its state over\n" +
			"restarts.\n\n" + exitHelp(),
		// An error is one line, written by main.
		SilenceErrors: true, SilenceUsage: true, DisableSuggestions: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetArgs(args)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	root.AddCommand(newRun(std), newSimulate(std), newState(std), newVersion(std))

	// What fails before a command starts is the command line's fault.
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	err := root.Execute()
	if err != nil && !started && !errors.Is(err, errUsage) {
		return usagef("%v; see plegd --help", err)
	}
	return err
}

// flagError names the flag, the value and what is allowed, in this order.
func flagError(err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return usagef("--%s %q: %v", invalid.GetFlag().Name, invalid.GetValue(), errors.Unwrap(invalid))
	}
	return usagef("%v; see plegd --help", err)
}

// group makes a command that has only commands below it.
func group(cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(below...)
	return cmd
}

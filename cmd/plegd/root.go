package main

import (
	"errors"
	"io"
	"strings"

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
			"restarts.",
		// An error is one line, written by main.
		SilenceErrors: true, SilenceUsage: true, DisableSuggestions: true,
		SuggestionsMinimumDistance: 2,
		Args:                       knownCommand,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		Version:                    thisBuild().String(),
	}
	// After the commands, which they would push off the screen.
	root.SetUsageTemplate(strings.TrimSuffix(root.UsageTemplate(), "\n") + "{{if not .HasParent}}\n\n" + exitHelp() + "{{else}}\n{{end}}")
	root.SetVersionTemplate("{{.Version}}\n") // as plegd version
	root.SetHelpCommand(newHelp())
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.SetArgs(args)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(newRun(std), newSimulate(std), newCompare(std), newState(std), newVersion(std), newRecord(std), newReplay(std),
		newEvents(std), newPods(std), newPodCommand(std), newStatus(std), newWait(std), newRelist(std), newTop(std), newDoctor(std))
	// cobra's own answers an unknown shell with the help and code 0.
	root.InitDefaultCompletionCmd(args...)
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			group(cmd)
			for _, shell := range cmd.Commands() {
				shell.Args = noArgs
			}
		}
	}

	// What fails before a command starts is the command line's fault.
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	cmd, err := root.ExecuteC()
	switch {
	case err != nil && !started && !errors.Is(err, errUsage):
		return usagef("%v; see %s --help", err, cmd.CommandPath())
	case readerGone(err):
		return nil // whoever closed stdout, such as head, has seen enough
	}
	return err
}

// newHelp makes `plegd help`. cobra's own answers an unknown command with the
// usage and code 0.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		RunE: func(help *cobra.Command, args []string) error {
			cmd, rest, err := help.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("unknown command %q; see plegd --help", strings.Join(args, " "))
			}
			cmd.InitDefaultHelpFlag() // so that the help has it
			return cmd.Help()
		},
	}
}

// flagError names the flag, the value and what is allowed, in this order.
func flagError(cmd *cobra.Command, err error) error {
	if cmd.HasAvailableSubCommands() {
		// Without a command that it knows it takes the flags of one for its own.
		if unknown := knownCommand(cmd, cmd.Flags().Args()); unknown != nil {
			return unknown
		}
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return usagef("--%s %q: %v", invalid.GetFlag().Name, invalid.GetValue(), errors.Unwrap(invalid))
	}
	return usagef("%v; see %s --help", err, cmd.CommandPath())
}

// knownCommand refuses what should have been a command of a group.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	may := ""
	if below := cmd.SuggestionsFor(args[0]); len(below) > 0 {
		may = "; did you mean " + strings.Join(below, " or ") + "?"
	} else if cmd.HasParent() { // the root has too many
		var names []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				names = append(names, c.Name())
			}
		}
		may = ": must be one of " + strings.Join(names, ", ")
	}
	return usagef("unknown command %q of %s%s; see %s --help", args[0], cmd.CommandPath(), may, cmd.CommandPath())
}

// noArgs refuses arguments of a command that takes none. cobra's own calls them
// unknown commands.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("%s takes no arguments, but got %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())
}

// atMostOne refuses further arguments of a command that takes one.
func atMostOne(cmd *cobra.Command, args []string) error {
	if len(args) <= 1 {
		return nil
	}
	return usagef("%s takes one argument, but got %q too; see %s --help", cmd.CommandPath(), args[1], cmd.CommandPath())
}

// group makes a command that has only commands below it.
func group(cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	cmd.Args = knownCommand
	cmd.SuggestionsMinimumDistance = 2
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(below...)
	return cmd
}

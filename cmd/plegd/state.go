package main

import "github.com/spf13/cobra"

// newState makes `plegd state`.
func newState(std streams) *cobra.Command {
	return group(&cobra.Command{Use: "state", Short: "Look at a state file that no agent uses"})
}

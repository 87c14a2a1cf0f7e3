package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/store"
)

// newStateCompact makes `plegd state compact`.
func newStateCompact(std streams) *cobra.Command {
	var o stateOptions
	cmd := &cobra.Command{
		Use:   "compact",
		Short: "Rewrite a state file without its free pages",
		Long: "compact writes a copy of a state file without the pages that are free, which the file keeps\n" +
			"otherwise for ever, and renames it into place. That takes room for both, and no agent may run\n" +
			"on the file. A file that is damaged is left alone.",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			c, err := store.Compact(o.dir)
			if err != nil {
				return o.explain(err)
			}
			if o.output == outputJSON {
				return writeIndented(std.out, compactedState(c))
			}
			_, err = fmt.Fprintf(std.out, "state file     %s\nsize before    %d bytes\nsize after     %d bytes\n", c.Path, c.Before, c.After)
			return err
		},
	}
	o.addTo(cmd)
	return cmd
}

// compactedState is what was done.
type compactedState struct {
	Path   string `json:"path"`
	Before int64  `json:"size_before"` // bytes
	After  int64  `json:"size_after"`
}

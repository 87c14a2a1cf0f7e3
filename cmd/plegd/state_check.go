package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/store"
)

// newStateCheck makes `plegd state check`.
func newStateCheck(std streams) *cobra.Command {
	var o stateOptions
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check that a state file is sound",
		Long: "check walks all pages of a state file and reads every value in it. An agent that finds\n" +
			"damaged values leaves them out; a file that can't be read at all it sets aside.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			report, err := store.Verify(o.dir)
			if err != nil {
				return o.explain(err)
			}
			checked := newCheckedState(report)
			if o.output == outputJSON {
				err = writeIndented(std.out, checked)
			} else {
				checked.write(std.out)
			}
			if err == nil && len(checked.Damaged) > 0 {
				err = fmt.Errorf("state file %s: %w: values that can't be read: %d", report.Path, store.ErrDamaged, len(checked.Damaged))
			}
			return err
		},
	}
	o.addTo(cmd)
	return cmd
}

// checkedState is what a check found.
type checkedState struct {
	stateSummary
	Size    int64          `json:"size"` // of the file, bytes
	OK      bool           `json:"ok"`
	Damaged []damagedValue `json:"damaged"`
}

// damagedValue is a value that can't be read.
type damagedValue struct {
	Table string `json:"table"`
	Key   string `json:"key"`
	Error string `json:"error"`
}

func newCheckedState(r store.Report) checkedState {
	counts := stateCounts{Sandboxes: r.Sandboxes, Containers: r.Containers, Tombstones: r.Tombstones, Reinspections: r.Asks}
	c := checkedState{
		stateSummary: summary(r.Path, r.Meta, counts, r.Journal), Size: r.Size, OK: len(r.Damaged) == 0, Damaged: []damagedValue{},
	}
	for _, d := range r.Damaged {
		c.Damaged = append(c.Damaged, damagedValue{d.Table, d.Key, d.Err.Error()})
	}
	return c
}

// write writes the result as text.
func (c checkedState) write(w io.Writer) {
	c.stateSummary.write(w)
	fmt.Fprintf(w, "size           %d bytes\n", c.Size)
	for _, d := range c.Damaged {
		fmt.Fprintf(w, "damaged        %s %s: %s\n", d.Table, d.Key, printable(d.Error))
	}
	if c.OK {
		fmt.Fprintln(w, "ok")
	}
}

package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/checkchild"
	"github.com/plegd/plegd/store"
)

// newStateCheck makes `plegd state check`.
func newStateCheck(std streams) *cobra.Command {
	var o stateOptions
	timeout := defaultCheckTimeout
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check that a state file is sound",
		Long: "check walks all pages of a state file, reads every value in it and has bbolt, in a process of\n" +
			"its own, check what it makes of the file. An agent that finds damaged values leaves them out; a\n" +
			"file that can't be read at all it sets aside.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			report, err := store.Verify(o.dir)
			if o.output == outputJSON && errors.Is(err, store.ErrDamaged) {
				return errors.Join(writeIndented(std.out, newUnreadableState(report.Path, err)), err)
			}
			if err != nil {
				return o.explain(err)
			}
			verdict := checkByBbolt(cmd.Context(), report.Path, timeout)
			checked := newCheckedState(report, verdict)
			if o.output == outputJSON {
				err = writeIndented(std.out, checked)
			} else {
				checked.write(std.out)
			}
			return errors.Join(err, checked.err(verdict))
		},
	}
	o.addTo(cmd)
	durationFlag(cmd.Flags(), &timeout, "timeout", "how long bbolt's check may take; a file for which that is too short counts as damaged")
	return cmd
}

// checkedState is what a check found.
type checkedState struct {
	stateSummary
	Size    int64          `json:"size"` // of the file, bytes
	OK      bool           `json:"ok"`
	Bbolt   string         `json:"bbolt"` // what bbolt's own check says, "ok" if nothing
	Damaged []damagedValue `json:"damaged"`
}

// unreadableState is what a check says of a file of which nothing else can be
// said.
type unreadableState struct {
	Path  string `json:"path"`
	Size  int64  `json:"size"` // of the file, bytes
	OK    bool   `json:"ok"`   // false
	Error string `json:"error"`
}

func newUnreadableState(path string, why error) unreadableState {
	u := unreadableState{Path: path, Error: oneLine(why)}
	if info, err := os.Stat(path); err == nil { // it was there just now
		u.Size = info.Size()
	}
	return u
}

// err says what is wrong with the file, nil if nothing is; verdict is what
// bbolt's check returned.
func (c checkedState) err(verdict error) error {
	switch {
	case errors.Is(verdict, checkchild.ErrUnfinished):
		return fmt.Errorf("state file %s: %w: %w", c.Path, store.ErrDamaged, verdict)
	case verdict != nil:
		return fmt.Errorf("state file %s: %w", c.Path, verdict)
	case len(c.Damaged) > 0:
		return fmt.Errorf("state file %s: %w: values that can't be read: %d", c.Path, store.ErrDamaged, len(c.Damaged))
	}
	return nil
}

// damagedValue is a value that can't be read.
type damagedValue struct {
	Table string `json:"table"`
	Key   string `json:"key"`
	Error string `json:"error"`
}

func newCheckedState(r store.Report, verdict error) checkedState {
	counts := stateCounts{Sandboxes: r.Sandboxes, Containers: r.Containers, Tombstones: r.Tombstones, Reinspections: r.Asks}
	c := checkedState{
		stateSummary: summary(r.Path, r.Meta, counts, r.Journal), Size: r.Size, OK: len(r.Damaged) == 0 && verdict == nil,
		Bbolt: "ok", Damaged: []damagedValue{},
	}
	if verdict != nil {
		c.Bbolt = verdict.Error()
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
	fmt.Fprintf(w, "bbolt's check  %s\n", printable(c.Bbolt))
	for _, d := range c.Damaged {
		fmt.Fprintf(w, "damaged        %s %s: %s\n", d.Table, d.Key, printable(d.Error))
	}
	if c.OK {
		fmt.Fprintln(w, "ok")
	}
}

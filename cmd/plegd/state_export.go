package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/store"
)

// exportAtOnce is how many events are read in one transaction.
const exportAtOnce = 1000

// newStateExport makes `plegd state export`.
func newStateExport(std streams) *cobra.Command {
	var o stateOptions
	var records bool
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the journal, or the records, as JSON lines",
		Long: "export writes every event of a state file's journal as a line of JSON, in the form that\n" +
			"plegd run gives it; with --records every record and tombstone instead. An agent that runs\n" +
			"tells its events and pods itself: its file can't be read safely meanwhile, and is refused.",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return o.explain(exportState(o.dir, records, std.out))
		},
	}
	o.addDir(cmd)
	cmd.Flags().BoolVar(&records, "records", false, "write the records and tombstones, not the journal")
	return cmd
}

// exportState writes a state file as JSON lines, all that can be read of it.
func exportState(dir string, records bool, out io.Writer) (err error) {
	db, err := store.OpenBoltReadOnly(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	w := bufio.NewWriterSize(out, outputBuffer)
	export := exportEvents
	if records {
		export = exportRecords
	}
	lost, err := export(db, w)
	if err := errors.Join(err, w.Flush()); err != nil {
		return err
	}
	if lost > 0 {
		return fmt.Errorf("state file %s: %w: entries that can't be read: %d", db.Path(), store.ErrDamaged, lost)
	}
	return nil
}

// exportEvents writes the journal. Entries that can't be read are left out and
// counted.
func exportEvents(db *store.Bolt, w io.Writer) (lost int, err error) {
	j := db.Journal()
	for after := max(j.First, 1) - 1; after < j.Last; {
		events, err := db.Events(after, exportAtOnce)
		if errors.Is(err, store.ErrExpired) {
			lost++
			after++
			continue
		}
		if err != nil {
			return lost, err
		}
		for i := range events {
			line, err := formatJSON(&events[i])
			if err == nil {
				_, err = w.Write(line)
			}
			if err != nil {
				return lost, err
			}
			after = events[i].Position.Seq
		}
	}
	return lost, nil
}

// exportRecords writes the records and then the tombstones.
func exportRecords(db *store.Bolt, w io.Writer) (lost int, err error) {
	snap, err := db.Load()
	if err != nil {
		return 0, err
	}
	asked := asksByID(snap)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, rs := range [][]*store.Record{snap.Records, snap.Tombstones} {
		for _, r := range rs {
			if err := enc.Encode(showRecord(r, asked[r.ID])); err != nil {
				return 0, err
			}
		}
	}
	return snap.Dropped, nil
}

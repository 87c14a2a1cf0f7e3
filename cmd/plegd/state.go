package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// newState makes `plegd state`.
func newState(std streams) *cobra.Command {
	return group(&cobra.Command{
		Use:   "state",
		Short: "Look after a state file that no agent uses",
		Long:  "state reads a state file while no agent runs on it. Only compact changes it.",
	}, newStateShow(std), newStateCheck(std), newStateExport(std), newStateCompact(std), newStateBboltCheck(std))
}

// stateOptions are the flags of the commands below `plegd state`.
type stateOptions struct{ dir, output string }

// addDir adds the flag for the file alone.
func (o *stateOptions) addDir(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.dir, "state-dir", defaultStateDir, "directory that the state is kept in, or a state file")
}

// addTo adds all flags.
func (o *stateOptions) addTo(cmd *cobra.Command) {
	o.output = outputText
	o.addDir(cmd)
	choiceFlag(cmd, &o.output, "output", "form of the output", outputText, outputJSON)
}

// validate refuses what can't be a state, before it is read.
func (o *stateOptions) validate() error {
	if o.dir == "" {
		return usagef("--state-dir \"\": must be a directory, or a state file")
	}
	return nil
}

// explain says of a state that isn't there what that means.
func (o *stateOptions) explain(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no state in %s: no agent has run there yet", o.dir)
	}
	return err
}

// stateSummary is what show and check say of a state file.
type stateSummary struct {
	Path    string       `json:"path"`
	Schema  uint32       `json:"schema"`
	Runtime stateRuntime `json:"runtime"`
	Epoch   string       `json:"epoch"`
	Clean   bool         `json:"clean_stop"` // the last agent stopped and was not killed
	BootID  string       `json:"boot_id"`
	Running float64      `json:"running_seconds"` // of agents, over all their lives
	Counts  stateCounts  `json:"counts"`
	Journal stateJournal `json:"journal"`
}

type stateRuntime struct {
	Endpoint string `json:"endpoint"`
	Name     string `json:"name"` // "" until it has answered once
	Node     string `json:"node"`
}

type stateCounts struct {
	Sandboxes     int `json:"sandboxes"`
	Containers    int `json:"containers"`
	Tombstones    int `json:"tombstones"`
	Reinspections int `json:"reinspections"`
}

// stateJournal describes the journal by positions, as --since takes them.
type stateJournal struct {
	Entries int    `json:"entries"`
	Bytes   int64  `json:"bytes"`
	First   uint64 `json:"first"`
	Last    uint64 `json:"last"`
	Oldest  string `json:"oldest"` // the oldest position that can be read on from
	Newest  string `json:"newest"`
}

// summary describes a state.
func summary(path string, meta store.Meta, counts stateCounts, j store.Journal) stateSummary {
	position := func(seq uint64) string { return timestamps.Position{Epoch: meta.Epoch, Seq: seq}.String() }
	return stateSummary{
		Path: path, Schema: meta.Schema,
		Runtime: stateRuntime{meta.Runtime.Endpoint, meta.Runtime.Name, meta.Runtime.Node},
		Epoch:   meta.Epoch.String(), Clean: meta.Next != 0, BootID: meta.BootID,
		Running: time.Duration(meta.Running).Seconds(), Counts: counts,
		Journal: stateJournal{
			Entries: j.Entries, Bytes: j.Bytes, First: j.First, Last: j.Last,
			Oldest: position(max(j.First, 1) - 1), Newest: position(meta.Last),
		},
	}
}

// write writes the summary as text.
func (s stateSummary) write(w io.Writer) {
	how := "its agent was killed, or crashed"
	if s.Clean {
		how = "its agent stopped as asked"
	}
	id := store.RuntimeID{Endpoint: s.Runtime.Endpoint, Name: s.Runtime.Name, Node: s.Runtime.Node}
	fmt.Fprintf(w, "state file     %s, schema %d; %s\n", s.Path, s.Schema, how)
	fmt.Fprintf(w, "runtime        %s\n", printable(id.String()))
	fmt.Fprintf(w, "epoch          %s\n", s.Epoch)
	fmt.Fprintf(w, "running time   %v\n", time.Duration(s.Running*float64(time.Second)).Round(time.Second))
	fmt.Fprintf(w, "records        %d sandboxes, %d containers, %d tombstones, %d to be reinspected\n",
		s.Counts.Sandboxes, s.Counts.Containers, s.Counts.Tombstones, s.Counts.Reinspections)
	if s.Journal.Entries == 0 {
		fmt.Fprintf(w, "journal        empty\n")
		return
	}
	fmt.Fprintf(w, "journal        %d events, %d bytes, numbers %d to %d\n", s.Journal.Entries, s.Journal.Bytes, s.Journal.First, s.Journal.Last)
}

// writeIndented writes a value as JSON for people and programs.
func writeIndented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

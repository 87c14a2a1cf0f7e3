package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/store"
)

// A comparison starts this program again for each of its parts, with a hidden
// command, such as plegd compare part mode. They end
// with their stdin, or with their recording, so none outlives a comparison that was killed.
const (
	comparePart  = "part"
	partMode     = "mode"
	partSimulate = "simulate"
	partReplay   = "replay"
)

func newComparePart(std streams) *cobra.Command {
	part := &cobra.Command{Use: comparePart, Short: "Be a part of a comparison", Hidden: true}
	mode := &cobra.Command{
		Use: partMode, Short: "Run one mode; what to do is on stdin", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return compare.Run(cmd.Context(), os.Stdin, std.out) },
	}
	again := &cobra.Command{
		Use: partReplay, Short: "Run one mode on a recording; what to do is on stdin", Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return compare.Replay(os.Stdin, std.out) },
	}
	group(part, mode, newSimulatePart(std), again)
	return part
}

// newSimulatePart is `plegd simulate`, but for its end.
func newSimulatePart(std streams) *cobra.Command {
	cmd := newSimulate(std)
	cmd.Use, cmd.Example = partSimulate, ""
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithCancel(cmd.Context())
		defer cancel()
		go func() { // ends with stdin, as the process does
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
		cmd.SetContext(ctx)
		return run(cmd, args)
	}
	return cmd
}

// historyPeriod is how often what happened is written.
const historyPeriod = 200 * time.Millisecond

// writeHistory writes what happens on a simulated runtime, a line of JSON each,
// until ctx ends; not if there is no path.
func writeHistory(ctx context.Context, rt *simruntime.Runtime, path string) (err error) {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("--history: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := bufio.NewWriter(f)
	enc := json.NewEncoder(buf)
	seq := uint64(0)
	ticker := time.NewTicker(historyPeriod)
	defer ticker.Stop()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-ticker.C:
		}
		for _, tr := range rt.HistorySince(seq) {
			seq = tr.Seq
			if h := happened(tr); h.Type != "" {
				if err := enc.Encode(h); err != nil {
					return fmt.Errorf("--history: %w", err)
				}
			}
		}
		if err := buf.Flush(); err != nil {
			return fmt.Errorf("--history: %w", err)
		}
	}
	return nil
}

// happened is a transition as a comparison has it. Changes behind the runtime's
// back are none.
func happened(tr simruntime.Transition) compare.Happened {
	types := map[simruntime.Kind]map[simruntime.Step]store.EventType{
		simruntime.Sandbox: {
			simruntime.Created: store.SandboxCreated, simruntime.Ready: store.SandboxReady,
			simruntime.NotReady: store.SandboxNotReady, simruntime.Removed: store.SandboxRemoved,
		},
		simruntime.Container: {
			simruntime.Created: store.ContainerCreated, simruntime.Started: store.ContainerStarted, simruntime.StartFailed: store.ContainerDied,
			simruntime.Exited: store.ContainerDied, simruntime.Removed: store.ContainerRemoved,
		},
	}
	return compare.Happened{
		At: tr.At.UnixNano(), Type: types[tr.Kind][tr.Step], ID: tr.ID, Sandbox: tr.SandboxID,
		Pod:  compare.Pod{UID: tr.PodUID, Namespace: tr.Namespace, Name: tr.Pod},
		Name: tr.Name, Attempt: tr.Attempt, ExitCode: tr.ExitCode, Reason: tr.Reason,
		CreatedAt: tr.CreatedAt, StartedAt: tr.StartedAt, FinishedAt: tr.FinishedAt,
	}
}

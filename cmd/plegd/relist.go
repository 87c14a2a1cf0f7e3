package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/client"
	"github.com/plegd/plegd/internal/selection"
	"github.com/plegd/plegd/timestamps"
)

// relistTimeout is ample for a runtime that is asked for all it has, and busy.
const relistTimeout = 30 * time.Second

// relistOptions are the flags of `plegd relist`.
type relistOptions struct {
	clientOptions
	form form
}

// newRelist makes `plegd relist`.
func newRelist(std streams) *cobra.Command {
	o := relistOptions{clientOptions: clientOptions{std: std}}
	cmd := &cobra.Command{
		Use:   "relist",
		Short: "Have a running agent list the runtime now",
		Long: "relist has the agent on --socket list the runtime now, waits until what that shows can be read,\n" +
			"and says how long it took and what was found by it that events had not told. Where something\n" +
			"has to be inspected after the list, that may follow later.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.clientOptions.complete(cmd); err != nil {
				return err
			}
			return o.ask(cmd, o.run)
		},
	}
	o.clientOptions.addTo(cmd, relistTimeout, "bound of finding the agent and of the relist")
	formFlag(cmd, &o.form, formTable, outputJSON, formYAML, formTemplate)
	colorFlag(cmd, &o.color)
	return cmd
}

// relistResult is what a relist found.
type relistResult struct {
	Seconds  float64           `json:"seconds"`  // from asking for it until it could be read
	Position string            `json:"position"` // of the newest event then
	Events   []json.RawMessage `json:"events"`   // found by the list, or by inspections, since it was asked for
}

// run relists.
func (o *relistOptions) run(ctx context.Context, agent *agentClient) error {
	before, err := agent.status(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	after, err := agent.relist(ctx)
	took := time.Since(began)
	if err != nil {
		return err
	}
	events, err := bounded(ctx, agent, func(ctx context.Context) ([]*pleg.Event, error) {
		return foundBetween(ctx, agent, before.Position, after)
	})
	if err != nil {
		return err
	}
	if !o.form.structured() {
		return o.writeTable(took, events)
	}
	result := relistResult{Seconds: took.Seconds(), Position: after, Events: []json.RawMessage{}}
	for _, ev := range events {
		text, err := ev.MarshalJSON()
		if err != nil {
			return err
		}
		result.Events = append(result.Events, text)
	}
	return o.form.write(o.std.out, result)
}

// foundBetween returns the events after one position up to another that relists
// and inspections have found.
func foundBetween(ctx context.Context, agent *agentClient, from, to string) (events []*pleg.Event, err error) {
	end, err := pleg.ParsePosition(to)
	if err != nil {
		return nil, fmt.Errorf("the agent sent a position: %w", err)
	}
	filter := &client.Filter{Sources: selection.Words([]timestamps.Provenance{timestamps.FromRelist, timestamps.FromInspect})}
	o := client.WatchOptions{From: client.From{Position: from}, Filter: filter, Once: true}
	err = agent.each(ctx, o, nothingIdle, func(u *client.Update) error {
		if u.Event == nil {
			return nil
		}
		ev, err := eventOf(u.Event)
		if err != nil {
			return err
		}
		if ev.Position.Seq > end.Seq {
			return errEnough
		}
		events = append(events, ev)
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return events, err
}

// writeTable says what a relist found for people.
func (o *relistOptions) writeTable(took time.Duration, events []*pleg.Event) error {
	var b strings.Builder
	row := eventRow(colored(o.color, o.std))
	for _, ev := range events {
		line, err := row(ev)
		if err != nil {
			return err
		}
		b.Write(line)
	}
	found := "nothing new"
	switch len(events) {
	case 0:
	case 1:
		found = "1 event"
	default:
		found = fmt.Sprintf("%d events", len(events))
	}
	fmt.Fprintf(&b, "relist took %v and found %s\n", took.Round(100*time.Microsecond), found)
	_, err := fmt.Fprint(o.std.out, b.String())
	return err
}

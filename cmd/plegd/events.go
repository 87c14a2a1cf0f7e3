package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/client"
)

// eventsOptions are the flags of `plegd events`.
type eventsOptions struct {
	clientOptions
	filterOptions
	form             form
	follow, noFollow bool
	since, until     when
	kubelet          bool
	limit            int // 0 for none
}

// newEvents makes `plegd events`.
func newEvents(std streams) *cobra.Command {
	o := eventsOptions{clientOptions: clientOptions{std: std}}
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show the events of a running agent",
		Long: "events writes events as the agent on --socket tells them. On a terminal it follows them from\n" +
			"now on; else, or with --no-follow too, it writes those that the journal has and ends. When the\n" +
			"agent is restarted it waits and goes on, without a gap and without a repetition.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd); err != nil {
				return err
			}
			return o.ask(cmd, o.run)
		},
	}
	o.clientOptions.addTo(cmd, defaultTimeout, "bound of finding the agent and of its first answer")
	f := cmd.Flags()
	f.BoolVarP(&o.follow, "follow", "f", false, "go on with what comes (default: on a terminal)")
	f.BoolVar(&o.noFollow, "no-follow", false, "end after what there is")
	f.Var(whenValue{&o.since, time.Now}, "since", "begin after this position, at this time, or so long ago (default: now if following, unless --until has passed; else the oldest)")
	f.Var(whenValue{&o.until, time.Now}, "until", "end with this position, at this time, or with what was so long ago")
	countFlag(f, &o.limit, "limit", "end after so many events")
	o.filterOptions.addEvents(cmd)
	formFlag(cmd, &o.form, formTable, outputJSON, formYAML, formCloudEvents, formTemplate)
	f.BoolVar(&o.kubelet, "kubelet-view", false, "what the kubelet's GenericPLEG would have sent")
	colorFlag(cmd, &o.color)
	return cmd
}

// complete refuses what contradicts itself, and fills in what isn't given.
func (o *eventsOptions) complete(cmd *cobra.Command) error {
	if err := o.clientOptions.complete(cmd); err != nil {
		return err
	}
	if _, err := o.selection(); err != nil {
		return err
	}
	f := &o.filter
	switch {
	case o.follow && o.noFollow:
		return usagef("--follow and --no-follow contradict each other; leave one of them out")
	case o.kubelet && len(f.Types)+len(f.Sources) > 0:
		return usagef("--type and --source choose plegd's own events, and --kubelet-view follows from all of them; leave one of them out")
	case o.kubelet && o.form.name == formCloudEvents:
		return usagef("--output %s: is not possible with --kubelet-view; use --output json", formCloudEvents)
	case o.since.position != nil && o.until.position != nil && o.since.position.Epoch == o.until.position.Epoch && o.since.position.Seq >= o.until.position.Seq,
		!o.since.at.IsZero() && !o.until.at.IsZero() && !o.since.at.Before(o.until.at):
		return usagef("--until %s: must be later than --since %s", o.until.text, o.since.text)
	case o.since.at.After(time.Now()):
		return usagef("--since %s: must not be in the future", o.since.text)
	}
	if !o.noFollow && !o.follow {
		o.follow = isTerminal(o.std.out)
	}
	return nil
}

// early reports whether a position was not given out yet: nothing before it has been lost.
func early(e *client.ExpiredError) bool {
	asked, err := pleg.ParsePosition(e.Asked)
	newest, err2 := pleg.ParsePosition(e.Newest)
	return err == nil && err2 == nil && asked.Epoch == newest.Epoch && asked.Seq > newest.Seq
}

// run writes events until their end, or until it is asked to stop.
func (o *eventsOptions) run(ctx context.Context, agent *agentClient) error {
	status, err := agent.status(ctx)
	if err != nil {
		return err
	}
	w := newEventWriter(o.std.out, o.eventFormat(o.std.out, status.Node), o.limit)
	reads, err := o.reads(status)
	if err != nil {
		return err
	}
	at := o.beginning(status, reads[0])
	for _, r := range reads {
		at, err = o.read(ctx, agent, w, at, r)
		if err != nil {
			break
		}
	}
	var expired *client.ExpiredError
	switch {
	case errors.Is(err, errEnough):
		err = nil
	case errors.As(err, &expired) && early(expired):
		err = fmt.Errorf("%w; is it mistyped? To go on from now it is --since %s", err, expired.Newest)
	case errors.As(err, &expired) && expired.Oldest != "":
		err = fmt.Errorf("%w; go on with --since %s, without what was before", err, expired.Oldest)
	}
	err = stopped(ctx, err)
	if err == nil && w.n == 0 && !o.follow && ctx.Err() == nil && o.form.name == formTable {
		o.note("no events") // nothing at all could be a mistake too
	}
	if failed := w.flush(); !errors.Is(err, failed) { // a write may have failed so before
		err = errors.Join(err, failed)
	}
	return err
}

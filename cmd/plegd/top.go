package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/client"
)

const (
	// topInterval is how often the view is renewed: as fast as people read.
	topInterval = time.Second
	// topWindow is what rate and latency are about.
	topWindow = time.Minute
)

// topOptions are the flags of `plegd top`.
type topOptions struct {
	clientOptions
	filterOptions
	interval time.Duration
	repeat   bool // also where there is no terminal
}

// newTop makes `plegd top`.
func newTop(std streams) *cobra.Command {
	o := topOptions{clientOptions: clientOptions{std: std}, interval: topInterval}
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch the pods and the health of a running agent",
		Long: "top shows the agent on --socket and its pods, those that aren't ready first: states, restarts,\n" +
			"the event stream, the relist period, the rate of events and how late they were detected. On a\n" +
			"terminal it draws anew until q or Ctrl-C; else it writes one view and ends, or with\n" +
			"--interval one after the other.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.clientOptions.complete(cmd); err != nil {
				return err
			}
			if _, err := o.selection(); err != nil {
				return err
			}
			o.repeat = cmd.Flags().Changed("interval")
			return o.run(cmd.Context())
		},
	}
	o.clientOptions.addTo(cmd, defaultTimeout, "bound of finding the agent and of each answer")
	durationFlag(cmd.Flags(), &o.interval, "interval", "time between two views")
	o.addPods(cmd)
	colorFlag(cmd, &o.color)
	return cmd
}

// run shows the view until it is asked to stop.
func (o *topOptions) run(parent context.Context) error {
	ctx, end := untilAsked(parent, o.std.out)
	defer end()
	var link topLink
	agent, err := o.connectWith(client.Options{Disconnected: link.lost, Reconnected: link.back})
	if err != nil {
		return err
	}
	defer agent.close()
	view, err := o.look(ctx, agent) // an error before anything is shown ends it
	if err != nil {
		return stopped(ctx, o.whence(err))
	}
	if isTerminal(o.std.out) && o.std.getenv("TERM") != "dumb" {
		return o.live(ctx, agent, view, &link)
	}
	return stopped(ctx, o.plain(ctx, agent, view))
}

// plain writes one view or, with --interval, one after the other, also after a time
// without an agent.
func (o *topOptions) plain(ctx context.Context, agent *agentClient, view *topView) error {
	if err := o.write(ctx, agent, view); err != nil || !o.repeat {
		return err
	}
	lost := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.interval):
		}
		view, err := o.look(ctx, agent)
		if err == nil && lost {
			lost = false
			o.note("%s", agentBack)
		}
		if err == nil {
			if _, err := fmt.Fprintln(o.std.out); err != nil {
				return err
			}
			err = o.write(ctx, agent, view)
		}
		switch {
		case err == nil:
		case !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, errTimeout):
			return err
		case !lost && ctx.Err() == nil:
			lost = true
			o.note("%s: %v", agentLost, err)
		}
	}
}

// write writes a view, with the events that belong to it.
func (o *topOptions) write(ctx context.Context, agent *agentClient, view *topView) error {
	events, err := bounded(ctx, agent, func(ctx context.Context) (*topEvents, error) { return o.recent(ctx, agent) })
	if err != nil {
		return err
	}
	view.now, view.events = time.Now(), events
	_, err = fmt.Fprintln(o.std.out, strings.Join(view.lines(0, 0, colored(o.color, o.std)), "\n"))
	return err
}

// look asks for what a view shows, but for the events.
func (o *topOptions) look(ctx context.Context, agent *agentClient) (*topView, error) {
	status, err := agent.status(ctx)
	if err != nil {
		return nil, err
	}
	v := &topView{now: time.Now(), status: status}
	list, err := agent.pods(ctx, o.request())
	switch {
	case errors.Is(err, client.ErrUnavailable): // what pods there are isn't known yet
		v.podsUnknown = err.Error()
	case err != nil:
		return nil, err
	}
	v.pods = list.Pods
	return v, nil
}

// recent returns the events of the last topWindow.
func (o *topOptions) recent(ctx context.Context, agent *agentClient) (*topEvents, error) {
	events := &topEvents{}
	watch := client.WatchOptions{From: client.From{Time: time.Now().Add(-topWindow)}, Filter: o.request(), Once: true}
	err := agent.each(ctx, watch, nothingIdle, func(u *client.Update) error {
		events.add(u.Event)
		return nil
	})
	return events, err
}

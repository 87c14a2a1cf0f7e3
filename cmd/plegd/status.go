package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// statusOptions are the flags of `plegd status`.
type statusOptions struct {
	clientOptions
	form form
}

// newStatus makes `plegd status`.
func newStatus(std streams) *cobra.Command {
	o := statusOptions{clientOptions: clientOptions{std: std}}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how a running agent is, and why",
		Long: "status says what the agent on --socket says of itself: whether it can be relied on and what is\n" +
			"wrong, the runtime, the event stream, the relists, the reinspection queue and the journal.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.clientOptions.complete(cmd); err != nil {
				return err
			}
			return o.ask(cmd, o.run)
		},
	}
	o.clientOptions.addTo(cmd, defaultTimeout, "bound of finding the agent and of its answer")
	formFlag(cmd, &o.form, formTable, outputJSON, formYAML, formTemplate)
	colorFlag(cmd, &o.color)
	return cmd
}

// run shows the status.
func (o *statusOptions) run(ctx context.Context, agent *agentClient) error {
	s, err := agent.status(ctx)
	if err != nil {
		return err
	}
	if o.form.structured() {
		return o.form.write(o.std.out, s)
	}
	_, err = io.WriteString(o.std.out, s.text(time.Now(), colored(o.color, o.std)))
	return err
}

// text is the status for people.
func (s *agentStatus) text(now time.Time, colors bool) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-14s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("health", "%s", paint(s.healthText(), s.healthColor(), colors))
	for _, c := range s.Health.Conditions {
		line("", "%s", paint(c.text(now), waits, colors))
	}
	line("node", "%s, mode %s", dash(printable(s.Node)), printable(s.Mode))
	line("runtime", "%s", printable(s.Runtime.text()))
	line("stream", "%s", printable(s.Stream.text(now)))
	line("relist", "%s", printable(s.Relist.text()))
	line("inspections", "%d waiting, %d in flight, %d to be reinspected", s.Relist.Waiting, s.Relist.InFlight, len(s.Asks))
	for _, a := range s.Asks {
		line("", "%s", printable(a.text()))
	}
	line("queue", "%d events", s.Queued)
	line("epoch", "%s", printable(s.Journal.Epoch))
	line("journal", "%d events, %d bytes, positions %s to %s", s.Journal.Entries, s.Journal.Bytes, printable(s.Oldest), printable(s.Position))
	return b.String()
}

// healthText says whether what is served can be relied on.
func (s *agentStatus) healthText() string {
	switch {
	case !s.Health.Live:
		return "stuck: the arbiter makes no progress"
	case !s.Health.Ready:
		return "not ready: what is served can't be relied on"
	case len(s.Health.Conditions) > 0:
		return "ready, but something is wrong"
	}
	return "ready"
}

// healthColor is that of healthText.
func (s *agentStatus) healthColor() color {
	switch {
	case !s.Health.Live || !s.Health.Ready:
		return bad
	case len(s.Health.Conditions) > 0:
		return waits
	}
	return good
}

// text names the condition, and says why and since when it holds.
func (c *agentCondition) text(now time.Time) string {
	text := printable(c.Name) + ": " + printable(c.Reason)
	if !c.Since.IsZero() {
		text += ", for " + age(now, c.Since)
	}
	return text
}

func (r *agentRuntime) text() string {
	text := cmp.Or(r.Name, "not known yet")
	if r.Version != "" {
		text += " " + r.Version
	}
	if r.Endpoint != "" {
		text += " at " + r.Endpoint
	}
	if r.Error != "" {
		text += ": " + r.Error
	}
	return text
}

func (s *agentStream) text(now time.Time) string {
	text := s.State
	if !s.Since.IsZero() {
		text += " for " + age(now, s.Since)
	}
	text += fmt.Sprintf(", %d events, %d lost, %d malformed, %d reconnects", s.Events, s.Lost, s.Malformed, s.Reconnects)
	if s.Error != "" {
		text += ": " + s.Error
	}
	return text
}

func (r *agentRelist) text() string {
	if !r.Periodic {
		return "none is periodic" + r.failureWord()
	}
	return fmt.Sprintf("every %v, %s", time.Duration(r.Period*float64(time.Second)), r.State) + r.failureWord()
}

func (r *agentRelist) failureWord() string {
	if r.Failures == 0 {
		return ""
	}
	return fmt.Sprintf(", %d failed in a row: %s", r.Failures, r.Error)
}

func (a *agentAsking) text() string {
	text := fmt.Sprintf("%s %s: %s", a.Kind, shortened(a.ID), strings.Join(a.Reasons, ", "))
	if a.Fails > 0 {
		text += fmt.Sprintf(", %d calls failed", a.Fails)
	}
	return text
}

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/url"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/store"
)

// eventFormat returns a function that makes text of each event, which may be
// none.
func (o *eventsOptions) eventFormat(out io.Writer, node string) func(*pleg.Event) ([]byte, error) {
	terminal := isTerminal(out)
	switch {
	case o.kubelet && o.form.name == formTable:
		return eachKubelet(kubeletRow())
	case o.kubelet:
		return eachKubelet(func(k pleg.KubeletEvent) ([]byte, error) {
			text, err := k.MarshalJSON()
			if err != nil {
				return nil, err
			}
			return o.form.record(text, terminal)
		})
	case o.form.name == formTable:
		return eventRow(colored(o.color, o.std))
	case o.form.name == formCloudEvents:
		return func(ev *pleg.Event) ([]byte, error) {
			text, err := cloudEvent(ev, node)
			return jsonLine(text, terminal), err
		}
	}
	return func(ev *pleg.Event) ([]byte, error) {
		text, err := ev.MarshalJSON()
		if err != nil {
			return nil, err
		}
		return o.form.record(text, terminal)
	}
}

// eventRow returns a function that writes an event as a row of a table, with
// the header before the first. The columns are those of formatText.
func eventRow(colors bool) func(*pleg.Event) ([]byte, error) {
	begun := false
	return func(ev *pleg.Event) ([]byte, error) {
		line, err := formatText(ev)
		if err != nil {
			return nil, err
		}
		// Nothing before it has a capital letter but the T and Z of a time.
		name := string(ev.Type)
		line = bytes.Replace(line, []byte(" "+name), []byte(" "+paint(name, eventColor(ev), colors)), 1)
		if !begun {
			begun = true
			head := fmt.Sprintf("%-22s  %-24s  %-16s  %-28s  %-14s  %s", "POSITION", "TIME", "TYPE", "POD", "CONTAINER", "DETAILS")
			line = append([]byte(paint(head, strong, colors)+"\n"), line...)
		}
		return line, nil
	}
}

// eventColor is that of an event's type.
func eventColor(ev *pleg.Event) color {
	switch ev.Type {
	case store.SandboxReady, store.ContainerStarted:
		return good
	case store.ContainerDied:
		if ev.ExitKnown && ev.ExitCode == 0 {
			return plain
		}
		return bad
	case store.SandboxRemoved, store.ContainerRemoved, store.SequenceSkipped:
		return faint
	case store.SandboxChanged, store.ContainerChanged:
		return waits
	}
	return plain
}

// eachKubelet returns a function that makes text of what the kubelet would have
// sent for each event.
func eachKubelet(format func(pleg.KubeletEvent) ([]byte, error)) func(*pleg.Event) ([]byte, error) {
	var feed pleg.KubeletFeed
	return func(ev *pleg.Event) ([]byte, error) {
		var all []byte
		for _, k := range feed.Events(ev) {
			text, err := format(k)
			if err != nil {
				return nil, err
			}
			all = append(all, text...)
		}
		return all, nil
	}
}

// kubeletRow is eventRow for the kubelet's events.
func kubeletRow() func(pleg.KubeletEvent) ([]byte, error) {
	const columns = "%-22s  %-16s  %-36s  %s\n"
	begun := false
	return func(k pleg.KubeletEvent) ([]byte, error) {
		line := fmt.Sprintf(columns, k.Position, k.Type, dash(printable(k.PodUID)), printable(k.ContainerID))
		if !begun {
			begun = true
			line = fmt.Sprintf(columns, "POSITION", "TYPE", "POD UID", "CONTAINER ID") + line
		}
		return []byte(line), nil
	}
}

// cloudEventPrefix is what the types of CloudEvents begin with: plegd's home,
// reversed, and the version of the format of their data.
const cloudEventPrefix = "io.github.plegd.v1."

// cloudEventJSON is an event in the JSON format of CloudEvents 1.0.
type cloudEventJSON struct {
	SpecVersion string          `json:"specversion"`
	ID          string          `json:"id"`
	Source      string          `json:"source"`
	Type        string          `json:"type"`
	Subject     string          `json:"subject,omitempty"`
	Time        string          `json:"time"`
	ContentType string          `json:"datacontenttype"`
	Data        json.RawMessage `json:"data"`
}

// cloudEvent returns an event of a node as a CloudEvent. Its id is the position,
// which no other event of any node has; its time is when it occurred, else when
// it was observed.
func cloudEvent(ev *pleg.Event, node string) ([]byte, error) {
	data, err := ev.MarshalJSON()
	if err != nil {
		return nil, err
	}
	c := cloudEventJSON{
		SpecVersion: "1.0", ID: ev.Position.String(), Source: "/nodes/" + url.PathEscape(node) + "/plegd",
		Type: cloudEventPrefix + string(ev.Type), Subject: eventSubject(ev), Time: store.FormatTime(ev.ObservedAt),
		ContentType: "application/json", Data: data,
	}
	if ev.OccurredAt != 0 {
		c.Time = store.FormatTime(ev.OccurredAt)
	}
	return marshal(c)
}

// eventSubject names what an event is about, NAMESPACE/POD or
// NAMESPACE/POD/CONTAINER; a pod without a name by its sandbox.
func eventSubject(ev *pleg.Event) string {
	if ev.Type == store.SequenceSkipped {
		return ""
	}
	subject := ev.Pod.Namespace + "/" + ev.Pod.Name
	if subject == "/" {
		subject = store.PodKeyOfSandbox(ev.SandboxID)
	}
	if ev.Container.ID != "" {
		subject += "/" + ev.Container.Name
	}
	return subject
}

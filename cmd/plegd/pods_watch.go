package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/client"
)

// runWatch lists the pods, and then those that change, each as a whole. What
// changes while a list is read is one change.
func (o *podsOptions) runWatch(ctx context.Context, agent *agentClient) error {
	w := podWatch{o: o, told: map[string]toldPod{}, table: podTable(o.form.name == formWide, colored(o.color, o.std))}
	changed, listed := true, false
	// A list is never behind the events that were told before it.
	idle := func() error {
		if !changed {
			return nil
		}
		list, err := agent.pods(ctx, o.request())
		if listed && errors.Is(err, client.ErrUnavailable) {
			return nil // the agent is being restarted; the next update tries again
		}
		if err != nil {
			return err
		}
		changed, listed = false, true
		return w.show(list)
	}
	if err := idle(); err != nil { // within --timeout
		return err
	}
	filter := o.request()
	filter.Containers = nil // events of sandboxes have none; the lists are chosen by them
	watch := client.WatchOptions{Filter: filter, StartOver: true, Keepalive: time.Second}
	begun := false
	return agent.each(ctx, watch, idle, func(u *client.Update) error {
		// The first update says that the watch has begun: what changed since the list
		// above is in the next.
		changed = changed || !begun || u.Event != nil || u.Pods != nil
		begun = true
		return nil
	})
}

// podWatch is what `plegd pods --watch` has told.
type podWatch struct {
	o     *podsOptions
	told  map[string]toldPod // by key
	table *table
}

// toldPod is a pod as it was told last.
type toldPod struct {
	pod   pleg.Pod
	looks string // what of it a reader sees, but for what changes by itself
}

// show writes the pods that don't look as they did when they were told.
func (w *podWatch) show(list podList) error {
	slices.SortStableFunc(list.Pods, podOrder)
	there := map[string]bool{}
	var changed []pleg.Pod
	for _, p := range list.Pods {
		there[p.Key] = true
		looks, err := w.looks(p)
		if err != nil {
			return err
		}
		if old, ok := w.told[p.Key]; !ok || old.looks != looks {
			changed = append(changed, p)
		}
		w.told[p.Key] = toldPod{p, looks}
	}
	var removed []pleg.Pod
	for key, old := range w.told {
		if !there[key] {
			delete(w.told, key)
			old.pod.Sandboxes, old.pod.Containers = []pleg.Sandbox{}, []pleg.Container{}
			removed = append(removed, old.pod)
		}
	}
	slices.SortStableFunc(removed, podOrder)
	return w.write(changed, removed)
}

// looks is what a reader sees of a pod, without ages and the position, which go
// on by themselves.
func (w *podWatch) looks(p pleg.Pod) (string, error) {
	p.Position = ""
	switch {
	case w.o.form.name == formName:
		return podName(&p), nil
	case w.o.form.structured():
		text, err := marshal(p)
		return string(text), err
	}
	return fmt.Sprint(podRow(&p, podCreated(&p), w.o.form.name == formWide)), nil
}

// write writes pods in the form that was asked for. Of those that were removed
// neither sandboxes nor containers are left; names are only told of those that
// are there.
func (w *podWatch) write(changed, removed []pleg.Pod) error {
	out, form := w.o.std.out, &w.o.form
	if form.name == formName {
		return writeNames(out, changed)
	}
	for i, p := range slices.Concat(changed, removed) {
		if !form.structured() {
			row := podRow(&p, time.Now(), form.name == formWide)
			if i >= len(changed) {
				row[2] = cell{stateRemoved, stateColor(stateRemoved)}
			}
			w.table.add(row...)
			continue
		}
		text, err := marshal(p)
		if err == nil {
			text, err = form.record(text, isTerminal(out))
		}
		if err == nil {
			_, err = out.Write(text)
		}
		if err != nil {
			return err
		}
	}
	return w.table.write(out)
}

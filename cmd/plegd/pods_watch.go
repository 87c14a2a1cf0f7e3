package main

import (
	"bytes"
	"context"
	"slices"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/client"
)

// runWatch lists the pods, and then those that change, each as a whole. What
// changes while a list is read is one change.
func (o *podsOptions) runWatch(ctx context.Context, agent *agentClient, stop func()) error {
	gone := watchReader(ctx, o.std.out, stop)
	defer gone()
	w := podWatch{o: o, told: map[string]pleg.Pod{}, table: podTable(o.form.name == formWide, colored(o.color, o.std))}
	changed := false
	// A list is never behind the events that were told before it.
	idle := func() error {
		if !changed {
			return nil
		}
		changed = false
		list, err := agent.pods(ctx, o.request())
		if err != nil {
			return err
		}
		return w.show(list)
	}
	return agent.each(ctx, client.WatchOptions{Filter: o.request()}, idle, func(*client.Update) error {
		changed = true // with the first message, which says that the watch has begun
		return nil
	})
}

// podWatch is what `plegd pods --watch` has told.
type podWatch struct {
	o     *podsOptions
	told  map[string]pleg.Pod // by key, as they were told last
	table *table
}

// show writes the pods that are not as they were told.
func (w *podWatch) show(list podList) error {
	slices.SortStableFunc(list.Pods, podOrder)
	there := map[string]bool{}
	var changed []pleg.Pod
	for _, p := range list.Pods {
		there[p.Key] = true
		if old, ok := w.told[p.Key]; !ok || !samePod(old, p) {
			changed = append(changed, p)
		}
		w.told[p.Key] = p
	}
	var removed []pleg.Pod
	for key, p := range w.told {
		if !there[key] {
			removed = append(removed, p)
			delete(w.told, key)
		}
	}
	slices.SortStableFunc(removed, podOrder)
	for _, p := range removed {
		p.Sandboxes, p.Containers = []pleg.Sandbox{}, []pleg.Container{}
		changed = append(changed, p)
	}
	return w.write(changed)
}

// samePod reports whether two states of a pod are the same to a reader.
func samePod(a, b pleg.Pod) bool {
	x, errX := marshal(a)
	y, errY := marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// write writes pods in the form that was asked for. Of one that was removed
// neither sandboxes nor containers are left.
func (w *podWatch) write(pods []pleg.Pod) error {
	out, form := w.o.std.out, &w.o.form
	if form.name == formName {
		return writeNames(out, pods)
	}
	for i := range pods {
		p := &pods[i]
		if !form.structured() {
			w.table.add(w.row(p)...)
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

// row returns the row of a pod, which may have been removed.
func (w *podWatch) row(p *pleg.Pod) []cell {
	row := podRow(p, time.Now(), w.o.form.name == formWide)
	if len(p.Sandboxes)+len(p.Containers) == 0 {
		row[2] = cell{"removed", stateColor("removed")}
	}
	return row
}

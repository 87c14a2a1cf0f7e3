package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/client"
)

// runWatch writes the pods, and then those that change, each as a whole. What
// follows one another fast is one change.
func (o *podsOptions) runWatch(ctx context.Context, agent *agentClient) error {
	w := newPodWatch(o)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(o.timeout, func() { cancel(agent.late()) }) // the first answer
	defer late.Stop()
	cache := agent.NewCache(client.CacheOptions{
		Filter: o.request(), Added: w.added, Updated: w.updated, Deleted: w.deleted,
		Settled: func() error { late.Stop(); return w.write() },
	})
	err := cache.Run(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, errTimeout) {
		return cause
	}
	return err
}

// podWatch writes what a cache tells of pods.
type podWatch struct {
	o             *podsOptions
	table         *table
	changed, gone map[string]pleg.Pod // by key, that are not written yet
}

func newPodWatch(o *podsOptions) *podWatch {
	w := &podWatch{o: o, changed: map[string]pleg.Pod{}, gone: map[string]pleg.Pod{}}
	w.table = podTable(w.wide(), colored(o.color, o.std))
	return w
}

func (w *podWatch) wide() bool { return w.o.form.name == formWide }

func (w *podWatch) added(p *client.Pod) {
	delete(w.gone, p.Key)
	w.changed[p.Key] = podOfAPI(p)
}

// updated leaves out what a reader doesn't see: what goes on by itself, such as
// ages and the position, and all that isn't in a row.
func (w *podWatch) updated(old, p *client.Pod) {
	row := func(p *client.Pod) string {
		pod := podOfAPI(p)
		pod.Position = ""
		return fmt.Sprint(podRow(&pod, podCreated(&pod), w.wide()))
	}
	if w.o.form.name != formName && (w.o.form.structured() || row(old) != row(p)) {
		w.added(p)
	}
}

// deleted leaves neither sandboxes nor containers.
func (w *podWatch) deleted(p *client.Pod) {
	delete(w.changed, p.Key)
	pod := podOfAPI(p)
	pod.Sandboxes, pod.Containers = []pleg.Sandbox{}, []pleg.Container{}
	w.gone[p.Key] = pod
}

// write writes pods in the form that was asked for. Names are only told of those that
// are there.
func (w *podWatch) write() error {
	changed, gone := slices.SortedFunc(maps.Values(w.changed), podOrder), slices.SortedFunc(maps.Values(w.gone), podOrder)
	clear(w.changed)
	clear(w.gone)
	out, form := w.o.std.out, &w.o.form
	if form.name == formName {
		return writeNames(out, changed)
	}
	for i, p := range slices.Concat(changed, gone) {
		if !form.structured() {
			row := podRow(&p, time.Now(), w.wide())
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

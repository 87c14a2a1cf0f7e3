package compare_test

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/compare"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

// raw is a line about an entity, by a way, that says something.
func raw(via compare.Via, id, says string) func(compare.Line) bool {
	return func(l compare.Line) bool {
		return l.Raw != nil && l.Raw.Via == via && l.Raw.ID == id && l.Raw.Says == says
	}
}

// What a full list lacks is said to be absent, once; what a list of one pod lacks is not.
func TestAbsence(t *testing.T) {
	rt, socket := simtest.Start(t, simruntime.Config{Seed: 1})
	one, two := runContainer(t, rt, "one"), runContainer(t, rt, "two")
	c := startChild(t, socket, "hinted=1h")
	c.await("ready", ready)
	if err := rt.ExitContainer(one, 0, ""); err != nil {
		t.Fatal(err)
	}
	c.await("death, by a list of that pod", told(store.ContainerDied, one))
	if err := rt.RemoveContainer(one); err != nil {
		t.Fatal(err)
	}
	c.say(compare.WordClose)
	c.await("absence from the full list", raw(compare.ViaList, one, "ABSENT"))
	trace := c.end()
	n := 0
	for _, r := range trace.Raws {
		if r.Says == "ABSENT" && r.ID == two {
			t.Errorf("%+v", r)
		}
		if r.Via == compare.ViaList && r.ID == two {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d lines of what lists said of a container that did not change", n)
	}
}

// After the event of a removal what a list says is said again: it may contradict.
func TestListsAreHeardAfterARemoval(t *testing.T) {
	rt, socket := simtest.Start(t, simruntime.Config{Seed: 1})
	id := runContainer(t, rt, "one")
	c := startChild(t, socket, "hybrid")
	c.await("ready", ready)
	rt.InjectEvent(&runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT})
	c.await("the event", raw(compare.ViaEvent, id, "DELETED"))
	event := c.await("what the list says", raw(compare.ViaList, id, "RUNNING")).Raw.At
	later := func(l compare.Line) bool {
		return raw(compare.ViaList, id, "RUNNING")(l) && time.Duration(l.Raw.At-event) > time.Second
	}
	c.await("that it is there still, when it can't be a list from before", later)
	_ = c.in.Close()
	c.end()
}

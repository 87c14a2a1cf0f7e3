package arbiter

import (
	"fmt"

	"github.com/plegd/plegd/store"
)

// call is a call to the runtime: sent, read by the runtime, answered. A list
// is two calls.
type call struct {
	key        ActionKey
	first      Call
	second     Call
	phase      int
	sandboxes  []Item
	containers []Item
	status     *Item
	kind       store.Kind
}

func (r *rig) newCall(key ActionKey) *call {
	return &call{key: key, first: Call{Sent: r.send()}}
}

// advance takes a call one phase further and returns its answer at last.
func (r *rig) advance(w *truth, c *call) Input {
	c.phase++
	if c.key.Kind == ActStatus {
		if c.phase == 1 {
			if x, ok := w.things[c.key.ID]; ok {
				c.status, c.kind = x.status(), x.kind
			}
			return nil
		}
		c.first.Answered = r.stamp()
		return &StatusSeen{ID: c.key.ID, Kind: c.kind, Call: c.first, Item: c.status, NotFound: c.status == nil}
	}
	scope := c.scope()
	switch c.phase {
	case 1:
		for _, x := range w.all(store.KindSandbox, "") {
			if scope.All() || x.id == scope.Sandbox || x.pod == scope.PodUID && scope.PodUID != "" {
				c.sandboxes = append(c.sandboxes, x.listed())
			}
		}
	case 2:
		c.first.Answered = r.stamp()
		c.second.Sent = r.send()
	case 3:
		for _, x := range w.all(store.KindContainer, "") {
			if scope.All() || x.sandbox == scope.Sandbox || x.pod == scope.PodUID && scope.PodUID != "" {
				c.containers = append(c.containers, x.listed())
			}
		}
	default:
		c.second.Answered = r.stamp()
		return &ListSeen{Scope: scope, Sandboxes: c.sandboxes, Containers: c.containers, SandboxCall: c.first, ContainerCall: c.second}
	}
	return nil
}

func (c *call) scope() Scope {
	switch c.key.Kind {
	case ActLook:
		return Scope{Sandbox: c.key.ID}
	case ActPod:
		return Scope{PodUID: c.key.ID}
	default:
		return Scope{}
	}
}

// describe prints an input for a failing test.
func describe(in Input) string {
	switch in := in.(type) {
	case *EventSeen:
		text := fmt.Sprintf("event %d %s at %d: ", in.Type, in.ID, in.At.Tick)
		if in.Sandbox != nil {
			text += describeItem(in.Sandbox)
		}
		for i := range in.Containers {
			text += describeItem(&in.Containers[i])
		}
		return text
	case *ListSeen:
		text := fmt.Sprintf("list %v %d-%d %d-%d: ", in.Scope, in.SandboxCall.Sent.Tick, in.SandboxCall.Answered.Tick, in.ContainerCall.Sent.Tick, in.ContainerCall.Answered.Tick)
		for _, items := range [][]Item{in.Sandboxes, in.Containers} {
			for i := range items {
				text += describeItem(&items[i])
			}
		}
		return text
	case *StatusSeen:
		text := fmt.Sprintf("status %s %d-%d: ", in.ID, in.Call.Sent.Tick, in.Call.Answered.Tick)
		if in.Item != nil {
			text += describeItem(in.Item)
		}
		return text + in.Err
	default:
		return fmt.Sprintf("%T%+v", in, in)
	}
}

func describeItem(it *Item) string {
	return fmt.Sprintf(" %s(%s started=%d exit=%d)", it.ID, rung(it.Kind, it.State).Name(it.Kind), it.StartedAt, it.Exit.FinishedAt)
}

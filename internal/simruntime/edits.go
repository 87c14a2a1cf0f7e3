package simruntime

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The functions of this file are, or return, what Rule.Edit takes. They change
// the messages to which they apply and leave all others as they are. Several
// are joined by Edits.

// AnnotationPadding is the annotation that PadTo adds.
const AnnotationPadding = "simruntime/padding"

// Edits does several edits one after another.
func Edits(edits ...func(proto.Message)) func(proto.Message) {
	return func(m proto.Message) {
		for _, edit := range edits {
			edit(m)
		}
	}
}

// SetRaw makes a message go out as exactly these bytes, whether or not anybody
// can decode them. Rule.Raw does it to an answer; an event for InjectEvent can
// be made so by hand.
func SetRaw(m proto.Message, raw []byte) {
	proto.Reset(m)
	// Unknown fields are written as they are and never looked at.
	m.ProtoReflect().SetUnknown(slices.Clone(raw))
}

// Instead replaces the whole message by a copy of another one of its type.
func Instead(other proto.Message) func(proto.Message) {
	return func(m proto.Message) {
		if m.ProtoReflect().Descriptor() == other.ProtoReflect().Descriptor() {
			proto.Reset(m)
			proto.Merge(m, other)
		}
	}
}

// editItems changes the list in a message: of a list call, of one message of a
// streaming list, or the containers of an event or a sandbox's status.
func editItems(m proto.Message, e listEditor) {
	switch m := m.(type) {
	case *runtimeapi.ListPodSandboxResponse:
		m.Items = editList(m.Items, e)
	case *runtimeapi.StreamPodSandboxesResponse:
		m.PodSandboxes = editList(m.PodSandboxes, e)
	case *runtimeapi.ListContainersResponse:
		m.Containers = editList(m.Containers, e)
	case *runtimeapi.StreamContainersResponse:
		m.Containers = editList(m.Containers, e)
	case *runtimeapi.ContainerEventResponse:
		m.ContainersStatuses = editList(m.ContainersStatuses, e)
	case *runtimeapi.PodSandboxStatusResponse:
		m.ContainersStatuses = editList(m.ContainersStatuses, e)
	}
}

// listEditor says what becomes of a list. Both parts may be nil.
type listEditor struct {
	copies func(id string) int // how often an item is in the list afterwards
	swap   func(n int, swap func(i, j int))
}

func editList[T interface{ GetId() string }](items []T, e listEditor) []T {
	if e.copies != nil {
		var out []T
		for _, item := range items {
			for range e.copies(item.GetId()) {
				out = append(out, item)
			}
		}
		items = out
	}
	if e.swap != nil {
		e.swap(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	}
	return items
}

// Omit leaves items out of lists: nothing of these ids is said to exist. A
// message of a streaming list that has nothing left isn't sent.
func Omit(ids ...string) func(proto.Message) {
	return func(m proto.Message) {
		editItems(m, listEditor{copies: func(id string) int {
			if slices.Contains(ids, id) {
				return 0
			}
			return 1
		}})
	}
}

// Repeat lists items twice; without ids, all of them.
func Repeat(ids ...string) func(proto.Message) {
	return func(m proto.Message) {
		editItems(m, listEditor{copies: func(id string) int {
			if len(ids) == 0 || slices.Contains(ids, id) {
				return 2
			}
			return 1
		}})
	}
}

// Reverse turns lists round.
func Reverse(m proto.Message) {
	editItems(m, listEditor{swap: func(n int, swap func(i, j int)) {
		for i := range n / 2 {
			swap(i, n-1-i)
		}
	}})
}

// Shuffle puts lists in another order each time. The orders follow from the
// seed and the number of lists before. containerd's own order is a map's.
func Shuffle(seed uint64) func(proto.Message) {
	var mu sync.Mutex
	rng := newRand(seed, "shuffle")
	return func(m proto.Message) {
		mu.Lock()
		own := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		mu.Unlock()
		editItems(m, listEditor{swap: own.Shuffle})
	}
}

// PadTo makes a message at least so many bytes long, and at most 64 more, by
// annotations on all in it that can have them, alike. What has none, such as an
// empty list, stays short. Batches of streaming lists are cut before rules act:
// to make those long, give the containers long annotations when they are made.
func PadTo(bytes int) func(proto.Message) {
	const entry = 40 // more than an annotation takes beside its value
	return func(m proto.Message) {
		all := annotations(m)
		if len(all) == 0 {
			return
		}
		if each := (bytes-proto.Size(m))/len(all) - entry; each > 0 {
			padding := strings.Repeat("x", each)
			for _, a := range all {
				setAnnotation(a, padding)
			}
		}
		last := all[len(all)-1]
		padding := (*last)[AnnotationPadding]
		for _, overhead := range []int{entry, 0} {
			if missing := bytes - proto.Size(m) - overhead; missing > 0 {
				padding += strings.Repeat("x", missing)
				setAnnotation(last, padding)
			}
		}
	}
}

func setAnnotation(to *map[string]string, padding string) {
	if *to == nil {
		*to = map[string]string{}
	}
	(*to)[AnnotationPadding] = padding
}

// annotations returns where annotations can be in a message.
func annotations(m proto.Message) (all []*map[string]string) {
	switch m := m.(type) {
	case *runtimeapi.ListPodSandboxResponse:
		for _, s := range m.Items {
			all = append(all, &s.Annotations)
		}
	case *runtimeapi.StreamPodSandboxesResponse:
		for _, s := range m.PodSandboxes {
			all = append(all, &s.Annotations)
		}
	case *runtimeapi.ListContainersResponse:
		for _, c := range m.Containers {
			all = append(all, &c.Annotations)
		}
	case *runtimeapi.StreamContainersResponse:
		for _, c := range m.Containers {
			all = append(all, &c.Annotations)
		}
	default:
		sandbox, containers := statuses(m)
		if sandbox != nil {
			all = append(all, &sandbox.Annotations)
		}
		for _, c := range containers {
			all = append(all, &c.Annotations)
		}
	}
	return all
}

// statuses returns the statuses in an event or in the answer to a status call.
func statuses(m proto.Message) (*runtimeapi.PodSandboxStatus, []*runtimeapi.ContainerStatus) {
	switch m := m.(type) {
	case *runtimeapi.ContainerEventResponse:
		return m.PodSandboxStatus, m.ContainersStatuses
	case *runtimeapi.PodSandboxStatusResponse:
		return m.Status, m.ContainersStatuses
	case *runtimeapi.ContainerStatusResponse:
		if m.Status != nil {
			return nil, []*runtimeapi.ContainerStatus{m.Status}
		}
	}
	return nil, nil
}

// ContainerSays makes lists, statuses and events tell another state of a
// container. Nothing else about it changes.
func ContainerSays(id string, state runtimeapi.ContainerState) func(proto.Message) {
	return func(m proto.Message) {
		var listed []*runtimeapi.Container
		switch m := m.(type) {
		case *runtimeapi.ListContainersResponse:
			listed = m.Containers
		case *runtimeapi.StreamContainersResponse:
			listed = m.Containers
		}
		for _, c := range listed {
			if c.Id == id {
				c.State = state
			}
		}
		_, containers := statuses(m)
		for _, c := range containers {
			if c.Id == id {
				c.State = state
			}
		}
	}
}

// SandboxSays makes lists, statuses and events tell another state of a sandbox.
// Nothing else about it changes.
func SandboxSays(id string, state runtimeapi.PodSandboxState) func(proto.Message) {
	return func(m proto.Message) {
		var listed []*runtimeapi.PodSandbox
		switch m := m.(type) {
		case *runtimeapi.ListPodSandboxResponse:
			listed = m.Items
		case *runtimeapi.StreamPodSandboxesResponse:
			listed = m.PodSandboxes
		}
		for _, s := range listed {
			if s.Id == id {
				s.State = state
			}
		}
		if sandbox, _ := statuses(m); sandbox.GetId() == id {
			sandbox.State = state
		}
	}
}

// NoSandboxStatus empties the sandbox status of an event, as containerd does
// when it can't find the sandbox (kubernetes#114371, containerd#8047): no pod
// is named then.
func NoSandboxStatus(m proto.Message) {
	if ev, ok := m.(*Event); ok {
		ev.PodSandboxStatus = nil
	}
}

// NoContainerStatuses empties the container list of an event, as containerd
// does when it can't collect it.
func NoContainerStatuses(m proto.Message) {
	if ev, ok := m.(*Event); ok {
		ev.ContainersStatuses = nil
	}
}

// Seconds turns a message's own time from nanoseconds into seconds: created_at
// of an event, timestamp of a sandbox's status (cri-o#8582, kubernetes#126414).
func Seconds(m proto.Message) {
	switch m := m.(type) {
	case *Event:
		m.CreatedAt /= int64(time.Second)
	case *runtimeapi.PodSandboxStatusResponse:
		m.Timestamp /= int64(time.Second)
	}
}

// StatusSeconds turns the times inside of the statuses of a message into
// seconds: created, started and finished.
func StatusSeconds(m proto.Message) {
	sandbox, containers := statuses(m)
	if sandbox != nil {
		sandbox.CreatedAt /= int64(time.Second)
	}
	for _, c := range containers {
		for _, at := range []*int64{&c.CreatedAt, &c.StartedAt, &c.FinishedAt} {
			*at /= int64(time.Second)
		}
	}
}

package criserver

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/note"
	"github.com/plegd/plegd/store"
)

// shelf holds what the cache doesn't: the runtime's list items, and the last
// statuses of sandboxes that have stopped. In an item all but the state is the
// same for the whole life of what it is about. So each is read once, when its
// sandbox or container is new, by one list for all that are new at that moment.
type shelf struct {
	news chan struct{} // capacity 1: there is something to learn

	mu         sync.Mutex
	lesson     *lesson // that goes on; nil if none does
	sandboxes  map[string]*runtimeapi.PodSandbox
	containers map[string]*runtimeapi.Container
	stopped    map[string]*runtimeapi.PodSandboxStatus
	vain       map[string]time.Time // when an item was last looked for in vain
}

func newShelf() *shelf {
	return &shelf{
		news: make(chan struct{}, 1), sandboxes: map[string]*runtimeapi.PodSandbox{},
		containers: map[string]*runtimeapi.Container{}, stopped: map[string]*runtimeapi.PodSandboxStatus{},
		vain: map[string]time.Time{},
	}
}

// sandbox returns the list item of a sandbox with its present state, nil if it
// was not learnt yet. Items are shared.
func (h *shelf) sandbox(e *pleg.Entity) *runtimeapi.PodSandbox {
	h.mu.Lock()
	defer h.mu.Unlock()
	item := h.sandboxes[e.ID]
	if state := runtimeapi.PodSandboxState(e.Reported); item != nil && item.State != state {
		item = proto.CloneOf(item)
		item.State = state
		h.sandboxes[e.ID] = item
	}
	return item
}

// container returns the list item of a container, as sandbox does.
func (h *shelf) container(e *pleg.Entity) *runtimeapi.Container {
	h.mu.Lock()
	defer h.mu.Unlock()
	item := h.containers[e.ID]
	if state := runtimeapi.ContainerState(e.Reported); item != nil && item.State != state {
		item = proto.CloneOf(item)
		item.State = state
		h.containers[e.ID] = item
	}
	return item
}

// last returns the last status of a stopped sandbox, nil if it is not known.
func (h *shelf) last(id string) *runtimeapi.PodSandboxStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stopped[id]
}

// keepLast keeps a status that stays as it is.
func (h *shelf) keepLast(st *runtimeapi.PodSandboxStatus) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopped[st.GetId()] = st
}

// lacking drops what is of nothing that there is, and returns the sandboxes and
// containers whose items are to be learnt. What the runtime may not have any
// more is none of them.
func (h *shelf) lacking(known []pleg.Entity) (sandboxes, containers []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	there := make(map[string]bool, len(known))
	for _, e := range known {
		there[e.ID] = true
		switch {
		case e.Restored:
		case e.Kind == store.KindSandbox && h.sandboxes[e.ID] == nil:
			sandboxes = append(sandboxes, e.ID)
		case e.Kind == store.KindContainer && h.containers[e.ID] == nil:
			containers = append(containers, e.ID)
		}
	}
	deleteAbsent(h.sandboxes, there)
	deleteAbsent(h.containers, there)
	deleteAbsent(h.stopped, there)
	deleteAbsent(h.vain, there)
	return sandboxes, containers
}

func deleteAbsent[V any](m map[string]V, there map[string]bool) {
	for id := range m {
		if !there[id] {
			delete(m, id)
		}
	}
}

// put keeps items. What there is already stays, with the state that it has.
func put[V any](h *shelf, m map[string]V, items []V, id func(V) string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, item := range items {
		if _, ok := m[id(item)]; !ok {
			m[id(item)] = item
		}
	}
}

// inVain notes which of these items were looked for and are still lacking.
func (h *shelf) inVain(ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if h.sandboxes[id] == nil && h.containers[id] == nil {
			h.vain[id] = time.Now()
		} else {
			delete(h.vain, id)
		}
	}
}

// wait waits for so long, without end for 0, or for news. It reports false when
// ctx has ended.
func wait(ctx context.Context, d time.Duration, news <-chan struct{}) bool {
	var after <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-after:
	case <-news:
	}
	return true
}

// tell says that there may be something to learn.
func (h *shelf) tell() { note.Leave(h.news) }

package replay

import (
	"maps"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/recording"
)

// The methods that are answered, but for the streaming forms of the lists.
const (
	methodVersion         = "Version"
	methodSandboxes       = "ListPodSandbox"
	methodContainers      = "ListContainers"
	methodSandboxStatus   = "PodSandboxStatus"
	methodContainerStatus = "ContainerStatus"
)

// staleWait is how long a status that is known to be out of date is waited for, ns: the
// recorded generator asks for what has changed as well, and takes its time for it, which
// passes here only where something waits.
const staleWait = int64(100 * time.Millisecond)

// facts are what the recorded calls have told up to now.
type facts struct {
	model
	version proto.Message // nil before the first answer
	known   map[string]bool
	failing map[key]failure
	took    map[string]int64 // how long the last good answer of a method took
	open    map[key]int      // recorded calls under way
}

// key names what a call is about: one of a kind fails while others don't.
type key struct{ method, about string }

// failure is an answer that was an error.
type failure struct {
	code codes.Code
	text string
	took int64
}

func (f failure) err() error { return status.Error(f.code, f.text) }

func newFacts() facts {
	return facts{model: newModel(), known: map[string]bool{}, failing: map[key]failure{}, took: map[string]int64{}, open: map[key]int{}}
}

// failsBy is the key of what fails together: a list whatever its filter.
func failsBy(method, about string) key {
	if method == methodSandboxStatus || method == methodContainerStatus {
		return key{method, about}
	}
	return key{method, ""}
}

// asked takes that a recorded call went out.
func (f *facts) asked(e *recording.Entry) { f.open[key{e.Method, e.About}]++ }

// forgetCalls takes that it isn't known any more which are under way.
func (f *facts) forgetCalls() { clear(f.open) }

// connected takes a new connection: who could not be reached is there, and may have
// streaming lists now.
func (f *facts) connected() {
	maps.DeleteFunc(f.failing, func(k key, fail failure) bool {
		return fail.code == codes.Unavailable || recording.Unary(k.method) != k.method
	})
}

// answered takes an answer, or its error. reached says whether there was a connection.
func (f *facts) answered(e *recording.Entry, reached bool) {
	k := key{recording.Unary(e.Method), e.About}
	if f.open[k]--; f.open[k] <= 0 {
		delete(f.open, k)
	}
	w := witness{e.Sent, e.At}
	switch e.Code {
	case codes.OK:
		if f.answer(e, w) {
			f.known[e.Method] = true
			f.took[e.Method] = e.At - e.Sent
			delete(f.failing, failsBy(e.Method, e.About))
		}
		return
	case codes.Canceled: // the recorded generator did not want it any more
		return
	case codes.NotFound:
		switch e.Method {
		case methodSandboxStatus:
			f.sandboxGone(e.About, e.At)
			return
		case methodContainerStatus:
			f.containerGone(e.About, e.At)
			return
		}
	case codes.Unavailable:
		if !reached {
			return
		}
	}
	f.failing[failsBy(e.Method, e.About)] = failure{e.Code, e.Message, e.At - e.Sent}
}

// answer takes a good answer. It reports false for one that can't be read.
func (f *facts) answer(e *recording.Entry, w witness) bool {
	m := recording.NewMessage(e.Method)
	if m == nil || e.Get(m) != nil {
		return false
	}
	pod, ofPod := recording.PodOf(e.About)
	switch m := m.(type) {
	case *runtimeapi.VersionResponse:
		f.version = m
	case *runtimeapi.ListPodSandboxResponse:
		f.sandboxesAre(m.GetItems(), func(s *sandbox) bool {
			return e.About == "" || ofPod && s.listed().GetLabels()[cri.LabelPodUID] == pod || !ofPod && s.listed().GetId() == e.About
		}, w)
	case *runtimeapi.ListContainersResponse:
		f.containersAre(m.GetContainers(), func(c *container) bool {
			return e.About == "" || ofPod && c.listed().GetLabels()[cri.LabelPodUID] == pod || !ofPod && c.sandbox == e.About
		}, w)
	case *runtimeapi.PodSandboxStatusResponse:
		f.sandboxIs(m.GetStatus().GetId(), m.GetStatus().GetState(), nil, m, w)
	case *runtimeapi.ContainerStatusResponse:
		f.containerIs(m.GetStatus().GetId(), "", m.GetStatus().GetState(), nil, m, w)
	}
	return true
}

// event takes an event; one that could not be read says nothing.
func (f *facts) event(e *recording.Entry) {
	var ev runtimeapi.ContainerEventResponse
	if e.Code == codes.OK && e.Get(&ev) == nil {
		f.model.event(&ev, e.At)
	}
}

// fails returns the error that a call has now.
func (f *facts) fails(c *call) (failure, bool) {
	if fail, ok := f.failing[key{c.streamed, ""}]; ok && c.streamed != "" {
		return fail, true
	}
	fail, ok := f.failing[failsBy(c.method, c.about)]
	return fail, ok
}

// when returns when a call is to be answered, by what is known now: never while that is
// waited for. A call is at its end at its limit, whatever is known.
func (f *facts) when(c *call, now int64) int64 {
	took := f.took[c.method]
	fail, fails := f.fails(c)
	at := c.at + took
	switch {
	case fails:
		at = c.at + fail.took
	case !f.answerable(c):
		at = never
	case f.stale(c):
		at = c.at + max(took, staleWait)
	}
	if at <= now && f.open[key{c.method, c.about}] > 0 { // its answer is the one
		at = never
	}
	return min(at, c.limit)
}

// answerable reports whether there is anything to answer a call with.
func (f *facts) answerable(c *call) bool {
	switch c.method {
	case methodSandboxStatus:
		return f.sandboxes[c.about] != nil || f.known[methodSandboxes]
	case methodContainerStatus:
		return f.containers[c.about] != nil || f.known[methodContainers]
	}
	return f.known[c.method]
}

// stale reports whether a call is for a status that is out of date.
func (f *facts) stale(c *call) bool {
	switch s, t := f.sandboxes[c.about], f.containers[c.about]; {
	case c.method == methodSandboxStatus && s != nil:
		return s.stale()
	case c.method == methodContainerStatus && t != nil:
		return t.stale()
	}
	return false
}

// reply answers a call by what is known now.
func (f *facts) reply(c *call, now int64) (proto.Message, error) {
	if fail, ok := f.fails(c); ok {
		return nil, fail.err()
	}
	if now >= c.limit {
		return nil, status.Error(codes.DeadlineExceeded, "nothing was recorded that answers it in time")
	}
	switch req := c.request.(type) {
	case *runtimeapi.VersionRequest:
		return f.version, nil
	case *runtimeapi.ListPodSandboxRequest:
		return &runtimeapi.ListPodSandboxResponse{Items: f.listSandboxes(req.GetFilter())}, nil
	case *runtimeapi.ListContainersRequest:
		return &runtimeapi.ListContainersResponse{Containers: f.listContainers(req.GetFilter())}, nil
	case *runtimeapi.PodSandboxStatusRequest:
		if s := f.sandboxes[req.GetPodSandboxId()]; s != nil {
			return s.answer(), nil
		}
	case *runtimeapi.ContainerStatusRequest:
		if t := f.containers[req.GetContainerId()]; t != nil {
			return t.answer(), nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "%s %q: the recording knows none", c.method, c.about)
}

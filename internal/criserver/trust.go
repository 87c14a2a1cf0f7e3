package criserver

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/store"
)

// A doubt is why the cache can't be relied on, in words for a client; "" is
// none.
type doubt string

// unavailable is the answer where there is a doubt and the runtime is not asked.
func unavailable(why string) error { return status.Error(codes.Unavailable, "plegd: "+why) }

// err is the answer to a client, where the runtime is not to be asked.
func (d doubt) err() error { return unavailable("the cache can't be relied on: " + string(d)) }

// source returns the cache, and what speaks against all of it.
func (s *Server) source() (Source, doubt) {
	src, _, err := s.cfg.Source()
	if err != nil {
		return nil, doubt("no runtime is known yet: " + err.Error())
	}
	h := src.Health()
	if h.Ready && h.Listed {
		return src, ""
	}
	var why []string
	for _, c := range h.Checks {
		if !c.Ready {
			why = append(why, c.Reason)
		}
	}
	if len(why) == 0 {
		why = append(why, "nothing was listed in this run yet")
	}
	return src, doubt(strings.Join(why, "; "))
}

// cache returns the cache for reading it, and what speaks against all of it.
// While neither relists work nor the event stream, nothing new comes in. That is
// no reason to call the agent not ready at once, nor to end event streams; but
// the runtime's own socket would not answer as if nothing had happened.
func (s *Server) cache() (Source, doubt) {
	src, d := s.source()
	if d != "" {
		return nil, d
	}
	var relist, stream *pleg.Condition
	h := src.Health()
	for i, c := range h.Conditions {
		switch c.Name {
		case pleg.ConditionRelistFailing:
			relist = &h.Conditions[i]
		case pleg.ConditionStreamDown:
			stream = &h.Conditions[i]
		}
	}
	switch {
	case relist == nil:
		return src, ""
	case stream != nil:
		return src, doubt("nothing new comes in: " + relist.Reason + "; event stream " + stream.Reason)
	case s.cfg.NoStream:
		return src, doubt("nothing new comes in: " + relist.Reason)
	}
	return src, ""
}

// doubtListed says what speaks against an entity's being in a list, with the
// state that it has in the cache.
func doubtListed(e *pleg.Entity) doubt {
	switch {
	case e.Restored:
		return doubt(e.Kind.String() + " " + e.ID + " is known from an earlier run and was not seen in this one")
	case e.Disputed():
		return doubt("whether the state of " + e.Kind.String() + " " + e.ID + " is right is being asked (" + strings.Join(e.Asked.Names(), ", ") + ")")
	case e.Reported == store.ReportedNone:
		return doubt("the state of " + e.Kind.String() + " " + e.ID + " was not read yet")
	default:
		return ""
	}
}

// doubtStatus says what speaks against an entity's status. Whatever plegd is
// asking about it itself is not settled.
func doubtStatus(e *pleg.Entity) doubt {
	if d := doubtListed(e); d != "" {
		return d
	}
	switch {
	case e.Err != "":
		return doubt(e.Kind.String() + " " + e.ID + " can't be inspected: " + e.Err)
	case e.Asked != 0:
		return doubt(e.Kind.String() + " " + e.ID + " is being inspected (" + strings.Join(e.Asked.Names(), ", ") + ")")
	default:
		return ""
	}
}

// coherent reports whether the status that was kept is of the state that the
// runtime reported last, which a list may have done.
func coherent(e *pleg.Entity) bool { return e.Evidence.Rest.State == e.Evidence.Reported.State }

// sandboxStatus returns a sandbox's status as the runtime said it, or nil if the
// cache doesn't have all of it. What speaks against it is not asked here.
func sandboxStatus(e *pleg.Entity) *runtimeapi.PodSandboxStatus {
	st, whole := cri.RestoreSandbox(e.Record)
	if !whole || !coherent(e) {
		return nil
	}
	st.State = runtimeapi.PodSandboxState(e.Reported)
	return st
}

// containerStatus returns a container's status, as sandboxStatus does. A state
// of UNKNOWN comes with times that the cache doesn't keep.
func containerStatus(e *pleg.Entity) *runtimeapi.ContainerStatus {
	st, whole := cri.RestoreContainer(e.Record)
	if !whole || !coherent(e) {
		return nil
	}
	switch st.State {
	case runtimeapi.ContainerState_CONTAINER_CREATED, runtimeapi.ContainerState_CONTAINER_RUNNING:
		return st
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		if e.Exit.Known() {
			return st
		}
	}
	return nil
}

// settled reports whether the status of a sandbox stays as it is until it is
// removed. A runtime takes the network of a stopped sandbox down after it has
// told of the stop, and doesn't tell of that; so a status that still has an
// address is not the last.
func settled(st *runtimeapi.PodSandboxStatus) bool {
	return st.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY ||
		st.GetNetwork().GetIp() == "" && len(st.GetNetwork().GetAdditionalIps()) == 0
}

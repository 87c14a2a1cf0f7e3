package cri

import (
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/store"
)

// RestoreSandbox puts a sandbox's status together again: what the last status
// said, with the fields that a record keeps beside it. It returns nil if no
// status was ever seen, or it was too large to keep. whole is false where
// something of what was said is not there any more.
func RestoreSandbox(r *store.Record) (s *runtimeapi.PodSandboxStatus, whole bool) {
	s = new(runtimeapi.PodSandboxStatus)
	if r == nil || r.Rest == "" || proto.Unmarshal([]byte(r.Rest), s) != nil {
		return nil, false
	}
	whole = !takeCutMark(s)
	s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	if r.State <= store.StateUp {
		s.State = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	s.CreatedAt = r.CreatedAt
	if s.Network == nil && len(r.IPs) > 0 { // not said, or not kept by an earlier version
		whole = false
		s.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: r.IPs[0]}
		for _, ip := range r.IPs[1:] {
			s.Network.AdditionalIps = append(s.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
		}
	}
	return s, whole
}

// RestoreContainer puts a container's status together again, as RestoreSandbox
// does a sandbox's.
func RestoreContainer(r *store.Record) (c *runtimeapi.ContainerStatus, whole bool) {
	c = new(runtimeapi.ContainerStatus)
	if r == nil || r.Rest == "" || proto.Unmarshal([]byte(r.Rest), c) != nil {
		return nil, false
	}
	whole = !takeCutMark(c)
	c.State = runtimeapi.ContainerState(r.Reported)
	c.CreatedAt, c.StartedAt = r.CreatedAt, r.StartedAt
	if r.Exit.Known() {
		c.FinishedAt, c.ExitCode, c.Reason, c.Message = r.Exit.FinishedAt, r.Exit.Code, r.Exit.Reason, r.Exit.Message
		// Text that was cut is at most a rune shorter than the limit.
		whole = whole && len(c.Reason) <= maxReason-utf8.UTFMax && len(c.Message) <= maxExitText-utf8.UTFMax
	}
	return c, whole
}

// StateName returns a CRI state in the field's own words: created, running,
// exited, or ready, notready; unknown for UNKNOWN and for what was never
// reported; a number outside the enum as it is.
func StateName(k store.Kind, state int32) string {
	switch {
	case state == store.ReportedNone:
		return "unknown"
	case k == store.KindSandbox && state == int32(runtimeapi.PodSandboxState_SANDBOX_READY):
		return store.StateUp.Name(k)
	case k == store.KindSandbox && state == int32(runtimeapi.PodSandboxState_SANDBOX_NOTREADY):
		return store.StateDown.Name(k)
	case k == store.KindContainer && state == int32(runtimeapi.ContainerState_CONTAINER_CREATED):
		return store.StateCreated.Name(k)
	case k == store.KindContainer && state == int32(runtimeapi.ContainerState_CONTAINER_RUNNING):
		return store.StateUp.Name(k)
	case k == store.KindContainer && state == int32(runtimeapi.ContainerState_CONTAINER_EXITED):
		return store.StateDown.Name(k)
	case k == store.KindContainer && state == int32(runtimeapi.ContainerState_CONTAINER_UNKNOWN):
		return "unknown"
	default:
		return strconv.Itoa(int(state))
	}
}

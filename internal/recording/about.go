package recording

import (
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/cri"
)

// About says what a request is about: an id, or what a list is limited to.
func About(m any) string {
	switch m := m.(type) {
	case interface{ GetPodSandboxId() string }:
		return m.GetPodSandboxId()
	case interface{ GetContainerId() string }:
		return m.GetContainerId()
	case interface {
		GetFilter() *runtimeapi.PodSandboxFilter
	}:
		return limited(m.GetFilter().GetId(), m.GetFilter().GetLabelSelector())
	case interface {
		GetFilter() *runtimeapi.ContainerFilter
	}:
		return limited(m.GetFilter().GetPodSandboxId(), m.GetFilter().GetLabelSelector())
	}
	return ""
}

// ofPod begins what a list is about that is limited to a pod.
const ofPod = "pod:"

// PodOf returns the UID of the pod that a list is limited to by what it is about.
func PodOf(about string) (uid string, ok bool) { return strings.CutPrefix(about, ofPod) }

func limited(id string, labels map[string]string) string {
	if uid := labels[cri.LabelPodUID]; uid != "" {
		return ofPod + uid
	}
	return id
}

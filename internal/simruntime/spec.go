package simruntime

import (
	"maps"
	"strconv"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The labels by which a kubelet marks what it makes.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"

	annotationRestarts = "io.kubernetes.container.restartCount"
)

// AnnotationFailStart on a container created over gRPC makes its start fail
// with the annotation's value as message. It is what ContainerSpec.FailStart is
// for callers in the same process.
const AnnotationFailStart = "simruntime/fail-start"

// AnnotationExitAtOnce on a container created over gRPC makes it exit with the
// annotation's value as its code as soon as it is started. It is what
// ContainerSpec.ExitAtOnce is for callers in the same process.
const AnnotationExitAtOnce = "simruntime/exit-at-once"

// DefaultImage is the image of a container whose spec names none.
const DefaultImage = "registry.example/app:1"

// PodSpec describes a sandbox to run. UID, Namespace and Name are taken as they
// are, empty ones too.
type PodSpec struct {
	Namespace, Name, UID string
	Attempt              uint32
	Labels, Annotations  map[string]string // beside the kubelet's own
	BareLabels           bool              // leaves the kubelet's own labels out, as people with crictl do
	HostNetwork          bool              // no IP of its own: the runtime then reports none
	RuntimeHandler       string
}

// Config returns what a kubelet would pass to RunPodSandbox for this pod.
func (s PodSpec) Config() *runtimeapi.PodSandboxConfig {
	labels := map[string]string{}
	if !s.BareLabels {
		labels[LabelPodName] = s.Name
		labels[LabelPodNamespace] = s.Namespace
		labels[LabelPodUID] = s.UID
	}
	maps.Copy(labels, s.Labels)
	network, hostname := runtimeapi.NamespaceMode_POD, s.Name
	if s.HostNetwork {
		network, hostname = runtimeapi.NamespaceMode_NODE, ""
	}
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: s.Name, Uid: s.UID, Namespace: s.Namespace, Attempt: s.Attempt},
		Hostname:     hostname,
		LogDirectory: "/var/log/pods/" + s.Namespace + "_" + s.Name + "_" + s.UID,
		Labels:       labels,
		Annotations:  maps.Clone(s.Annotations),
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: network, Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
}

// ContainerSpec describes a container to create.
type ContainerSpec struct {
	Name                string
	Attempt             uint32
	Image               string            // default DefaultImage
	Labels, Annotations map[string]string // beside the kubelet's own
	BareLabels          bool              // leaves the kubelet's own labels out

	// FailStart makes StartContainer fail with this message: the container
	// goes from created to exited with code 128 and no event tells of it. With
	// Profile.ForgetsFailedStarts it can't even be created.
	FailStart string

	// ExitAtOnce, if not nil, is the code with which the container exits as
	// soon as it is started, faster than the runtime tells of the start.
	ExitAtOnce *int32

	// StopCode is the exit code when it is stopped with a grace period.
	// Default 143; without grace it is always 137.
	StopCode int32
}

// Config returns what a kubelet would pass to CreateContainer for this
// container in a pod.
func (s ContainerSpec) Config(pod *runtimeapi.PodSandboxMetadata) *runtimeapi.ContainerConfig {
	labels := map[string]string{}
	annotations := map[string]string{}
	if !s.BareLabels {
		labels[LabelContainerName] = s.Name
		labels[LabelPodName] = pod.GetName()
		labels[LabelPodNamespace] = pod.GetNamespace()
		labels[LabelPodUID] = pod.GetUid()
		annotations[annotationRestarts] = uitoa(s.Attempt)
	}
	if s.FailStart != "" {
		annotations[AnnotationFailStart] = s.FailStart
	}
	if s.ExitAtOnce != nil {
		annotations[AnnotationExitAtOnce] = strconv.Itoa(int(*s.ExitAtOnce))
	}
	maps.Copy(labels, s.Labels)
	maps.Copy(annotations, s.Annotations)
	image := s.Image
	if image == "" {
		image = DefaultImage
	}
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: s.Name, Attempt: s.Attempt},
		Image:       &runtimeapi.ImageSpec{Image: image},
		Labels:      labels,
		Annotations: annotations,
		LogPath:     s.Name + "/" + uitoa(s.Attempt) + ".log",
	}
}

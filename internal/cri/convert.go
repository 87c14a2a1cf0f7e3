package cri

import (
	"bytes"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/store"
)

// The labels by which the kubelet says whose a container is. CRI containers
// name their sandbox in lists only, and their pod nowhere else.
const (
	LabelPodUID       = "io.kubernetes.pod.uid"
	LabelPodName      = "io.kubernetes.pod.name"
	LabelPodNamespace = "io.kubernetes.pod.namespace"
)

// Sandboxes converts a list. dropped counts the items without a usable id.
func Sandboxes(list []*runtimeapi.PodSandbox) (items []arbiter.Item, dropped int) {
	items = make([]arbiter.Item, 0, len(list))
	for _, s := range list {
		id, ok := validID(s.GetId())
		if !ok {
			dropped++
			continue
		}
		items = append(items, arbiter.Item{
			Kind:      store.KindSandbox,
			ID:        id,
			Sandbox:   id,
			Identity:  sandboxIdentity(s.GetMetadata(), s.GetLabels()),
			State:     int32(s.GetState()),
			CreatedAt: moment(s.GetCreatedAt()),
		})
	}
	return items, dropped
}

// Containers converts a list. dropped counts the items without a usable id.
func Containers(list []*runtimeapi.Container) (items []arbiter.Item, dropped int) {
	items = make([]arbiter.Item, 0, len(list))
	for _, c := range list {
		id, ok := validID(c.GetId())
		if !ok {
			dropped++
			continue
		}
		sandbox, ok := validID(c.GetPodSandboxId())
		if !ok {
			sandbox = ""
		}
		items = append(items, arbiter.Item{
			Kind:      store.KindContainer,
			ID:        id,
			Sandbox:   sandbox,
			Identity:  containerIdentity(c.GetMetadata(), c.GetLabels(), c.GetImage()),
			State:     int32(c.GetState()),
			CreatedAt: moment(c.GetCreatedAt()),
		})
	}
	return items, dropped
}

// SandboxStatus converts a status. It returns nil for one without a usable id.
func SandboxStatus(s *runtimeapi.PodSandboxStatus) *arbiter.Item {
	id, ok := validID(s.GetId())
	if !ok {
		return nil
	}
	return &arbiter.Item{
		Kind:        store.KindSandbox,
		ID:          id,
		Sandbox:     id,
		Identity:    sandboxIdentity(s.GetMetadata(), s.GetLabels()),
		State:       int32(s.GetState()),
		Full:        true,
		CreatedAt:   moment(s.GetCreatedAt()),
		IPs:         ips(s.GetNetwork()),
		HostNetwork: s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE,
		Rest:        sandboxRest(s),
	}
}

// ContainerStatus converts a status. It returns nil for one without a usable
// id. A container's status does not say which sandbox it is in.
func ContainerStatus(c *runtimeapi.ContainerStatus) *arbiter.Item {
	id, ok := validID(c.GetId())
	if !ok {
		return nil
	}
	exit := exitOf(c)
	return &arbiter.Item{
		Kind:      store.KindContainer,
		ID:        id,
		Identity:  containerIdentity(c.GetMetadata(), c.GetLabels(), c.GetImage()),
		State:     int32(c.GetState()),
		Full:      true,
		CreatedAt: moment(c.GetCreatedAt()),
		StartedAt: moment(c.GetStartedAt()),
		Exit:      exit,
		Rest:      containerRest(c, exit.Known()),
	}
}

// sandboxIdentity prefers the metadata, which the CRI requires; sandboxes that
// no kubelet made may lack it, or the labels, or both.
func sandboxIdentity(m *runtimeapi.PodSandboxMetadata, l map[string]string) store.Identity {
	pod := podOf(l)
	if uid := text(m.GetUid(), maxName); uid != "" {
		pod.UID = uid
	}
	if ns := text(m.GetNamespace(), maxName); ns != "" {
		pod.Namespace = ns
	}
	if name := text(m.GetName(), maxName); name != "" {
		pod.Name = name
	}
	return store.Identity{Pod: pod, Attempt: m.GetAttempt(), Labels: labels(l)}
}

func containerIdentity(m *runtimeapi.ContainerMetadata, l map[string]string, image *runtimeapi.ImageSpec) store.Identity {
	return store.Identity{
		Pod:     podOf(l),
		Name:    text(m.GetName(), maxName),
		Attempt: m.GetAttempt(),
		Image:   imageOf(image),
	}
}

func podOf(l map[string]string) store.PodRef {
	return store.PodRef{
		UID:       text(l[LabelPodUID], maxName),
		Namespace: text(l[LabelPodNamespace], maxName),
		Name:      text(l[LabelPodName], maxName),
	}
}

// imageOf returns what the user wrote where the runtime has kept it (kubelets
// since 1.28 send it along). The plain field can't be relied on to be the same
// twice: containerd has the image's id in its lists and a tag of it in its
// statuses, CRI-O a digest.
func imageOf(s *runtimeapi.ImageSpec) string {
	if user := s.GetUserSpecifiedImage(); user != "" {
		return text(user, maxImage)
	}
	return text(s.GetImage(), maxImage)
}

// exitOf returns how the container ended. A finish time makes it known, code 0
// included; a finish time of something that still runs does not.
func exitOf(c *runtimeapi.ContainerStatus) store.Exit {
	if c.GetFinishedAt() <= 0 || c.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
		return store.Exit{}
	}
	return store.Exit{
		Code:       c.GetExitCode(),
		FinishedAt: c.GetFinishedAt(),
		Reason:     text(c.GetReason(), maxReason),
		Message:    text(c.GetMessage(), maxExitText),
	}
}

func ips(n *runtimeapi.PodSandboxNetworkStatus) []string {
	var out []string
	add := func(ip string) {
		if ip != "" && len(ip) <= maxIP && len(out) < maxIPs {
			out = append(out, text(ip, maxIP))
		}
	}
	add(n.GetIp())
	for _, ip := range n.GetAdditionalIps() {
		add(ip.GetIp())
	}
	return out
}

// sandboxRest returns what the item has no field for, and the network, since
// the item's addresses are kept when the runtime takes them away.
func sandboxRest(s *runtimeapi.PodSandboxStatus) string {
	rest := proto.CloneOf(s)
	rest.State, rest.CreatedAt = 0, 0
	if proto.Size(rest) > maxRest {
		rest.Annotations = nil
		markCut(rest)
	}
	return encode(rest)
}

// containerRest returns what the item has no field for. Reason and message are
// the exit's where that is known; before that they may say why it waits.
func containerRest(c *runtimeapi.ContainerStatus, exited bool) string {
	rest := proto.CloneOf(c)
	rest.State, rest.CreatedAt, rest.StartedAt, rest.FinishedAt, rest.ExitCode = 0, 0, 0, 0, 0
	if exited {
		rest.Reason, rest.Message = "", ""
	}
	if proto.Size(rest) > maxRest {
		rest.Annotations = nil
		markCut(rest)
	}
	return encode(rest)
}

// cutField is a field that no message of the CRI has. In a rest it says that
// the annotations were left out, which an empty map would not.
const cutField protowire.Number = 1 << 20

func markCut(rest proto.Message) {
	m := rest.ProtoReflect()
	b := protowire.AppendTag(slices.Clone(m.GetUnknown()), cutField, protowire.VarintType)
	m.SetUnknown(protowire.AppendVarint(b, 1))
}

// takeCutMark takes the mark of markCut off and reports whether there was one.
func takeCutMark(rest proto.Message) bool {
	m := rest.ProtoReflect()
	mark := protowire.AppendVarint(protowire.AppendTag(nil, cutField, protowire.VarintType), 1)
	others, found := bytes.CutSuffix(m.GetUnknown(), mark)
	m.SetUnknown(others)
	return found
}

// encode returns the message in a form that is the same each time, or nothing
// where that would be too large. Errors can only come from text that isn't
// UTF-8, which decoding has replaced.
func encode(m proto.Message) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil || len(b) > maxRest {
		return ""
	}
	return string(b)
}

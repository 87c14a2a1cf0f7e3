package recording

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/cri"
)

// Redactor replaces what tells of whose pods they are: names, namespaces, labels,
// annotations, images, runtime handlers and addresses, by words that are the same for the same thing all
// through one recording, and no other. It does so in messages and errors too, of which it
// keeps the words that any runtime has. Ids, UIDs, states, times, exit codes and reasons of one word
// stay. All other text goes: log paths, mounts, what verbose answers hold.
// It is for one goroutine.
type Redactor struct {
	key       []byte
	addresses map[netip.Addr]netip.Addr
	ip4, ip6  netip.Addr // given last
}

// NewRedactor returns a Redactor with a key of its own, which is kept nowhere.
func NewRedactor() *Redactor {
	r := &Redactor{
		key: make([]byte, 32), addresses: map[netip.Addr]netip.Addr{},
		ip4: netip.AddrFrom4([4]byte{198, 18}), ip6: netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8}),
	}
	_, _ = rand.Read(r.key) // never fails
	return r
}

// answers are the messages that a recording has, by their methods.
var answers = map[string]func() proto.Message{
	"Version":          func() proto.Message { return &runtimeapi.VersionResponse{} },
	"Status":           func() proto.Message { return &runtimeapi.StatusResponse{} },
	"ListPodSandbox":   func() proto.Message { return &runtimeapi.ListPodSandboxResponse{} },
	"ListContainers":   func() proto.Message { return &runtimeapi.ListContainersResponse{} },
	"PodSandboxStatus": func() proto.Message { return &runtimeapi.PodSandboxStatusResponse{} },
	"ContainerStatus":  func() proto.Message { return &runtimeapi.ContainerStatusResponse{} },
	MethodEvents:       func() proto.Message { return &runtimeapi.ContainerEventResponse{} },
}

// NewMessage returns an empty message of what a method answers, nil for a method that
// no recording has.
func NewMessage(method string) proto.Message {
	if f := answers[method]; f != nil {
		return f()
	}
	return nil
}

// Redact replaces what is in an entry. An answer that it doesn't know goes.
func (r *Redactor) Redact(e *Entry) error {
	e.Message, e.About = r.text(e.Message), r.id(e.About)
	if e.Body == nil {
		return nil
	}
	m := NewMessage(e.Method)
	if known := m != nil && e.Get(m) == nil; !known { // it may hold anything
		e.Body = nil
		return nil
	}
	r.message(m.ProtoReflect())
	return e.Set(m)
}

// rule is what becomes of a field of text.
type rule uint8

const (
	cleared rule = iota
	kept
	identified // kept if it looks like an id, else replaced by a word
	named      // replaced by a word
	spoken     // a text for people
	addressed  // replaced by an address
	labelled   // a map of labels
)

// rules say what becomes of fields, by the names that the CRI gives them. What is not
// here is cleared: a field that a newer CRI has is not let through.
var rules = map[protoreflect.Name]rule{
	"id": identified, "pod_sandbox_id": identified, "container_id": identified, "uid": identified,
	"reason": spoken, "message": spoken, "runtime_handler": named, "type": kept,
	"version": kept, "runtime_name": kept, "runtime_version": kept, "runtime_api_version": kept,
	"name": named, "namespace": named, "image": named, "image_ref": named, "image_id": named, "user_specified_image": named,
	"ip": addressed, "labels": labelled, "annotations": labelled,
}

// parts are the messages that are gone through. All others are cleared.
var parts = map[protoreflect.Name]bool{
	"PodSandbox": true, "PodSandboxStatus": true, "PodSandboxMetadata": true, "PodSandboxNetworkStatus": true, "PodIP": true,
	"LinuxPodSandboxStatus": true, "Namespace": true, "NamespaceOption": true,
	"Container": true, "ContainerStatus": true, "ContainerMetadata": true, "ImageSpec": true,
	"RuntimeStatus": true, "RuntimeCondition": true,
}

func (r *Redactor) message(m protoreflect.Message) {
	m.SetUnknown(nil)
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		rule := rules[f.Name()]
		switch {
		case f.IsMap() && rule == labelled:
			r.labels(v.Map())
		case f.IsMap():
			m.Clear(f)
		case f.Kind() == protoreflect.MessageKind && !parts[f.Message().Name()]:
			m.Clear(f)
		case f.Kind() == protoreflect.MessageKind && f.IsList():
			for i := range v.List().Len() {
				r.message(v.List().Get(i).Message())
			}
		case f.Kind() == protoreflect.MessageKind:
			r.message(v.Message())
		case f.Kind() == protoreflect.BytesKind || f.Kind() == protoreflect.StringKind && (rule == cleared || f.IsList()):
			m.Clear(f)
		case f.Kind() == protoreflect.StringKind && rule == named:
			m.Set(f, protoreflect.ValueOfString(r.word(v.String())))
		case f.Kind() == protoreflect.StringKind && rule == identified:
			m.Set(f, protoreflect.ValueOfString(r.id(v.String())))
		case f.Kind() == protoreflect.StringKind && rule == spoken:
			m.Set(f, protoreflect.ValueOfString(r.text(v.String())))
		case f.Kind() == protoreflect.StringKind && rule == addressed:
			m.Set(f, protoreflect.ValueOfString(r.address(v.String())))
		}
		return true
	})
}

// labelsKept are those whose values are known from elsewhere, or tell nothing: the
// kubelet's own, by which a pod is found.
var labelsKept = map[string]rule{
	cri.LabelPodUID: identified, "io.kubernetes.container.restartCount": spoken,
	cri.LabelPodName: named, cri.LabelPodNamespace: named, "io.kubernetes.container.name": named,
}

func (r *Redactor) labels(m protoreflect.Map) {
	got := map[string]string{}
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		got[k.String()] = v.String()
		return true
	})
	for k, v := range got {
		m.Clear(protoreflect.ValueOfString(k).MapKey())
		switch labelsKept[k] {
		case identified:
			v = r.id(v)
		case spoken:
			v = r.text(v)
		case named:
			v = r.word(v)
		default:
			k, v = r.word(k), r.word(v)
		}
		m.Set(protoreflect.ValueOfString(k).MapKey(), protoreflect.ValueOfString(v))
	}
}

// sum is what takes the place of s, without a way back.
func (r *Redactor) sum(s string) []byte {
	h := hmac.New(sha256.New, r.key)
	_, _ = h.Write([]byte(s))
	return h.Sum(nil)
}

func (r *Redactor) word(s string) string {
	if s == "" {
		return ""
	}
	return "x" + hex.EncodeToString(r.sum(s)[:6])
}

// id keeps what looks like an id or a UID. One that a person has made up is a name.
func (r *Redactor) id(s string) string {
	if isID(s) {
		return s
	}
	return r.word(s)
}

// address returns an address of those for tests and documentation, RFC 2544 and RFC
// 3849, of the same kind. Text that is no address goes.
func (r *Redactor) address(s string) string {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return ""
	}
	if b, ok := r.addresses[a]; ok {
		return b.String()
	}
	last := &r.ip6
	if a.Unmap().Is4() {
		last = &r.ip4
	}
	*last = last.Next()
	r.addresses[a] = *last
	return last.String()
}

package recording

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/cri"
)

const secret = "secret"

// fill sets each field of a message, and of the messages in it, to something that is
// to be found again.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		value := func(f protoreflect.FieldDescriptor) (protoreflect.Value, bool) {
			switch f.Kind() {
			case protoreflect.StringKind:
				return protoreflect.ValueOfString(secret + "-" + string(f.Name())), true
			case protoreflect.BytesKind:
				return protoreflect.ValueOfBytes([]byte(secret)), true
			case protoreflect.Int64Kind:
				return protoreflect.ValueOfInt64(7), true
			}
			return protoreflect.Value{}, false
		}
		switch {
		case f.IsMap():
			if v, ok := value(f.MapValue()); ok {
				m.Mutable(f).Map().Set(protoreflect.ValueOfString(secret+"-key").MapKey(), v)
			}
		case f.IsList() && f.Message() != nil && depth > 0:
			fill(m.Mutable(f).List().AppendMutable().Message(), depth-1)
		case f.IsList():
			if v, ok := value(f); ok {
				m.Mutable(f).List().Append(v)
			}
		case f.Message() != nil && depth > 0:
			fill(m.Mutable(f).Message(), depth-1)
		case f.Message() == nil:
			if v, ok := value(f); ok {
				m.Set(f, v)
			}
		}
	}
}

// Nothing of any text in any answer is in what is kept, but for states and what is
// known to be harmless.
func TestNothingSecretIsKept(t *testing.T) {
	harmless := map[string]bool{
		"type": true, "version": true, "runtime_name": true, "runtime_version": true, "runtime_api_version": true,
	}
	for method := range answers {
		m := NewMessage(method)
		fill(m.ProtoReflect(), 6)
		e := Entry{Kind: KindAnswer, Method: method, Code: codes.Unknown, Message: secret, About: secret}
		if err := e.Set(m); err != nil {
			t.Fatal(err)
		}
		if err := NewRedactor().Redact(&e); err != nil {
			t.Fatal(err)
		}
		got := NewMessage(method)
		if err := e.Get(got); err != nil {
			t.Fatal(err)
		}
		text := string(e.Body)
		for name := range harmless {
			text = strings.ReplaceAll(text, secret+"-"+name, "")
		}
		if strings.Contains(text, secret) || strings.Contains(e.Message+e.About, secret) {
			t.Errorf("%s: %v, %q", method, got, e.Message)
		}
		if proto.Size(got) == 0 {
			t.Errorf("%s: nothing is left", method)
		}
	}
	// A field that a newer CRI has.
	list := &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{Id: "c"}}}
	list.Containers[0].ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), secret))
	newer := Entry{Kind: KindAnswer, Method: "ListContainers"}
	if err := errors.Join(newer.Set(list), NewRedactor().Redact(&newer)); err != nil || len(newer.Body) == 0 || strings.Contains(string(newer.Body), secret) {
		t.Errorf("a field that isn't known is kept: %q, %v", newer.Body, err)
	}
	e := Entry{Kind: KindAnswer, Method: "ImageFsInfo", Body: []byte(secret)}
	if err := NewRedactor().Redact(&e); err != nil || e.Body != nil {
		t.Errorf("an answer that isn't known is kept: %q, %v", e.Body, err)
	}
	e = Entry{Kind: KindAnswer, Method: "Version", Body: []byte(secret)}
	if err := NewRedactor().Redact(&e); err != nil || e.Body != nil {
		t.Errorf("what can't be read is kept: %q, %v", e.Body, err)
	}
}

// The same thing has the same word everywhere, and another one another.
func TestRedactsConsistently(t *testing.T) {
	const sandbox, uid, container = "5b1d6cf0a1b2c", "c9a6ff5e-3e0c-4f6e-9d62-02c6be4d5a21", "0badbed35cd84"
	r := NewRedactor()
	status := &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: sandbox, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: 7,
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: uid, Attempt: 2},
		Labels:   map[string]string{"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop", cri.LabelPodUID: uid, "app": "web"},
		Network:  &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.5", AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::5"}, {Ip: "10.0.0.5"}}},
	}}
	list := &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{
		Id: container, PodSandboxId: sandbox, Metadata: &runtimeapi.ContainerMetadata{Name: "app", Attempt: 3}, Image: &runtimeapi.ImageSpec{Image: "web"},
		Labels: map[string]string{"io.kubernetes.container.name": "app", "io.kubernetes.pod.name": "web"}, State: runtimeapi.ContainerState_CONTAINER_EXITED,
	}}}
	for method, m := range map[string]proto.Message{"PodSandboxStatus": status, "ListContainers": list} {
		e := Entry{Method: method}
		if err := e.Set(m); err != nil {
			t.Fatal(err)
		}
		if err := r.Redact(&e); err != nil {
			t.Fatal(err)
		}
		proto.Reset(m)
		if err := e.Get(m); err != nil {
			t.Fatal(err)
		}
	}
	s, c := status.Status, list.Containers[0]
	word := s.Metadata.Name
	switch {
	case word == "" || word == "web" || s.Labels["io.kubernetes.pod.name"] != word || c.Labels["io.kubernetes.pod.name"] != word || c.Image.Image != word:
		t.Errorf("the name is %q in %v and %v", word, s, c)
	case s.Metadata.Namespace == word || s.Labels["io.kubernetes.pod.namespace"] != s.Metadata.Namespace:
		t.Errorf("the namespace in %v", s)
	case c.Metadata.Name != c.Labels["io.kubernetes.container.name"] || c.Metadata.Name == word:
		t.Errorf("the container's name in %v", c)
	case s.Metadata.Uid != uid || s.Labels[cri.LabelPodUID] != uid || s.Id != sandbox || c.PodSandboxId != sandbox || c.Id != container || s.Metadata.Attempt != 2 || c.Metadata.Attempt != 3:
		t.Errorf("ids and attempts in %v and %v", s, c)
	case s.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || c.State != runtimeapi.ContainerState_CONTAINER_EXITED || s.CreatedAt != 7:
		t.Errorf("states and times in %v and %v", s, c)
	case s.Network.Ip != "198.18.0.1" || s.Network.AdditionalIps[0].Ip != "2001:db8::1" || s.Network.AdditionalIps[1].Ip != s.Network.Ip:
		t.Errorf("addresses %v", s.Network)
	case len(s.Labels) != 4 || s.Labels["app"] != "":
		t.Errorf("labels %v", s.Labels)
	}
}

// A text keeps what any runtime says, and has the same words as the fields elsewhere.
func TestRedactsTexts(t *testing.T) {
	r := NewRedactor()
	web, shop, image := r.word("web-7f"), r.word("shop_web"), r.word("registry.example/shop/web:1.2")
	if a := r.address("10.1.2.3"); a != "198.18.0.1" {
		t.Fatalf("address %s", a)
	}
	id := strings.Repeat("0123456789abcdef", 4)
	for in, want := range map[string]string{
		"":                          "",
		"context deadline exceeded": "context deadline exceeded",
		"Completed":                 "Completed",
		"rpc error: code = NotFound desc = an error occurred when":         "rpc error: code = NotFound desc = an error " + r.word("occurred") + " when",
		`failed to stop container "web-7f": not found`:                     `failed to stop container "` + web + `": not found`,
		`container "` + id + `" in sandbox "` + id[:13] + `" of shop_web.`: `container "` + id + `" in sandbox "` + id[:13] + `" of ` + shop + `.`,
		"pull of registry.example/shop/web:1.2: denied (code 137)":         "pull of " + image + ": denied (code 137)",
		"dial 10.1.2.3: connection refused":                                "dial 198.18.0.1: connection refused",
		"connection to 10.1.2.3:":                                          "connection to 198.18.0.1:",
		"signal: killed; web-7f, web-7f!":                                  "signal: killed; " + web + ", " + web + "!",
		"exit status 123456":                                               "exit status " + r.word("123456"),
		"failed: müller\x00web-7f":                                         "failed: " + r.word("m") + "?" + r.word("ller") + "?" + web,
		"open /srv/secret: no such file or directory":                      "open " + r.word("/srv/secret") + ": no such file or directory",
		"-- ..": "-- ..",
	} {
		if got := r.text(in); got != want {
			t.Errorf("%q\n got %q\nwant %q", in, got, want)
		}
	}
	other := NewRedactor()
	if other.word("web-7f") == web {
		t.Error("two recordings have the same word for the same name")
	}
}

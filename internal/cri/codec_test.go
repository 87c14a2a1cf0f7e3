package cri

import (
	"bytes"
	"errors"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// bad is text as a runtime built with gogo/protobuf sends it. protobuf-go
// won't encode it, but takes it as a field that it doesn't know.
func bad(m proto.Message, field protowire.Number, raw string) {
	b := protowire.AppendTag(nil, field, protowire.BytesType)
	m.ProtoReflect().SetUnknown(protowire.AppendString(b, raw))
}

// One bad byte in one annotation doesn't blind the agent.
func TestBadTextIsMended(t *testing.T) {
	rt, c, _, container := simulated(t, simruntime.Config{})
	entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "k")
	entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), "a\xff\xfeb")
	simtest.Rule(t, rt, simruntime.Rule{Edit: func(m proto.Message) {
		switch m := m.(type) {
		case *runtimeapi.ListPodSandboxResponse:
		case *runtimeapi.StreamContainersResponse:
			bad(m.GetContainers()[0], 9, string(entry)) // annotations
		case *runtimeapi.ContainerStatusResponse:
			m.GetStatus().Message = ""
			bad(m.GetStatus(), 11, "caf\xe9") // message
		}
	}})
	l, err := c.ListContainers(t.Context(), nil)
	if err != nil || len(l) != 1 || l[0].GetAnnotations()["k"] != "a��b" || l[0].GetId() != container {
		t.Errorf("%v, %v", l, err)
	}
	s, err := c.ContainerStatus(t.Context(), container)
	if err != nil || s.GetMessage() != "caf�" {
		t.Errorf("%v, %v", s, err)
	}
	if item := ContainerStatus(s); item == nil || !utf8.ValidString(item.Rest) && item.Rest == "" {
		t.Errorf("%+v", item)
	}
}

// A message that can't be decoded fails a list, and no more than itself on the
// event stream.
func TestUndecodableMessages(t *testing.T) {
	rt, c, _, container := simulated(t, simruntime.Config{ReplayWindow: -1})
	h, err := rt.AddRule(simruntime.Rule{Method: "StreamContainers", Edit: func(m proto.Message) { bad(m, 1, "\x0a\xff") }})
	if err != nil {
		t.Fatal(err)
	}
	if l, err := c.ListContainers(t.Context(), nil); err == nil || NotFound(err) || l != nil {
		t.Errorf("%v, %v", l, err)
	}
	h.Remove()

	s, err := c.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.WaitSubscribers(short(t, 5e9), 1); err != nil {
		t.Fatal(err)
	}
	garbled := &runtimeapi.ContainerEventResponse{ContainerId: container}
	bad(garbled, 4, "\x0a\xff")
	mended := &runtimeapi.ContainerEventResponse{}
	bad(mended, 1, "x\xff")
	rt.InjectEvent(garbled)
	rt.InjectEvent(mended)
	rt.InjectEvent(&runtimeapi.ContainerEventResponse{ContainerId: container})
	if e, err := s.Recv(); !errors.Is(err, ErrMalformed) || e != nil {
		t.Errorf("%v, %v", e, err)
	}
	if e, err := s.Recv(); err != nil || e.GetContainerId() != "x�" {
		t.Errorf("%v, %v", e, err)
	}
	if e, err := s.Recv(); err != nil || e.GetContainerId() != container {
		t.Errorf("%v, %v", e, err)
	}
}

func TestMendKeepsWhatIsWell(t *testing.T) {
	in := sampleEvent()
	b, err := proto.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	b = protowire.AppendString(protowire.AppendTag(b, 999, protowire.BytesType), "unknown \xff") // not ours to judge
	out, ok := mend(b, in.ProtoReflect().Descriptor())
	if !ok || !bytes.Equal(out, b) {
		t.Errorf("changed a good message: %v", ok)
	}
	for cut := range b {
		if out, ok := mend(b[:cut], in.ProtoReflect().Descriptor()); ok && !bytes.Equal(out, b[:cut]) {
			t.Errorf("changed the first %d bytes", cut)
		}
	}
}

// FuzzDecode feeds arbitrary bytes: whatever decodes can be converted and
// encoded again, and nothing panics.
func FuzzDecode(f *testing.F) {
	if b, err := proto.Marshal(sampleEvent()); err == nil {
		f.Add(b)
		f.Add(append(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "\xff"), b...))
	}
	f.Add([]byte{0x0a, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		var fr frame
		if fr.err = decode(b, &fr.event); fr.err == nil {
			if _, err := proto.Marshal(&fr.event); err != nil {
				t.Errorf("decoded what can't be encoded: %v", err)
			}
			checkEvent(t, &fr.event)
		}
		var list runtimeapi.ListContainersResponse
		if decode(b, &list) == nil {
			items, dropped := Containers(list.GetContainers())
			if len(items)+dropped != len(list.GetContainers()) {
				t.Error("items lost")
			}
		}
		var sandboxes runtimeapi.ListPodSandboxResponse
		if decode(b, &sandboxes) == nil {
			Sandboxes(sandboxes.GetItems())
		}
	})
}

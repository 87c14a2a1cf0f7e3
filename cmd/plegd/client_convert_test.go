package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// fill sets every field of a message.
func fill(m protoreflect.Message) {
	switch msg := m.Interface().(type) {
	case *timestamppb.Timestamp:
		msg.Seconds = 1
		return
	case *durationpb.Duration:
		msg.Seconds = 1
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("k").MapKey(), protoreflect.ValueOfString("v"))
		case f.IsList() && f.Message() != nil:
			list := m.Mutable(f).List()
			fill(list.AppendMutable().Message())
		case f.IsList():
			m.Mutable(f).List().Append(one(f))
		case f.Message() != nil:
			fill(m.Mutable(f).Message())
		default:
			m.Set(f, one(f))
		}
	}
}

// one is a value of a field that isn't a message.
func one(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(1)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(1)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("x"))
	default:
		if f.Name() == "source" {
			return protoreflect.ValueOfString("relist")
		}
		return protoreflect.ValueOfString("9f010203040506ab/1")
	}
}

// unset lists the fields that are zero.
func unset(path string, v reflect.Value) (list []string) {
	switch {
	case v.IsZero():
		return []string{path}
	case v.Kind() == reflect.Pointer:
		return unset(path, v.Elem())
	case v.Kind() == reflect.Slice && v.Len() > 0:
		return unset(path+"[0]", v.Index(0))
	case v.Kind() == reflect.Slice:
		return []string{path}
	case v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[time.Time]():
		return nil
	}
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() {
			list = append(list, unset(path+"."+f.Name, v.Field(i))...)
		}
	}
	return list
}

// Nothing that the API says is left out.
func TestNothingIsLeftOut(t *testing.T) {
	pod, event, status := &plegdv1.Pod{}, &plegdv1.Event{}, &plegdv1.StatusResponse{}
	for _, m := range []protoreflect.Message{pod.ProtoReflect(), event.ProtoReflect(), status.ProtoReflect()} {
		fill(m)
	}
	ev, err := eventOf(event)
	if err != nil {
		t.Fatal(err)
	}
	ev.Running = 1 // which nobody is told
	for name, v := range map[string]any{"pod": podOfAPI(pod), "event": ev, "status": statusOf(status)} {
		if list := unset(name, reflect.ValueOf(v)); list != nil {
			t.Errorf("not set: %q", list)
		}
	}
	if _, err := eventOf(&plegdv1.Event{Position: "x"}); err == nil {
		t.Error("an event without a position is taken")
	}
	// What is absent is absent, and lists are never null.
	if ev, err := eventOf(&plegdv1.Event{Position: "9f010203040506ab/1"}); err != nil || ev.ExitKnown || ev.OccurredAt != 0 || ev.ObservedAt != 0 {
		t.Errorf("%+v, %v", ev, err)
	}
	p := podOfAPI(&plegdv1.Pod{Containers: []*plegdv1.Container{{}}})
	if p.Sandboxes == nil || p.IPs == nil || p.Labels == nil || p.Containers[0].ExitCode != nil || !p.Containers[0].StartedAt.IsZero() {
		t.Errorf("%+v", p)
	}
}

// Unknown is never shown as empty.
func TestPodsUnknown(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	for _, method := range []string{"ListPodSandbox", "StreamPodSandboxes"} {
		if _, err := rt.AddRule(simruntime.Rule{Method: method, Code: codes.Internal, Message: noList}); err != nil {
			t.Fatal(err)
		}
	}
	c := start(t, dir.args(endpoint, "--output", "none")...)
	eventually(t, "it says why", func() bool {
		code, out, stderr := dir.ask("pods")
		return code == exitUnavailable && out == "" && containsAll(stderr, "pods are not known yet", noList)
	})
	if got := dir.mustAsk(t, "top"); !containsAll(got, "not ready", "\npods     plegd at "+dir.socket()+": ", "not known yet") {
		t.Errorf("%s", got)
	}
	c.terminate()
}

// containsAll reports whether all parts are in a text.
func containsAll(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

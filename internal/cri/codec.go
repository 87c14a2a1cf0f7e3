package cri

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// codec is gRPC's protobuf codec, but for two things that a client which must
// not go blind needs: text that isn't UTF-8 is mended, and an event that can't
// be decoded does not end its stream.
type codec struct{}

// frame is one message of the event stream, or why it could not be decoded.
type frame struct {
	event runtimeapi.ContainerEventResponse
	err   error
}

// Name implements [encoding.CodecV2].
func (codec) Name() string { return grpcproto.Name }

// Marshal implements [encoding.CodecV2].
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	return encoding.GetCodecV2(grpcproto.Name).Marshal(v)
}

// Unmarshal implements [encoding.CodecV2].
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	switch m := v.(type) {
	case *frame:
		m.err = decode(buf.ReadOnlyData(), &m.event)
		return nil
	case proto.Message:
		return decode(buf.ReadOnlyData(), m)
	default:
		return fmt.Errorf("CRI message of type %T: not a protobuf message", v)
	}
}

// decode reads a message, with bad text replaced if there is some.
func decode(b []byte, m proto.Message) error {
	err := proto.Unmarshal(b, m)
	if err == nil {
		return nil
	}
	mended, ok := mend(b, m.ProtoReflect().Descriptor())
	if !ok {
		return err
	}
	return proto.Unmarshal(mended, m)
}

// mend returns the encoded message with every byte that isn't UTF-8 in its
// text replaced by U+FFFD. ok is false when it is no well-formed message. The
// CRI's messages are not recursive, so depth is bounded by their descriptor.
func mend(b []byte, md protoreflect.MessageDescriptor) (out []byte, ok bool) {
	out = make([]byte, 0, len(b)+len(b)/8)
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeField(b)
		if n < 0 {
			return nil, false
		}
		raw := b[:n]
		b = b[n:]
		fd := md.Fields().ByNumber(num)
		if typ != protowire.BytesType || fd == nil {
			out = append(out, raw...)
			continue
		}
		_, _, tag := protowire.ConsumeTag(raw)
		payload, _ := protowire.ConsumeBytes(raw[tag:])
		switch fd.Kind() {
		case protoreflect.StringKind:
			payload = validText(payload)
		case protoreflect.MessageKind: // map entries too
			if payload, ok = mend(payload, fd.Message()); !ok {
				return nil, false
			}
		default:
		}
		out = append(out, raw[:tag]...)
		out = protowire.AppendBytes(out, payload)
	}
	return out, true
}

// validText replaces what isn't UTF-8.
func validText(b []byte) []byte {
	if utf8.Valid(b) {
		return b
	}
	return []byte(string([]rune(string(b)))) // conversion to runes replaces byte by byte
}

// EventOf returns the event in what a stats handler of the client is given as a
// payload, nil if it is something else or could not be decoded.
func EventOf(payload any) *runtimeapi.ContainerEventResponse {
	if f, ok := payload.(*frame); ok && f.err == nil {
		return &f.event
	}
	return nil
}

// EventError returns why what a stats handler of the client is given as a payload is
// an event that could not be decoded, nil if it is none.
func EventError(payload any) error {
	if f, ok := payload.(*frame); ok {
		return f.err
	}
	return nil
}

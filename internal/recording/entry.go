package recording

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// Header says what was recorded, and how.
type Header struct {
	StartedAt int64  `cbor:"1,keyasint"`           // wall clock, Unix ns; entries count from here
	Agent     string `cbor:"2,keyasint"`           // version of plegd that recorded
	Period    int64  `cbor:"3,keyasint"`           // between the lists, ns
	Redacted  bool   `cbor:"4,keyasint,omitempty"` // names, labels, images and addresses were replaced
	Mode      string `cbor:"5,keyasint"`           // of the generator that asked
	Timeout   int64  `cbor:"6,keyasint"`           // of its calls, ns
}

// Kind is what an Entry is.
type Kind uint8

// The kinds. Their numbers are stored.
const (
	KindAnswer       Kind = 1 // of a call, or its error
	KindOpened       Kind = 2 // the event stream was asked for
	KindEvent        Kind = 3 // a message of it
	KindClosed       Kind = 4 // it ended, with an error if Code isn't OK
	KindConnected    Kind = 5 // a connection was made: the runtime may be another one
	KindDisconnected Kind = 6 // it was lost
	KindAsked        Kind = 7 // a call went out
)

// End says why nothing more was recorded.
type End struct {
	At     int64  `cbor:"1,keyasint"`           // as Entry.At
	Reason string `cbor:"2,keyasint,omitempty"` // "" if it was to end then
	Left   int64  `cbor:"3,keyasint,omitempty"` // so many entries were left out since the file was full
}

// Entry is one thing that the runtime said.
type Entry struct {
	Kind Kind  `cbor:"1,keyasint"`
	At   int64 `cbor:"2,keyasint"`           // monotonic ns since the start, when all of it had come
	Sent int64 `cbor:"3,keyasint,omitempty"` // of an answer: when it was asked for
	// Wall is how far the wall clock was from StartedAt + At, ns: not 0 after a step.
	Wall    int64      `cbor:"4,keyasint,omitempty"`
	Method  string     `cbor:"5,keyasint,omitempty"` // such as ListContainers
	About   string     `cbor:"6,keyasint,omitempty"` // the id or filter that was asked about; "" for all
	Code    codes.Code `cbor:"7,keyasint,omitempty"`
	Message string     `cbor:"8,keyasint,omitempty"` // of an error
	Body    []byte     `cbor:"9,keyasint,omitempty"` // the answer or message, protobuf
	// Lost is how many entries before this one are missing: the disk was too slow.
	Lost int64 `cbor:"10,keyasint,omitempty"`
}

// Set puts a message into the entry.
func (e *Entry) Set(m proto.Message) error {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("%s: %w", e.Method, err)
	}
	e.Body = body
	return nil
}

// Get reads the message into m.
func (e *Entry) Get(m proto.Message) error {
	if err := proto.Unmarshal(e.Body, m); err != nil {
		return fmt.Errorf("%s at %d ns: %w", e.Method, e.At, err)
	}
	return nil
}

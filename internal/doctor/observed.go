package doctor

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Observed is all that was gathered, for [Judge]. Times are of this process's
// wall clock.
type Observed struct {
	Endpoint         string
	Began            time.Time
	SocketErr        error // why the socket can't be used, nil if it can
	Socket           SocketState
	Runtime, Version string
	VersionErr       error
	Others           []Other // connections of others; nil with OthersErr
	OthersErr        error

	From, To time.Time // both streams were listened to in between
	Whole    bool      // nothing was cut short
	Streams  [2]Stream // by two subscribers at once
	Facts    []Fact    // what lists and statuses showed to happen, in order

	// Nobody of ours listened from GapFrom to GapTo; After is what was told then.
	GapFrom, GapTo time.Time
	After          Stream

	Lists    []List
	Calls    []Call // that failed
	Statuses int    // calls of them, all in all
	Clipped  bool   // more was told, or happened, than is kept
}

// SocketState is what the file system says of a socket.
type SocketState struct {
	Mode     string // as ls has it
	UID, GID uint32
	// Agent: the socket is that of an agent's --cri-socket, which itself listens to the
	// runtime all the time.
	Agent bool
}

// Stream is what one subscriber heard.
type Stream struct {
	Events []Heard
	Ends   []End
}

// Heard is an event as it was received.
type Heard struct {
	At        time.Time
	ID        string
	Type      runtimeapi.ContainerEventType
	CreatedAt int64 // as the runtime stamped it, ns if it does what the CRI says
	// NoSandbox: the event has no status of a sandbox, and names no pod then.
	NoSandbox bool
	// Sandbox: it is about the sandbox itself.
	Sandbox bool
	// Own: it has a status of what it is about; Exited is what that says.
	Own, Exited bool
	Malformed   bool // nothing else of it could be decoded
}

// End is the end of a stream that nobody asked for.
type End struct {
	At     time.Time
	Until  time.Time     // when the next stream told its first event; zero: none did
	After  time.Duration // it had lasted
	Events int           // it had told
	Err    error         // nil: without an error
}

// Fact is a transition that lists and statuses showed.
type Fact struct {
	ID      string
	Sandbox bool
	Type    runtimeapi.ContainerEventType
	At      int64     // ns by the runtime's own clock, 0 if it doesn't say
	Since   time.Time // it had not happened yet when this list was asked for
	Seen    time.Time // it had, when this one was answered
}

// List is one round of both lists.
type List struct {
	At                    time.Time // it was answered
	Sandboxes, Containers int
	Bytes                 int // of the larger of the two answers
	Took                  time.Duration
	Streamed              bool // in parts, to which no limit applies
}

// Call is one that failed.
type Call struct {
	Method string
	Err    error
}

// Other is a connection to the runtime that isn't ours.
type Other struct {
	PID    int
	Name   string // of the process, "" if that can't be told
	Unread int    // bytes that it hasn't read
}

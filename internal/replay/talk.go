package replay

import (
	"context"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/plegd/plegd/internal/recording"
)

// refusal is how short a stream without an event was refused, ns; after that evented
// takes it for open.
const refusal = int64(5 * time.Second)

// link says whether the runtime can be reached.
type link uint8

const (
	unknown link = iota // not since the last connection was lost, as far as was recorded
	reached
	refused
)

// talk is the connection and the event stream, as they were recorded and as they are.
type talk struct {
	link    link
	losing  bool          // the connection is about to be lost
	changed chan struct{} // closed when link changes
	conns   map[net.Conn]bool

	open    bool          // a stream was open
	began   int64         // since when
	events  int           // and what came on it
	ended   error         // how the last stream ended, if it was refused
	took    int64         // and after what time
	streams []*subscriber // that are open
}

// subscriber is a stream that is open. What it is told waits in a queue, since nothing
// here may wait for who is told.
type subscriber struct {
	came   chan struct{} // capacity 1
	events [][]byte
	end    error
}

var (
	// errEnd ends a stream without an error.
	errEnd = io.EOF
	// errLost is what the end of a connection is to who waits for an answer on it.
	errLost = status.Error(codes.Unavailable, "error reading from server: EOF")
)

// dialWait is how long it takes to find out that nobody is there, where that was not
// recorded.
const dialWait = 20 * time.Millisecond

func newTalk() talk { return talk{changed: make(chan struct{}), conns: map[net.Conn]bool{}} }

func (t *talk) up() bool { return t.link == reached }

func (t *talk) become(l link) {
	if t.link != l {
		t.link = l
		close(t.changed)
		t.changed = make(chan struct{})
	}
}

func (t *talk) connected() { t.become(reached) }

func (t *talk) disconnected() {
	t.losing = false
	t.become(unknown)
	t.hangUp()
}

// hangUp closes all connections.
func (t *talk) hangUp() {
	for conn := range t.conns {
		_ = conn.Close()
	}
	clear(t.conns)
}

// answered takes the answer to a call: one that found nobody says that nobody was there.
func (t *talk) answered(e *recording.Entry) {
	if e.Code == codes.Unavailable && t.link == unknown {
		t.become(refused)
	}
}

// opened takes that a stream was asked for.
func (t *talk) opened(e *recording.Entry) { t.open, t.began, t.events, t.ended = true, e.At, 0, nil }

// event passes an event on.
func (t *talk) event(e *recording.Entry) {
	t.events++
	body := e.Body
	if e.Code != codes.OK {
		body = malformed
	}
	for _, s := range t.streams {
		s.tell(body, nil)
	}
}

// malformed is what can't be decoded: a field whose length is missing.
var malformed = []byte{0x0a}

// closed ends the streams that are open.
func (t *talk) closed(e *recording.Entry) {
	t.answered(e)
	if e.Code == codes.Canceled { // by who recorded
		return
	}
	end := errEnd
	if e.Code != codes.OK {
		end = status.Error(e.Code, e.Message)
	}
	t.ended = nil
	if t.open && t.events == 0 && e.At-t.began < refusal && e.Code != codes.Unavailable {
		t.ended, t.took = end, e.At-t.began
	}
	t.open = false
	for _, s := range t.streams {
		s.tell(nil, end)
	}
	t.streams = nil
}

// subscribe adds a stream, unless the last one was refused: then so is this one, after a
// time.
func (t *talk) subscribe() (s *subscriber, after int64, end error) {
	if !t.open && t.ended != nil {
		return nil, t.took, t.ended
	}
	s = &subscriber{came: make(chan struct{}, 1)}
	t.streams = append(t.streams, s)
	return s, 0, nil
}

// endStream ends the first stream. It reports false if there is none.
func (t *talk) endStream(end error) bool {
	if len(t.streams) == 0 {
		return false
	}
	t.streams[0].tell(nil, end)
	t.streams = t.streams[1:]
	return true
}

func (t *talk) unsubscribe(s *subscriber) {
	t.streams = slices.DeleteFunc(t.streams, func(o *subscriber) bool { return o == s })
}

func (s *subscriber) tell(body []byte, end error) {
	if end != nil {
		s.end = end
	} else {
		s.events = append(s.events, body)
	}
	select {
	case s.came <- struct{}{}:
	default:
	}
}

// Dial connects to the runtime. It fails while the recorded generator found nobody, and
// waits a moment where it is not known whether somebody was there.
func (w *World) Dial(ctx context.Context, _ string) (net.Conn, error) {
	timer := time.NewTimer(dialWait)
	defer timer.Stop()
	for {
		w.mu.Lock()
		l, changed := w.talk.link, w.talk.changed
		w.mu.Unlock()
		switch l {
		case reached:
			return w.listener.DialContext(ctx)
		case refused:
			return nil, errRefused
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, errRefused
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// errRefused is what the kernel says where nobody listens.
var errRefused = &net.OpError{Op: "dial", Net: "unix", Err: syscall.ECONNREFUSED}

package server

import (
	"bufio"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/watch"
	"github.com/plegd/plegd/store"
)

// streamBuffer is what is gathered of a stream before it is written, bytes.
const streamBuffer = 32 << 10

// What a line can be beside an event; in its "type", as an event's type is.
const (
	lineBookmark = "Bookmark"
	linePod      = "Pod"
	lineError    = "Error"
)

type bookmarkLine struct {
	Type        string `json:"type"`
	Position    string `json:"position"`
	SnapshotEnd bool   `json:"snapshot_end,omitempty"`
}

type podLine struct {
	Type   string    `json:"type"`
	Status *pleg.Pod `json:"status"`
}

type errorLine struct {
	Type string `json:"type"`
	problem
}

// lines writes a stream: one object of JSON a line or, as server-sent events,
// the same objects with their type and, where reading can go on from it, their
// position.
type lines struct {
	w       *bufio.Writer
	timed   *timedWriter // below w
	header  http.Header
	control *http.ResponseController
	sse     bool
	broken  error // of the last flush
}

// newLines prepares an answer. A write that takes longer than patience cuts the
// client, with os.ErrDeadlineExceeded.
func newLines(w http.ResponseWriter, sse bool, patience time.Duration) *lines {
	l := &lines{header: w.Header(), control: http.NewResponseController(w), sse: sse}
	l.timed = &timedWriter{w: w, control: l.control, patience: patience}
	l.w = bufio.NewWriterSize(l.timed, streamBuffer)
	return l
}

// begin sets the headers.
func (l *lines) begin() {
	contentType := "application/x-ndjson"
	if l.sse {
		contentType = "text/event-stream"
	}
	setHeaders(l.header, contentType)
}

// timedWriter bounds each write; the server's own bound is for a whole answer.
type timedWriter struct {
	w        io.Writer
	control  *http.ResponseController
	patience time.Duration
	until    time.Time // bounds several writes, if it is set
}

// Write implements [io.Writer]. What was written is on its way when it returns.
func (t *timedWriter) Write(p []byte) (int, error) {
	until := t.until
	if until.IsZero() {
		until = time.Now().Add(t.patience)
	}
	if err := t.control.SetWriteDeadline(until); err != nil {
		return 0, err
	}
	n, err := t.w.Write(p)
	if err == nil {
		err = t.control.Flush()
	}
	return n, err
}

// flush sends what was gathered.
func (l *lines) flush() error {
	l.broken = l.w.Flush()
	return l.broken
}

// send sends what is prepared. As with a whole answer, the client may take so long
// for all of it as else for one write: it takes others' room.
func (l *lines) send(p *prepared) error {
	l.timed.until = time.Now().Add(l.timed.patience)
	defer func() { l.timed.until = time.Time{} }()
	if _, err := p.WriteTo(l.w); err != nil {
		return err
	}
	return l.flush()
}

// message writes what a reader got.
func (l *lines) message(m *watch.Message) error {
	switch {
	case m.Event != nil:
		return l.event(m.Event)
	case m.Bookmark != nil:
		return l.bookmark(*m.Bookmark)
	default:
		return l.pods(m.Pods)
	}
}

// event writes an event, as all outputs do, with the key of its pod as its last field.
func (l *lines) event(ev *pleg.Event) error {
	b, err := ev.MarshalJSON()
	if err != nil {
		return err
	}
	if ev.Type != store.SequenceSkipped {
		key, err := encode(ev.PodKey())
		if err != nil {
			return err
		}
		b = slices.Concat(b[:len(b)-1], []byte(`,"pod_key":`), key, []byte("}"))
	}
	return l.put(string(ev.Type), ev.Position.String(), b)
}

func (l *lines) bookmark(b watch.Bookmark) error {
	at := b.Position.String()
	return l.object(lineBookmark, at, bookmarkLine{lineBookmark, at, b.SnapshotEnd})
}

// pods writes a snapshot. Reading can't go on from the middle of it.
func (l *lines) pods(pods []pleg.Pod) error {
	for i := range pods {
		if err := l.object(linePod, "", podLine{linePod, &pods[i]}); err != nil {
			return err
		}
	}
	return nil
}

// failed ends the stream with why it ends.
func (l *lines) failed(err error) error {
	_, p := newProblem(err)
	if err := l.object(lineError, "", errorLine{lineError, p}); err != nil {
		return err
	}
	return l.flush()
}

func (l *lines) object(name, id string, v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	return l.put(name, id, b)
}

// put writes one object, which is JSON and so without the end of a line in it.
// Errors of the writer stay until the next flush.
func (l *lines) put(name, id string, object []byte) error {
	if l.sse {
		if id != "" {
			_, _ = l.w.WriteString("id: " + id + "\n")
		}
		_, _ = l.w.WriteString("event: " + name + "\ndata: ")
	}
	_, err := l.w.Write(object)
	if err == nil {
		err = l.w.WriteByte('\n')
	}
	if err == nil && l.sse {
		err = l.w.WriteByte('\n')
	}
	return err
}

// wantsSSE reports whether a request asks for server-sent events; q=0 says that it
// doesn't want them.
func wantsSSE(r *http.Request) bool {
	for _, accept := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(accept, ",") {
			kind, params, err := mime.ParseMediaType(part)
			if err != nil || kind != "text/event-stream" {
				continue
			}
			if q, err := strconv.ParseFloat(params["q"], 64); err != nil || q != 0 {
				return true
			}
		}
	}
	return false
}

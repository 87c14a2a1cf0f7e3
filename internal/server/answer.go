package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/unsent"
	"github.com/plegd/plegd/internal/watch"
)

const (
	// maxMaking answers of pods are made at a time on each address, from a copy of all
	// of them. Others wait their turn, which depends on no client.
	maxMaking = 4
	// maxUnsent bounds what is made and not yet taken by the clients of an address,
	// bytes: several times all pods of a full node. What is larger may go alone.
	maxUnsent = 32 << 20
	// partBytes is the size of the pieces in which answers are kept.
	partBytes = 64 << 10
)

var errUnsent = fmt.Errorf("%d MiB of answers wait for clients to take them, which is all that may be; try again later", maxUnsent>>20)

// room bounds what answers of pods cost on one address. It is safe for concurrent
// use.
type room struct {
	making chan struct{}
	unsent *unsent.Budget
}

func newRoom() *room {
	return &room{making: make(chan struct{}, maxMaking), unsent: unsent.New(maxUnsent, writeTimeout)}
}

type roomKey struct{}

// in has the requests of an address share its room.
func (m *room) in(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), roomKey{}, m)))
	})
}

// prepare has an answer made. All of it is encoded before any is sent: so a client
// that doesn't read holds up nobody, and what it costs is known. It has to be
// dropped. Without room for it the error is errUnsent, as soon as that is known.
func prepare(r *http.Request, build func(*prepared) error) (*prepared, error) {
	m, _ := r.Context().Value(roomKey{}).(*room) // as handler puts it there
	select {
	case m.making <- struct{}{}:
		defer func() { <-m.making }()
	case <-r.Context().Done():
		return nil, watch.ErrStopping // or the client is gone, and doesn't read it
	}
	if !m.unsent.Fits(1) {
		return nil, errUnsent
	}
	p := &prepared{fits: m.unsent.Fits}
	if err := build(p); err != nil {
		return nil, err
	}
	give, ok := m.unsent.Take(p.size)
	if !ok {
		return nil, errUnsent
	}
	p.give = give
	return p, nil
}

// prepared is an answer that is encoded, in pieces: one that grows would be copied
// again and again.
type prepared struct {
	parts [][]byte
	size  int
	fits  func(size int) bool // there is room for an answer of that size
	give  func()
}

// drop gives its room back.
func (p *prepared) drop() {
	p.parts = nil
	p.give()
}

// Write implements [io.Writer]. It doesn't fail.
func (p *prepared) Write(b []byte) (int, error) {
	n := len(b)
	p.size += n
	for len(b) > 0 {
		if last := len(p.parts) - 1; last < 0 || len(p.parts[last]) == partBytes {
			p.parts = append(p.parts, make([]byte, 0, partBytes))
		}
		last := &p.parts[len(p.parts)-1]
		fits := min(len(b), partBytes-len(*last))
		*last = append(*last, b[:fits]...)
		b = b[fits:]
	}
	return n, nil
}

// WriteTo implements [io.WriterTo].
func (p *prepared) WriteTo(w io.Writer) (sent int64, err error) {
	for _, part := range p.parts {
		n, err := w.Write(part)
		sent += int64(n)
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// object adds a value as JSON.
func (p *prepared) object(v any) error {
	b, err := encode(v)
	_, _ = p.Write(b)
	return err
}

// podsIn adds an object with fields and, as its last field, pods. They are encoded
// one by one: the encoder keeps all that it has to say until the end. It ends with
// errUnsent at the first that there is no room for.
func (p *prepared) podsIn(fields any, pods []pleg.Pod) error {
	head, err := encode(fields)
	if err != nil {
		return err
	}
	_, _ = p.Write(bytes.TrimSuffix(head, []byte("}")))
	_, _ = io.WriteString(p, `,"pods":[`)
	for i := range pods {
		if i > 0 {
			_, _ = io.WriteString(p, ",")
		}
		if err := p.object(&pods[i]); err != nil {
			return err
		}
		if !p.fits(p.size) {
			return errUnsent
		}
	}
	_, _ = io.WriteString(p, "]}")
	return nil
}

// encode returns a value as JSON.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// writePrepared answers with JSON that is prepared.
func writePrepared(w http.ResponseWriter, r *http.Request, build func(*prepared) error) {
	p, err := prepare(r, func(p *prepared) error {
		err := build(p)
		_, _ = io.WriteString(p, "\n")
		return err
	})
	if err != nil {
		writeProblem(w, err)
		return
	}
	defer p.drop()
	setHeaders(w.Header(), "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(p.size))
	_, _ = p.WriteTo(w) // a client that is gone, or was cut, needs no answer
}

package server

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/plegd/plegd/internal/writertest"
)

// BenchmarkWriter measures what event streams, as many as may be, cost the writer:
// see Compare.
func BenchmarkWriter(b *testing.B) {
	writertest.Compare(b, maxStreams, func(tb testing.TB, w *writertest.Writer) string {
		socket := filepath.Join(tb.TempDir(), "s")
		srv, err := New(Config{Socket: socket, Health: w.Health, Source: func() (Source, error) { return w, nil }, Metrics: http.NotFoundHandler()})
		if err != nil {
			tb.Fatal(err)
		}
		writertest.Run(tb, srv.Run)
		return socket
	})
}

// openEvents begins an event stream for a benchmark, which counts its events and
// makes nothing of them.
func openEvents(ctx context.Context, socket string) (next func() (int, error), err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, "GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(conn, 64<<10)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
	lines := bufio.NewReaderSize(resp.Body, 64<<10)
	next = func() (int, error) {
		line, err := lines.ReadSlice('\n')
		if err != nil || bytes.Contains(line, []byte(`"type":"Bookmark"`)) {
			return 0, err
		}
		return 1, nil
	}
	_, err = next() // the bookmark from which it goes on
	return next, err
}

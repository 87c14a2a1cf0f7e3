package rpctest

import (
	"bytes"
	"errors"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// Unread makes so many calls on a connection of its own, with requests that are
// complete, and lets no answer come.
func Unread(t testing.TB, socket, method string, req proto.Message, calls int) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	body, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&sent, nil)
	err = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i := range calls {
		block.Reset()
		for _, h := range [][2]string{
			{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"},
		} {
			err = errors.Join(err, enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}))
		}
		id := uint32(2*i + 1)
		err = errors.Join(err, f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}),
			f.WriteData(id, true, append([]byte{0, 0, 0, 0, byte(len(body))}, body...)))
	}
	_, werr := conn.Write(sent.Bytes())
	if err := errors.Join(err, werr); err != nil {
		t.Fatal(err)
	}
	return conn
}

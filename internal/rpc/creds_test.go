package rpc

import (
	"bytes"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// Who is refused can say what it had begun to say, and so hears why it is refused,
// and not only that nobody listens.
func TestWhoIsRefusedHearsIt(t *testing.T) {
	lis, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	client, err := net.Dial("unix", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	const patience = 30 * time.Second
	refused := make(chan struct{})
	go func() {
		defer close(refused)
		refuse(conn, patience)
	}()
	_ = client.SetDeadline(time.Now().Add(patience))
	var heard []byte
	for b := make([]byte, 1024); !bytes.Contains(heard, []byte("256 connections are open")); {
		n, err := client.Read(b)
		if heard = append(heard, b[:n]...); err != nil {
			t.Fatalf("%q, %v", heard, err)
		}
	}
	for range 20 {
		if _, err := io.WriteString(client, "PRI"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	_ = client.Close()
	<-refused
}

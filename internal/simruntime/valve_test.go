package simruntime

import (
	"testing"

	"google.golang.org/grpc/test/bufconn"
)

// Who connects just before the first run is open is let in, not turned away.
func TestValveKeepsWhoComesBeforeTheFirstRun(t *testing.T) {
	lis := bufconn.Listen(1)
	v := newValve(lis, true)
	client, err := lis.DialContext(t.Context()) // returns when the valve has taken it
	if err != nil {
		t.Fatal(err)
	}
	run, err := v.open()
	if err != nil {
		t.Fatal(err)
	}
	server, err := run.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = server.Write([]byte("x")) }()
	if n, err := client.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	_ = run.Close()
	_ = client.Close()
	v.close()
}

// While the runtime is down there is nobody.
func TestValveTurnsAwayWhileDown(t *testing.T) {
	lis := bufconn.Listen(1)
	v := newValve(lis, false)
	client, err := lis.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := client.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes", n)
	}
	v.close()
}

// An end before the first run leaves nobody waiting.
func TestValveClosesBeforeTheFirstRun(t *testing.T) {
	lis := bufconn.Listen(1)
	v := newValve(lis, true)
	client, err := lis.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v.close()
	if n, err := client.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes", n)
	}
}

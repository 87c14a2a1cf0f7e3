package cri

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// Runtimes answer pings with GOAWAY. A proxy reads every frame that the
// client sends, while answers large enough for bandwidth estimation to kick in
// come back.
func TestClientSendsNoPings(t *testing.T) {
	rt, path := simtest.Start(t, simruntime.Config{})
	pod, err := rt.RunPodSandbox(simruntime.PodSpec{Name: "p", UID: "u"})
	if err != nil {
		t.Fatal(err)
	}
	for range 300 {
		if _, err := rt.CreateContainer(pod, simruntime.ContainerSpec{Name: rndName(), Annotations: map[string]string{"pad": strings.Repeat("x", 5000)}}); err != nil {
			t.Fatal(err)
		}
	}
	front := filepath.Join(t.TempDir(), "proxy.sock")
	lis, err := net.Listen("unix", front)
	if err != nil {
		t.Fatal(err)
	}
	var pings, frames atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		client, err := lis.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		server, err := net.Dial("unix", path)
		if err != nil {
			return
		}
		back := make(chan struct{})
		go func() { defer close(back); _, _ = io.Copy(client, server); _ = client.Close() }()
		defer func() { _ = server.Close(); <-back }()
		r := io.TeeReader(client, server)
		if _, err := io.ReadFull(r, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		fr := http2.NewFramer(io.Discard, r)
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				return
			}
			frames.Add(1)
			if p, ok := f.(*http2.PingFrame); ok && !p.IsAck() {
				pings.Add(1)
			}
		}
	}()
	c := client(t, front)
	s, err := c.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rt.InjectEvent(&runtimeapi.ContainerEventResponse{ContainerId: "x"})
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if l, err := c.ListContainers(t.Context(), nil); err != nil || len(l) != 300 {
			t.Fatalf("%d, %v", len(l), err)
		}
	}
	_ = c.Close()
	_ = lis.Close()
	<-done
	if pings.Load() != 0 || frames.Load() < 10 {
		t.Errorf("%d pings in %d frames", pings.Load(), frames.Load())
	}
}

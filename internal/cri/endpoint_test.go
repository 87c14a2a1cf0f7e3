package cri

import (
	"errors"
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/internal/unixsock"
)

func TestEndpoints(t *testing.T) {
	long := "/" + strings.Repeat("x", unixsock.MaxPath)
	for _, tc := range []struct {
		endpoint, path, fails string
	}{
		{endpoint: "unix:///run/containerd/containerd.sock", path: "/run/containerd/containerd.sock"},
		{endpoint: "UNIX:///run/crio/crio.sock", path: "/run/crio/crio.sock"},
		{endpoint: "/run//k3s/../crio/crio.sock", path: "/run/crio/crio.sock"},
		{endpoint: "unix:/run/crio/crio.sock", path: "/run/crio/crio.sock"},
		{endpoint: "unix:///with space/ü?#%2f.sock", path: "/with space/ü?#%2f.sock"},
		{endpoint: long[:unixsock.MaxPath], path: long[:unixsock.MaxPath]},

		{endpoint: "", fails: "it is empty"},
		{endpoint: "tcp://127.0.0.1:1234", fails: "local sockets only"},
		{endpoint: "https://node:10250", fails: "local sockets only"},
		{endpoint: "npipe:////./pipe/containerd", fails: `scheme "npipe" is not supported`},
		{endpoint: "unix://run/containerd.sock", fails: "not absolute"},
		{endpoint: "run/containerd.sock", fails: "not absolute"},
		{endpoint: "127.0.0.1:1234", fails: "not absolute"},
		{endpoint: "unix://", fails: "not absolute"},
		{endpoint: "/run/x.sock ", fails: "white space"},
		{endpoint: "unix:///run/x.sock\n", fails: "white space"},
		{endpoint: " /run/x.sock", fails: "white space"},
		{endpoint: "unix:///", fails: "names no socket"},
		{endpoint: "/a\x00b", fails: "zero bytes"},
		{endpoint: long, fails: "has 108 bytes"},
	} {
		path, err := ParseEndpoint(tc.endpoint)
		if tc.fails == "" {
			if err != nil || path != tc.path {
				t.Errorf("%q: got %q, %v; want %q", tc.endpoint, path, err, tc.path)
			}
			continue
		}
		if !errors.Is(err, ErrEndpoint) {
			t.Errorf("%q: got %q, %v; want ErrEndpoint", tc.endpoint, path, err)
			continue
		}
		for _, want := range []string{tc.fails, "want unix:///absolute/path"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %q lacks %q", tc.endpoint, err, want)
			}
		}
	}
}

func TestDialRefusesBadConfig(t *testing.T) {
	if _, err := Dial(Config{Endpoint: "tcp://x", Clock: sysclock.New()}); !errors.Is(err, ErrEndpoint) {
		t.Errorf("endpoint: got %v", err)
	}
	if _, err := Dial(Config{Endpoint: "/x", RPCTimeout: -1, Clock: sysclock.New()}); err == nil {
		t.Error("negative timeout: no error")
	}
	if _, err := Dial(Config{Endpoint: "/x"}); err == nil {
		t.Error("no clock: no error")
	}
}

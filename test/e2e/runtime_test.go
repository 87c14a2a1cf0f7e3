package e2e

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The harness itself: without it a test of the agent could fail, or pass, for the wrong reason.
func TestRuntimes(t *testing.T) {
	t.Parallel()
	for _, f := range flavours {
		t.Run(f.name, func(t *testing.T) {
			rt := startContainerd(t, f)
			p := rt.runPod(t, "harness")
			if !strings.HasPrefix(p.ip, rt.net) {
				t.Errorf("pod IP is %q, want one of the bridge's", p.ip)
			}
			exits := p.run(t, "exits", 0, "exit", "7")
			stays := p.run(t, "stays", 0, "pause")
			if s := rt.exited(t, exits); s.GetExitCode() != 7 || s.GetFinishedAt() == 0 {
				t.Errorf("exit code %d, finished at %d; want 7 and a time", s.GetExitCode(), s.GetFinishedAt())
			}

			// A runtime that dies must leave its pods alone.
			rt.kill(t)
			rt.start(t)
			if s := rt.status(t, stays); s.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
				t.Errorf("after a restart of the runtime the container is %v", s.GetState())
			}
			rt.stop(t)
			rt.start(t)

			rt.stopContainer(t, stays)
			rt.removeContainer(t, stays)
			if !rt.goneFromRuntime(t, stays) {
				t.Error("removed container is still known")
			}
			p.stop(t)
			p.remove(t)
		})
	}
}

// The runtimes are here for this difference; the third, that subscribers compete, is a test of its
// own.
func TestRuntimesDifferInEvents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		flavour
		want codes.Code
	}{{containerd2, codes.OK}, {containerd17, codes.OK}, {containerd16, codes.Unimplemented}} {
		t.Run(tt.name, func(t *testing.T) {
			rt := startContainerd(t, tt.flavour)
			stream, err := rt.cri.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			if tt.want == codes.OK {
				rt.runPod(t, "events") // a runtime with a stream is silent until something happens
			}
			if _, err := stream.Recv(); status.Code(err) != tt.want {
				t.Errorf("first event: %v, want %v", err, tt.want)
			}
		})
	}
}

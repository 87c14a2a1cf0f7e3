package criserver

import (
	"context"
	"io"
	"net"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
)

// refused are the methods that the endpoint must not have. A method that a new
// version of the CRI adds is in neither table, and then somebody has to decide.
var refused = []string{
	"Attach", "CheckpointContainer", "CheckpointPod", "CreateContainer", "Exec", "ExecSync", "PortForward", "PullImage",
	"RemoveContainer", "RemoveImage", "RemovePodSandbox", "ReopenContainerLog", "RestorePod", "RunPodSandbox", "StartContainer",
	"StopContainer", "StopPodSandbox", "UpdateContainerResources", "UpdatePodSandboxResources", "UpdateRuntimeConfig",
}

// everyMethod calls f with every method of the CRI by its full name.
func everyMethod(f func(full, name string)) {
	for _, d := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		for _, m := range d.Methods {
			f("/"+d.ServiceName+"/"+m.MethodName, m.MethodName)
		}
		for _, m := range d.Streams {
			f("/"+d.ServiceName+"/"+m.StreamName, m.StreamName)
		}
	}
}

func TestEveryMethodIsDecidedUpon(t *testing.T) {
	known := map[string]bool{}
	everyMethod(func(full, name string) {
		known[full], known[name] = true, true
		if no := slices.Contains(refused, name); no == (served[full] != 0) {
			t.Errorf("%s: served is %v, refused is %v: it must be one of them", name, served[full] != 0, no)
		}
	})
	for full := range served {
		if !known[full] {
			t.Errorf("%s is no method of the CRI", full)
		}
	}
	for _, name := range refused {
		if !known[name] {
			t.Errorf("%s is no method of the CRI", name)
		}
	}
}

// recorder is a runtime that answers everything with an empty message.
type recorder struct {
	mu    sync.Mutex
	calls []string
}

func (r *recorder) answer(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	r.mu.Lock()
	r.calls = append(r.calls, method)
	r.mu.Unlock()
	return stream.SendMsg(new(emptypb.Empty))
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

// startRecorder serves one on a socket.
func startRecorder(t *testing.T) (r *recorder, socket string) {
	t.Helper()
	r, socket = new(recorder), filepath.Join(t.TempDir(), "rt.sock")
	lis, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnknownServiceHandler(r.answer), grpc.WaitForHandlers(true))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(lis) // ends with Stop
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return r, socket
}

// empty is a source with nothing in it that is all right.
type empty struct{ Source }

func (empty) Health() pleg.Health                    { return pleg.Health{Ready: true, Live: true, Listed: true} }
func (empty) Entity(string) (e pleg.Entity, ok bool) { return e, false }
func (empty) Entities() []pleg.Entity                { return nil }
func (empty) Busy() bool                             { return false }
func (empty) EntitiesOf(string) (s, c []pleg.Entity) { return nil, nil }
func (empty) Subscribe(*pleg.Position) (*pleg.Subscription, error) {
	return nil, pleg.ErrStopped
}

// serveEmpty starts an endpoint over an empty source, before a runtime.
func serveEmpty(t *testing.T, endpoint string) *grpc.ClientConn {
	t.Helper()
	cfg := Config{Socket: filepath.Join(t.TempDir(), "cri.sock"), Untrusted: ReadThrough}
	cfg.Source = func() (Source, string, error) { return empty{}, endpoint, nil }
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	inBackground(t, s.Run)
	return dial(t, cfg.Socket)
}

// callAny calls a method, whatever kind it is, and returns how it ended.
func callAny(t *testing.T, conn *grpc.ClientConn, method string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err == nil {
		err = stream.SendMsg(new(emptypb.Empty))
	}
	if err == nil {
		err = stream.CloseSend()
	}
	for err == nil || err == io.EOF { //nolint:errorlint // gRPC returns it bare
		if err = stream.RecvMsg(new(emptypb.Empty)); err == io.EOF { //nolint:errorlint // the same
			return nil
		}
	}
	return err
}

// Every method is called over the wire: those that are passed reach the runtime
// under their own name, and nothing else does.
func TestEveryMethodOverTheWire(t *testing.T) {
	rt, socket := startRecorder(t)
	conn := serveEmpty(t, socket)
	check := func(full string) {
		t.Helper()
		rt.take()
		err := callAny(t, conn, full)
		calls := rt.take()
		name := path.Base(full)
		switch served[full] {
		case passed:
			if err != nil || !slices.Equal(calls, []string{full}) {
				t.Errorf("%s: %v, the runtime has got %v", name, err, calls)
			}
		case fromCache:
			if len(calls) > 0 {
				t.Errorf("%s: the runtime has got %v", name, calls)
			}
			if code := status.Code(err); code == codes.PermissionDenied || code == codes.Unimplemented {
				t.Errorf("%s: %v", name, err)
			}
		default:
			if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "read-only") || !strings.Contains(err.Error(), name) || len(calls) > 0 {
				t.Errorf("%s: %v, the runtime has got %v", name, err, calls)
			}
		}
	}
	everyMethod(func(full, _ string) { check(full) })
	for _, full := range []string{
		"/runtime.v1.RuntimeService/EraseEverything", "/runtime.v1.ImageService/EraseEverything", "/runtime.v2.RuntimeService/Version",
		"/runtime.v1alpha2.RuntimeService/Version", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/a/b",
	} {
		check(full)
	}
}

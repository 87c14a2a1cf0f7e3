package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/recording"
)

const ms = int64(time.Millisecond)

// said makes a recording of entries.
type said struct {
	t       *testing.T
	entries []recording.Entry
}

func (s *said) add(at int64, e recording.Entry, m proto.Message) *said {
	s.t.Helper()
	e.At = at * ms
	if m != nil {
		if err := e.Set(m); err != nil {
			s.t.Fatal(err)
		}
	}
	s.entries = append(s.entries, e)
	return s
}

// connected and lost are of the connection.
func (s *said) connected(at int64) *said {
	return s.add(at, recording.Entry{Kind: recording.KindConnected}, nil)
}

func (s *said) lost(at int64) *said {
	return s.add(at, recording.Entry{Kind: recording.KindDisconnected}, nil)
}

// call is a call from when to when, and what it was answered.
func (s *said) call(sent, at int64, method, about string, m proto.Message) *said {
	s.add(sent, recording.Entry{Kind: recording.KindAsked, Method: method, About: about}, nil)
	return s.add(at, recording.Entry{Kind: recording.KindAnswer, Method: method, About: about, Sent: sent * ms}, m)
}

func (s *said) failed(sent, at int64, method, about string, code codes.Code) *said {
	s.add(sent, recording.Entry{Kind: recording.KindAsked, Method: method, About: about}, nil)
	return s.add(at, recording.Entry{Kind: recording.KindAnswer, Method: method, About: about, Sent: sent * ms, Code: code, Message: "recorded"}, nil)
}

// begun is a recording of a runtime that has answered Version and lists of two pods.
func begun(t *testing.T) *said {
	s := &said{t: t}
	s.connected(0).call(0, 2, methodVersion, "", &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2"})
	s.call(2, 4, methodSandboxes, "", boxes("s1", "s2"))
	return s.call(4, 6, methodContainers, "", &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{item("c1", "s1", running), item("c2", "s2", running)}})
}

const (
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
)

func boxes(ids ...string) *runtimeapi.ListPodSandboxResponse {
	list := &runtimeapi.ListPodSandboxResponse{}
	for _, id := range ids {
		list.Items = append(list.Items, &runtimeapi.PodSandbox{Id: id, Labels: map[string]string{cri.LabelPodUID: "u-" + id}})
	}
	return list
}

func item(id, box string, state runtimeapi.ContainerState) *runtimeapi.Container {
	return &runtimeapi.Container{Id: id, PodSandboxId: box, State: state, Labels: map[string]string{cri.LabelPodUID: "u-" + box}}
}

func statusOf(id string, state runtimeapi.ContainerState, code int32) *runtimeapi.ContainerStatusResponse {
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: id, State: state, ExitCode: code}}
}

// file writes the recording and returns its path.
func (s *said) file(h recording.Header) string {
	s.t.Helper()
	slices.SortStableFunc(s.entries, func(a, b recording.Entry) int { return int(a.At - b.At) })
	var b bytes.Buffer
	w, err := recording.NewWriter(&b, h, 1<<30)
	for i := range s.entries {
		err = errors.Join(err, w.Write(&s.entries[i]))
	}
	err = errors.Join(err, w.Close(recording.End{At: 10_000 * ms, Reason: recording.EndTime}))
	path := filepath.Join(s.t.TempDir(), "recording")
	if err := errors.Join(err, os.WriteFile(path, b.Bytes(), 0o600)); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// asker asks the world at chosen moments.
type asker struct {
	*testing.T

	w   *World
	c   *cri.Client
	ctx context.Context //nolint:containedctx // that of the world
}

// in runs a test in the world of what was said.
func (s *said) in(test func(a *asker)) {
	s.t.Helper()
	rec, err := Open(s.file(recording.Header{StartedAt: 1e18, Mode: "hybrid"}))
	if err != nil {
		s.t.Fatal(err)
	}
	defer rec.Close()
	rec.run(s.t, func(ctx context.Context, w *World) int {
		c, err := cri.Dial(cri.Config{Endpoint: "/recording", Clock: w.Clock(), RPCTimeout: time.Second, Dialer: w.Dial, Redial: &redial})
		if err != nil {
			s.t.Error(err)
			return 1
		}
		test(&asker{s.t, w, c, ctx})
		_ = c.Close()
		return 0
	})
}

// until waits for a time of the recording, ms.
func (a *asker) until(at int64) { time.Sleep(time.Duration(at*ms - a.w.now())) }

// containers lists, and says when the answer came.
func (a *asker) containers(f *runtimeapi.ContainerFilter) string {
	list, err := a.c.ListContainers(a.ctx, f)
	var parts []string
	for _, c := range list {
		parts = append(parts, fmt.Sprint(c.GetId(), "=", c.GetState().String()[len("CONTAINER_"):]))
	}
	return a.answer(strings.Join(parts, " "), err)
}

func (a *asker) status(id string) string {
	s, err := a.c.ContainerStatus(a.ctx, id)
	return a.answer(fmt.Sprint(s.GetState().String()[len("CONTAINER_"):], "/", s.GetExitCode()), err)
}

func (a *asker) answer(text string, err error) string {
	if err != nil {
		text = status.Code(err).String()
	}
	return fmt.Sprintf("%s at %d", text, a.w.now()/ms)
}

func (a *asker) want(got, want string) {
	a.Helper()
	if got != want {
		a.Errorf("got %q, want %q", got, want)
	}
}

// event adds one with the statuses that its payload has.
func (s *said) event(at int64, id string, typ runtimeapi.ContainerEventType, statuses ...*runtimeapi.ContainerStatus) {
	ev := &runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: typ, ContainersStatuses: statuses}
	s.add(at, recording.Entry{Kind: recording.KindEvent, Method: recording.MethodEvents}, ev)
}

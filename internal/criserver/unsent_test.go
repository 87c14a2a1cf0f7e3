package criserver

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/rpctest"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/unsent"
)

// What is answered and not taken is bounded, for all clients together; when their
// connections end there is room again.
func TestUnreadAnswers(t *testing.T) {
	n := start(t, simruntime.Config{})
	n.quiet()
	_, err := n.rt.AddRule(simruntime.Rule{Method: "Status", Edit: func(m proto.Message) {
		m.(*runtimeapi.StatusResponse).Info = map[string]string{"big": strings.Repeat("x", 4<<20)}
	}})
	n.must(err)
	req := &runtimeapi.StatusRequest{Verbose: true}
	var conns []net.Conn
	eventually(t, "one answer too many", func() error {
		if len(conns) < 50 {
			conns = append(conns, rpctest.Unread(t, n.server.cfg.Socket, runtimeapi.RuntimeService_Status_FullMethodName, req, 4))
		}
		_, err = n.cri.Status(n.ctx(), req)
		if err == nil {
			return errors.New("it is answered")
		}
		return nil
	})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "64 MiB of answers") {
		t.Error(err)
	}
	if _, err := n.cri.Version(n.ctx(), nil); err != nil {
		t.Errorf("a small answer: %v", err)
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	eventually(t, "room", func() error { return second(n.cri.Status(n.ctx(), req)) })
}

// A client that doesn't take an answer loses its connection; one that does loses
// nothing.
func TestUnreadAnswerIsCut(t *testing.T) {
	log := &logtest.Buffer{}
	n := start(t, simruntime.Config{}, func(_ *pleg.Config, c *Config) { c.Stall, c.Logger = 200*time.Millisecond, log.Logger() })
	for _, name := range []string{"p", "q", "r"} {
		_, err := n.rt.RunPodSandbox(simruntime.PodSpec{Name: name, UID: name, Labels: map[string]string{"a": strings.Repeat("x", 1000)}})
		n.must(err)
	}
	n.quiet()
	events := n.subscribe()
	for i, method := range []string{runtimeapi.RuntimeService_ListPodSandbox_FullMethodName, runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName} {
		conn := rpctest.Unread(t, n.server.cfg.Socket, method, &runtimeapi.ListPodSandboxRequest{}, 1)
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		var err error
		for err == nil {
			_, err = conn.Read(make([]byte, 1024))
		}
		if errors.Is(err, os.ErrDeadlineExceeded) || log.Count("takes no answer") != i+1 {
			t.Errorf("%s: %v\n%s", method, err, log)
		}
	}
	sandbox, _ := n.pod("b")
	if ev, err := events.Recv(); err != nil || ev.GetContainerId() != sandbox {
		t.Errorf("who reads: %v, %v", ev, err)
	}
}

// A list that has begun goes on to its end, also one that is larger than all that may
// wait; while its client is slow, no other one begins.
func TestListLargerThanAllThatMayWait(t *testing.T) {
	n := start(t, simruntime.Config{}, func(_ *pleg.Config, c *Config) { c.Stall = time.Minute })
	n.server.unsent = unsent.New(3<<20, time.Minute) // nothing was asked yet
	const pods = 8
	for i := range pods {
		name := string(rune('a' + i))
		_, err := n.rt.RunPodSandbox(simruntime.PodSpec{Name: name, UID: name, Labels: map[string]string{"a": strings.Repeat("x", 900<<10)}})
		n.must(err)
	}
	n.quiet()
	list := func() (runtimeapi.RuntimeService_StreamPodSandboxesClient, error) {
		return n.cri.StreamPodSandboxes(n.ctx(), &runtimeapi.StreamPodSandboxesRequest{})
	}
	slow, err := list()
	n.must(err)
	first, err := slow.Recv()
	n.must(err)
	other, err := list()
	if err == nil {
		_, err = other.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("another one begins meanwhile: %v", err)
	}
	got := len(first.GetPodSandboxes())
	for {
		part, err := slow.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		n.must(err)
		got += len(part.GetPodSandboxes())
	}
	if got != pods {
		t.Errorf("%d sandboxes of %d", got, pods)
	}
	eventually(t, "room", func() error {
		again, err := list()
		if err != nil {
			return err
		}
		return second(again.Recv())
	})
}

// untaken is a stream whose client takes one message and then no more.
type untaken struct {
	grpc.ServerStream
	ctx  context.Context
	took int
}

func (s *untaken) Context() context.Context { return s.ctx }

func (s *untaken) SendMsg(any) error {
	if s.took++; s.took == 1 {
		return nil
	}
	<-s.ctx.Done()
	return s.ctx.Err()
}

// A list of many parts is cut when its client takes no more of them.
func TestUnreadListIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Buffer{}
		s := &Server{cfg: Config{Stall: time.Minute, Logger: log.Logger()}}
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		var sent error
		err := s.stream(nil, &untaken{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/any"}, func(_ any, out grpc.ServerStream) error {
			for sent == nil {
				time.Sleep(time.Hour) // is not the client's fault
				sent = out.SendMsg(nil)
			}
			return sent
		})
		if !errors.Is(err, errStalled) || time.Since(begin) != 2*time.Hour+time.Minute || log.Count("is cut") != 1 {
			t.Errorf("%v after %v\n%s", err, time.Since(begin), log)
		}
		cancel() // as the end of the handler does
		synctest.Wait()
		if !errors.Is(sent, context.Canceled) {
			t.Error(sent)
		}
		s.tasks.Wait()
	})
}

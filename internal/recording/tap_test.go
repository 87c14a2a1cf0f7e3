package recording

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/internal/sysclock"
)

// onRuntime runs a test in virtual time with a client of a simulated runtime, which takes
// a millisecond for each call, and returns what the client's tap has seen.
func onRuntime(t *testing.T, p simruntime.Profile, test func(t *testing.T, rt *simruntime.Runtime, c *cri.Client)) (seen []Entry) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rt := simtest.New(t, simruntime.Config{Seed: 1, Profile: p})
		if _, err := rt.AddRule(simruntime.Rule{Do: func(simruntime.Op) { time.Sleep(time.Millisecond) }}); err != nil {
			t.Fatal(err)
		}
		lis := bufconn.Listen(1 << 20)
		simtest.Serve(t, rt, lis)
		clock := sysclock.New()
		tap := NewTap(clock)
		c, err := cri.Dial(cri.Config{
			Endpoint: "/run/bufconn.sock", Clock: clock, Stats: tap, RPCTimeout: time.Second,
			Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
		})
		if err != nil {
			t.Fatal(err)
		}
		test(t, rt, c)
		synctest.Wait()
		seen = tap.take()
		tap.End()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if more := tap.take(); len(more) > 0 {
			t.Errorf("after the end %v", more)
		}
	})
	return seen
}

// show is an entry for people.
func show(e *Entry) string {
	kinds := map[Kind]string{
		KindAnswer: "answer", KindOpened: "opened", KindEvent: "event", KindClosed: "closed", KindConnected: "connected",
		KindDisconnected: "disconnected", KindAsked: "asked",
	}
	s := fmt.Sprintf("%v %s %s %s", time.Duration(e.At), kinds[e.Kind], e.Method, e.About)
	if e.Kind == KindAnswer {
		s += fmt.Sprintf(" sent %v", time.Duration(e.Sent))
	}
	switch {
	case e.Code == codes.DeadlineExceeded: // client and server find out at one moment, in words of their own
		s += " " + e.Code.String()
	case e.Code != codes.OK:
		s += fmt.Sprintf(" %v: %s", e.Code, e.Message)
	}
	return strings.Join(strings.Fields(s), " ")
}

func checkSeen(t *testing.T, seen []Entry, want ...string) {
	t.Helper()
	var got []string
	for i := range seen {
		got = append(got, show(&seen[i]))
	}
	if !slices.Equal(got, want) {
		t.Errorf("seen:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTapSeesCalls(t *testing.T) {
	var box, id string
	seen := onRuntime(t, simruntime.Containerd16, func(t *testing.T, rt *simruntime.Runtime, c *cri.Client) {
		box, _ = rt.RunPodSandbox(simruntime.PodSpec{Namespace: "shop", Name: "web", UID: "u1"})
		for i := range 3 {
			id, _ = rt.CreateContainer(box, simruntime.ContainerSpec{Name: fmt.Sprint("app-", i)})
		}
		ctx := t.Context()
		_, _ = c.Version(ctx)
		_, _ = c.ListContainers(ctx, nil)
		_, _ = c.ListContainers(ctx, &runtimeapi.ContainerFilter{PodSandboxId: box})
		_, _ = c.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{cri.LabelPodUID: "u1"}})
		_, _ = c.ContainerStatus(ctx, id)
		_, _ = c.PodSandboxStatus(ctx, "none")
		if _, err := rt.AddRule(simruntime.Rule{Method: "ContainerStatus", Hang: true}); err != nil {
			t.Error(err)
		}
		_, _ = c.ContainerStatus(ctx, id)
	})
	checkSeen(t, seen,
		"0s connected",
		"0s asked Version", "1ms answer Version sent 0s",
		"1ms asked ListContainers", "2ms answer StreamContainers sent 1ms Unimplemented: unknown method StreamContainers",
		"2ms asked ListContainers", "3ms answer ListContainers sent 2ms",
		"3ms asked ListContainers "+box, "4ms answer ListContainers "+box+" sent 3ms",
		"4ms asked ListPodSandbox pod:u1", "5ms answer StreamPodSandboxes pod:u1 sent 4ms Unimplemented: unknown method StreamPodSandboxes",
		"5ms asked ListPodSandbox pod:u1", "6ms answer ListPodSandbox pod:u1 sent 5ms",
		"6ms asked ContainerStatus "+id, "7ms answer ContainerStatus "+id+" sent 6ms",
		`7ms asked PodSandboxStatus none`, `8ms answer PodSandboxStatus none sent 7ms NotFound: sandbox "none": not found`,
		"8ms asked ContainerStatus "+id, "1.008s answer ContainerStatus "+id+" sent 8ms DeadlineExceeded",
	)
	var list runtimeapi.ListContainersResponse
	if err := seen[6].Get(&list); err != nil || len(list.GetContainers()) != 3 {
		t.Fatalf("list %v, %v", &list, err)
	}
	ids := []string{list.Containers[0].GetId(), list.Containers[1].GetId(), list.Containers[2].GetId()}
	if !slices.IsSorted(ids) {
		t.Errorf("the list is not in order: %v", ids)
	}
	var status runtimeapi.ContainerStatusResponse
	if err := seen[14].Get(&status); err != nil || status.GetStatus().GetId() != id {
		t.Errorf("status %v, %v", &status, err)
	}
}

// A list that is streamed is kept whole, as the list that it is.
func TestTapSeesStreamedLists(t *testing.T) {
	seen := onRuntime(t, simruntime.Profile{}, func(t *testing.T, rt *simruntime.Runtime, c *cri.Client) {
		if err := rt.Fill(700, 1); err != nil {
			t.Error(err)
		}
		_, _ = c.ListPodSandbox(t.Context(), nil)
		_, _ = c.ListContainers(t.Context(), nil)
	})
	checkSeen(t, seen, "0s connected", "0s asked ListPodSandbox", "1ms answer ListPodSandbox sent 0s",
		"1ms asked ListContainers", "2ms answer ListContainers sent 1ms")
	var boxes runtimeapi.ListPodSandboxResponse
	var list runtimeapi.ListContainersResponse
	if err := errors.Join(seen[2].Get(&boxes), seen[4].Get(&list)); err != nil || len(boxes.GetItems()) != 700 || len(list.GetContainers()) != 700 {
		t.Errorf("%d sandboxes, %d containers, %v", len(boxes.GetItems()), len(list.GetContainers()), err)
	}
}

// Events, one that can't be decoded, the end of the stream, the loss of the connection.
func TestTapSeesTheStream(t *testing.T) {
	var box string
	seen := onRuntime(t, simruntime.Profile{}, func(t *testing.T, rt *simruntime.Runtime, c *cri.Client) {
		stream, err := c.Events(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := rt.WaitSubscribers(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		box, _ = rt.RunPodSandbox(simruntime.PodSpec{Namespace: "shop", Name: "web", UID: "u1"})
		for range 2 {
			_, _ = stream.Recv()
		}
		if _, err := rt.AddRule(simruntime.Rule{Method: simruntime.MethodEvent, Raw: []byte{0x0a}, Times: 1}); err != nil {
			t.Fatal(err)
		}
		_ = rt.StopPodSandbox(box)
		_, _ = stream.Recv()
		rt.EndStreams(codes.OK)
		_, _ = stream.Recv()
		time.Sleep(time.Millisecond)
		rt.Kill()
		synctest.Wait()
		_, _ = c.Version(t.Context())
	})
	if len(seen) < 9 {
		t.Fatalf("%d entries", len(seen))
	}
	last := &seen[len(seen)-1]
	if last.Kind != KindAnswer || last.Code != codes.Unavailable || last.Method != "Version" {
		t.Errorf("who isn't there gives %s", show(last))
	}
	checkSeen(t, seen[:8],
		"0s connected", "0s opened GetContainerEvents",
		"2ms event GetContainerEvents", "2ms event GetContainerEvents",
		"2ms event GetContainerEvents DataLoss: proto: cannot parse invalid wire-format data",
		"2ms closed GetContainerEvents", "3ms disconnected", "3ms connected")
	var ev runtimeapi.ContainerEventResponse
	if err := seen[2].Get(&ev); err != nil || ev.GetContainerId() != box || ev.GetContainerEventType() != runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT {
		t.Errorf("first event %v, %v", &ev, err)
	}
}

// A step of the wall clock shows, and what a slow disk costs is counted.
func TestTapStepsAndLosses(t *testing.T) {
	clock := sysclock.New()
	wall := time.Unix(1000, 0)
	mono := time.Duration(0)
	clock.Wall, clock.Mono = func() time.Time { return wall }, func() time.Duration { return mono }
	tap := NewTap(clock)
	mono, wall = 5*time.Second, wall.Add(5*time.Second+wallNoiseTime/2)
	tap.add(Entry{Kind: KindConnected}, nil)
	mono, wall = 6*time.Second, wall.Add(61*time.Second)
	tap.add(Entry{Kind: KindConnected}, nil)
	list := &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{{Id: strings.Repeat("x", queueBytes/2)}}}
	for range 4 {
		tap.add(Entry{Kind: KindAnswer}, list)
	}
	got := tap.take()
	tap.add(Entry{Kind: KindConnected}, nil)
	got = append(got, tap.take()...)
	if len(got) != 4 || got[0].Wall != 0 || got[1].Wall != int64(60*time.Second+wallNoiseTime/2) || got[1].At != int64(6*time.Second) {
		t.Errorf("%d entries: %+v, %+v", len(got), got[0], got[1])
	}
	if lost := got[len(got)-1].Lost; lost != 3 {
		t.Errorf("lost %d, want 3", lost)
	}
}

const wallNoiseTime = time.Duration(wallNoise)

package simruntime_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	sim "github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

type client = runtimeapi.RuntimeServiceClient

// undecodable begins a field that never ends.
var undecodable = []byte{0x0a, 0xff}

// Bytes that are no message reach the client as they are, by method and id.
func TestRawAnswers(t *testing.T) {
	inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, c client, sub func() *reader) {
		_, bad := pod(t, rt, "u1")
		_, good := pod(t, rt, "u2")
		simtest.Rule(t, rt, sim.Rule{Method: "ContainerStatus", ID: bad, Raw: undecodable})
		simtest.Rule(t, rt, sim.Rule{Method: "ListPodSandbox", Times: 1, Raw: []byte{}})
		_, err := c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: bad})
		wantCode(t, err, codes.Internal)
		must(c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: good}))
		for _, want := range []int{0, 2} {
			if got := len(must(c.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})).Items); got != want {
				t.Errorf("%d sandboxes, want %d", got, want)
			}
		}

		// A list that is streamed breaks, one that is emptied has a message.
		h := simtest.Rule(t, rt, sim.Rule{Method: "StreamContainers", Raw: undecodable})
		_, err = must(c.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{})).Recv()
		wantCode(t, err, codes.Internal)
		h.Remove()
		simtest.Rule(t, rt, sim.Rule{Method: "StreamContainers", Raw: []byte{}})
		if got := must(must(c.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{})).Recv()); len(got.Containers) != 0 {
			t.Errorf("emptied: %v", got)
		}

		// The stream breaks at one event; who subscribes again goes on.
		one := sub()
		one.read()
		simtest.Rule(t, rt, sim.Rule{Method: sim.MethodEvent, ID: bad, Raw: undecodable})
		check(t, rt.ExitContainer(good, 1, ""))
		check(t, rt.ExitContainer(bad, 1, ""))
		if got := one.read(); !slices.Equal(got, []string{good}) {
			t.Errorf("before the bad event came %v", got)
		}
		wantCode(t, one.end(), codes.Internal)
		two := sub()
		ev := &sim.Event{}
		sim.SetRaw(ev, undecodable)
		rt.InjectEvent(ev)
		wantCode(t, two.end(), codes.Internal)
	})
}

// A padded message has the size that was asked for, whatever is in it.
func TestPadTo(t *testing.T) {
	inBubble(t, sim.Config{StreamBatch: 2}, func(t *testing.T, rt *sim.Runtime, c client, sub func() *reader) {
		for _, uid := range []string{"u1", "u2", "u3"} {
			pod(t, rt, uid)
		}
		sandbox, app := pod(t, rt, "u4")
		for _, size := range []int{100, 5_000, 5_100, 1 << 20} {
			edit := sim.PadTo(size)
			h := simtest.Rule(t, rt, sim.Rule{Edit: edit})
			stream := must(c.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{}))
			answers := []proto.Message{
				must(c.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})),
				must(c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})),
				must(c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: app})),
				must(c.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox})),
				must(stream.Recv()), must(stream.Recv()),
			}
			h.Remove()
			plain := []proto.Message{
				must(c.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})),
				must(c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})),
			}
			for i, a := range answers {
				got, low := proto.Size(a), size
				if i < len(plain) {
					low = max(size, proto.Size(plain[i]))
				}
				if got < low || got > low+64 && size > 2000 {
					t.Errorf("answer %d padded to %d has %d bytes", i, size, got)
				}
			}
		}
		simtest.Rule(t, rt, sim.Rule{Method: sim.MethodEvent, Edit: sim.PadTo(6 << 20)})
		r := sub()
		r.read()
		check(t, rt.ExitContainer(app, 1, ""))
		synctest.Wait()
		if n := proto.Size(r.next()); n < 6<<20 || n > 6<<20+64 {
			t.Errorf("event of %d bytes", n)
		}
		if n := proto.Size(must(rt.ContainerStatus(app))); n > 2000 {
			t.Errorf("the truth was padded too: %d bytes", n)
		}
		// A list that doesn't fit into a message of containerd is an error.
		simtest.Rule(t, rt, sim.Rule{Method: "ListContainers", Edit: sim.PadTo(17 << 20)})
		_, err := c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
		wantCode(t, err, codes.ResourceExhausted)
	})
}

// listed returns the names of what both kinds of lists answer.
func listed(t *testing.T, c client, names map[string]string) (unary, streamed string) {
	t.Helper()
	for _, item := range must(c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})).Containers {
		unary += names[item.Id]
	}
	stream := must(c.StreamContainers(t.Context(), &runtimeapi.StreamContainersRequest{}))
	for {
		batch, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return unary, streamed
		}
		check(t, err)
		streamed += " "
		for _, item := range batch.Containers {
			streamed += names[item.Id]
		}
	}
}

func TestEditedLists(t *testing.T) {
	inBubble(t, sim.Config{StreamBatch: 2}, func(t *testing.T, rt *sim.Runtime, c client, _ func() *reader) {
		sandbox := must(rt.RunPodSandbox(podSpec))
		names, ids := map[string]string{}, map[string]string{}
		for _, n := range strings.Split("abcdef", "") {
			ids[n] = must(rt.CreateContainer(sandbox, sim.ContainerSpec{Name: n}))
			names[ids[n]] = n
		}
		for name, tc := range map[string]struct {
			edit             func(proto.Message)
			unary, streaming string
		}{
			"as they are":   {nil, "abcdef", " ab cd ef"},
			"reversed":      {sim.Reverse, "fedcba", " ba dc fe"},
			"one left out":  {sim.Omit(ids["c"]), "abdef", " ab d ef"},
			"batch gone":    {sim.Omit(ids["c"], ids["d"]), "abef", " ab ef"},
			"one repeated":  {sim.Repeat(ids["b"]), "abbcdef", " abb cd ef"},
			"all repeated":  {sim.Repeat(), "aabbccddeeff", " aabb ccdd eeff"},
			"several edits": {sim.Edits(sim.Omit(ids["a"]), sim.Reverse), "fedcb", " b dc fe"},
			"no list":       {sim.NoSandboxStatus, "abcdef", " ab cd ef"},
		} {
			h := simtest.Rule(t, rt, sim.Rule{Edit: tc.edit})
			unary, streaming := listed(t, c, names)
			if unary != tc.unary || streaming != tc.streaming {
				t.Errorf("%s: %q and %q, want %q and %q", name, unary, streaming, tc.unary, tc.streaming)
			}
			h.Remove()
		}

		orders := func() (all []string) {
			h := simtest.Rule(t, rt, sim.Rule{Method: "ListContainers", Edit: sim.Shuffle(4)})
			defer h.Remove()
			for range 5 {
				unary, _ := listed(t, c, names)
				all = append(all, unary)
				sorted := strings.Split(unary, "")
				slices.Sort(sorted)
				if strings.Join(sorted, "") != "abcdef" {
					t.Errorf("shuffled: %s", unary)
				}
			}
			return all
		}
		first := orders()
		if again := orders(); !slices.Equal(first, again) || len(slices.Compact(slices.Clone(first))) == 1 {
			t.Errorf("orders %v and then %v", first, again)
		}

		simtest.Rule(t, rt, sim.Rule{Method: "ListPodSandbox", Edit: sim.Instead(&runtimeapi.ListPodSandboxResponse{
			Items: []*runtimeapi.PodSandbox{{Id: "x"}, {Id: "y"}},
		})})
		if got := must(c.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})).Items; len(got) != 2 || got[1].Id != "y" {
			t.Errorf("instead: %v", got)
		}
	})
}

// A runtime that answers wrongly, once or for a while, and then right again.
func TestLies(t *testing.T) {
	const running, exited = runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	const ready, notReady = runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, c client, sub func() *reader) {
		sandbox, app := pod(t, rt, "u1")
		_, other := pod(t, rt, "u2")
		said := func() (states []runtimeapi.ContainerState) {
			for _, item := range must(c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})).Containers {
				states = append(states, item.State)
			}
			st := must(c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: app})).Status
			return append(states, st.State)
		}
		simtest.Rule(t, rt, sim.Rule{Method: "ListContainers", Times: 1, Edit: sim.ContainerSays(app, exited)})
		for _, want := range [][]runtimeapi.ContainerState{{exited, running, running}, {running, running, running}} {
			if got := said(); !slices.Equal(got, want) {
				t.Errorf("said %v, want %v", got, want)
			}
		}
		h := simtest.Rule(t, rt, sim.Rule{Edit: sim.Edits(sim.ContainerSays(app, exited), sim.SandboxSays(sandbox, notReady))})
		for range 3 {
			if got := said(); !slices.Equal(got, []runtimeapi.ContainerState{exited, running, exited}) {
				t.Errorf("said %v", got)
			}
			items := must(c.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})).Items
			status := must(c.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox})).Status
			if items[0].State != notReady || items[1].State != ready || status.State != notReady {
				t.Errorf("said %v and %v", items, status.State)
			}
		}
		h.Remove()
		if got := said(); !slices.Equal(got, []runtimeapi.ContainerState{running, running, running}) {
			t.Errorf("said %v", got)
		}

		r := sub()
		r.read()
		simtest.Rule(t, rt, sim.Rule{Method: sim.MethodEvent, ID: other, Edit: sim.ContainerSays(other, running)})
		simtest.Rule(t, rt, sim.Rule{Method: sim.MethodEvent, ID: app, Edit: sim.Edits(sim.NoSandboxStatus, sim.NoContainerStatuses)})
		check(t, rt.ExitContainer(other, 1, ""))
		check(t, rt.ExitContainer(app, 1, ""))
		synctest.Wait()
		if ev := r.next(); ev.ContainersStatuses[0].State != running {
			t.Errorf("lied about %v", ev)
		}
		if ev := r.next(); ev.PodSandboxStatus != nil || ev.ContainersStatuses != nil {
			t.Errorf("emptied: %v", ev)
		}
	})
}

// Seconds where nanoseconds belong: of the message itself, or within.
func TestSeconds(t *testing.T) {
	inBubble(t, sim.Config{}, func(t *testing.T, rt *sim.Runtime, c client, sub func() *reader) {
		const seconds = int64(1e11) // every time in nanoseconds is beyond this
		_, app := pod(t, rt, "u1")
		r := sub()
		r.read()
		simtest.Rule(t, rt, sim.Rule{Method: sim.MethodEvent, Edit: sim.Seconds})
		simtest.Rule(t, rt, sim.Rule{Method: "ContainerStatus", Edit: sim.StatusSeconds})
		check(t, rt.ExitContainer(app, 1, ""))
		synctest.Wait()
		ev := r.next()
		if ev.CreatedAt > seconds || ev.ContainersStatuses[0].FinishedAt < seconds {
			t.Errorf("event: %v", ev)
		}
		st := must(c.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: app})).Status
		if st.CreatedAt > seconds || st.StartedAt > seconds || st.FinishedAt > seconds || st.FinishedAt == 0 {
			t.Errorf("status: %v", st)
		}
	})
}

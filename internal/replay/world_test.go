package replay

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/recording"
)

// Before anything is known a call waits for it; after that it takes as long as the last.
func TestAnswersTakeTheirTime(t *testing.T) {
	begun(t).in(func(a *asker) {
		a.want(a.containers(nil), "c1=RUNNING c2=RUNNING at 6")
		a.until(1000)
		a.want(a.containers(nil), "c1=RUNNING c2=RUNNING at 1002")
		a.want(a.containers(&runtimeapi.ContainerFilter{PodSandboxId: "s2"}), "c2=RUNNING at 1004")
		a.want(a.containers(&runtimeapi.ContainerFilter{LabelSelector: map[string]string{cri.LabelPodUID: "u-s1"}}), "c1=RUNNING at 1006")
		a.want(a.containers(&runtimeapi.ContainerFilter{Id: "c2", State: &runtimeapi.ContainerStateValue{State: exited}}), " at 1008")
		v, err := a.c.Version(a.ctx)
		a.want(a.answer(v.Name+v.Version, err), "containerdv2 at 1010")
		a.want(a.status("none"), "NotFound at 1010")
	})
}

// A call that the recorded generator had under way gets its answer.
func TestCallUnderWayGetsTheAnswer(t *testing.T) {
	s := begun(t).call(1000, 1050, methodContainers, "", &runtimeapi.ListContainersResponse{Containers: []*runtimeapi.Container{item("c1", "s1", exited)}})
	s.call(1050, 1060, methodContainerStatus, "c1", statusOf("c1", exited, 7))
	s.in(func(a *asker) {
		a.until(999)
		a.want(a.containers(nil), "c1=EXITED at 1050")
		a.want(a.status("c1"), "EXITED/7 at 1060")
	})
	s.in(func(a *asker) {
		a.until(990) // answered before the other one went out
		a.want(a.containers(nil), "c1=RUNNING c2=RUNNING at 992")
	})
}

// What failed fails, for as long as it did; what hung hangs until its caller's patience
// is nearly over.
func TestFailuresLast(t *testing.T) {
	s := begun(t).failed(1000, 1003, methodContainers, "", codes.Internal).failed(1000, 2000, methodContainerStatus, "c1", codes.DeadlineExceeded)
	s.call(3000, 3002, methodContainers, "", &runtimeapi.ListContainersResponse{})
	s.call(4000, 4002, methodContainerStatus, "c1", statusOf("c1", running, 0))
	s.in(func(a *asker) {
		a.until(1500)
		a.want(a.containers(nil), "Internal at 1503")
		a.want(a.containers(&runtimeapi.ContainerFilter{PodSandboxId: "s1"}), "Internal at 1506")
		a.until(2500)
		a.want(a.status("c1"), "DeadlineExceeded at 3499")
		a.want(a.containers(nil), " at 3501")
		a.want(a.status("c2"), "NotFound at 3501") // the list at 3002 has none
		a.until(4100)
		a.want(a.status("c1"), "RUNNING/0 at 4102")
	})
}

// A call that the recorded generator gave up says nothing, nor do those of which it isn't
// known how they ended; who could not be reached is there when there is a connection.
func TestFailuresThatAreNone(t *testing.T) {
	s := begun(t).failed(1000, 1003, methodContainers, "", codes.Canceled)
	s.add(2000, recording.Entry{Kind: recording.KindAsked, Method: methodContainers}, nil) // its answer was lost
	s.add(2500, recording.Entry{Kind: recording.KindAnswer, Method: methodVersion, Lost: 1}, &runtimeapi.VersionResponse{})
	s.failed(4000, 4001, methodContainers, "", codes.Unavailable).lost(5000).connected(5500)
	s.in(func(a *asker) {
		a.until(1500)
		a.want(a.containers(nil), "c1=RUNNING c2=RUNNING at 1502")
		a.until(2100)
		a.want(a.containers(nil), "c1=RUNNING c2=RUNNING at 2500")
		a.until(3000)
		a.want(a.containers(nil), "c1=RUNNING c2=RUNNING at 3002")
		a.until(4500)
		a.want(a.containers(nil), "Unavailable at 4501")
		a.until(6000)
		a.want(a.containers(nil), "c1=RUNNING c2=RUNNING at 6002")
	})
}

// An event corrects what was answered before it, and what is known to be out of date is
// waited for.
func TestEventsCorrectAnswers(t *testing.T) {
	s := begun(t).add(500, recording.Entry{Kind: recording.KindOpened}, nil)
	s.event(1000, "c1", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, statusOf("c1", exited, 9).GetStatus())
	s.event(1100, "c2", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	s.event(1300, "c1", runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	s.call(1180, 1190, methodContainerStatus, "c2", statusOf("c2", exited, 5))
	s.in(func(a *asker) {
		a.until(1050)
		a.want(a.containers(nil), "c1=EXITED c2=RUNNING at 1052")
		a.want(a.status("c1"), "EXITED/9 at 1052")
		a.until(1110)
		a.want(a.containers(nil), "c1=EXITED c2=EXITED at 1112")
		a.want(a.status("c2"), "EXITED/5 at 1190")
		a.until(1400)
		a.want(a.containers(nil), "c2=EXITED at 1402")
		a.want(a.status("c1"), "NotFound at 1412")
	})
}

// The stream gives what came, when it came, and ends when and as it ended.
func TestStreamIsTheRecorded(t *testing.T) {
	s := begun(t).add(100, recording.Entry{Kind: recording.KindOpened}, nil)
	s.event(200, "early", 0)
	s.event(1000, "c1", 0)
	s.add(1100, recording.Entry{Kind: recording.KindEvent, Code: codes.DataLoss, Message: "garbage"}, nil)
	s.add(1200, recording.Entry{Kind: recording.KindClosed, Code: codes.Internal, Message: "over"}, nil)
	s.add(2000, recording.Entry{Kind: recording.KindOpened}, nil)
	s.add(2003, recording.Entry{Kind: recording.KindClosed}, nil)
	s.add(4000, recording.Entry{Kind: recording.KindOpened}, nil)
	s.event(4500, "c2", 0)
	s.in(func(a *asker) {
		read := func(stream *cri.EventStream) string {
			ev, err := stream.Recv()
			switch {
			case errors.Is(err, io.EOF):
				return a.answer("end", nil)
			case errors.Is(err, cri.ErrMalformed):
				return a.answer("malformed", nil)
			}
			return a.answer(ev.GetContainerId(), err)
		}
		open := func() *cri.EventStream {
			stream, err := a.c.Events(a.ctx)
			if err != nil {
				a.Fatal(err)
			}
			return stream
		}
		a.until(500)
		stream := open()
		a.want(read(stream), "c1 at 1000")
		a.want(read(stream), "malformed at 1100")
		a.want(read(stream), "Internal at 1200")
		stream = open() // a stream that had told something is taken to come again
		a.want(read(stream), "end at 2003")
		stream = open() // one that ended at once does so again
		a.want(read(stream), "end at 2006")
		a.until(4100)
		a.want(read(open()), "c2 at 4500")
	})
}

// The connection is lost when it was, and nobody is there while nobody was.
func TestConnectionIsTheRecorded(t *testing.T) {
	s := begun(t).lost(1000).failed(1100, 1101, methodVersion, "", codes.Unavailable).connected(3000)
	s.call(3000, 3002, methodVersion, "", &runtimeapi.VersionResponse{RuntimeName: "another"})
	s.in(func(a *asker) {
		a.until(500)
		a.want(a.status("c1"), "RUNNING/0 at 600")
		a.until(1001)
		v, err := a.c.Version(a.ctx)
		a.want(a.answer(v.Name, err), "Unavailable at 1021") // nobody was seen to be there
		a.until(2990)
		_, err = a.c.Version(a.ctx)
		a.want(status.Code(err).String(), "Unavailable")
		a.until(3100)
		v, err = a.c.Version(a.ctx)
		a.want(a.answer(v.Name, err), "another at 3102")
	})
}

// The clock is that of the recorded machine, with its steps; chance is the same each time.
func TestClockAndChance(t *testing.T) {
	var dice []float64
	for range 2 {
		s := begun(t).add(1000, recording.Entry{Kind: recording.KindConnected, Wall: 60_000 * ms}, nil)
		s.add(2000, recording.Entry{Kind: recording.KindConnected, Lost: 3}, nil)
		s.in(func(a *asker) {
			for _, tc := range []struct{ at, wall int64 }{{500, 500}, {1500, 61_500}, {2500, 2500}} {
				a.until(tc.at)
				if got := a.w.Clock().Wall().UnixNano() - int64(1e18); got != tc.wall*ms {
					a.Errorf("at %d the clock shows %v", tc.at, time.Duration(got))
				}
			}
			if a.w.Lost() != 3 {
				a.Errorf("lost %d", a.w.Lost())
			}
			dice = append(dice, a.w.Random("x")(), a.w.Random("y")(), float64(a.w.epoch(&pleg.Config{})[3]))
			<-a.ctx.Done()
			a.want(a.answer("over", nil), "over at 10000")
			if end, torn := a.w.End(); torn != nil || end.Reason != recording.EndTime {
				a.Errorf("%+v, %v", end, torn)
			}
		})
	}
	if !slices.Equal(dice[:3], dice[3:]) || dice[0] == dice[1] {
		t.Errorf("chance %v", dice)
	}
}

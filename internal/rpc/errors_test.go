package rpc_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pleg "github.com/plegd/plegd"
	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/rpc"
	"github.com/plegd/plegd/internal/rpctest"
	"github.com/plegd/plegd/internal/unixsock"
	"github.com/plegd/plegd/store"
)

// serve serves what there is, without an agent, and returns the socket.
func serve(t testing.TB, cfg rpc.Config) (socket string, stop func()) {
	t.Helper()
	socket = t.TempDir() + "/s"
	lis, err := unixsock.Listen(socket, unixsock.GroupMode)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rpc.New(cfg).Serve(ctx, lis) }()
	ended := false
	stop = func() {
		cancel()
		if !ended {
			ended = true
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return socket, stop
}

// Each request that can't be served says which part of it is wrong, what it was
// and what is allowed.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Start()
	c := api(t, n.Socket)
	position := func(p string) *plegdv1.WatchRequest { return after(p) }
	filter := func(f *plegdv1.Filter) *plegdv1.WatchRequest { return &plegdv1.WatchRequest{Filter: f} }
	at := func(ts *timestamppb.Timestamp) *plegdv1.WatchRequest {
		return &plegdv1.WatchRequest{From: &plegdv1.WatchRequest_Time{Time: ts}}
	}
	for _, tt := range []struct {
		name  string
		req   *plegdv1.WatchRequest
		words []string
	}{
		{"empty position", position(""), []string{"position", `""`}},
		{"position", position("9f010203040506ab/007"), []string{"position", "9f010203040506ab/007", "bookmark"}},
		{"long position", position(strings.Repeat("x", 60000)), []string{"position", "xxx"}},
		{"time that is none", at(&timestamppb.Timestamp{Nanos: -1}), []string{"time", "nanos"}},
		{"time before 1970", at(&timestamppb.Timestamp{Seconds: -5}), []string{"time", "1969", "after 1970"}},
		{"time to come", at(timestamppb.New(time.Now().Add(time.Hour))), []string{"time", "future"}},
		{"consistency", &plegdv1.WatchRequest{Consistency: 7}, []string{"consistency 7", "durable or live"}},
		{"keepalive that is none", &plegdv1.WatchRequest{Keepalive: &durationpb.Duration{Seconds: 1, Nanos: -1}}, []string{"keepalive"}},
		{"short keepalive", &plegdv1.WatchRequest{Keepalive: durationpb.New(time.Millisecond)}, []string{"keepalive 1ms", "from 1s to 1h"}},
		{"negative keepalive", &plegdv1.WatchRequest{Keepalive: durationpb.New(-time.Minute)}, []string{"keepalive -1m", "from 1s to 1h"}},
		{"endless keepalive", &plegdv1.WatchRequest{Keepalive: &durationpb.Duration{Seconds: math.MaxInt64}}, []string{"keepalive"}},
		{"type", filter(&plegdv1.Filter{Types: []string{"ContainerDied", "ContainerBorn"}}), []string{"type", "ContainerBorn", "ContainerDied"}},
		{"source", filter(&plegdv1.Filter{Sources: []string{"rumour"}}), []string{"source", "rumour", "stream"}},
		{"selector", filter(&plegdv1.Filter{LabelSelector: "app in (web"}), []string{": selector", "app in (web"}},
		{"long selector", filter(&plegdv1.Filter{LabelSelector: strings.Repeat("a,", 4000)}), []string{": selector", "4096"}},
		{"empty value", filter(&plegdv1.Filter{Namespaces: []string{""}}), []string{"namespace", "must not be empty"}},
		{"long value", filter(&plegdv1.Filter{Pods: []string{strings.Repeat("p", 5000)}}), []string{"pod", "1024"}},
		{"many values", filter(&plegdv1.Filter{Uids: strings.Split(strings.Repeat("u,", 2000), ",")}), []string{"uid", "2001 values", "1024"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := read(t.Context(), c, tt.req)
			checkError(t, err, codes.InvalidArgument, plegdv1.Reason_REASON_UNSPECIFIED, tt.words...)
			if len(err.Error()) > 600 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
			if tt.req.Filter == nil {
				return
			}
			list, err := c.ListPods(t.Context(), &plegdv1.ListPodsRequest{Filter: tt.req.Filter})
			if err == nil {
				_, err = list.Recv()
			}
			checkError(t, err, codes.InvalidArgument, plegdv1.Reason_REASON_UNSPECIFIED)
		})
	}
	for _, tt := range []struct {
		name  string
		req   *plegdv1.GetPodRequest
		code  codes.Code
		words []string
	}{
		{"empty key", &plegdv1.GetPodRequest{}, codes.InvalidArgument, []string{"key", "UID"}},
		{"long key", &plegdv1.GetPodRequest{Key: strings.Repeat("k", 5000)}, codes.InvalidArgument, []string{"key", "1024"}},
		{"no such pod", &plegdv1.GetPodRequest{Key: "none"}, codes.NotFound, []string{"none"}},
		{"no such pod now", &plegdv1.GetPodRequest{Key: "none", NewerThan: timestamppb.Now()}, codes.NotFound, []string{"none"}},
		{"time that is none", &plegdv1.GetPodRequest{Key: "k", NewerThan: &timestamppb.Timestamp{Nanos: -1}}, codes.InvalidArgument, []string{"newer_than"}},
		{"far future", &plegdv1.GetPodRequest{Key: "k", NewerThan: timestamppb.New(time.Now().Add(2 * time.Hour))}, codes.InvalidArgument, []string{"newer_than", "1h0m0s"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := c.GetPod(t.Context(), tt.req)
			checkError(t, err, tt.code, plegdv1.Reason_REASON_UNSPECIFIED, tt.words...)
		})
	}
}

// A request that is too large is refused, and the connection goes on.
func TestOversizedRequest(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Start()
	c := api(t, n.Socket)
	_, err := c.GetPod(t.Context(), &plegdv1.GetPodRequest{Key: strings.Repeat("k", 100<<10)})
	checkError(t, err, codes.ResourceExhausted, plegdv1.Reason_REASON_UNSPECIFIED, "65536")
	if _, err := c.Status(t.Context(), &plegdv1.StatusRequest{}); err != nil {
		t.Error(err)
	}
}

// A position that can't be gone on from names the oldest that can be.
func TestExpired(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	n.Config.Retention = store.Retention{Entries: 20}
	a := n.Start()
	before := a.Generator.Position()
	churn(t, n, 1, 80)
	a.Settle()
	a.Stop() // what was told lately is in memory too, until then
	a = n.Start()
	a.Settle()
	c := api(t, n.Socket)
	newest := a.Generator.Position()
	ahead := newest
	ahead.Seq += 1000
	for name, from := range map[string]pleg.Position{
		"dropped": before, "not given out": ahead, "of another agent": {Epoch: [8]byte{1}, Seq: 5},
	} {
		_, err := read(t.Context(), c, after(from.String()))
		says := checkError(t, err, codes.OutOfRange, plegdv1.Reason_REASON_EXPIRED, from.String())
		if says["asked"] != from.String() || says["newest"] != newest.String() {
			t.Errorf("%s: %v", name, says)
		}
		if g := once(t, c, after(says["oldest"])); len(g.events) < 20 || g.last() != newest.String() {
			t.Errorf("%s: after the oldest position, %s, came %d events up to %s", name, says["oldest"], len(g.events), g.last())
		}
	}
	// What has expired can be asked for by time: then it is what is left.
	g := once(t, c, &plegdv1.WatchRequest{From: &plegdv1.WatchRequest_Time{Time: &timestamppb.Timestamp{Seconds: 1}}})
	if len(g.events) < 20 {
		t.Errorf("from a time long ago came %d events", len(g.events))
	}
}

// Before there is a generator, and before the runtime was listed, nothing is known,
// and that is said.
func TestNotKnownYet(t *testing.T) {
	t.Parallel()
	socket, _ := serve(t, rpc.Config{
		Health: func() pleg.Health { return pleg.Health{} },
		Source: func() (rpc.Source, error) { return nil, errors.New("looks for a runtime") },
	})
	n := rpctest.New(t)
	n.Config.Endpoint = t.TempDir() + "/none"
	n.StartUnready()
	for _, tt := range []struct {
		name, socket, why string
		journal           bool // events are known
	}{
		{"no generator", socket, "looks for a runtime", false}, {"not listed", n.Socket, "pods are not known yet", true},
	} {
		c := api(t, tt.socket)
		_, err := c.GetPod(t.Context(), &plegdv1.GetPodRequest{Key: "k"})
		checkError(t, err, codes.Unavailable, plegdv1.Reason_REASON_STARTING, tt.why)
		list, err := c.ListPods(t.Context(), &plegdv1.ListPodsRequest{})
		if err == nil {
			_, err = list.Recv()
		}
		checkError(t, err, codes.Unavailable, plegdv1.Reason_REASON_STARTING, tt.why)
		_, err = read(t.Context(), c, &plegdv1.WatchRequest{From: &plegdv1.WatchRequest_Snapshot{}})
		checkError(t, err, codes.Unavailable, plegdv1.Reason_REASON_STARTING, tt.why)
		if tt.journal {
			if g := once(t, c, &plegdv1.WatchRequest{}); len(g.bookmarks) == 0 {
				t.Error("no bookmark")
			}
			continue
		}
		_, err = c.Status(t.Context(), &plegdv1.StatusRequest{})
		checkError(t, err, codes.Unavailable, plegdv1.Reason_REASON_STARTING, tt.why)
		_, err = c.RequestRelist(t.Context(), &plegdv1.RequestRelistRequest{})
		checkError(t, err, codes.Unavailable, plegdv1.Reason_REASON_STARTING, tt.why)
		_, err = read(t.Context(), c, &plegdv1.WatchRequest{})
		checkError(t, err, codes.Unavailable, plegdv1.Reason_REASON_STARTING, tt.why)
	}
}

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	plegdv1 "github.com/plegd/plegd/api/plegd/v1"
	"github.com/plegd/plegd/internal/rpctest"
	"github.com/plegd/plegd/internal/simruntime"
)

// counted counts the pods that are asked for.
type counted struct {
	plegdv1.PodLifecycleClient
	pods atomic.Int32
}

func (c *counted) GetPod(ctx context.Context, req *plegdv1.GetPodRequest, o ...grpc.CallOption) (*plegdv1.GetPodResponse, error) {
	c.pods.Add(1)
	return c.PodLifecycleClient.GetPod(ctx, req, o...)
}

// While the runtime is down restored pods stay so, and a cache of many of them looks
// at one now and then. When that was seen it reads all.
func TestCacheLooksAtOneOfWhatIsRestored(t *testing.T) {
	t.Parallel()
	n := rpctest.New(t)
	const pods = 20
	for i := range pods {
		n.Pod(fmt.Sprint("p", i))
	}
	a := n.Start()
	a.Settle()
	a.Stop()
	n.ListsAre(simruntime.Rule{Code: codes.Internal, Message: "not now"})
	n.StartUnready()
	c, err := Dial(n.Socket, Options{Wait: true})
	n.Must(err)
	defer c.Close()
	api := &counted{PodLifecycleClient: c.api}
	c.api = api
	k := c.NewCache(CacheOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() {
		cancel()
		running.Wait()
	}()
	running.Go(func() {
		if err := k.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	<-k.Synced()
	time.Sleep(time.Second) // after it a look was every 800 ms or more
	if asked := api.pods.Load(); asked > 5 {
		t.Errorf("%d pods were asked for in a second", asked)
	}
	rpctest.WaitFor(t, "a look", func() bool { return api.pods.Load() > 0 })
	n.Runtime.ClearRules()
	rpctest.WaitFor(t, "all to be seen", func() bool {
		return len(k.List()) == pods && !slices.ContainsFunc(k.List(), (*Pod).GetRestored)
	})
}

// One pod after the other is looked at.
func TestAfter(t *testing.T) {
	keys, key := []string{"a", "b", "d"}, ""
	for _, want := range []string{"a", "b", "d", "a"} {
		if key = after(keys, key); key != want {
			t.Errorf("%s, want %s", key, want)
		}
	}
	if key := after(keys, "c"); key != "d" {
		t.Errorf("after what has gone comes %s", key)
	}
	if key := after(nil, "a"); key != "" {
		t.Errorf("after the last of all comes %s", key)
	}
}

package pleg_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// inBubble runs a test in virtual time, with a runtime that is reached in
// memory: a socket would let real time in.
func inBubble(t *testing.T, cfg simruntime.Config, test func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rt := simtest.New(t, cfg)
		lis := bufconn.Listen(1 << 20)
		simtest.Serve(t, rt, lis)
		test(t, rt, pleg.WithDialer(pleg.Config{Endpoint: "/run/bufconn.sock"}, func(ctx context.Context, _ string) (net.Conn, error) {
			return lis.DialContext(ctx)
		}))
	})
}

// TestTenMinutes of a busy node, in each mode: with a stream the journal is the
// history, without it a true part of it, and the cache is right in the end.
func TestTenMinutes(t *testing.T) {
	t.Parallel()
	for _, mode := range pleg.Modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			inBubble(t, simruntime.Config{Seed: 15}, func(t *testing.T, rt *simruntime.Runtime, cfg pleg.Config) {
				cfg.Mode = mode
				a := startAgent(t, cfg, nil)
				time.Sleep(15 * time.Second)
				w, err := simruntime.NewWorkload(rt, simruntime.WorkloadConfig{Seed: 15, Pods: 10, Rate: 3})
				must(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				must(t, w.Run(ctx))
				time.Sleep(time.Minute)
				a.settle() // a failed start has no event: the next relist tells of it
				if mode == pleg.ModeGeneric {
					a.toldNothingFalse(rt)
				} else {
					a.toldHistory(rt)
				}
				a.agree(rt)
				if n := len(rt.History()); n < 1200 {
					t.Errorf("only %d transitions", n)
				}
				if s := a.g.Status(); !s.Health.Ready || len(s.Asks) != 0 {
					t.Errorf("at the end: %+v", s)
				}
				a.finish()
			})
		})
	}
}

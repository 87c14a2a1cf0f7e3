package unsent_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/unsent"
)

// A call ends whose request doesn't come in time, and no other one does.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Minute
		var ended atomic.Int32
		begin := func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			return unsent.Await(ctx, limit, func() { ended.Add(1) }), cancel
		}
		_, cancelLate := begin()
		asked, cancel := begin()
		defer cancelLate()
		time.Sleep(limit - time.Nanosecond)
		synctest.Wait()
		if ended.Load() != 0 {
			t.Error("one has ended too early")
		}
		unsent.Came(asked)
		time.Sleep(time.Hour)
		synctest.Wait()
		if ended.Load() != 1 || asked.Err() != nil {
			t.Errorf("%d have ended; the one whose request came: %v", ended.Load(), asked.Err())
		}
		cancel()
		synctest.Wait()
		if ended.Load() != 2 || asked.Err() == nil {
			t.Errorf("%d have ended", ended.Load())
		}
		unsent.Came(t.Context()) // of no such call
	})
}

package arbiter

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/logtest"
	"github.com/plegd/plegd/internal/sysclock"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
	"github.com/plegd/plegd/timestamps"
)

// tester is what the rig needs of a testing.TB or a rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// driven is a loop that runs, with a store that fails on demand and everything
// that the loop said.
type driven struct {
	*Loop
	t      tester
	faulty *storetest.Faulty
	cancel context.CancelFunc
	done   chan error
	log    *logtest.Buffer
	seen   *watching
}

// drive starts a loop over a store.
func drive(t tester, s store.Store, options ...func(*Config)) *driven {
	t.Helper()
	d := &driven{t: t, faulty: storetest.NewFaulty(s), done: make(chan error, 1), log: new(logtest.Buffer), seen: new(watching)}
	cfg := Config{
		Store: d.faulty, Clock: sysclock.New(), Log: d.log.Logger(), Observer: d.seen, BootID: "boot",
		Runtime: storetest.Runtime,
	}
	for _, option := range options {
		option(&cfg)
	}
	l, err := NewLoop(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d.Loop = l
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	go func() { d.done <- l.Run(ctx, Hooks{Do: d.seen.do}) }()
	t.Cleanup(cancel)
	return d
}

// end waits for the loop's end and returns what Run returned.
func (d *driven) end() error {
	d.t.Helper()
	select {
	case err := <-d.done:
		return err
	case <-time.After(30 * time.Second):
		d.t.Fatal("the loop does not end")
		return nil
	}
}

func (d *driven) stop() {
	d.t.Helper()
	d.cancel()
	if err := d.end(); err != nil {
		d.t.Fatalf("stop: %v", err)
	}
}

// works waits until the store works and has all that was told.
func (d *driven) works() {
	d.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); d.Health().StoreError != ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			d.t.Fatalf("the store still fails: %s", d.Health().StoreError)
		}
	}
}

// forgetTail leaves nothing in memory for readers, as after a restart.
func (d *driven) forgetTail() {
	d.feed.mu.Lock()
	defer d.feed.mu.Unlock()
	d.feed.tail, d.feed.prev = nil, d.feed.at
}

var errCrash = errors.New("the process is gone")

// crash ends the loop without letting it write anything more.
func (d *driven) crash() {
	d.t.Helper()
	d.faulty.FailBefore(-1, errCrash)
	d.cancel()
	if err := d.end(); err == nil {
		d.t.Fatal("a loop that could not write stopped cleanly")
	}
}

// moment is one stamp of a source.
func (d *driven) moment() timestamps.Stamp { return d.Calls().Answered(timestamps.FromUnknown) }

// call stamps a call that is answered at once.
func (d *driven) call() Call {
	return Call{Sent: d.Calls().Begin(timestamps.FromRelist), Answered: d.moment()}
}

// list submits a full list and returns the tick of its sending.
func (d *driven) list(sandboxes ...Item) timestamps.Tick {
	l := &ListSeen{Sandboxes: sandboxes, SandboxCall: d.call(), ContainerCall: d.call()}
	d.Submit(l)
	return l.SandboxCall.Sent.Tick
}

// sync waits until everything submitted so far is applied and published. It
// costs a full list of what the runtime then has.
func (d *driven) sync(sandboxes ...Item) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := d.WaitFresh(ctx, d.list(sandboxes...)-1); err != nil {
		d.t.Fatal(err)
	}
}

// ready is a sandbox's full status.
func ready(id string) Item {
	return Item{
		Kind: store.KindSandbox, ID: id, Sandbox: id, Full: true, CreatedAt: 1, IPs: []string{"10.0.0.1"}, Rest: "status",
		Identity: store.Identity{Pod: store.PodRef{UID: "uid-" + id, Namespace: "ns", Name: "pod-" + id}},
	}
}

// up is the event of a sandbox that is ready: two entries of the journal,
// SandboxCreated and SandboxReady, and one record. It is stamped a little late,
// since in virtual time the list before it was sent at the same moment, and
// then the event would count as old (O5).
func (d *driven) up(id string) *EventSeen {
	at, it := d.moment(), ready(id)
	return &EventSeen{At: at, Type: EventStarted, ID: id, CreatedAt: at.Wall + 1, Sandbox: &it}
}

// tell submits the events of sandboxes that are ready.
func (d *driven) tell(ids ...string) {
	d.t.Helper()
	for _, id := range ids {
		if !d.SubmitEvent(d.up(id)) {
			d.t.Fatalf("no room for the event of %s", id)
		}
	}
}

// names returns n ids.
func names(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s%05d", prefix, i)
	}
	return ids
}

func items(ids []string) []Item {
	list := make([]Item, len(ids))
	for i, id := range ids {
		list[i] = ready(id)
	}
	return list
}

// after returns the journal after a position, as a subscription gives it.
func (d *driven) after(from timestamps.Position) []store.Event {
	d.t.Helper()
	sub, err := d.Subscribe(&from)
	if err != nil {
		d.t.Fatal(err)
	}
	return d.rest(sub)
}

// rest takes what a subscription has by now.
func (d *driven) rest(sub *Subscription) (events []store.Event) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for end := d.Position().Seq; sub.Position().Seq < end; {
		ev, err := sub.Next(ctx)
		if err != nil {
			d.t.Fatal(err)
		}
		events = append(events, *ev)
	}
	return events
}

// readTo takes what a subscription has up to a position, through all epochs.
func (d *driven) readTo(sub *Subscription, end timestamps.Position) (events []store.Event) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for sub.Position() != end {
		ev, err := sub.Next(ctx)
		if err != nil {
			d.t.Fatalf("after %v: %v", sub.Position(), err)
		}
		events = append(events, *ev)
	}
	return events
}

// equalsStore fails unless a store has what the core of an ended loop has.
func (d *driven) equalsStore(s store.Store) {
	d.t.Helper()
	snap, err := s.Load()
	if err != nil {
		d.t.Fatal(err)
	}
	if b := d.core.Missing(snap); !changesNothing(&b) {
		d.t.Fatalf("the store has not what the core has: %+v", b)
	}
}

// beginning is the position before everything.
func (d *driven) beginning() timestamps.Position {
	return timestamps.Position{Epoch: d.Position().Epoch}
}

// place is where a store survives the end of a loop.
type place struct {
	name string
	open func(t testing.TB) store.Store // closes what was open before
}

// eachPlace runs a test over every kind of store.
func eachPlace(t *testing.T, keep store.Retention, test func(t *testing.T, p place)) {
	eachPlaceOf(t, storetest.Runtime, keep, test)
}

func eachPlaceOf(t *testing.T, id store.RuntimeID, keep store.Retention, test func(t *testing.T, p place)) {
	t.Run("memory", func(t *testing.T) {
		m := store.NewMemory(id, keep)
		test(t, place{"memory", func(testing.TB) store.Store { m = m.Reopen(); return m }})
	})
	t.Run("bolt", func(t *testing.T) {
		var open *store.Bolt
		dir := t.TempDir()
		t.Cleanup(func() {
			if open != nil {
				_ = open.Close()
			}
		})
		test(t, place{"bolt", func(t testing.TB) store.Store {
			if open != nil {
				if err := open.Close(); err != nil {
					t.Fatal(err)
				}
			}
			b, report, err := store.OpenBolt(store.BoltConfig{Dir: dir, Runtime: id, Retention: keep})
			if err != nil {
				t.Fatal(err)
			}
			if report.Reason != nil {
				t.Fatalf("state was set aside: %v", report.Reason)
			}
			open = b
			return b
		}})
	})
}

func memory() *store.Memory { return store.NewMemory(storetest.Runtime, store.Retention{}) }

func tick(i int) timestamps.Tick { return timestamps.Tick(i) }

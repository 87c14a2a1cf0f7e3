package unsent_test

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/plegd/plegd/internal/crowd"
	"github.com/plegd/plegd/internal/unsent"
)

const kib = 1 << 10

// left takes all that there is room for, in KiB, and returns how much that was.
func left(b *unsent.Budget) (n int) {
	for {
		if _, ok := b.Take(kib); !ok {
			return n
		}
		n++
	}
}

// guest is a connection.
func guest(t *testing.T) *crowd.Guest {
	t.Helper()
	_, conn := net.Pipe()
	g := crowd.New(crowd.Config{Max: 1, Logger: slog.New(slog.DiscardHandler)}).Enter(conn)
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// message has a little more than so many KiB.
func message(n int) proto.Message { return wrapperspb.String(strings.Repeat("x", n*kib)) }

// sent is a message as the transport has it, until it is freed.
func sent(t *testing.T, held any) mem.BufferSlice {
	t.Helper()
	b, err := unsent.Codec{}.Marshal(held)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What fits is what there is room for, as it is taken and given back.
func TestFits(t *testing.T) {
	b := unsent.New(100, time.Hour)
	check := func(most int) {
		t.Helper()
		if !b.Fits(most) || b.Fits(most+1) {
			t.Errorf("%d fit: %v; one more: %v", most, b.Fits(most), b.Fits(most+1))
		}
	}
	give, _ := b.Take(30)
	check(70)
	if _, ok := b.Take(71); ok {
		t.Error("too much is taken")
	}
	parts, _ := b.TakeParts([]int{20, 40})
	check(10)
	give()
	check(40)
	_ = parts.Send(func(i int, _ *unsent.Part) error { check(40 + 20*i); return nil })
	if !b.Fits(1000) {
		t.Error("what is larger than all there may be doesn't fit, though nothing waits")
	}
}

// A list takes its room before it begins, and keeps that of what is not taken yet,
// until its end.
func TestParts(t *testing.T) {
	const most = 100
	failed := errors.New("failed")
	for _, tt := range []struct {
		name  string
		sizes []int // KiB
		held  int   // by others
		send  int   // are sent, then it fails
		taken bool  // by the client, at once
		ok    bool
		left  []int // before each is sent, and in the end
	}{
		{"taken at once", []int{30, 20, 10}, 40, 3, true, true, []int{0, 30, 50, 60}},
		{"not taken", []int{30, 20, 10}, 40, 3, false, true, []int{0, 0, 0, 0}},
		{"small ones are not counted when they are sent", []int{30, 1, 10}, 40, 3, false, true, []int{19, 19, 20, 20}},
		{"no room for the last", []int{30, 30}, 50, 0, true, false, []int{50}},
		{"larger than all there may be", []int{60, 60, 60}, 0, 3, true, true, []int{0, 0, 40, 100}},
		{"larger, and not taken", []int{60, 60, 60}, 0, 3, false, true, []int{0, 0, 0, 0}},
		{"larger, and something else waits", []int{60, 60, 60}, 1, 0, true, false, []int{99}},
		{"one fails", []int{30, 20, 10}, 0, 1, true, true, []int{40, 70, 100}},
		{"one fails, and the one before is not taken", []int{30, 20, 10}, 0, 1, false, true, []int{40, 40, 70}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for at := range tt.left { // each time with one look, which takes all that others leave
				b, conn := unsent.New(most*kib, time.Hour), guest(t)
				if _, ok := b.Take(tt.held * kib); !ok {
					t.Fatal("no room at all")
				}
				sizes := make([]int, len(tt.sizes))
				for i, n := range tt.sizes {
					sizes[i] = n * kib
				}
				p, ok := b.TakeParts(sizes)
				if ok != tt.ok {
					t.Fatalf("taken: %v", ok)
				}
				looks := 0
				look := func() {
					if looks == at {
						if got := left(b); got != tt.left[at] {
							t.Errorf("look %d: room for %d, want %d", at, got, tt.left[at])
						}
					}
					looks++
				}
				err := p.Send(func(i int, part *unsent.Part) error {
					look()
					if i == tt.send {
						return failed
					}
					// What is sent is larger than was said, and that is no reason to end.
					m := message(tt.sizes[i])
					if tt.sizes[i] == 1 {
						m = wrapperspb.String("x")
					}
					held, ok := b.Hold(part.Of(m), conn, func() { t.Error("cut") })
					if !ok {
						t.Errorf("part %d has no room", i)
						return failed
					}
					if buffer := sent(t, held); tt.taken {
						buffer.Free()
					}
					return nil
				})
				if errors.Is(err, failed) != (ok && tt.send < len(tt.sizes)) {
					t.Error(err)
				}
				look()
				if looks != len(tt.left) {
					t.Errorf("%d looks, want %d", looks, len(tt.left))
				}
			}
		})
	}
}

// An answer has room until it is taken or its connection ends, and without room for
// it there is none.
func TestHold(t *testing.T) {
	b, conn := unsent.New(100*kib, time.Hour), guest(t)
	hold := func(m any) (any, bool) { return b.Hold(m, conn, func() { t.Error("cut") }) }
	one, ok := hold(message(40))
	if !ok {
		t.Fatal("no room for the first")
	}
	buffer := sent(t, one)
	other, ok := hold(message(40))
	if !ok {
		t.Fatal("no room for the second")
	}
	sent(t, other)
	if _, ok := hold(message(40)); ok {
		t.Error("room for a third")
	}
	small := wrapperspb.String("x")
	if m, ok := hold(small); !ok || m != any(small) {
		t.Errorf("a small one: %v, %v", m, ok)
	}
	buffer.Free()
	if third, ok := hold(message(40)); !ok {
		t.Error("no room though one was taken")
	} else {
		sent(t, third).Free()
	}
	_ = conn.Close()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if give, ok := b.Take(100 * kib); ok {
			give()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("what was not taken has room though its connection has ended")
		}
	}
}

package unsent_test

import (
	"errors"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/unsent"
)

// left takes all that there is room for, and returns how much that was.
func left(b *unsent.Budget) (n int) {
	for {
		if _, ok := b.Take(1); !ok {
			return n
		}
		n++
	}
}

func TestParts(t *testing.T) {
	const most = 100
	failed := errors.New("failed")
	for _, tt := range []struct {
		name  string
		sizes []int
		held  int // by others
		send  int // are sent, then it fails
		ok    bool
		left  []int // when each is sent, and in the end
	}{
		{"room for all", []int{30, 20, 10}, 40, 3, true, []int{30, 50, 60, 60}},
		{"no room for the last", []int{30, 30}, 50, 0, false, []int{50}},
		{"larger than all there may be", []int{60, 60, 60}, 0, 3, true, []int{60, 100, 100, 100}},
		{"one fails", []int{30, 20, 10}, 0, 1, true, []int{70, 90, 100}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for at := range tt.left { // each time with one look, which takes all
				b := unsent.New(most, time.Hour)
				if _, ok := b.Take(tt.held); !ok {
					t.Fatal("no room at all")
				}
				p, ok := b.TakeParts(tt.sizes)
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
				err := p.Send(func(i int) error {
					look()
					if i == tt.send {
						return failed
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

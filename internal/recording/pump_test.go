package recording

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plegd/plegd/internal/sysclock"
)

// A recording ends when it is asked to, when its time is over, when there is no room and
// when who asks ends; it says which, and all that came before is in it.
func TestRecordEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		most   int64
		length time.Duration
		stop   bool
		ask    error
		want   string
	}{
		"asked": {1 << 20, 0, true, nil, EndAsked},
		"time":  {1 << 20, 2500 * time.Millisecond, false, nil, EndTime},
		"full":  {reserve + 2000, 0, false, nil, EndFull},
		"ask":   {1 << 20, 0, false, errors.New("no runtime"), "who asked has ended: no runtime"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tap := NewTap(sysclock.New())
				var file bytes.Buffer
				w, err := newWriter(&file, header, tc.most, 1<<10)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				made := 0
				end, err := tap.Record(ctx, func(ctx context.Context) error {
					for {
						made++
						tap.add(Entry{Kind: KindAnswer, Method: "Version", Message: fmt.Sprint("number ", made, time.Now())}, nil)
						if made == 30 && tc.stop {
							cancel()
						}
						if made == 30 && tc.ask != nil {
							return tc.ask
						}
						select {
						case <-ctx.Done():
							tap.add(Entry{Kind: KindAnswer, Method: "end"}, nil) // no word of the runtime
							return nil
						case <-time.After(99 * time.Millisecond):
						}
					}
				}, w, nil, tc.length)
				if err != nil || end.Reason != tc.want {
					t.Fatalf("ended with %+v, %v, want %q", end, err, tc.want)
				}
				got, last, err := read(t, file.Bytes())
				if err != nil || last.Reason != tc.want || last.At != end.At || end.At == 0 && tc.want != EndFull {
					t.Fatalf("read %+v, %v", last, err)
				}
				n := w.Count()
				if len(got)+int(last.Left) != made || n.Entries != int64(len(got)) || (last.Left == 0) == (tc.want == EndFull) || int64(file.Len()) > tc.most {
					t.Errorf("%d entries of %d, %d left out, %d bytes, counted %+v", len(got), made, last.Left, file.Len(), n)
				}
			})
		})
	}
}

// What has come when it is to end is written.
func TestRecordWritesTheLast(t *testing.T) {
	for range 20 { // whether the end or what came is seen first is chance
		tap := NewTap(sysclock.New())
		tap.add(Entry{Kind: KindConnected}, nil)
		var file bytes.Buffer
		w, err := newWriter(&file, header, 1<<20, 1<<10)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := tap.Record(ctx, func(context.Context) error { return nil }, w, nil, 0); err != nil {
			t.Fatal(err)
		}
		if got, _, err := read(t, file.Bytes()); err != nil || len(got) != 1 {
			t.Fatalf("%d entries, %v", len(got), err)
		}
	}
}

// A file that can't be written any more ends the recording with its error.
func TestRecordOnABrokenDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tap := NewTap(sysclock.New())
		w, err := newWriter(&brokenDisk{good: 1}, header, 1<<20, 1<<10)
		if err != nil {
			t.Fatal(err)
		}
		end, err := tap.Record(t.Context(), func(ctx context.Context) error {
			tap.add(Entry{Kind: KindConnected}, nil)
			<-ctx.Done()
			return nil
		}, w, nil, 0)
		if !errors.Is(err, errDisk) || strings.Count(err.Error(), errDisk.Error()) != 1 {
			t.Errorf("%+v, %v", end, err)
		}
	})
}

var errDisk = errors.New("no space left on device")

// brokenDisk fails after the header.
type brokenDisk struct{ good, n int }

func (d *brokenDisk) Write(b []byte) (int, error) {
	if d.n++; d.n > d.good+1 {
		return 0, errDisk
	}
	return len(b), nil
}

package rpc

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/unsent"
)

// What there is no room for isn't made, and what is larger than all there may be is,
// when nothing else waits.
func TestPodsWithoutRoomAreNotMade(t *testing.T) {
	t.Parallel()
	const most = 10_000
	pods := make([]pleg.Pod, 100) // of more than most
	for i := range pods {
		pods[i] = pleg.Pod{Key: "k", Name: "a name that makes it larger than a hundred bytes, as soon as there is anything else, such as its namespace and this"}
	}
	for _, tc := range []struct {
		what  string
		taken int
		makes bool
		ok    bool
	}{
		{"no byte is left", most, false, false},
		{"one is", most - 1, true, false},
		{"all are", 0, true, true},
	} {
		s := New(Config{})
		s.unsent = unsent.New(most, time.Hour)
		if _, ok := s.unsent.Take(tc.taken); !ok {
			t.Fatal("no room at first")
		}
		makes := false
		parts, err := s.takePods(t.Context(), false, func() ([]pleg.Pod, error) { makes = true; return pods, nil })
		if makes != tc.makes || (err == nil) != tc.ok || !tc.ok && status.Code(err) != codes.ResourceExhausted || tc.ok != (parts != nil) {
			t.Errorf("%s: made %v, %v", tc.what, makes, err)
		}
	}
	// It ends with the first that doesn't fit.
	asked := 0
	_, _, err := chunks(pods, false, func(bytes int) bool { asked++; return bytes < most/4 })
	if asked < 2 || asked > len(pods)/2 || status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%d of %d are made, %v", asked, len(pods), err)
	}
}

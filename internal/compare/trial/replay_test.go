package trial

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/recording"
)

// For how long the recorder had no event stream is said, and that a recording ended
// when it was to is not.
func TestWhatARecordingLacks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.plegd")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := recording.NewWriter(file, recording.Header{StartedAt: 1}, recording.LeastSize)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []recording.Entry{
		{Kind: recording.KindOpened, At: int64(time.Second)},
		{Kind: recording.KindClosed, At: int64(2 * time.Second)},
		{Kind: recording.KindClosed, At: int64(3 * time.Second)}, // the runtime was not there yet
		{Kind: recording.KindOpened, At: int64(4500 * time.Millisecond)},
		{Kind: recording.KindClosed, At: int64(8 * time.Second)}, // and not again before the end
	} {
		if err := w.Write(&e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(recording.End{At: int64(9 * time.Second), Reason: recording.EndTime}); err != nil {
		t.Fatal(err)
	}
	got, err := measureRecording(path)
	want := []string{"the recorder had no event stream for 3.5s in all, after one had ended: what happened then is known from its lists alone"}
	if err != nil || !slices.Equal(got.notes, want) || got.length != 9*time.Second {
		t.Errorf("%+v, %v", got, err)
	}
}

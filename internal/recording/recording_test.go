package recording

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var header = Header{StartedAt: 1_700_000_000_000_000_000, Agent: "v1", Period: 1e9, Mode: "hybrid", Timeout: 1e10}

// some returns entries of each kind.
func some(n int) (entries []Entry) {
	for i := range n {
		at := int64(i) * 1000
		e := Entry{Kind: KindEvent, At: at, Method: "GetContainerEvents", Body: fmt.Appendf(nil, "event %d", i)}
		switch i % 5 {
		case 1:
			e = Entry{Kind: KindAnswer, At: at, Sent: at - 500, Method: "ContainerStatus", About: "c1", Code: codes.NotFound, Message: "none"}
		case 2:
			e = Entry{Kind: KindClosed, At: at, Wall: -3e9, Code: codes.Unavailable, Message: "gone"}
		case 3:
			e = Entry{Kind: KindConnected + Kind(i%2), At: at, Lost: int64(i % 3)}
		case 4:
			e = Entry{Kind: KindOpened, At: at}
			if i%2 == 1 {
				e = Entry{Kind: KindAsked, At: at, Method: "ListContainers", About: "pod:u1"}
			}
		}
		entries = append(entries, e)
	}
	return entries
}

// recorded returns a file of entries, each flushed by itself. A reader takes as much
// memory as the window has, so that reading many files is faster with a small one.
func recorded(t testing.TB, entries []Entry, most int64) []byte {
	t.Helper()
	return recordedWith(t, entries, most, 1<<10)
}

func recordedWith(t testing.TB, entries []Entry, most int64, window int) []byte {
	t.Helper()
	var file bytes.Buffer
	w, err := newWriter(&file, header, most, window)
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		err := w.Write(&entries[i])
		if err == nil {
			err = w.Flush()
		}
		if err != nil && !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
	}
	if err := w.Close(End{At: 7, Reason: "asked"}); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

// read returns what can be read of a file.
func read(t testing.TB, file []byte) (entries []Entry, end *End, err error) {
	t.Helper()
	r, err := NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	if diff := cmp.Diff(header, r.Header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries, r.End(), nil
		}
		if err != nil {
			return entries, r.End(), err
		}
		entries = append(entries, *e)
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	want := some(500)
	got, end, err := read(t, recorded(t, want, 1<<20))
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(&End{At: 7, Reason: "asked"}, end); diff != "" {
		t.Errorf("end (-want +got):\n%s", diff)
	}
}

var update = flag.Bool("update", false, "write testdata anew")

// A file of version 1 is read for ever: this one was written when there was no other.
func TestGoldenFile(t *testing.T) {
	const path = "testdata/v1.plegd"
	want := some(25)
	if *update {
		if err := os.WriteFile(path, recordedWith(t, want, 1<<20, window), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, end, err := read(t, file)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(&End{At: 7, Reason: "asked"}, end); diff != "" {
		t.Errorf("end (-want +got):\n%s", diff)
	}
}

// A file that is cut anywhere has all entries before the cut that were flushed, and
// says where it is torn.
func TestTornAnywhere(t *testing.T) {
	want := some(20)
	file := recorded(t, want, 1<<20)
	least := 0
	for cut := len(magic) + 2; cut < len(file); cut++ {
		got, _, err := read(t, file[:cut])
		var torn *TornError
		if !errors.As(err, &torn) || torn.Offset > int64(cut) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if len(got) < least || len(got) > len(want) || !cmp.Equal(want[:len(got)], got[:]) && len(got) > 0 {
			t.Fatalf("cut at %d: %d entries after %d, or others", cut, len(got), least)
		}
		least = len(got)
	}
	if least != len(want) {
		t.Errorf("%d entries before the end, want %d", least, len(want))
	}
}

// A bit that is another one anywhere costs what comes after it, and never gives another
// entry.
func TestDamagedAnywhere(t *testing.T) {
	want := some(4)
	file := recorded(t, want, 1<<20)
	for i := range 8 * len(file) {
		damaged := bytes.Clone(file)
		damaged[i/8] ^= 1 << (i % 8)
		got, _, err := read(t, damaged)
		if err == nil {
			t.Fatalf("bit %d: nothing is noticed", i)
		}
		if len(got) > 0 && !cmp.Equal(want[:len(got)], got) {
			t.Fatalf("bit %d: other entries", i)
		}
	}
}

// What follows the end was not recorded: two files that became one are not read as one.
func TestMoreAfterTheEnd(t *testing.T) {
	want := some(4)
	file := recorded(t, want, 1<<20)
	got, _, err := read(t, append(bytes.Clone(file), file...))
	var torn *TornError
	if len(got) != len(want) || !errors.As(err, &torn) || torn.Offset != int64(len(file)) {
		t.Errorf("%d entries, %v; the end is at %d", len(got), err, len(file))
	}
}

// A list in parts may be larger than any message: it is not recorded, and the rest is.
func TestTooLargeAnAnswer(t *testing.T) {
	large := Entry{Kind: KindAnswer, Method: "ListContainers", Body: make([]byte, maxEntry)}
	got, _, err := read(t, recordedWith(t, []Entry{large, {Kind: KindOpened, At: 1}}, 1<<30, 1<<10))
	if err != nil || len(got) != 2 || got[0].Code != codes.DataLoss || got[0].Body != nil || got[1].Kind != KindOpened {
		t.Errorf("%v, %+v", err, got)
	}
}

func TestNoRecording(t *testing.T) {
	for name, tc := range map[string]struct {
		file, want string
	}{
		"empty":   {"", "doesn't begin with"},
		"foreign": {strings.Repeat("foreign\n", 100), "doesn't begin with"},
		"newer":   {magic + "2\n", "version 2: must be at most 1"},
		"zero":    {magic + "0\n", "version 0"},
		"no line": {magic + strings.Repeat("1", 100), "doesn't begin with"},
	} {
		if _, err := NewReader(strings.NewReader(tc.file)); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	var torn *TornError
	if _, err := NewReader(strings.NewReader(magic + "1\n")); !errors.As(err, &torn) {
		t.Errorf("without a header: %v", err)
	}
}

// A file never grows beyond its bound, has its end, and says what was left out.
func TestFull(t *testing.T) {
	const most = 20 << 10
	want := some(5000)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range want { // that can't be made smaller
		want[i].Body = fmt.Appendf(nil, "%x", rng.Uint64())
	}
	file := recorded(t, want, most)
	if len(file) > most {
		t.Errorf("%d bytes, want at most %d", len(file), most)
	}
	got, end, err := read(t, file)
	if err != nil || len(got) == 0 || len(got) == len(want) || !cmp.Equal(want[:len(got)], got) {
		t.Fatalf("%d entries, %v", len(got), err)
	}
	if end.Left != int64(len(want)-len(got)) {
		t.Errorf("%d of %d are there, and %d left out", len(got), len(want), end.Left)
	}
}

// A list that is as the one before costs next to nothing.
func TestEqualListsAreSmall(t *testing.T) {
	list := &runtimeapi.ListContainersResponse{}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		list.Containers = append(list.Containers, &runtimeapi.Container{
			Id: fmt.Sprintf("%016x%016x", rng.Uint64(), rng.Uint64()), PodSandboxId: fmt.Sprintf("%016x", rng.Uint64()),
			Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprint("c", i)},
			Labels:   map[string]string{"io.kubernetes.pod.uid": fmt.Sprintf("%016x", rng.Uint64()), "io.kubernetes.pod.name": fmt.Sprint("pod-", i)},
		})
	}
	sizes := []int{}
	for _, n := range []int{1, 101} {
		var entries []Entry
		for i := range n {
			list.Containers[i].State ^= 1
			e := Entry{Kind: KindAnswer, Method: "ListContainers", At: int64(i)}
			if err := e.Set(list); err != nil {
				t.Fatal(err)
			}
			entries = append(entries, e)
		}
		sizes = append(sizes, len(recordedWith(t, entries, 1<<30, window)))
	}
	if each := (sizes[1] - sizes[0]) / 100; each > 400 {
		t.Errorf("a list that differs from the one before in one item costs %d bytes, the first %d", each, sizes[0])
	}
}

// Whatever a file holds, reading it ends with an error or its end.
func FuzzRead(f *testing.F) {
	f.Add(recorded(f, some(10), 1<<20))
	f.Add([]byte(magic + "1\nD"))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := NewReader(bytes.NewReader(file))
		if err != nil {
			return
		}
		defer r.Close()
		for range 1000 {
			if _, err := r.Next(); err != nil {
				var torn *TornError
				if !errors.Is(err, io.EOF) && !errors.As(err, &torn) {
					t.Errorf("%v", err)
				}
				return
			}
		}
	})
}

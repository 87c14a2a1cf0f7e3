package timestamps

import (
	"errors"
	"strings"
	"testing"
)

const goodEpoch = "9f010203040506ab"

// Rule D2: epochs are 16 hex digits.
func TestD2ParseEpoch(t *testing.T) {
	e, err := ParseEpoch(goodEpoch)
	if err != nil || e != (Epoch{0x9f, 1, 2, 3, 4, 5, 6, 0xab}) || e.String() != goodEpoch || e.IsZero() {
		t.Errorf("got %v and error %v", e, err)
	}
	if !(Epoch{}).IsZero() {
		t.Error("the zero epoch isn't zero")
	}
	for _, s := range []string{
		"", "9f", goodEpoch + "00", "9F010203040506AB", "9f010203040506ag", "0000000000000000", " 9f010203040506a", "9f01020304050\xff\xff\xff", "９f010203040506", strings.Repeat("z", 1000),
	} {
		e, err := ParseEpoch(s)
		if !errors.Is(err, ErrPosition) || !e.IsZero() {
			t.Errorf("%q: got %v and error %v, want an error that wraps ErrPosition", s, e, err)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("%.20q...: the message has %d bytes", s, len(err.Error()))
		}
	}
}

// Rule D2: a position is (epoch, number), and numbers stay below 2^53.
func TestD2ParsePosition(t *testing.T) {
	for text, want := range map[string]uint64{"/0": 0, "/1": 1, "/42": 42, "/9007199254740991": MaxNumber} {
		p, err := ParsePosition(goodEpoch + text)
		if err != nil || p.Seq != want || p.Epoch.String() != goodEpoch || p.String() != goodEpoch+text {
			t.Errorf("%s: got %v and error %v", text, p, err)
		}
	}
	for _, s := range []string{
		"", "/", "5", goodEpoch, goodEpoch + "/", goodEpoch + "/-1", goodEpoch + "/+1", goodEpoch + "/01", goodEpoch + "/00", goodEpoch + "/1/2",
		goodEpoch + "/ 1", goodEpoch + "/1 ", goodEpoch + "/0x1", goodEpoch + "/1_0", goodEpoch + "/9007199254740992", goodEpoch + "/99999999999999999999",
		"0000000000000000/1", "/1", "9F010203040506AB/1", goodEpoch + "\n/1", goodEpoch + "/１", strings.Repeat("9", 5000) + "/1",
	} {
		p, err := ParsePosition(s)
		if !errors.Is(err, ErrPosition) || p != (Position{}) {
			t.Errorf("%q: got %v and error %v, want an error that wraps ErrPosition", s, p, err)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%.20q...: the message has %d bytes", s, len(err.Error()))
		}
	}
}

// What parses is what String writes: there is one text for each position.
func FuzzParsePosition(f *testing.F) {
	for _, s := range []string{goodEpoch + "/0", goodEpoch + "/9007199254740991", goodEpoch + "/01", "/", "", "0000000000000000/1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePosition(s)
		if err != nil {
			if !errors.Is(err, ErrPosition) {
				t.Errorf("error %v doesn't wrap ErrPosition", err)
			}
			return
		}
		if p.String() != s || p.Epoch.IsZero() || p.Seq > MaxNumber {
			t.Errorf("%q was read as %v", s, p)
		}
	})
}

func FuzzParseEpoch(f *testing.F) {
	f.Add(goodEpoch)
	f.Add("0000000000000000")
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseEpoch(s)
		if err != nil {
			if !errors.Is(err, ErrPosition) || !e.IsZero() {
				t.Errorf("got %v and error %v", e, err)
			}
			return
		}
		if e.String() != s || e.IsZero() {
			t.Errorf("%q was read as %v", s, e)
		}
	})
}

func FuzzPositionComesBack(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8}, uint64(42))
	f.Fuzz(func(t *testing.T, epoch []byte, seq uint64) {
		var p Position
		copy(p.Epoch[:], epoch)
		p.Seq = seq
		got, err := ParsePosition(p.String())
		if ok := !p.Epoch.IsZero() && seq <= MaxNumber; (err == nil) != ok {
			t.Errorf("%v: got error %v", p, err)
		} else if ok && got != p {
			t.Errorf("%v came back as %v", p, got)
		}
	})
}

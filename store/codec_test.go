package store

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/plegd/plegd/timestamps"
)

func sampleRecord(id string) *Record {
	return &Record{
		Kind: KindContainer, ID: id, Sandbox: "s", Reported: ReportedNone, Incarnation: 1, State: StateUp, FirstSeen: 3, Known: 4,
		Identity: Identity{Pod: PodRef{UID: "u", Namespace: "n", Name: "p"}, Labels: map[string]string{"b": "1", "a": "2"}},
		Exit:     Exit{Code: -1, FinishedAt: 9}, Evidence: Evidences{Exit: Evidence{Span: timestamps.Call(1, 2), Full: true}}, Rest: "\xff\x00\x01",
	}
}

func TestCodecComesBackAndIsDeterministic(t *testing.T) {
	want := sampleRecord("c1")
	value, err := encodeRecord(tableContainers, want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeRecord(tableContainers, []byte("c1"), value)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record came back as something else (-want +got):\n%s", diff)
	}
	for range 20 { // maps have no order
		if again, _ := encodeRecord(tableContainers, sampleRecord("c1")); !bytes.Equal(value, again) {
			t.Fatal("the same record was encoded in two ways")
		}
	}
	if err := cbor.Wellformed(value[envelopeHead:]); err != nil {
		t.Errorf("not CBOR: %v", err)
	}
}

// Invariant 4: a damaged value is left out, never misread.
func TestCodecFindsEveryFlippedBit(t *testing.T) {
	value, err := encodeRecord(tableContainers, sampleRecord("c1"))
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(value) {
		bad := bytes.Clone(value)
		bad[bit/8] ^= 1 << (bit % 8)
		if _, err := decodeRecord(tableContainers, []byte("c1"), bad); !errors.Is(err, errDamagedValue) {
			t.Errorf("bit %d flipped: got error %v", bit, err)
		}
	}
	for n := range value {
		if _, err := decodeRecord(tableContainers, []byte("c1"), value[:n]); !errors.Is(err, errDamagedValue) {
			t.Errorf("cut to %d bytes: got error %v", n, err)
		}
	}
}

func TestCodecRefusesASoundValueInTheWrongPlace(t *testing.T) {
	value, err := encodeRecord(tableContainers, sampleRecord("c1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeRecord(tableContainers, []byte("c2"), value); !errors.Is(err, errDamagedValue) {
		t.Errorf("under another key: got error %v", err)
	}
	if _, err := decodeRecord(tableTombstones, []byte("c1"), value); !errors.Is(err, errDamagedValue) {
		t.Errorf("in another table: got error %v", err)
	}
	for name, change := range map[string]func(*Record){
		"another id":   func(r *Record) { r.ID = "c2" },
		"another kind": func(r *Record) { r.Kind = KindSandbox },
		"no kind":      func(r *Record) { r.Kind = 0 },
	} {
		r := sampleRecord("c1")
		change(r)
		value, err := seal(tableContainers, []byte("c1"), r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeRecord(tableContainers, []byte("c1"), value); !errors.Is(err, errDamagedValue) {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

// A sum can be right and the content hostile all the same; decoding stays
// strict and bounded.
func TestCodecDecodesStrictly(t *testing.T) {
	for name, body := range map[string]string{
		"nothing":           "",
		"not a map":         "\x01",
		"trailing bytes":    "\xa1\x01\x02\x00",
		"a key twice":       "\xa2\x01\x02\x01\x02",
		"open-ended map":    "\xbf\x01\x02\xff",
		"a tag":             "\xc0\xa1\x01\x02",
		"deep nesting":      "\xa1\x18\x63" + "\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x81\x00",
		"a huge array":      "\xa1\x0c\x9a\x7f\xff\xff\xff",
		"a huge map":        "\xa1\x05\xba\x7f\xff\xff\xff",
		"a huge string":     "\xa1\x02\x7b\x7f\xff\xff\xff\xff\xff\xff\xff",
		"text for a number": "\xa1\x05\x61a",
		"number too large":  "\xa1\x01\x19\x01\x00",
	} {
		value := append([]byte{envelopeVersion, 0, 0, 0, 0}, body...)
		sum := checksum(tableContainers, []byte("c1"), value)
		value[1], value[2], value[3], value[4] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
		if _, err := open(tableContainers, []byte("c1"), value); err != nil {
			t.Fatalf("%s: the envelope itself is refused: %v", name, err)
		}
		if r, err := decodeRecord(tableContainers, []byte("c1"), value); !errors.Is(err, errDamagedValue) {
			t.Errorf("%s: got %+v and error %v", name, r, err)
		}
	}
	// What a later version adds is no damage.
	value := must(seal(tableContainers, []byte("c1"), map[int]any{1: 2, 2: "c1", 99: []int{1}}))
	if _, err := decodeRecord(tableContainers, []byte("c1"), value); err != nil {
		t.Errorf("a field of a later version: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, t := range tableList {
		f.Add(byte(t), []byte("c1"), must(encMode.Marshal(sampleRecord("c1"))))
	}
	f.Add(byte(tableJournal), seqKey(5), must(encMode.Marshal(Event{Type: ContainerDied, Changed: []string{"a"}})))
	f.Fuzz(func(t *testing.T, tab byte, key, body []byte) {
		value := append([]byte{envelopeVersion, 0, 0, 0, 0}, body...)
		sum := checksum(table(tab), key, value)
		value[1], value[2], value[3], value[4] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
		if r, err := decodeRecord(table(tab), key, value); err == nil {
			again, err := encodeRecord(table(tab), r)
			if err != nil {
				t.Fatalf("%+v was read but can't be written: %v", r, err)
			}
			if r2, err := decodeRecord(table(tab), key, again); err != nil || !r2.SameContent(r) {
				t.Errorf("%+v came back as %+v, %v", r, r2, err)
			}
		}
		_, _ = decodeEvent(key, value)
		_ = unseal(table(tab), key, value, new(Ask))
		_ = unseal(table(tab), key, value, new(Meta))
		_ = unseal(table(tab), key, value, new(Placement))
	})
}

// The numbers of tables, kinds, states, reasons and sources are stored.
func TestStoredNumbersNeverChange(t *testing.T) {
	got := []int{
		int(tableMeta), int(tableSandboxes), int(tableContainers), int(tableTombstones), int(tableAsks), int(tablePlaces), int(tableJournal),
		int(KindSandbox), int(KindContainer), int(StateNone), int(StateCreated), int(StateUp), int(StateDown), int(StateRemoved),
		int(ReasonDetails), int(ReasonConfirm), int(ReasonRegress), int(ReasonRemoval), int(ReasonUnknown), int(ReasonNoIP), int(ReasonExit255),
		int(ReasonExit137), int(ReasonContradict),
		int(timestamps.FromUnknown), int(timestamps.FromStream), int(timestamps.FromRelist), int(timestamps.FromInspect),
	}
	want := []int{1, 2, 3, 4, 5, 6, 7, 1, 2, 0, 1, 2, 3, 4, 1, 2, 4, 8, 16, 32, 64, 128, 256, 0, 1, 2, 3}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stored numbers changed (-want +got):\n%s", diff)
	}
}

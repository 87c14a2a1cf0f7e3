package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/fxamacker/cbor/v2"
)

// Every stored value is one envelope: a version byte, a CRC-32C in big-endian
// order, and the value in CBOR's deterministic core encoding. The checksum
// covers the version, the table and the key too, so that a sound value under
// another value's key is found out as well.
const (
	envelopeVersion = 1
	envelopeHead    = 1 + crc32.Size
)

// The limits of decoding. They bound what a damaged value with a good checksum
// could make us allocate; what plegd writes is far below them.
const (
	maxNesting  = 8       // records nest 4 deep
	maxElements = 1 << 16 // addresses, changed fields
	maxPairs    = 1 << 16 // labels
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	encMode = must(cbor.CoreDetEncOptions().EncMode())
	decMode = must(cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		MaxNestedLevels:  maxNesting,
		MaxArrayElements: maxElements,
		MaxMapPairs:      maxPairs,
		// Strings come from runtimes. One that isn't UTF-8 must come back as
		// it was, and must not cost the whole record.
		UTF8: cbor.UTF8DecodeInvalid,
	}.DecMode())
)

// must is for values that are the same in every run, so that any test finds
// the panic.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// wireRecord is the stored form of a Record. The status in Rest is protobuf,
// which CBOR must not be told is text.
type wireRecord struct {
	*Record
	Rest cbor.ByteString `cbor:"24,keyasint,omitempty"`
}

// encodeRecord returns the stored value of a record.
func encodeRecord(t table, r *Record) ([]byte, error) {
	return seal(t, []byte(r.ID), wireRecord{Record: r, Rest: cbor.ByteString(r.Rest)})
}

// decodeRecord reads what encodeRecord wrote under this key.
func decodeRecord(t table, key, value []byte) (*Record, error) {
	w := wireRecord{Record: new(Record)}
	if err := unseal(t, key, value, &w); err != nil {
		return nil, err
	}
	w.Record.Rest = string(w.Rest)
	if w.ID != string(key) {
		return nil, fmt.Errorf("%w: it names itself %.80q", errDamagedValue, w.ID)
	}
	if want := t.kind(); (want != 0 && w.Kind != want) || (w.Kind != KindSandbox && w.Kind != KindContainer) {
		return nil, fmt.Errorf("%w: its kind is %d", errDamagedValue, w.Kind)
	}
	return w.Record, nil
}

// seal encodes v into an envelope for this table and key.
func seal(t table, key []byte, v any) ([]byte, error) {
	body, err := encMode.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%s %.80q: %w", t, key, err)
	}
	out := make([]byte, envelopeHead, envelopeHead+len(body))
	out[0] = envelopeVersion
	out = append(out, body...)
	binary.BigEndian.PutUint32(out[1:], checksum(t, key, out))
	return out, nil
}

// open checks an envelope and returns the bytes in it. It decodes nothing, so
// it is what a walk over many values uses.
func open(t table, key, value []byte) ([]byte, error) {
	if len(value) < envelopeHead {
		return nil, fmt.Errorf("%w: %d bytes", errDamagedValue, len(value))
	}
	if value[0] != envelopeVersion {
		return nil, fmt.Errorf("%w: envelope version %d", errDamagedValue, value[0])
	}
	if binary.BigEndian.Uint32(value[1:]) != checksum(t, key, value) {
		return nil, fmt.Errorf("%w: checksum differs", errDamagedValue)
	}
	return value[envelopeHead:], nil
}

// unseal reads an envelope into v, which it fills with copies.
func unseal(t table, key, value []byte, v any) error {
	body, err := open(t, key, value)
	if err != nil {
		return err
	}
	if err := decMode.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%w: %w", errDamagedValue, err)
	}
	return nil
}

// checksum covers everything that a value's meaning hangs on but the checksum
// itself.
func checksum(t table, key, envelope []byte) uint32 {
	c := crc32.Update(0, castagnoli, []byte{envelope[0], byte(t)})
	c = crc32.Update(c, castagnoli, key)
	return crc32.Update(c, castagnoli, envelope[envelopeHead:])
}

package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/fxamacker/cbor/v2"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/codes"
)

const (
	// magic begins a file; what follows it in the line is the version.
	magic = "plegd recording "
	// version is the one that is written, and the newest that is read.
	version = 1
	// window is how far zstd looks back, bytes: some lists of a full node.
	window = 8 << 20
	// chunkSize is after how many bytes of entries a chunk is ended.
	chunkSize = 256 << 10
	// maxEntry bounds an entry, bytes: the largest message there is and its frame.
	maxEntry = 17 << 20
	// maxBody bounds what an entry holds, bytes; the rest of it is small.
	maxBody = maxEntry - 64<<10
	// LeastSize is the smallest bound of a file, bytes.
	LeastSize = 64 << 10
	// reserve is kept for the last chunk, so that a file that is full is an ended one.
	reserve = 4 << 10
)

var (
	// ErrFull is returned for what doesn't fit any more.
	ErrFull = errors.New("the recording has its full size")

	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// The kinds of chunks.
const (
	chunkData = 'D'
	chunkEnd  = 'E'
	chunkHead = 9 // bytes before what is in it
)

// Writer writes a recording. It is for one goroutine.
type Writer struct {
	w       io.Writer
	most    int64
	written int64
	zip     *zstd.Encoder
	chunk   bytes.Buffer // what zip has put out
	gather  int          // bytes of entries since the last chunk
	counted Count        // that were written
	waiting Count        // that wait in the chunk
	left    int64        // entries that found no room
	full    bool
	err     error // of w: nothing can be written after it
}

// NewWriter begins a recording of at most so many bytes.
func NewWriter(w io.Writer, h Header, most int64) (*Writer, error) {
	return newWriter(w, h, most, window)
}

func newWriter(w io.Writer, h Header, most int64, window int) (*Writer, error) {
	r := &Writer{w: w, most: most}
	zip, err := zstd.NewWriter(&r.chunk, zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	r.zip = zip
	first := fmt.Sprintf("%s%d\n", magic, version)
	if _, err := io.WriteString(w, first); err != nil {
		return nil, err
	}
	r.written = int64(len(first))
	if err := r.put(h); err != nil {
		return nil, err
	}
	return r, r.Flush()
}

// Write takes an entry. It is in the file after the next Flush. An answer that is larger than
// any message, which a list that comes in parts can be, becomes an error (DataLoss). The
// error is ErrFull where there is no room for more, which stays so, or that of the file.
func (r *Writer) Write(e *Entry) error {
	if r.full {
		r.left++
		return ErrFull
	}
	if len(e.Body) > maxBody {
		without := *e
		without.Body, without.Code, without.Message = nil, codes.DataLoss, fmt.Sprintf("%d bytes are too many to be recorded", len(e.Body))
		e = &without
	}
	if err := r.put(e); err != nil {
		return err
	}
	r.waiting.add(e)
	if r.gather < chunkSize {
		return nil
	}
	return r.Flush()
}

// put adds what is encoded to the stream.
func (r *Writer) put(v any) error {
	if r.err != nil {
		return r.err
	}
	b, err := cbor.Marshal(v)
	if err != nil {
		return err
	}
	if len(b) > maxEntry {
		return fmt.Errorf("an entry of %d bytes: must be at most %d", len(b), maxEntry)
	}
	if _, err := r.zip.Write(binary.AppendUvarint(nil, uint64(len(b)))); err != nil {
		return err
	}
	_, err = r.zip.Write(b)
	r.gather += len(b)
	return err
}

// Flush writes what was taken. The error is ErrFull where that doesn't fit: then
// nothing of it is written.
func (r *Writer) Flush() error {
	if r.full || r.gather == 0 {
		return r.err
	}
	if err := r.zip.Flush(); err != nil {
		return err
	}
	if r.written+chunkHead+int64(r.chunk.Len()) > r.most-reserve {
		r.full = true
		r.left += r.waiting.Entries
		return ErrFull
	}
	if err := r.write(chunkData, r.chunk.Bytes()); err != nil {
		return err
	}
	r.chunk.Reset()
	r.counted.merge(r.waiting)
	r.gather, r.waiting = 0, Count{}
	return nil
}

// Count returns how much of what is in the file.
func (r *Writer) Count() Count { return r.counted }

// Close writes what was taken, and the end. It doesn't close the file.
func (r *Writer) Close(e End) error {
	err := r.Flush()
	if errors.Is(err, ErrFull) {
		err = nil
	}
	e.Left = r.left
	b, cerr := cbor.Marshal(e)
	if err = errors.Join(err, cerr); err != nil {
		return err
	}
	return r.write(chunkEnd, b)
}

func (r *Writer) write(kind byte, data []byte) error {
	if r.err != nil {
		return r.err
	}
	head := binary.LittleEndian.AppendUint32([]byte{kind}, uint32(len(data)))
	head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(data, castagnoli))
	if _, r.err = r.w.Write(append(head, data...)); r.err == nil {
		r.written += chunkHead + int64(len(data))
	}
	return r.err
}

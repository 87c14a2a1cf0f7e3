package recording

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/fxamacker/cbor/v2"
	"github.com/klauspost/compress/zstd"
)

// maxChunk bounds a chunk, bytes: the largest entry behind a full chunk, if nothing of
// it can be made smaller.
const maxChunk = maxEntry + 2*chunkSize

// ErrFormat is wrapped by the errors about files that are no recording, or one of a
// version that is not known.
var ErrFormat = errors.New("not a recording that can be read")

// TornError says from where on a recording can't be read. All before it is good.
type TornError struct {
	Offset int64 // bytes
	Reason string
}

// Error names the place and the reason.
func (e *TornError) Error() string {
	return fmt.Sprintf("the recording is torn at byte %d: %s", e.Offset, e.Reason)
}

// Reader reads a recording. It is for one goroutine.
type Reader struct {
	Header Header

	chunks  *chunks
	zip     *zstd.Decoder
	entries *bufio.Reader
}

// NewReader reads the header. The error wraps ErrFormat, or is a TornError where even
// that is not whole.
func NewReader(r io.Reader) (*Reader, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	first, err := in.Peek(len(magic) + 12)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	line, _, whole := strings.Cut(string(first), "\n")
	number, is := strings.CutPrefix(line, magic)
	v, err := strconv.Atoi(number)
	switch {
	case !is || !whole || err != nil:
		return nil, fmt.Errorf("%w: it doesn't begin with %q and a version", ErrFormat, magic)
	case v < 1 || v > version:
		return nil, fmt.Errorf("%w: it has version %d: must be at most %d, the newest that this plegd knows", ErrFormat, v, version)
	}
	n, _ := in.Discard(len(line) + 1)
	c := &chunks{in: in, offset: int64(n)}
	zip, err := zstd.NewReader(c, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return nil, err
	}
	out := &Reader{chunks: c, zip: zip, entries: bufio.NewReaderSize(zip, 64<<10)}
	if err := out.next(&out.Header); err != nil {
		zip.Close()
		return nil, out.torn(err)
	}
	return out, nil
}

// Close gives the reader's memory back.
func (r *Reader) Close() { r.zip.Close() }

// Next returns the next entry. The error is io.EOF at the end, see End, and a
// TornError where the file ends before it or is damaged.
func (r *Reader) Next() (*Entry, error) {
	var e Entry
	if err := r.next(&e); err != nil {
		return nil, r.torn(err)
	}
	return &e, nil
}

// End says why nothing more was recorded. It is nil before Next has returned io.EOF.
func (r *Reader) End() *End { return r.chunks.end }

func (r *Reader) next(v any) error {
	n, err := binary.ReadUvarint(r.entries)
	if err != nil {
		return err
	}
	if n > maxEntry {
		return fmt.Errorf("an entry of %d bytes: must be at most %d", n, maxEntry)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r.entries, b); err != nil {
		return err
	}
	return cbor.Unmarshal(b, v)
}

// torn makes an error of reading what it means for the file.
func (r *Reader) torn(err error) error {
	if r.chunks.end != nil && r.chunks.torn == nil {
		return io.EOF
	}
	if r.chunks.torn != nil {
		return r.chunks.torn
	}
	return &TornError{r.chunks.offset, err.Error()}
}

// chunks are what is in the data chunks of a file, up to its end or a tear. The stream
// in them has no end of its own, so what is after its last block is an error of zstd,
// for which chunks knows the reason.
type chunks struct {
	in     *bufio.Reader
	offset int64 // of the next chunk
	left   []byte
	end    *End
	torn   *TornError
}

// Read implements [io.Reader].
func (c *chunks) Read(p []byte) (int, error) {
	for len(c.left) == 0 {
		if c.end != nil || c.torn != nil {
			return 0, io.EOF
		}
		if why := c.read(); why != "" {
			c.torn = &TornError{c.offset, why}
		}
	}
	n := copy(p, c.left)
	c.left = c.left[n:]
	return n, nil
}

// read reads a chunk, and returns why it is none.
func (c *chunks) read() (why string) {
	var head [chunkHead]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return "it ends there: " + err.Error()
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxChunk {
		return fmt.Sprintf("a chunk of %d bytes: must be at most %d", n, maxChunk)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(c.in, data); err != nil {
		return "it ends in a chunk: " + err.Error()
	}
	if crc32.Checksum(data, castagnoli) != binary.LittleEndian.Uint32(head[5:]) {
		return "the checksum of a chunk is wrong"
	}
	switch head[0] {
	case chunkData:
		c.left = data
	case chunkEnd:
		var end End
		if err := cbor.Unmarshal(data, &end); err != nil {
			return err.Error()
		}
		c.end = &end
		if _, err := c.in.Peek(1); err == nil {
			c.offset += chunkHead + int64(n)
			return "it has its end there, and more after it"
		}
	default:
		return fmt.Sprintf("a chunk of kind %q", head[0])
	}
	c.offset += chunkHead + int64(n)
	return ""
}

package replay

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/plegd/plegd/internal/recording"
)

// Recording is a recording of which the beginning was read.
type Recording struct {
	Header recording.Header

	file   *os.File
	reader *recording.Reader
	next   *recording.Entry // nil after the last one
	last   int64            // the time of the last one
	end    recording.End
	torn   error
	lost   int64 // entries that the disk was too slow for
}

// Open reads the beginning of a recording. The error names the file, and wraps
// recording.ErrFormat for what is none or of a newer version.
func Open(path string) (*Recording, error) {
	file, err := recording.Open(path)
	if err != nil {
		return nil, err
	}
	reader, err := recording.NewReader(file)
	if err != nil {
		_ = file.Close()
		if cause := errors.Unwrap(err); cause != nil && !errors.Is(err, recording.ErrFormat) { // such as of a disk
			err = cause
		}
		return nil, fmt.Errorf("%q: %w", path, err)
	}
	r := &Recording{Header: reader.Header, file: file, reader: reader}
	r.advance()
	return r, nil
}

// Close closes the file.
func (r *Recording) Close() error {
	r.reader.Close()
	return r.file.Close()
}

// advance reads the next entry.
func (r *Recording) advance() {
	e, err := r.reader.Next()
	switch {
	case err == nil:
		r.last = max(r.last, e.At) // damage that no checksum sees must not turn time back
		e.At = r.last
		r.next = e
		return
	case errors.Is(err, io.EOF):
		r.end = *r.reader.End()
	default:
		r.torn = err
		r.end = recording.End{At: r.last, Reason: "the recording is torn"}
	}
	r.next = nil
	r.last = max(r.last, r.end.At)
}

// due returns when the next entry came, or the end, ns.
func (r *Recording) due() int64 {
	if r.next == nil {
		return r.last
	}
	return r.next.At
}

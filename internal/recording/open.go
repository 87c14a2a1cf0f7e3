package recording

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrNoFile: a recording is read from a regular file. It is read more than once by a
// comparison, and nobody waits for who may write into a pipe.
var ErrNoFile = errors.New("is no regular file, such as record writes; a pipe or a device can't be read")

// Open opens the file of a recording. The error names it.
func Open(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for its writer
	if err != nil {
		return nil, fmt.Errorf("%q: %w", path, errors.Unwrap(err))
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = syscall.EISDIR
	case !info.Mode().IsRegular():
		err = ErrNoFile
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%q: %w", path, err)
	}
	return file, nil
}

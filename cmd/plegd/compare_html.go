package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// pageFile is the file that a report is written to as a page. It appears at its place
// with all of it at once, so what was there before stays if there is no report.
type pageFile struct {
	path string
	file *os.File // beside it, until write or drop
}

// newPageFile makes a file beside the one that is wanted: where that is not possible,
// it is known before the comparison. input is a file that it must not be.
func newPageFile(path, input string) (*pageFile, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("--html %q: %w", path, errors.Unwrap(err))
	case !info.Mode().IsRegular():
		return nil, usagef("--html %q: is there and is no regular file; name another", path)
	default:
		if in, err := os.Stat(input); err == nil && os.SameFile(info, in) {
			return nil, usagef("--html %q: is the recording of --input; name another file", path)
		}
	}
	p := &pageFile{path: path}
	if target, err := filepath.EvalSymlinks(path); err == nil { // a link stays one
		p.path = target
	}
	// 0644 less the umask, which os.CreateTemp does not do.
	p.file, err = os.OpenFile(p.path+"."+strconv.Itoa(os.Getpid()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // a report is for everybody
	if err != nil {
		return nil, fmt.Errorf("--html %q: %w", path, errors.Unwrap(err))
	}
	return p, nil
}

// write puts the page in its place.
func (p *pageFile) write(page []byte) error {
	_, err := p.file.Write(page)
	if err = errors.Join(err, p.file.Close()); err == nil {
		err = os.Rename(p.file.Name(), p.path)
	}
	if err != nil {
		return fmt.Errorf("--html: %w", err)
	}
	return nil
}

// drop removes what was not put in its place. It may be called in any case.
func (p *pageFile) drop() {
	if p != nil {
		_ = p.file.Close()
		_ = os.Remove(p.file.Name())
	}
}

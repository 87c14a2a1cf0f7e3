package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Pages describes the page structure of a bbolt file.
type Pages struct {
	FileSize int64 // bytes
	PageSize int   // bytes
	Total    int   // pages below the high-water mark
	Used     int   // pages that hold data
	Free     int   // pages on the freelist
	Lost     int   // pages that are neither, see checkPages
}

// scanPages walks all pages of a closed bbolt file with plain reads and checks
// that each is where it belongs, is used once and points to nothing outside.
// It exists because bbolt itself trusts its file: damage makes it panic, fault
// or, where pages form a circle, never return. After a scan that found nothing
// bbolt can be let loose on the file. Damage inside values is not seen here;
// their checksums tell.
//
// The error wraps [ErrDamaged] when the file is at fault.
func scanPages(path string) (Pages, error) {
	f, err := os.Open(path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			err = classify(err, ErrUnwritable)
		}
		return Pages{}, fmt.Errorf("state file %s: %w", path, err)
	}
	defer f.Close()
	s := pageScan{file: f}
	if err := s.run(); err != nil {
		return s.pages, fmt.Errorf("state file %s: %w: %w", path, ErrDamaged, err)
	}
	return s.pages, nil
}

// checkPages scans a state file. It also condemns one in which pages are neither
// used nor free. bbolt loses pages only where a bucket is deleted in the
// transaction that changed it, which plegd never does; what is left is a meta
// page that is newer than the pages it points to, so that all of the state may
// be an older one.
func checkPages(path string) (Pages, error) {
	pages, err := scanPages(path)
	if err == nil && pages.Lost > 0 {
		err = fmt.Errorf("state file %s: %w: %d pages are neither used nor free", path, ErrDamaged, pages.Lost)
	}
	return pages, err
}

// pageScan is one walk over a file.
type pageScan struct {
	file  *os.File
	pages Pages
	high  uint64 // pages from here on are unused
	seen  []bool // by page id: in use, or on the freelist
	todo  []subtree
	buf   []byte
}

// subtree is a page to visit. Its keys must lie from min on and below max; nil
// is no bound.
type subtree struct {
	id       uint64
	min, max []byte
}

func (s *pageScan) run() error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	s.pages.FileSize = info.Size()
	meta, err := s.findMeta()
	if err != nil {
		return err
	}
	root, freelist := meta.u64(16), meta.u64(32)
	s.high = meta.u64(40)
	if s.high < 4 || s.high > uint64(s.pages.FileSize)/uint64(s.pages.PageSize) {
		return fmt.Errorf("file of %d bytes is too short for its %d pages", s.pages.FileSize, s.high)
	}
	s.pages.Total = int(s.high)
	s.seen = make([]bool, s.high)
	s.seen[0], s.seen[1] = true, true
	s.pages.Used = 2
	s.todo = append(s.todo, subtree{id: root})
	for len(s.todo) > 0 {
		t := s.todo[len(s.todo)-1]
		s.todo = s.todo[:len(s.todo)-1]
		page, err := s.read(t.id)
		if err == nil {
			err = s.elements(page, t)
		}
		if err != nil {
			return fmt.Errorf("page %d: %w", t.id, err)
		}
	}
	if freelist == noFreelist { // of another program, and nobody can tell
		return nil
	}
	if err := s.freelist(freelist); err != nil {
		return err
	}
	s.pages.Lost = s.pages.Total - s.pages.Used - s.pages.Free
	return nil
}

// read returns a page with all its overflow pages and marks them as used.
func (s *pageScan) read(id uint64) (span, error) {
	if id < 2 || id >= s.high {
		return nil, errors.New("out of range")
	}
	size := s.pages.PageSize
	head := span(s.room(size))
	if _, err := s.file.ReadAt(head[:pageHead], int64(id)*int64(size)); err != nil {
		return nil, err
	}
	over := uint64(head.u32(12))
	if got := head.u64(0); got != id {
		return nil, fmt.Errorf("calls itself page %d", got)
	}
	if over >= s.high-id {
		return nil, fmt.Errorf("its %d overflow pages are out of range", over)
	}
	for i := id; i <= id+over; i++ {
		if s.seen[i] {
			return nil, fmt.Errorf("page %d is in use twice", i)
		}
		s.seen[i] = true
		s.pages.Used++
	}
	page := span(s.room(size * int(over+1)))
	if _, err := io.ReadFull(io.NewSectionReader(s.file, int64(id)*int64(size), int64(len(page))), page); err != nil {
		return nil, err
	}
	return page, nil
}

// room returns a buffer that is valid until the next call.
func (s *pageScan) room(n int) []byte {
	if cap(s.buf) < n {
		s.buf = make([]byte, n)
	}
	return s.buf[:n]
}

// elements checks the elements of a branch page, a leaf page or the page that
// a small bucket has inside its value, and queues what they point to.
func (s *pageScan) elements(page span, bounds subtree) error {
	flags, count := page.u16(8), int(page.u16(10))
	if flags != flagBranch && flags != flagLeaf {
		return fmt.Errorf("unexpected flags %#x", flags)
	}
	if pageHead+count*elementHead > len(page) || (count == 0 && flags == flagBranch) {
		return fmt.Errorf("it can't hold %d elements", count)
	}
	children := len(s.todo)
	last := bounds.min
	for i := range count {
		at := pageHead + i*elementHead
		e := page[at : at+elementHead]
		pos, ksize, vsize := e.u32(0), e.u32(4), uint32(0)
		if flags == flagLeaf {
			pos, ksize, vsize = e.u32(4), e.u32(8), e.u32(12)
		}
		start := uint64(at) + uint64(pos)
		end := start + uint64(ksize) + uint64(vsize)
		if pos < elementHead || end > uint64(len(page)) {
			return fmt.Errorf("element %d is out of range", i)
		}
		key := page[start : start+uint64(ksize)]
		order := bytes.Compare(last, key)
		if order > 0 || (order == 0 && i > 0) || (bounds.max != nil && bytes.Compare(key, bounds.max) >= 0) {
			return fmt.Errorf("element %d is out of order", i)
		}
		last = key
		if flags == flagBranch {
			child := subtree{id: e.u64(8), min: bytes.Clone(key), max: bounds.max}
			if i > 0 {
				s.todo[children+i-1].max = child.min
			}
			s.todo = append(s.todo, child)
		} else if e.u32(0)&elementBucket != 0 {
			if err := s.bucket(page[start+uint64(ksize) : end]); err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
		}
	}
	return nil
}

// bucket checks the value of a bucket: the root of its tree, or a leaf page in
// place of one.
func (s *pageScan) bucket(value span) error {
	if len(value) < bucketHead {
		return errors.New("a bucket of too few bytes")
	}
	if root := value.u64(0); root != 0 {
		s.todo = append(s.todo, subtree{id: root})
		return nil
	}
	if value = value[bucketHead:]; len(value) < pageHead || value.u16(8) != flagLeaf {
		return errors.New("an inline bucket without a leaf")
	}
	return s.elements(value, subtree{})
}

// freelist checks that free pages exist and that none of them is in use.
func (s *pageScan) freelist(id uint64) error {
	page, err := s.read(id)
	if err != nil {
		return fmt.Errorf("freelist: page %d: %w", id, err)
	}
	if flags := page.u16(8); flags != flagFreelist {
		return fmt.Errorf("freelist: page %d has flags %#x", id, flags)
	}
	count, at := uint64(page.u16(10)), pageHead
	if count == longFreelist && len(page) >= pageHead+8 {
		count, at = page.u64(pageHead), pageHead+8
	}
	if count > uint64(len(page)-at)/8 {
		return fmt.Errorf("freelist: page %d can't hold %d ids", id, count)
	}
	for ; count > 0; count, at = count-1, at+8 {
		free := page.u64(at)
		if free < 2 || free >= s.high || s.seen[free] {
			return fmt.Errorf("freelist: page %d is not free", free)
		}
		s.seen[free] = true
		s.pages.Free++
	}
	return nil
}

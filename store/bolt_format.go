package store

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
)

// The parts of bbolt's file format that scanPages reads, all in the byte order
// of the machine. It has been the same since boltdb 1.0.
const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	pageHead      = 16 // id u64, flags u16, count u16, overflow u32
	elementHead   = 16 // leaf: flags, pos, ksize, vsize u32; branch: pos, ksize u32, id u64
	bucketHead    = 16 // root page u64, sequence u64
	metaChecked   = 56 // bytes of a meta under its checksum
	metaSize      = metaChecked + 8
	flagBranch    = 0x01
	flagLeaf      = 0x02
	flagFreelist  = 0x10
	elementBucket = 0x01
	noFreelist    = 1<<64 - 1
	longFreelist  = 0xFFFF // count that means: the first element is the count
)

// span is a stretch of the file with readers for its numbers.
type span []byte

func (s span) u16(at int) uint16 { return binary.NativeEndian.Uint16(s[at:]) }
func (s span) u32(at int) uint32 { return binary.NativeEndian.Uint32(s[at:]) }
func (s span) u64(at int) uint64 { return binary.NativeEndian.Uint64(s[at:]) }

// findMeta finds the page size and the valid meta with the highest
// transaction.
func (s *pageScan) findMeta() (span, error) {
	var best span
	consider := func(pos int64) (pageSize int64) {
		buf := make([]byte, pageHead+metaSize)
		if _, err := s.file.ReadAt(buf, pos); err != nil {
			return 0
		}
		m := span(buf[pageHead:])
		h := fnv.New64a()
		_, _ = h.Write(m[:metaChecked])
		if m.u32(0) != boltMagic || m.u32(4) != boltVersion || m.u64(metaChecked) != h.Sum64() {
			return 0
		}
		if size := int64(m.u32(8)); size >= 512 && size <= 16<<20 && (pos == 0 || pos == size) {
			if best == nil || m.u64(48) > best.u64(48) {
				best, s.pages.PageSize = m, int(size)
			}
			return size
		}
		return 0
	}
	if size := consider(0); size != 0 {
		consider(size)
	} else {
		// The first meta is gone; the second is one page on, whatever a page is.
		for pos := int64(1024); pos <= 16<<20 && pos < s.pages.FileSize && best == nil; pos *= 2 {
			consider(pos)
		}
	}
	if best == nil {
		return nil, errors.New("neither of the two meta pages is valid")
	}
	return best, nil
}

// Package recording keeps what a runtime said in one file: each answer, each error
// and each message of the event stream, with the times at which they were asked for
// and came. From it a generator can be run again, see package replay.
//
// # The file
//
// It begins with a line that names the format and its version. Chunks follow: a byte
// for what it is, a length and a CRC-32C, both four bytes, little-endian, of that many
// bytes. The bytes of all data chunks are one zstd stream, of which each chunk ends a
// block, so whatever is whole up to a tear can be read. What they unfold to is a CBOR
// map for the [Header], and one for each [Entry], each behind its length as a varint.
// The last chunk is the end, which says why nothing more was recorded. A file without
// it was torn off.
//
// Lists are sorted by id, since runtimes give them in any order, and equal lists then
// cost next to nothing: zstd looks back over the last [window] bytes.
//
// # Invariants
//
//  1. What is read is what was written: a chunk counts whole or not at all.
//  2. A reader's memory is bounded by window and maxEntry, whatever the file holds.
//  3. A writer never writes more than its bound; what doesn't fit is counted.
package recording

package store

import "encoding/binary"

// table names one of the tables that make up the state. The numbers are part
// of every value's checksum and never change their meaning.
type table uint8

const (
	tableMeta       table = 1 // one value: Meta
	tableSandboxes  table = 2 // id -> Record
	tableContainers table = 3 // id -> Record
	tableTombstones table = 4 // id -> Record
	tableAsks       table = 5 // id -> Ask
	tablePlaces     table = 6 // container id -> Placement
	tableJournal    table = 7 // big-endian number -> Event
)

// tableList holds every table, in the order in which walks visit them.
var tableList = []table{tableMeta, tableSandboxes, tableContainers, tableTombstones, tableAsks, tablePlaces, tableJournal}

// tableEnd is one past the last table, for arrays indexed by table.
const tableEnd = tableJournal + 1

var tableNames = [tableEnd]string{"", "meta", "sandboxes", "containers", "tombstones", "asks", "places", "journal"}

// String returns the table's name, which is also its bucket's.
func (t table) String() string {
	if t < tableEnd {
		return tableNames[t]
	}
	return "invalid"
}

// kind returns the kind of the table's records, 0 where it may be any.
func (t table) kind() Kind {
	switch t {
	case tableSandboxes:
		return KindSandbox
	case tableContainers:
		return KindContainer
	default:
		return 0
	}
}

// recordTable returns the table that holds the records of a kind.
func recordTable(k Kind) table {
	if k == KindSandbox {
		return tableSandboxes
	}
	return tableContainers
}

// metaKey is the key of the one value of Meta.
var metaKey = []byte("meta")

// seqKey returns the key of a journal entry. Big-endian, so that the order of
// keys is the order of numbers.
func seqKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }

// seqOf reads a journal key. ok is false for a key that is none.
func seqOf(key []byte) (seq uint64, ok bool) {
	if len(key) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(key), true
}

// reader is one read transaction over the tables. What get and each return is
// valid until the transaction ends and is never modified.
type reader interface {
	// get returns the value of a key, nil when there is none.
	get(t table, key []byte) []byte
	// each visits the keys of a table from the one given on, in byte order,
	// until visit returns false. visit must not write.
	each(t table, from []byte, visit func(key, value []byte) bool)
}

// writer is one write transaction over the tables. It keeps the keys and
// values it is given; they must not be modified afterwards.
type writer interface {
	reader
	put(t table, key, value []byte) error
	delete(t table, key []byte) error
	// clear deletes everything in a table.
	clear(t table) error
}

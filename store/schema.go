package store

import (
	"fmt"
	"hash/crc32"
)

// schemaKey holds the schema version in table meta. Its value is a line of
// ASCII text with a checksum of its own and keeps this form in all versions,
// so that any version can tell that a file is newer than itself.
var schemaKey = []byte("schema")

// encodeSchema returns the stored form of a schema version.
func encodeSchema(version uint32) []byte {
	text := fmt.Sprintf("plegd state schema %d", version)
	return fmt.Appendf(nil, "%s %08x", text, crc32.Checksum([]byte(text), castagnoli))
}

// decodeSchema reads what encodeSchema wrote.
func decodeSchema(value []byte) (uint32, error) {
	var version, sum uint32
	if _, err := fmt.Sscanf(string(value), "plegd state schema %d %08x", &version, &sum); err != nil {
		return 0, fmt.Errorf("%w: not a state of plegd", ErrDamaged)
	}
	if string(encodeSchema(version)) != string(value) {
		return 0, fmt.Errorf("%w: schema version: checksum differs", ErrDamaged)
	}
	return version, nil
}

// checkRuntime refuses a state that describes another runtime. A state without
// the name of one describes none yet: nobody has ever answered where it was looked for.
func checkRuntime(stored, given RuntimeID) error {
	if stored.Name == "" || given == (RuntimeID{}) {
		return nil
	}
	if stored.Endpoint == given.Endpoint && stored.Node == given.Node &&
		(stored.Name == given.Name || given.Name == "") {
		return nil
	}
	return fmt.Errorf("%w: it is of %s, not of %s; use another state directory", ErrForeign, stored, given)
}

// String names the runtime in messages.
func (r RuntimeID) String() string {
	name := r.Name
	if name == "" {
		name = "a runtime"
	}
	s := fmt.Sprintf("%s at %q", name, r.Endpoint)
	if r.Node != "" {
		s += fmt.Sprintf(" on node %q", r.Node)
	}
	return s
}

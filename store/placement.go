package store

import "strings"

// Placement says where a container belongs. It is kept for every container
// that has a record or a tombstone: whoever has no more than a container's id,
// from a cgroup or a log file's name, or the beginning of one, as tools print
// it, finds the pod without decoding every record. `plegd state show ID` does.
type Placement struct {
	Sandbox string `cbor:"1,keyasint,omitempty"` // id of the sandbox that the container names
	Pod     string `cbor:"2,keyasint,omitempty"` // key of its pod, see [Record.PodKey]
}

// readPlacement returns the placement of a container, false when it has none
// or when the stored one is damaged.
func readPlacement(r reader, container string) (Placement, bool) {
	var p Placement
	key := []byte(container)
	value := r.get(tablePlaces, key)
	if value == nil || unseal(tablePlaces, key, value, &p) != nil {
		return Placement{}, false
	}
	return p, true
}

// readContainers returns the ids of up to limit containers that begin with a
// prefix, in order.
func readContainers(r reader, prefix string, limit int) []string {
	var ids []string
	r.each(tablePlaces, []byte(prefix), func(key, _ []byte) bool {
		if len(ids) == limit || !strings.HasPrefix(string(key), prefix) {
			return false
		}
		ids = append(ids, string(key))
		return true
	})
	return ids
}

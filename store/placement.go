package store

// Placement says where a container belongs. It is kept for every container
// that has a record or a tombstone, so that an event about a container alone
// can be placed without decoding records.
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

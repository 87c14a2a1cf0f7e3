package store

import "github.com/plegd/plegd/timestamps"

// Schema is the version of the file format that this code writes and reads.
const Schema = 1

// RuntimeID names the runtime that a state file describes.
type RuntimeID struct {
	Endpoint string `cbor:"1,keyasint,omitempty"` // socket path or address the agent was given
	Name     string `cbor:"2,keyasint,omitempty"` // as Version says, "" until it has answered once
	Node     string `cbor:"3,keyasint,omitempty"` // node name
}

// Meta is the part of the state that belongs to no entity.
type Meta struct {
	Schema   uint32           `cbor:"1,keyasint"`
	Runtime  RuntimeID        `cbor:"2,keyasint,omitzero"`
	Epoch    timestamps.Epoch `cbor:"3,keyasint"`
	Reserved uint64           `cbor:"4,keyasint"`           // last number that may be in use
	Next     uint64           `cbor:"5,keyasint,omitempty"` // after a clean stop: the next number; 0 otherwise
	Tick     timestamps.Tick  `cbor:"6,keyasint"`           // highest tick committed
	Running  int64            `cbor:"7,keyasint"`           // the agent's running time over all its lives, ns
	Horizon  Horizon          `cbor:"8,keyasint,omitzero"`
	BootID   string           `cbor:"9,keyasint,omitempty"`  // of the node at the last start
	Last     uint64           `cbor:"10,keyasint,omitempty"` // the highest number ever put into the journal of this epoch
}

// Horizon is the newest removal whose tombstone was evicted. An event or an
// answer older than it may belong to an id that was known and forgotten (rule
// O6).
type Horizon struct {
	Tick timestamps.Tick `cbor:"1,keyasint,omitempty"`
	Wall int64           `cbor:"2,keyasint,omitempty"` // ns
}

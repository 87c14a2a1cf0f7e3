package store

import "github.com/plegd/plegd/timestamps"

// Reason is why an entity is to be inspected again. An entry of the
// reinspection queue may have several.
type Reason uint16

// The reasons for a reinspection (rule O8).
const (
	ReasonDetails    Reason = 1 << iota // a change was seen without its start time, exit code or IP
	ReasonConfirm                       // an old event spoke of an unknown id
	ReasonRegress                       // an answer showed an earlier state
	ReasonRemoval                       // one witness of a removal was heard
	ReasonUnknown                       // the state is UNKNOWN or a number outside the enum
	ReasonNoIP                          // a ready sandbox without an address
	ReasonExit255                       // CRI-O gives 255 when the exit file isn't there yet (cri-o#9840)
	ReasonExit137                       // containerd may add OOMKilled after the exit (containerd#8180)
	ReasonContradict                    // an event's type and payload disagree
)

// Reasons is the number of reasons, for tables indexed by bit.
const Reasons = 9

var reasonNames = [Reasons]string{"details", "confirm", "regress", "removal", "unknown", "no_ip", "exit_255", "exit_137", "contradict"}

// Names returns the names of the reasons in r, in a fixed order.
func (r Reason) Names() []string {
	var names []string
	for i, n := range reasonNames {
		if r&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return names
}

// Ask is one entry of the reinspection queue. It leaves the queue only with
// the answer to a call sent after Since, or with the entity itself.
type Ask struct {
	ID    string          `cbor:"1,keyasint"`
	Kind  Kind            `cbor:"2,keyasint"` // 0 when an event didn't tell
	Why   Reason          `cbor:"3,keyasint"`
	Since timestamps.Tick `cbor:"4,keyasint"`           // of the latest reason
	Tries [Reasons]uint8  `cbor:"5,keyasint,omitempty"` // answers that didn't settle it, by reason
	Fails uint8           `cbor:"6,keyasint,omitempty"` // failed calls in a row
}

package arbiter

import (
	"bytes"
	"fmt"

	"github.com/fxamacker/cbor/v2"

	"github.com/plegd/plegd/store"
)

// scripted is one step as it was taken: a moment and an input, or a restart and what was restored.
type scripted struct {
	now      Now
	in       Input
	restored *store.Snapshot
	out      []byte // what the core decided, serialised
}

// deterministic is CBOR as the store has it: maps are sorted, equal values are equal bytes.
var deterministic = func() cbor.EncMode {
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	return mode
}()

// serialised is a core's output as bytes.
func serialised(out *Output) []byte {
	b, err := deterministic.Marshal(out)
	if err != nil {
		panic(err) // any output can be serialised
	}
	return b
}

func (r *rig) record(s scripted, out *Output) {
	if r.recording {
		s.out = serialised(out)
		r.script = append(r.script, s)
	}
}

// replay gives a new core the recorded steps and says where it decides otherwise, "" if nowhere.
func (r *rig) replay() string {
	c := NewCore(r.limits, "boot")
	for i, s := range r.script {
		var out Output
		if s.restored != nil {
			c = NewCore(r.limits, "boot")
			c.Restore(s.restored)
			out = c.Resume(s.now)
		} else {
			out = c.Step(s.now, s.in)
		}
		if b := serialised(&out); !bytes.Equal(b, s.out) {
			first, _ := cbor.Diagnose(s.out)
			second, _ := cbor.Diagnose(b)
			return fmt.Sprintf("step %d of %d, %T: decided\n%s\nand the second time\n%s", i, len(r.script), s.in, first, second)
		}
	}
	return ""
}

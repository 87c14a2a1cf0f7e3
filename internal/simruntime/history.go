package simruntime

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Kind tells sandboxes from containers in the history.
type Kind string

// Step is what happened to an object.
type Step string

// The kinds and steps of a Transition.
const (
	Sandbox   Kind = "sandbox"
	Container Kind = "container"

	Created     Step = "created"
	Ready       Step = "ready"        // sandboxes only
	NotReady    Step = "not-ready"    // sandboxes only
	Started     Step = "started"      // containers only
	StartFailed Step = "start-failed" // containers only; never has an event
	Exited      Step = "exited"       // containers only
	Removed     Step = "removed"
	Edited      Step = "edited" // changed by a test behind the runtime's back
)

// Transition is one entry of the history: what really happened, whatever the
// runtime tells about it.
type Transition struct {
	Seq       uint64    // counts from 1 without gaps
	At        time.Time // by the clock of package time, not by Config.Wall
	Kind      Kind
	Step      Step
	ID        string
	SandboxID string
	PodUID    string
	Namespace string
	Pod       string // the pod's name
	Name      string // the container's name
	Attempt   uint32
	State     string // the state afterwards, by its CRI name or number
	ExitCode  int32
	Reason    string

	// CreatedAt, StartedAt and FinishedAt are the runtime's own times,
	// nanoseconds by Config.Wall, as the status reports them.
	CreatedAt, StartedAt, FinishedAt int64

	// Silent says that the runtime itself made no event of it: it was down, or
	// it is a kind of change that has none in this profile. A profile without
	// any events doesn't count. What rules did to an event that was
	// made doesn't show here.
	Silent bool
}

// history is guarded by Runtime.mu.
type history struct {
	entries []Transition
	keep    int
	seq     uint64
}

func (h *history) add(t Transition) {
	h.seq++
	t.Seq = h.seq
	t.At = time.Now()
	if len(h.entries) >= h.keep {
		// Half at a time, so that trimming costs nothing per entry.
		h.entries = append(h.entries[:0], h.entries[len(h.entries)-h.keep/2:]...)
	}
	h.entries = append(h.entries, t)
}

// recordSandbox and recordContainer note a change that the runtime makes an event of, unless it
// is down or the step never has one.
func (r *Runtime) recordSandbox(sb *sandbox, step Step) {
	quiet := r.profile.QuietSandboxes && (step == Created || step == Removed)
	r.addSandbox(sb, step, !r.up || step == Edited || quiet)
}

func (r *Runtime) addSandbox(sb *sandbox, step Step, silent bool) {
	s := sb.status
	r.history.add(Transition{
		Kind: Sandbox, Step: step, ID: s.GetId(), SandboxID: s.GetId(),
		PodUID: s.GetMetadata().GetUid(), Namespace: s.GetMetadata().GetNamespace(), Pod: s.GetMetadata().GetName(),
		Attempt: s.GetMetadata().GetAttempt(), State: s.GetState().String(), CreatedAt: s.GetCreatedAt(),
		Silent: silent,
	})
}

func (r *Runtime) recordContainer(c *container, step Step) {
	r.addContainer(c, step, !r.up || step == Edited || step == StartFailed)
}

func (r *Runtime) addContainer(c *container, step Step, silent bool) {
	s := c.status
	var pod *runtimeapi.PodSandboxMetadata
	if sb, err := r.sandboxes.find("sandbox", c.sandboxID); err == nil {
		pod = sb.status.GetMetadata()
	}
	r.history.add(Transition{
		Kind: Container, Step: step, ID: s.GetId(), SandboxID: c.sandboxID,
		PodUID: pod.GetUid(), Namespace: pod.GetNamespace(), Pod: pod.GetName(),
		Name: s.GetMetadata().GetName(), Attempt: s.GetMetadata().GetAttempt(), State: s.GetState().String(),
		ExitCode: s.GetExitCode(), Reason: s.GetReason(),
		CreatedAt: s.GetCreatedAt(), StartedAt: s.GetStartedAt(), FinishedAt: s.GetFinishedAt(),
		Silent: silent,
	})
}

// History returns everything that happened, oldest first, as far as Config.Keep
// goes back.
func (r *Runtime) History() []Transition { return r.HistorySince(0) }

// HistorySince returns what happened after the transition numbered seq.
func (r *Runtime) HistorySince(seq uint64) []Transition {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.history.entries)
	missing := min(uint64(n), r.history.seq-min(seq, r.history.seq))
	return append([]Transition(nil), r.history.entries[n-int(missing):]...)
}

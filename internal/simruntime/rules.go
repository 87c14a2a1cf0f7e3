package simruntime

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// MethodEvent is the Method of rules that act on an event on its way from the
// runtime to all its subscribers, rather than on a call.
const MethodEvent = "event"

// Rule is a fault: what it matches, how often, and what it does. All faults of
// this package are rules; the first fields choose, the others act. Rules are
// applied in the order in which they were added, each on what the ones before
// made of it; an error code ends that.
type Rule struct {
	// Method is a CRI method without its service ("ListContainers"),
	// MethodEvent for events, or "" for every call (but no event).
	Method string

	// ID is a container or sandbox id: that of the request (of a list, the id
	// or else the sandbox of its filter), for events that of the event. "" is
	// any.
	ID string

	// Where narrows the match further. It runs under locks: it may look and
	// remember, but must not call the Runtime.
	Where func(Op) bool

	// Skip passes over the first matches, Every then takes only every nth
	// (0 and 1: all; the first of each n), Probability then draws from a source
	// that is the rule's own (0 and 1: always), and Times ends the rule after
	// it has acted so often (0: never).
	Skip, Every int
	Probability float64
	Times       int

	// After acts on the answer instead of the call: the runtime has done what
	// was asked, and the answer is late, lost or replaced by an error. On a
	// stream it acts after the first message.
	After bool

	// Do runs first and may call the Runtime, so that something can happen just
	// before (or, with After, just after) a call is carried out. Calls only.
	Do func(Op)

	// Delay makes it late. Later events overtake a delayed one; to delay a
	// whole stream in order, delay all of it by the same time.
	Delay time.Duration

	// Hang holds it until the rule is removed. Held events then come in their
	// order.
	Hang bool

	// IgnoreCancel lets neither the end of the caller's context nor its
	// departure end a Delay or Hang, as a call stuck in the kernel would. The
	// runtime's own end does.
	IgnoreCancel bool

	// Code answers with an error; Message is its text.
	Code    codes.Code
	Message string

	// EOF ends a stream at once without an error: a CRI-O without pod events
	// ends GetContainerEvents so (cri-o#7164), and a list looks empty.
	EOF bool

	// Edit changes a private copy of the outgoing message in place: an answer,
	// each message of a stream, or an event before it is queued. It runs under
	// locks for events and must not call the Runtime.
	Edit func(proto.Message)

	// Raw goes out in place of each outgoing message, after Edit: bytes that
	// need not be any message. Not nil and empty is a message with nothing in
	// it. A call that fails has no message.
	Raw []byte

	// For events only. Drop loses it. Duplicate sends so many copies more, and
	// the rule's Delay, Hang, Hold, Edit and Raw then concern the copies alone. Hold
	// keeps it back until so many later events have gone out.
	Drop      bool
	Duplicate int
	Hold      int
}

// Op is what a rule is matched against.
type Op struct {
	Method  string
	ID      string
	Request proto.Message // of a call
	Event   *Event        // of an event; not to be changed
}

// Validate refuses a rule that can't mean what it says (ErrRule).
func (r Rule) Validate() error {
	event := r.Method == MethodEvent
	switch {
	case r.Skip < 0 || r.Every < 0 || r.Times < 0 || r.Hold < 0 || r.Duplicate < 0 || r.Delay < 0:
		return fmt.Errorf("rule for %q has a negative number: %w", r.Method, ErrRule)
	case r.Probability < 0 || r.Probability > 1:
		return fmt.Errorf("rule for %q has probability %v: %w", r.Method, r.Probability, ErrRule)
	case event && (r.After || r.Do != nil || r.IgnoreCancel || r.Code != codes.OK || r.EOF):
		return fmt.Errorf("rule for events acts on a call (After, Do, IgnoreCancel, Code or EOF): %w", ErrRule)
	case !event && (r.Drop || r.Duplicate > 0 || r.Hold > 0):
		return fmt.Errorf("rule for %q acts on an event (Drop, Duplicate or Hold): %w", r.Method, ErrRule)
	case r.Drop && (r.Duplicate > 0 || r.Hold > 0 || r.Delay > 0 || r.Hang || r.changes()):
		return fmt.Errorf("rule for events drops and does something else: %w", ErrRule)
	case r.Raw != nil && (r.EOF || r.Code != codes.OK) && !r.After:
		return fmt.Errorf("rule for %q has both an answer (Raw) and an end without one (EOF or Code): %w", r.Method, ErrRule)
	case r.EOF && r.Code != codes.OK:
		return fmt.Errorf("rule for %q has both EOF and an error code: %w", r.Method, ErrRule)
	case r.IgnoreCancel && r.Delay == 0 && !r.Hang:
		return fmt.Errorf("rule for %q ignores cancellation but doesn't wait: %w", r.Method, ErrRule)
	}
	return nil
}

// changes says whether the rule changes messages.
func (r *Rule) changes() bool { return r.Edit != nil || r.Raw != nil }

// edit changes a message as the rule says.
func (r *Rule) edit(m proto.Message) {
	if r.Edit != nil {
		r.Edit(m)
	}
	if r.Raw != nil {
		SetRaw(m, r.Raw)
	}
}

// RuleHandle is an added rule.
type RuleHandle struct {
	rule    Rule
	runtime *Runtime
	rng     *rand.Rand
	removed chan struct{}

	// guarded by ruleSet.mu
	seen, acted int
	gone        bool
}

// act is one rule acting on one op.
type act struct {
	rule   Rule
	handle *RuleHandle
}

type ruleSet struct {
	seed  uint64
	mu    sync.Mutex
	rules []*RuleHandle
	added int
}

// AddRule puts a fault into effect. It fails only for a rule that contradicts
// itself.
func (r *Runtime) AddRule(rule Rule) (*RuleHandle, error) {
	if err := rule.Validate(); err != nil {
		return nil, err
	}
	s := r.rules
	s.mu.Lock()
	defer s.mu.Unlock()
	s.added++
	h := &RuleHandle{
		rule: rule, runtime: r, removed: make(chan struct{}),
		rng: newRand(s.seed, fmt.Sprintf("rule %d", s.added)),
	}
	s.rules = append(s.rules, h)
	return h, nil
}

// Remove ends a rule and lets go what hangs in it. It may be called more than
// once.
func (h *RuleHandle) Remove() {
	s := h.runtime.rules
	s.mu.Lock()
	already := h.gone
	h.gone = true
	s.rules = slices.DeleteFunc(s.rules, func(o *RuleHandle) bool { return o == h })
	s.mu.Unlock()
	if already {
		return
	}
	close(h.removed)
	h.runtime.lane.release(func(p *parcel) bool { return p.hang == h })
}

// Acted returns how often the rule has acted.
func (h *RuleHandle) Acted() int {
	h.runtime.rules.mu.Lock()
	defer h.runtime.rules.mu.Unlock()
	return h.acted
}

// holds says whether what hangs in the rule must still wait.
func (h *RuleHandle) holds() bool {
	select {
	case <-h.removed:
		return false
	default:
		return true
	}
}

// ClearRules removes every rule.
func (r *Runtime) ClearRules() {
	r.rules.mu.Lock()
	all := slices.Clone(r.rules.rules)
	r.rules.mu.Unlock()
	for _, h := range all {
		h.Remove()
	}
}

// match returns the rules that act on an op, in order.
func (s *ruleSet) match(op Op) []*act {
	s.mu.Lock()
	defer s.mu.Unlock()
	var acts []*act
	for _, h := range s.rules {
		if h.takes(op) {
			acts = append(acts, &act{rule: h.rule, handle: h})
		}
	}
	return acts
}

// takes counts a match and decides whether the rule acts on it.
func (h *RuleHandle) takes(op Op) bool {
	r := &h.rule
	if r.Method != op.Method && (r.Method != "" || op.Method == MethodEvent) {
		return false
	}
	if r.ID != "" && r.ID != op.ID || r.Where != nil && !r.Where(op) {
		return false
	}
	h.seen++
	n := h.seen - 1 - r.Skip
	switch {
	case n < 0, r.Every > 1 && n%r.Every != 0:
		return false
	case r.Times > 0 && h.acted >= r.Times:
		return false
	case r.Probability > 0 && r.Probability < 1 && h.rng.Float64() >= r.Probability:
		return false
	}
	h.acted++
	return true
}

package arbiter

import (
	"strconv"
	"strings"

	"github.com/plegd/plegd/store"
)

// MissKind is one kind of change that a stream tells of. Misses are counted by
// it, and what a runtime never sends is known by it.
type MissKind uint8

// The kinds of change.
const (
	MissSandboxCreated MissKind = iota
	MissSandboxReady
	MissSandboxNotReady
	MissSandboxRemoved
	MissContainerCreated
	MissContainerRunning
	MissContainerExited
	MissContainerFailed  // exited without having run: a failed start
	MissContainerRemoved // by itself
	MissContainerDropped // removed, and its sandbox with it
	missKinds
)

var missNames = [missKinds]string{
	"sandbox_created", "sandbox_ready", "sandbox_notready", "sandbox_removed",
	"container_created", "container_running", "container_exited", "container_failed_start",
	"container_removed", "container_removed_with_sandbox",
}

// String returns the kind's name as used in metrics, status and log.
func (k MissKind) String() string {
	if k >= missKinds {
		return "other"
	}
	return missNames[k]
}

// AllMissKinds returns every kind, in order.
func AllMissKinds() []MissKind {
	all := make([]MissKind, missKinds)
	for i := range all {
		all[i] = MissKind(i) //nolint:gosec // below missKinds
	}
	return all
}

// missSet is a set of kinds.
type missSet uint16

func setOf(kinds ...MissKind) (s missSet) {
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

func (s missSet) has(k MissKind) bool { return s&(1<<k) != 0 }

// StreamUse says what may be done with a runtime's event stream.
type StreamUse uint8

// What may be done with an event stream.
const (
	StreamShared    StreamUse = iota // every subscriber gets every event, as far as is known
	StreamCompeting                  // each event goes to one subscriber: reading takes from others
	StreamAbsent                     // there is none; the runtime says so itself
)

// habit is one row of the table of what runtimes do. All that is known of
// runtimes by their name and version stands in the table, here and nowhere else.
type habit struct {
	runtime  string  // the name in Version's answer, lower case; "" every runtime
	from, to release // the first release that does it, and the first that doesn't any more; zero: open
	what     string  // for status and log
	source   string  // where it was read or measured
	never    missSet // changes of which no event is sent
	again    store.Reason
	stream   StreamUse
}

// habits is the table. docs/design.md shows it; a test compares the two.
var habits = []habit{
	{
		what:   "sends no event for a failed start",
		source: "containerd internal/cri/server/container_start.go sets code 128 and sends nothing; CRI-O removes the container again; measured on 2.4.2 and CRI-O 1.37",
		never:  setOf(MissContainerFailed),
	},
	{
		runtime: "cri-o",
		what:    "sends no event for sandboxes created and removed",
		source:  "CRI-O f954a17e looks the sandbox up before it is marked created and after it has left the store; measured on 1.37",
		never:   setOf(MissSandboxCreated, MissSandboxRemoved),
	},
	{
		runtime: "cri-o",
		what:    "sends no event for containers removed with their sandbox",
		source:  "CRI-O f954a17e sends DELETED in RemoveContainer only; measured on 1.37",
		never:   setOf(MissContainerDropped),
	},
	{
		runtime: "cri-o",
		what:    "reports code 255 before the exit file is written",
		source:  "https://github.com/cri-o/cri-o/issues/9840",
		again:   store.ReasonExit255,
	},
	{
		runtime: "containerd",
		what:    "may set reason OOMKilled after the exit, without an event",
		source:  "https://github.com/containerd/containerd/issues/8180",
		again:   store.ReasonExit137,
	},
	{
		runtime: "containerd", from: release{1, 7}, to: release{2, 0},
		what:   "gives each event to one subscriber only",
		source: "https://github.com/containerd/containerd/issues/7318, ended by https://github.com/containerd/containerd/pull/9661",
		stream: StreamCompeting,
	},
	{
		runtime: "containerd", to: release{1, 7},
		what:   "has no event stream",
		source: "GetContainerEvents is answered with Unimplemented; measured on 1.6.20",
		stream: StreamAbsent,
	},
}

// release is a version as far as habits depend on it.
type release struct{ major, minor int }

func (r release) before(o release) bool {
	return r.major < o.major || r.major == o.major && r.minor < o.minor
}

// parseRelease reads the first two numbers of a version. What vendors and
// pre-releases add after them ("1.7.35~ds1", "v1.7.0-rc.1") makes no
// difference to any habit.
func parseRelease(version string) (r release, ok bool) {
	major, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(version), "v"), ".")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	var err1, err2 error
	r.major, err1 = strconv.Atoi(major)
	r.minor, err2 = strconv.Atoi(rest[:digits])
	return r, err1 == nil && err2 == nil && r.major >= 0
}

// covers reports whether a release, if it is known, is one of the row's.
func (h *habit) covers(r release, known bool) bool {
	open := release{}
	switch {
	case h.from == open && h.to == open:
		return true
	case !known:
		return false
	}
	return !r.before(h.from) && (h.to == open || r.before(h.to))
}

// Habits is what is known of a runtime by its name and version.
type Habits struct {
	Stream StreamUse
	Words  []string // each habit in words

	never missSet
	again store.Reason
}

// HabitsOf looks a runtime up in the table. An unknown runtime has the habits
// of all; one whose version can't be read has those that don't depend on it.
func HabitsOf(name, version string) Habits {
	var h Habits
	name = strings.ToLower(name)
	r, known := parseRelease(version)
	for i := range habits {
		row := &habits[i]
		if row.runtime != "" && row.runtime != name || !row.covers(r, known) {
			continue
		}
		h.Words = append(h.Words, row.what)
		h.never |= row.never
		h.again |= row.again
		h.Stream = max(h.Stream, row.stream)
	}
	return h
}

// learnAfter is how often a runtime must have kept quiet about a kind of
// change, and never have told of one, before that counts as a habit. A stream
// that loses every second event passes for one that never sends with a chance
// of 1 in 256, and loses that name with the next event that comes.
const learnAfter = 8

// learnable are the kinds of which a runtime may be found to send nothing. That
// something runs or has ended is what a stream is for: one that is silent about
// it is not to be relied on, however regularly it keeps silent.
var learnable = setOf(MissSandboxCreated, MissSandboxRemoved, MissContainerCreated, MissContainerFailed,
	MissContainerRemoved, MissContainerDropped)

// learning is what this run has seen the present runtime do: what is in no
// table. It is forgotten when the name or the version changes.
type learning struct {
	sent   missSet          // kinds of which an event has come
	missed [missKinds]uint8 // misses of each kind while other events came, up to learnAfter
	learnt missSet          // kinds that are never sent, by all that was seen
}

// HabitChange says that the runtime has been found to have a habit, or not to
// have it after all.
type HabitChange struct {
	Kind   MissKind
	Learnt bool
}

// excused reports whether a missing event of this kind is no miss.
func (c *Core) excused(k MissKind) bool { return c.habits.never.has(k) || c.learning.learnt.has(k) }

// learnMiss counts a miss of a kind of which no event has ever come. It counts
// only while other events come: silence about everything is a broken stream.
func (c *Core) learnMiss(s *step, k MissKind, othersCame bool) {
	l := &c.learning
	if !learnable.has(k) || !othersCame || l.sent.has(k) || l.learnt.has(k) {
		return
	}
	if l.missed[k]++; l.missed[k] == learnAfter {
		l.learnt |= setOf(k)
		s.out.Habits = append(s.out.Habits, HabitChange{Kind: k, Learnt: true})
	}
}

// learnSent takes an event as proof that events of its kind are sent.
func (c *Core) learnSent(s *step, k MissKind) {
	l := &c.learning
	l.sent |= setOf(k)
	if l.learnt.has(k) {
		l.learnt &^= setOf(k)
		s.out.Habits = append(s.out.Habits, HabitChange{Kind: k})
	}
}

// runtimeSeen takes an answer to Version. Another runtime, or another version,
// is judged anew: what the one before did says nothing of it.
func (c *Core) runtimeSeen(s *step, in *RuntimeSeen) {
	was := c.identity
	c.identity = identity{name: in.Name, version: in.Version, known: true}
	if was == c.identity {
		return
	}
	c.habits, c.learning = HabitsOf(in.Name, in.Version), learning{}
	clear(c.missing)
	if was.known {
		s.out.Renewed, s.out.Shrink = true, true
	}
}

// identity is who answers, by its own word.
type identity struct {
	name, version string
	known         bool
}

// RuntimeHabits is what is known of the runtime that answers now.
type RuntimeHabits struct {
	Known  Habits     // by its name and version
	Learnt []MissKind // kinds of change of which this run has found it to send no events
}

func (c *Core) presentHabits() RuntimeHabits {
	h := RuntimeHabits{Known: c.habits}
	for _, k := range AllMissKinds() {
		if c.learning.learnt.has(k) {
			h.Learnt = append(h.Learnt, k)
		}
	}
	return h
}

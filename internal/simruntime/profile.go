package simruntime

import (
	"errors"
	"fmt"
	"time"
)

// Profile holds what differs between runtimes: their name and their habits. The
// zero value of a habit is what containerd 2.4 does.
type Profile struct {
	// Name and Version are the answers of the Version call.
	Name, Version string

	// NoEvents answers GetContainerEvents with Unimplemented, as containerd
	// 1.6 does.
	NoEvents bool

	// EventsOff ends GetContainerEvents at once and without an error: a CRI-O
	// whose pod events are off, as they are by default (cri-o#7164).
	EventsOff bool

	// NoStreamingLists answers StreamPodSandboxes and StreamContainers with
	// Unimplemented, as every runtime before CRI 0.36 does.
	NoStreamingLists bool

	// Queue is the way of events to their subscribers.
	Queue Queue

	// CleanEnd ends event streams without an error when the runtime goes down
	// in good order (Down, not Kill), and lets calls in flight end.
	CleanEnd bool

	// QuietSandboxes sends neither CREATED nor DELETED of sandboxes.
	QuietSandboxes bool

	// QuietPodRemoval sends no DELETED of containers that are removed with
	// their sandbox.
	QuietPodRemoval bool

	// NoBlindEvents drops an event whose sandbox can't be found, instead of
	// sending it without a sandbox status.
	NoBlindEvents bool

	// PodWideEvents lists the containers of all sandboxes of the pod in an
	// event: those whose label io.kubernetes.pod.uid is the UID of the event's
	// sandbox. Without the label a container is never listed.
	PodWideEvents bool

	// StartedExited is the share of containers that exit at once of which
	// STARTED already says EXITED; StoppedFirst, a part of it, is the share of
	// those of which STOPPED comes before STARTED (cri-o#9738).
	StartedExited, StoppedFirst float64

	// Exit255 is the share of containers that exit at once of which STOPPED
	// says code 255: the file with the code wasn't written yet. Their status
	// has the true one (cri-o#8980, cri-o#9840).
	Exit255 float64

	// LateOOM tells of the reason OOMKilled only after STOPPED, which says
	// Error, and without another event (containerd#8180, containerd#12714).
	LateOOM bool

	// ForgetsFailedStarts fails the creation of a container whose command can't
	// run, and removes one whose start fails for another reason. No event tells
	// of either.
	ForgetsFailedStarts bool

	// SandboxExtras sets timestamp and containers_statuses in the answer to
	// PodSandboxStatus: the time before the containers were read, and those of
	// that one sandbox. It needs events, so EventsOff undoes it.
	SandboxExtras bool

	// KeepsIP leaves a sandbox its address when it is stopped.
	KeepsIP bool

	// CreatedSkew is how much earlier a container was created by what lists
	// say than by its status.
	CreatedSkew time.Duration

	// RepoDigests refers to images by a digest in their repository rather than
	// by their own id.
	RepoDigests bool
}

// Queue is how a runtime brings events to its subscribers.
type Queue int

// The queues of runtimes. Config.SubscriberBuffer is the bound of each.
const (
	// QueueBroadcast is that of containerd 2.x: every subscriber gets every
	// event, through a buffer of its own. What nobody listens to waits for
	// Config.ReplayWindow. See Config.StallProducers.
	QueueBroadcast Queue = iota

	// QueueCompete is that of containerd 1.7: one channel for all, from which
	// each event goes to the subscriber that has waited longest
	// (containerd#7318). When it is full, the newest event is dropped; what
	// nobody listens to waits for ever.
	QueueCompete

	// QueueFanOut is that of CRI-O: one channel for all, each event of which is
	// sent to one subscriber after another, so that a slow one holds up the
	// others, but no call. When it is full, the newest event is dropped. What
	// comes before the first subscriber ever is kept; later, what nobody
	// listens to is thrown away.
	QueueFanOut
)

// The runtimes that are imitated. What they do was read in their sources at
// these versions, and for containerd 2.4, containerd 1.6 and CRI-O also measured
// on the real ones.
var (
	// Containerd24 is containerd 2.4: events are broadcast to every subscriber
	// and queued while there is none, lists can be streamed.
	Containerd24 = Profile{Name: "containerd", Version: "v2.4.2"}

	// Containerd17 is containerd 1.7, whose subscribers compete for events.
	Containerd17 = Profile{Name: "containerd", Version: "v1.7.35", NoStreamingLists: true, Queue: QueueCompete, LateOOM: true}

	// Containerd16 is the containerd 1.6 of Debian 12, which has no events.
	Containerd16 = Profile{Name: "containerd", Version: "1.6.20~ds1", NoStreamingLists: true, NoEvents: true, LateOOM: true}

	// CRIO is CRI-O 1.37 with enable_pod_events = true. Of containers that
	// exited at once, 128 in 160 runs were EXITED in STARTED and 10 stopped
	// first. It has the fix for exit code 255 (cri-o#9846).
	CRIO = Profile{
		Name: "cri-o", Version: "1.37.0", Queue: QueueFanOut, CleanEnd: true,
		QuietSandboxes: true, QuietPodRemoval: true, NoBlindEvents: true, PodWideEvents: true,
		StartedExited: 128. / 160, StoppedFirst: 10. / 160, ForgetsFailedStarts: true,
		SandboxExtras: true, KeepsIP: true, CreatedSkew: 180 * time.Millisecond, RepoDigests: true,
	}

	// CRIONoEvents is CRIO as it is by default: with pod events off.
	CRIONoEvents = func() Profile { p := CRIO; p.EventsOff = true; return p }()
)

// silent says whether the runtime tells nobody anything.
func (p *Profile) silent() bool { return p.NoEvents || p.EventsOff }

// validate refuses what makes no sense.
func (p *Profile) validate() error {
	share := func(v float64) bool { return v >= 0 && v <= 1 }
	switch {
	case p.Name == "":
		return errors.New("profile has habits but no name")
	case p.NoEvents && p.EventsOff:
		return fmt.Errorf("profile %s: events can't be both unknown and off", p.Name)
	case p.Queue < QueueBroadcast || p.Queue > QueueFanOut:
		return fmt.Errorf("profile %s: there is no queue %d", p.Name, p.Queue)
	case !share(p.StartedExited) || !share(p.Exit255) || !share(p.StoppedFirst):
		return fmt.Errorf("profile %s: the shares %v, %v and %v must be from 0 to 1", p.Name, p.StartedExited, p.StoppedFirst, p.Exit255)
	case p.StoppedFirst > p.StartedExited:
		return fmt.Errorf("profile %s: share %v of STOPPED before STARTED is part of %v, where STARTED says EXITED", p.Name, p.StoppedFirst, p.StartedExited)
	case p.CreatedSkew < 0:
		return fmt.Errorf("profile %s: skew %v is negative", p.Name, p.CreatedSkew)
	}
	return nil
}

// Profile returns the present profile.
func (r *Runtime) Profile() Profile {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.profile
}

// SetProfile makes the runtime another one, such as a newer version, that finds
// all pods and containers where they were. It can be done only while it is down
// (ErrState).
func (r *Runtime) SetProfile(p Profile) error {
	if err := p.validate(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.up {
		return fmt.Errorf("a runtime that is up can't become %s %s: %w", p.Name, p.Version, ErrState)
	}
	r.profile = p
	r.hub.configure(p.Queue)
	return nil
}

package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plegd/plegd/internal/cri"
)

// socketLine: of a runtime that can't be reached nothing is known, so nothing is bad.
func socketLine(o *Observed) Line {
	switch err := o.SocketErr; {
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		l := Line{Verdict: Unknown, Finding: err.Error(), Advice: "run as root, or as a member of the socket's group"}
		if o.Socket.Mode != "" { // it could at least be looked at
			l.Finding += fmt.Sprintf(" (mode %s, owner %d:%d)", o.Socket.Mode, o.Socket.UID, o.Socket.GID)
		}
		return l
	case errors.Is(err, syscall.ECONNREFUSED):
		return Line{Verdict: Unknown, Finding: err.Error(), Advice: "nobody listens there: start the runtime"}
	case err != nil:
		return Line{Verdict: Unknown, Finding: err.Error(), Advice: "name the runtime's socket with --runtime-endpoint"}
	}
	return Line{Verdict: Good, Finding: fmt.Sprintf("mode %s, owner %d:%d, may be connected to", o.Socket.Mode, o.Socket.UID, o.Socket.GID)}
}

func versionLine(o *Observed) Line {
	switch err := o.VersionErr; {
	case cri.Unimplemented(err):
		return Line{Verdict: Bad, Finding: "it doesn't speak the CRI", Advice: "a containerd needs its CRI plugin: look for disabled_plugins in its configuration; else name the runtime's socket with --runtime-endpoint"}
	case cri.TimedOut(err):
		return Line{Verdict: Bad, Finding: err.Error(), Advice: "it takes connections and doesn't answer: look at its log, and whether it is stopped"}
	case err != nil:
		return Line{Verdict: Bad, Finding: err.Error(), Advice: "name the runtime's socket with --runtime-endpoint, or look at its log"}
	}
	return Line{Verdict: Good, Finding: o.Runtime + " " + o.Version}
}

// clogged is how much a subscriber may leave unread without being named: what is on
// its way at any moment is less.
const clogged = 64 << 10 // bytes

func othersLine(o *Observed) Line {
	switch {
	case o.OthersErr != nil:
		return Line{Verdict: Unknown, Finding: fmt.Sprintf("who else is connected can't be told: %v", o.OthersErr)}
	case len(o.Others) == 0:
		return Line{Verdict: Good, Finding: "nobody else is connected"}
	}
	var names []string
	var stuck []string
	count := map[string]int{}
	for _, other := range o.Others {
		name := "a process that may not be looked at"
		if other.PID != 0 {
			name = fmt.Sprintf("%s (%d)", other.Name, other.PID)
		}
		if count[name]++; count[name] == 1 {
			names = append(names, name)
		}
		if other.Unread > clogged {
			stuck = append(stuck, fmt.Sprintf("%s has %d bytes to read", name, other.Unread))
		}
	}
	for i, name := range names {
		if n := count[name]; n > 1 {
			names[i] = fmt.Sprintf("%s %d times", name, n)
		}
	}
	found := "also connected: " + few(names)
	if len(stuck) > 0 {
		return Line{
			Verdict: Warning, Finding: found + "; " + few(stuck),
			Advice: "a subscriber that doesn't read can hold up every start and removal of a container (containerd 2): end it",
		}
	}
	return Line{Verdict: Good, Finding: found}
}

// count is a number of things, in the plural but for one.
func count(n int, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "s") || strings.HasSuffix(thing, "x"):
		return fmt.Sprintf("%d %ses", n, thing)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// few is a list of which the first ones are named.
func few(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}

const (
	// maxMessage is the most that a kubelet or plegd takes in one message, in bytes,
	// defaultMessage what a gRPC client takes that says nothing.
	maxMessage, defaultMessage = cri.MaxMessage, 4 << 20
	// slowList is how long a list may take before it matters: a kubelet asks each
	// second.
	slowList = time.Second
)

func listsLine(o *Observed) Line {
	largest := slices.MaxFunc(o.Lists, func(a, b List) int { return a.Bytes - b.Bytes })
	slowest := slices.MaxFunc(o.Lists, func(a, b List) int { return int(a.Took - b.Took) })
	l := Line{Verdict: Good, Finding: fmt.Sprintf("%s and %s; the larger list has %s of %s, both took %v at most",
		count(largest.Sandboxes, "sandbox"), count(largest.Containers, "container"), bytes(largest.Bytes), bytes(maxMessage), slowest.Took.Round(100*time.Microsecond))}
	if largest.Streamed {
		l.Finding += "; it is sent in parts (KEP-5825), which lifts the limit"
	}
	switch {
	case !largest.Streamed && largest.Bytes > maxMessage/2:
		l.Verdict, l.Advice = Warning, "beyond the limit no list comes at all: have fewer dead containers kept, or a runtime that can send lists in parts"
	case slowest.Took > slowList:
		l.Verdict, l.Advice = Warning, "so slow a list keeps a generic generator from its period: prefer events, and see what keeps the runtime busy"
	case largest.Bytes > defaultMessage:
		l.Advice = "clients with gRPC's usual limit of 4 MiB can't take this list"
	}
	return l
}

func bytes(n int) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	default:
		return fmt.Sprintf("%d MiB", n>>20)
	}
}

// deaf is for how long before the end a runtime must have answered no list, and failed
// calls, to be taken for one that answers no more.
const deaf = 5 * time.Second

func callsLine(o *Observed) Line {
	if len(o.Calls) == 0 {
		return Line{Verdict: Good, Finding: fmt.Sprintf("%s of lists and %s, none failed", count(len(o.Lists), "round"), count(o.Statuses, "status"))}
	}
	byMethod := map[string]int{}
	var names []string
	for _, c := range o.Calls {
		if byMethod[c.Method]++; byMethod[c.Method] == 1 {
			names = append(names, c.Method)
		}
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %s", name, count(byMethod[name], "time"))
	}
	l := Line{
		Verdict: Warning, Finding: fmt.Sprintf("failed: %s; first: %v", few(names), o.Calls[0].Err),
		Advice: "relists are what makes up for lost events: see the runtime's log for why it can't answer",
	}
	last := o.From
	if n := len(o.Lists); n > 0 {
		last = o.Lists[n-1].At
	}
	if silent := o.To.Sub(last); silent > deaf {
		l.Verdict, l.Finding = Bad, fmt.Sprintf("no list was answered in the last %v; %s", silent.Round(time.Second), l.Finding)
	}
	return l
}

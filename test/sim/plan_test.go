package sim_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
)

// dice returns a source for one purpose, so that drawing for one never shifts
// what another draws.
func dice(seed uint64, purpose string) *rand.Rand {
	sum := sha256.Sum256([]byte(purpose))
	binary.LittleEndian.PutUint64(sum[:], binary.LittleEndian.Uint64(sum[:])^seed)
	return rand.New(rand.NewChaCha8(sum))
}

// plan is what a seed decides before anything runs.
type plan struct {
	seed       uint64
	profile    simruntime.Profile
	mode       pleg.Mode
	base, most time.Duration // the relist periods
	timeout    time.Duration // of one call
	chaos      time.Duration // how long the faults last
	pods       int
	pause      time.Duration // mean, between two steps of the workload
	atOnce     float64       // share of containers that exit at once
	dualStack  bool
	keep       int           // entries that the journal keeps, 0 as many as by default
	tombs      int           // tombstones that are kept, 0 as many as by default
	tombAge    time.Duration // and for how long, 0 as long as by default
	first      time.Duration // when the agent is started for the first time
	synced     bool          // the state is on a real disk
	faults     []fault
	readers    []pace
}

// fault is one fault at one time.
type fault struct {
	kind     kind
	at, last time.Duration // since the start
	rng      *rand.Rand    // for what else there is to decide
}

// pace is how a reader behaves.
type pace struct {
	name    string
	think   time.Duration // after each event
	dies    int           // after so many events it leaves, 0 never
	away    time.Duration // and comes back after this, to its position
	fromNow bool          // begins at "now" and not at the beginning
}

// pick returns one of the values, each as likely as its weight.
func pick[T any](rng *rand.Rand, weights []int, values []T) T {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	n := rng.IntN(sum)
	for i, w := range weights {
		if n < w {
			return values[i]
		}
		n -= w
	}
	panic("weights and values don't fit")
}

// between returns a duration, short ones as likely as long ones by their
// logarithm: faults of a millisecond and of a minute are both worth a try.
func between(rng *rand.Rand, least, most time.Duration) time.Duration {
	d := least
	for range rng.IntN(64) {
		if d *= 2; d >= most {
			d = least
		}
	}
	return min(most, d+time.Duration(rng.Int64N(int64(d)+1)))
}

// newPlan decides. Nothing but the seed goes in.
func newPlan(seed uint64) plan {
	rng := dice(seed, "plan")
	s := time.Second
	p := plan{
		seed:      seed,
		profile:   pick(rng, []int{10, 5, 2, 2, 2}, []simruntime.Profile{simruntime.Containerd24, simruntime.CRIO, simruntime.Containerd17, simruntime.Containerd16, simruntime.CRIONoEvents}),
		base:      pick(rng, []int{1, 3, 1}, []time.Duration{s / 2, s, 2 * s}),
		most:      pick(rng, []int{1, 2, 1}, []time.Duration{5 * s, 15 * s, 30 * s}),
		timeout:   pick(rng, []int{2, 1, 1}, []time.Duration{2 * s, 5 * s, 10 * s}),
		chaos:     20*s + time.Duration(rng.Int64N(int64(60*s))),
		pods:      2 + rng.IntN(7),
		pause:     between(rng, 100*time.Millisecond, s),
		atOnce:    pick(rng, []int{2, 1, 1}, []float64{0, 0.2, 0.8}),
		dualStack: rng.IntN(4) == 0,
		synced:    seed%20 == 19,
	}
	p.mode = pick(rng, []int{15, 3, 2}, []pleg.Mode{pleg.ModeHybrid, pleg.ModeGeneric, pleg.ModeEvented})
	if p.mode == pleg.ModeEvented && !streams(p.profile) {
		p.mode = pleg.ModeHybrid // an error there
	}
	if p.profile.Name == "containerd" && dice(seed, "habits").IntN(2) == 0 {
		p.profile.LateOOM = true // of any version: the reason comes after the event of the end
	}
	p.keep = pick(dice(seed, "keep"), []int{3, 1}, []int{0, 20 + dice(seed, "kept").IntN(100)})
	if few := dice(seed, "tombstones"); few.IntN(3) == 0 {
		p.tombs, p.tombAge = 1+few.IntN(10), between(few, s, 60*s)
	}
	if late := dice(seed, "first start"); late.IntN(4) == 0 {
		p.first = time.Duration(late.Int64N(int64(p.chaos)))
	}
	for range 2 + rng.IntN(9) {
		p.faults = append(p.faults, newFault(seed, len(p.faults), rng, p.chaos))
	}
	slices.SortStableFunc(p.faults, func(a, b fault) int { return int(a.at - b.at) })
	p.readers = []pace{
		{name: "slow", think: between(rng, 10*time.Millisecond, 2*s)},
		{name: "dying", dies: 1 + rng.IntN(20), away: between(rng, 10*time.Millisecond, 20*s)},
		{name: "late", think: between(rng, time.Millisecond, 100*time.Millisecond), fromNow: true, dies: 1 + rng.IntN(50), away: s},
	}
	return p
}

// streams says whether the agent reads the events of a runtime.
func streams(p simruntime.Profile) bool {
	return !p.NoEvents && !p.EventsOff && p.Queue != simruntime.QueueCompete
}

func newFault(seed uint64, n int, rng *rand.Rand, chaos time.Duration) fault {
	f := fault{kind: kinds[rng.IntN(len(kinds))], rng: dice(seed, fmt.Sprintf("fault %d", n))}
	f.at = time.Duration(rng.Int64N(int64(chaos)))
	f.last = min(chaos-f.at, between(rng, 50*time.Millisecond, 30*time.Second))
	return f
}

func (p plan) String() string {
	return fmt.Sprintf("seed %d: %s %s, %s, periods %v to %v, timeout %v, %d pods, chaos %v, synced %v, keeps %d, first start at %v, %d tombstones for %v",
		p.seed, p.profile.Name, p.profile.Version, p.mode, p.base, p.most, p.timeout, p.pods, p.chaos.Round(time.Millisecond), p.synced, p.keep,
		p.first.Round(time.Millisecond), p.tombs, p.tombAge.Round(time.Millisecond))
}

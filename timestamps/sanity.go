package timestamps

// Anomaly names what is implausible about a time that a runtime reported.
type Anomaly uint8

// The kinds of anomaly. Plausible is none.
const (
	Plausible Anomaly = iota
	Zero              // not set
	Negative          // before 1970, such as Go's zero time
	Seconds           // seconds (or ms) where nanoseconds belong
	FarPast           // older than FarPastAge before the receipt
	Future            // later than the receipt by more than FutureSlack
	anomalies
)

// Anomalies is the number of anomaly kinds, for tables indexed by kind.
const Anomalies = int(anomalies)

var anomalyNames = [Anomalies]string{"plausible", "zero", "negative", "seconds", "far_past", "future"}

// String returns the kind as used in metric labels.
func (a Anomaly) String() string {
	if int(a) < len(anomalyNames) {
		return anomalyNames[a]
	}
	return "invalid"
}

const (
	// FarPastAge is how old, in ns, the time of an event may be before it is
	// called far past. containerd queues events for 5 minutes; a suspended
	// machine or a full gRPC buffer can make it hours. A year is neither.
	FarPastAge = 365 * 24 * 3600 * 1_000_000_000
	// FutureSlack is how far, in ns, a runtime's time may lie ahead of its
	// receipt. Runtime and agent read one clock, the runtime first, so nothing
	// should: this is one tick of the slowest kernel clock (100 Hz), by which
	// readings can disagree where one of them is a coarse one. A step back
	// that is too small for a [StepDetector] makes what was under way look
	// later than its receipt too; that is counted, and costs an inspection.
	FutureSlack = 10_000_000
	// secondsFactor: a value whose thousandfold, millionfold or billionfold
	// lies near the receipt was sent in ms, µs or s (cri-o#8582).
	secondsFactor = 1_000
)

// Judge says what is wrong with a time t (ns) that a runtime reported and the
// agent received when its wall clock read receipt (ns). Bounds are relative to
// the agent's clock, never absolute dates: boards boot in 1970 (rule T3).
// Anything but Plausible counts as old.
func Judge(t, receipt int64) Anomaly {
	switch {
	case t == 0:
		return Zero
	case t < 0:
		return Negative
	case t > AddClamped(receipt, FutureSlack):
		return Future
	case t >= AddClamped(receipt, -FarPastAge):
		return Plausible
	case coarse(t, receipt):
		return Seconds
	default:
		return FarPast
	}
}

// coarse reports whether t is near receipt once read in a coarser unit.
func coarse(t, receipt int64) bool {
	for unit := int64(secondsFactor); unit <= secondsFactor*secondsFactor*secondsFactor; unit *= secondsFactor {
		if r := receipt / unit; t >= r-FarPastAge/unit && t <= r+FutureSlack/unit {
			return true
		}
	}
	return false
}

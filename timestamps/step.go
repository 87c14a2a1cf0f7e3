package timestamps

// StepThreshold is the drift between wall and monotonic time, in ns, above
// which the wall clock counts as stepped (rule T3). NTP slews by at most
// 500 ppm, so slewing takes over an hour to get there; two seconds is below
// every harm that a wrong "old or new" could do.
const StepThreshold = 2_000_000_000

// StepDetector notices that the wall clock was set, or that the machine slept:
// either way wall and monotonic time have drifted apart. It is a plain value
// without a clock of its own.
type StepDetector struct {
	wall, mono int64
	started    bool
}

// Observe compares one simultaneous reading of both clocks (ns) with the last
// base. It returns the size of a step in ns, zero when there was none. After a
// step the base moves along, so each step is reported once.
func (d *StepDetector) Observe(wall, mono int64) (step int64) {
	if !d.started {
		*d = StepDetector{wall: wall, mono: mono, started: true}
		return 0
	}
	drift := subClamped(subClamped(wall, d.wall), subClamped(mono, d.mono))
	if drift > StepThreshold || drift < -StepThreshold {
		d.wall, d.mono = wall, mono
		return drift
	}
	return 0
}

// Drift returns how far, in ns, the wall clock is ahead of monotonic time at
// the present base. It changes with each step and else never; it is 0 before
// the first observation.
func (d *StepDetector) Drift() int64 { return subClamped(d.wall, d.mono) }

package compare

import (
	"fmt"
	"slices"
	"strings"
	"time"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/generic"
)

// Kind is how a mode works.
type Kind string

// The kinds.
const (
	Generic Kind = Kind(pleg.ModeGeneric) // relists once a period
	Evented Kind = Kind(pleg.ModeEvented) // the event stream alone, and a list at its begin
	Hybrid  Kind = Kind(pleg.ModeHybrid)  // both, with a period that stretches
	// Hinted relists once a period, and a STOPPED event asks for a relist of
	// that pod: what the kubelet's EventedPLEG does since 1.37
	// (https://github.com/kubernetes/kubernetes/pull/139262, proposed for
	// KEP-3386 in https://github.com/kubernetes/enhancements/pull/6311).
	Hinted Kind = "hinted"
)

// Mode is one mode of a comparison.
type Mode struct {
	Name   string        `json:"name"` // as given, such as generic=5s
	Kind   Kind          `json:"kind"`
	Period time.Duration `json:"period"` // of relists; of hybrid the base period; 0 for evented
}

// DefaultModes is what is compared unless it is said.
const DefaultModes = "generic,evented,hybrid"

// MaxModes is how many run at once at most: each adds its load to the one
// runtime, and more than this would measure that.
const MaxModes = 8

// Least and longest period of a mode.
const (
	minPeriod = 10 * time.Millisecond
	maxPeriod = time.Hour
)

// ParseModes reads a list such as generic,generic=5s,evented,hybrid,hinted.
func ParseModes(list string) ([]Mode, error) {
	var modes []Mode
	seen := map[string]bool{}
	for name := range strings.SplitSeq(list, ",") {
		m, err := ParseMode(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if seen[m.Name] {
			return nil, fmt.Errorf("mode %q is given twice", m.Name)
		}
		if i := slices.IndexFunc(modes, func(o Mode) bool { return o.Kind == m.Kind && o.Period == m.Period }); i >= 0 {
			return nil, fmt.Errorf("modes %q and %q are the same", modes[i].Name, m.Name)
		}
		seen[m.Name] = true
		modes = append(modes, m)
	}
	if len(modes) > MaxModes {
		return nil, fmt.Errorf("%d modes: must be at most %d", len(modes), MaxModes)
	}
	return modes, nil
}

// ParseMode reads the name of a mode: generic, evented, hybrid or hinted, and
// for all but evented a period as in generic=5s.
func ParseMode(name string) (Mode, error) {
	word, period, given := strings.Cut(name, "=")
	m := Mode{Name: name, Kind: Kind(word), Period: generic.DefaultBase}
	switch m.Kind {
	case Generic, Hybrid, Hinted:
	case Evented:
		m.Period = 0
		if given {
			return Mode{}, fmt.Errorf("mode %.40q: evented has no period", name)
		}
	default:
		return Mode{}, fmt.Errorf("mode %.40q: must be generic, evented, hybrid or hinted, all but evented with a period if wanted, such as generic=5s", name)
	}
	if !given {
		return m, nil
	}
	var err error
	if m.Period, err = time.ParseDuration(period); err != nil || m.Period < minPeriod || m.Period > maxPeriod {
		return Mode{}, fmt.Errorf("mode %.40q: the period must be from %v to %v, such as generic=5s", name, minPeriod, maxPeriod)
	}
	return m, nil
}

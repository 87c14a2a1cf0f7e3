package load

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// The bounds of a Spec.
const (
	maxPods       = 5000 // of a simulated runtime
	maxRealPods   = 500
	maxContainers = 100
	maxRate       = 10_000 // transitions a second
)

// The defaults of a Spec.
const (
	defaultPods       = 10
	defaultRate       = 5
	defaultContainers = 2
)

// Spec describes a load, as --workload takes it: key=value, separated by commas.
type Spec struct {
	Seed       uint64
	Pods       int     // at a time
	Rate       float64 // transitions a second, the mean
	Containers int     // of each pod; 0: the load's choice

	// Profile is which runtime the simulated one imitates, "" for its default.
	Profile string

	// Image is what containers of a real runtime run. Without one the runtime is
	// simulated.
	Image string
	// CgroupParent and HostNetwork are of the pods of a real runtime.
	CgroupParent string
	HostNetwork  bool
}

// keys are those of a spec.
var keys = []string{"seed", "pods", "rate", "containers", "profile", "image", "cgroup-parent", "network"}

// ParseSpec reads a spec such as seed=1,pods=20,rate=5. profiles are the names
// that profile may have.
func ParseSpec(text string, profiles []string) (Spec, error) {
	s := Spec{Pods: defaultPods, Rate: defaultRate}
	given := map[string]bool{}
	for item := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(strings.TrimSpace(item), "=")
		switch {
		case !slices.Contains(keys, key):
			return Spec{}, fmt.Errorf("%.40q: must be one of %s, with a value, such as seed=1,pods=20,rate=5", item, strings.Join(keys, ", "))
		case !ok || value == "":
			return Spec{}, fmt.Errorf("%s: needs a value, such as %s=%s", key, key, example[key])
		case given[key]:
			return Spec{}, fmt.Errorf("%s: is given twice", key)
		}
		given[key] = true
		if err := s.set(key, value, profiles); err != nil {
			return Spec{}, fmt.Errorf("%s=%.80s: %w", key, value, err)
		}
	}
	return s, s.check(given)
}

var example = map[string]string{
	"seed": "1", "pods": "20", "rate": "5", "containers": "2", "profile": "cri-o", "image": "docker.io/library/busybox:1.37",
	"cgroup-parent": "/load", "network": "host",
}

func (s *Spec) set(key, value string, profiles []string) (err error) {
	count := func(most int) (int, error) {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > most {
			return 0, fmt.Errorf("must be a whole number from 1 to %d", most)
		}
		return n, nil
	}
	switch key {
	case "seed":
		if s.Seed, err = strconv.ParseUint(value, 10, 64); err != nil {
			return errors.New("must be a whole number, 0 or more")
		}
	case "pods":
		s.Pods, err = count(maxPods)
	case "containers":
		s.Containers, err = count(maxContainers)
	case "rate":
		s.Rate, err = strconv.ParseFloat(value, 64)
		if err != nil || !(s.Rate > 0 && s.Rate <= maxRate) || math.IsInf(s.Rate, 0) {
			return fmt.Errorf("must be a number above 0, at most %d", maxRate)
		}
	case "profile":
		if s.Profile = value; !slices.Contains(profiles, value) {
			return fmt.Errorf("must be one of %s", strings.Join(profiles, ", "))
		}
	case "image":
		s.Image = value
	case "cgroup-parent":
		s.CgroupParent = value
	case "network":
		if s.HostNetwork = value == "host"; !s.HostNetwork && value != "pod" {
			return errors.New("must be host or pod")
		}
	}
	return err
}

// check refuses what doesn't go together.
func (s *Spec) check(given map[string]bool) error {
	if s.Image == "" {
		for _, key := range []string{"cgroup-parent", "network"} {
			if given[key] {
				return fmt.Errorf("%s: is about pods of a real runtime, which need image=", key)
			}
		}
		return nil
	}
	switch {
	case given["profile"]:
		return errors.New("profile: is about a simulated runtime, which has no image=")
	case s.Pods > maxRealPods:
		return fmt.Errorf("pods=%d: must be at most %d on a real runtime", s.Pods, maxRealPods)
	case s.Containers == 0:
		s.Containers = defaultContainers
	}
	return nil
}

func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Words describes the load.
func (s Spec) Words() string {
	pods := counted(s.Pods, "pod")
	if s.Containers > 0 {
		pods += " of " + counted(s.Containers, "container")
	}
	what := "simulated"
	if s.Profile != "" {
		what += " as " + s.Profile
	}
	if s.Image != "" {
		what = "of image " + s.Image
	}
	return fmt.Sprintf("%s, %s, %s transitions a second, seed %d", pods, what, strconv.FormatFloat(s.Rate, 'g', -1, 64), s.Seed)
}

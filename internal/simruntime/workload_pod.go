package simruntime

import (
	"math/rand/v2"
	"strconv"
)

// wpod is one pod as the workload remembers it.
type wpod struct {
	spec      PodSpec
	sandboxID string
	ctrs      []*wcontainer
	leaving   bool
}

// wcontainer is one container of a pod's spec, which has a new id each time it
// is restarted.
type wcontainer struct {
	name, image string
	attempt     uint32
	id          string // "" before it is created
	previous    string // the dead one before it, which a kubelet keeps
	state       wstate
	brief       bool // exits as soon as it is started
}

type wstate int

const (
	wabsent wstate = iota
	wcreated
	wrunning
	wexited
)

// exits are the ways in which a container ends, as often as they are listed.
var exits = []struct {
	code   int32
	reason string
}{
	{0, ""}, {0, ""}, {0, ""}, {1, ""}, {1, ""}, {7, ""}, {CodeKilled, ReasonOOMKilled}, {CodeTerminated, ""}, {255, ""},
}

// Shares of what the workload does, in percent.
const (
	shareHostNetwork = 10 // of pods
	shareFailStart   = 4  // of container starts
	shareLeave       = 8  // of steps of a pod whose containers all run
)

var workloadApps = []string{"api", "web", "db", "cache", "queue", "cron"}

func (w *Workload) newPod() *wpod {
	w.made++
	app := workloadApps[w.rng.IntN(len(workloadApps))]
	p := &wpod{spec: PodSpec{
		Namespace:   []string{"default", "kube-system", "shop"}[w.rng.IntN(3)],
		Name:        app + "-" + strconv.Itoa(w.made),
		UID:         newUID(w.rng),
		Labels:      map[string]string{"app": app},
		HostNetwork: w.chance(shareHostNetwork),
	}}
	n := 1 + w.rng.IntN(3)
	if w.cfg.Containers > 0 {
		n = w.cfg.Containers
	}
	for i := range n {
		name := "c" + strconv.Itoa(i+1)
		if i < 3 {
			name = []string{app, "sidecar", "init-config"}[i]
		}
		p.ctrs = append(p.ctrs, &wcontainer{name: name, image: "registry.example/" + name + ":1"})
	}
	return p
}

// next returns the first container in one of the states.
func (p *wpod) next(states ...wstate) *wcontainer {
	for _, c := range p.ctrs {
		for _, s := range states {
			if c.state == s {
				return c
			}
		}
	}
	return nil
}

func newUID(rng *rand.Rand) string {
	id := newID(rng)
	return id[:8] + "-" + id[8:12] + "-4" + id[13:16] + "-8" + id[17:20] + "-" + id[20:32]
}

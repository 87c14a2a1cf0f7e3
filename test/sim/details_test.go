package sim_test

import (
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// detail keeps what a sandbox's status says that the history doesn't have.
func (s *sight) detail(sb *runtimeapi.PodSandboxStatus) {
	d := &s.w.details
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.labels == nil {
		d.labels, d.ips = map[string]map[string]string{}, map[string]map[string]bool{}
	}
	d.labels[sb.GetId()] = sb.GetLabels()
	pod := sb.GetMetadata().GetUid()
	if d.ips[pod] == nil {
		d.ips[pod] = map[string]bool{}
	}
	d.ips[pod][sb.GetNetwork().GetIp()] = true
}

// details is what statuses said of sandboxes: their labels by id, and the
// addresses of each pod's.
type details struct {
	mu     sync.Mutex
	labels map[string]map[string]string
	ips    map[string]map[string]bool
	times  map[string]map[int64]bool // created_at of events, by the id that they name
	placed map[string][]sighting     // when it was said first in each life in which sandbox a container is
}

// places notes that something said in which sandbox a container is: a status doesn't, nor
// an event without its sandbox, nor one about another container.
func (s *sight) places(id string, by source) {
	hung := s.w.disk.hanging()
	d := &s.w.details
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.placed == nil {
		d.placed = map[string][]sighting{}
	}
	if all := d.placed[id]; len(all) == 0 || all[len(all)-1].life != s.l {
		d.placed[id] = append(all, sighting{s.l, time.Now(), by, hung})
	}
}

// placedIn returns when that was said first, in each life.
func (d *details) placedIn(id string) []sighting {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.placed[id]
}

func (d *details) names(id string, created int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.times == nil {
		d.times = map[string]map[int64]bool{}
	}
	if d.times[id] == nil {
		d.times[id] = map[int64]bool{}
	}
	d.times[id][created] = true
}

func (d *details) named(id string, created int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.times[id][created]
}

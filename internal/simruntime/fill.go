package simruntime

import (
	"fmt"
	"strconv"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Fill adds pods with running containers all at once, as if they had been there
// before the runtime started: the history has them as silent, and no event tells
// of them. Their names are fill-1, fill-2 and so on in namespace default. Several
// calls go on counting. It fails for negative numbers, and adds nothing then.
func (r *Runtime) Fill(pods, containersPerPod int) error {
	if pods < 0 || containersPerPod < 0 {
		return fmt.Errorf("fill: %d pods of %d containers: negative", pods, containersPerPod)
	}
	containers := make([]ContainerSpec, containersPerPod)
	for i := range containers {
		containers[i].Name = "c" + strconv.Itoa(i+1)
	}
	return r.change(false, func() error {
		for range pods {
			r.filled++
			spec := PodSpec{Namespace: "default", Name: "fill-" + strconv.Itoa(r.filled), UID: newUID(r.ids)}
			if _, _, err := r.putPod(spec, containers); err != nil {
				return fmt.Errorf("fill: %w", err)
			}
		}
		return nil
	})
}

// putPod adds one pod as Fill does, and returns the ids.
func (r *Runtime) putPod(spec PodSpec, containers []ContainerSpec) (sandboxID string, ids []string, err error) {
	sb, err := r.newSandbox(spec.Config(), spec.RuntimeHandler)
	if err != nil {
		return "", nil, err
	}
	r.addSandbox(sb, Created, true)
	r.addSandbox(sb, Ready, true)
	for _, cs := range containers {
		c, err := r.newContainer(sb, cs.Config(sb.status.Metadata), cs.StopCode)
		if err != nil {
			return "", nil, err
		}
		r.addContainer(c, Created, true)
		c.status.State = runtimeapi.ContainerState_CONTAINER_RUNNING
		c.status.StartedAt = r.now()
		r.addContainer(c, Started, true)
		ids = append(ids, c.status.Id)
	}
	return sb.status.Id, ids, nil
}

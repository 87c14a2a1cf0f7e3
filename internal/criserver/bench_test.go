package criserver

import (
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
)

// BenchmarkCached asks for what the cache has, on a node of 500 containers, and
// counts what that costs the runtime.
func BenchmarkCached(b *testing.B) {
	n := start(b, simruntime.Config{})
	n.must(n.rt.Fill(100, 5))
	n.must(n.gen.Relist(b.Context()))
	n.quiet()
	var ids []string
	for _, c := range n.rt.Truth().Containers {
		ids = append(ids, c.Status.GetId())
	}
	pod := n.rt.Truth().Sandboxes[0].GetId()
	ask := func(what string, f func(i int) error) {
		b.Run(what, func(b *testing.B) {
			before := n.calls()
			for i := 0; b.Loop(); i++ {
				if err := f(i); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n.calls()-before)/float64(b.N), "runtime-calls/op")
		})
	}
	ask("ListContainers", func(int) error {
		r, err := n.cri.ListContainers(b.Context(), &runtimeapi.ListContainersRequest{})
		if err == nil && len(r.GetContainers()) != len(ids) {
			err = fmt.Errorf("%d containers", len(r.GetContainers()))
		}
		return err
	})
	ask("ListContainersOfPod", func(int) error {
		r, err := n.cri.ListContainers(b.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: pod}})
		if err == nil && len(r.GetContainers()) != 5 {
			err = fmt.Errorf("%d containers", len(r.GetContainers()))
		}
		return err
	})
	ask("ListPodSandbox", func(int) error {
		_, err := n.cri.ListPodSandbox(b.Context(), &runtimeapi.ListPodSandboxRequest{})
		return err
	})
	ask("ContainerStatus", func(i int) error {
		_, err := n.cri.ContainerStatus(b.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: ids[i%len(ids)]})
		return err
	})
	ask("PodSandboxStatus", func(int) error {
		_, err := n.cri.PodSandboxStatus(b.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod})
		return err
	})
	ask("Version", func(int) error {
		_, err := n.cri.Version(b.Context(), &runtimeapi.VersionRequest{})
		return err
	})
}

package pleg_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/store/storetest"
)

const (
	scalePart          = 1_100 // events in a transaction: about 1,000, and the rest of an entity that is never split
	scalePods          = 2_000
	scaleContainers    = 20_000
	scaleHeapPerEntity = 10 << 10 // bytes: a record, its status and its copies, with the garbage collector's room
)

// TestScaleOfAnEnormousNode: 20,000 containers are listed, inspected, told once
// each and written in many transactions, and what that leaves in memory is
// bounded by what there is.
func TestScaleOfAnEnormousNode(t *testing.T) {
	if underRace {
		t.Skip("make unit runs it once more, without the race detector")
	}
	rt, path := simtest.Start(t, simruntime.Config{Seed: 61, Keep: 1000})
	fillNode(rt)
	largest := 0 // events or records in one transaction; only the agent's loop writes
	before := heap()
	a := startAgent(t, pleg.WithStore(pleg.Config{Endpoint: path, StateDir: t.TempDir(), RPCTimeout: time.Minute,
		Retention: store.Retention{Entries: 4 * scaleContainers}}, func(inner store.Store) store.Store {
		f := storetest.NewFaulty(inner)
		f.Hook(func(b *store.Batch) error {
			largest = max(largest, len(b.Events), len(b.Records))
			return nil
		})
		return f
	}), nil)
	within := time.Now().Add(4 * time.Minute)
	for {
		if s := a.g.Status(); s.Health.Listed && len(s.Asks) == 0 && podsOf(a.g) == scalePods {
			break
		}
		if time.Now().After(within) {
			t.Fatalf("not listed and inspected: %d pods, %d reinspections", podsOf(a.g), len(a.g.Status().Asks))
		}
		time.Sleep(time.Second) // the question itself costs
	}
	started, died := 0, 0
	for _, ev := range a.read() {
		switch ev.Type {
		case "ContainerStarted":
			started++
		case "ContainerDied":
			died++
			if !ev.ExitKnown {
				t.Fatalf("no exit code: %+v", ev)
			}
		}
	}
	if started != scaleContainers || died != scaleContainers/2 {
		t.Errorf("%d started of %d, %d died of %d", started, scaleContainers, died, scaleContainers/2)
	}
	grown := heap() - before
	t.Logf("heap %d bytes for each of %d entities", grown/(scaleContainers+scalePods), scaleContainers+scalePods)
	if grown > (scaleContainers+scalePods)*scaleHeapPerEntity {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if largest == 0 || largest > scalePart {
		t.Errorf("up to %d events or records in one transaction", largest)
	}
}

// fillNode puts ten containers into each pod, half of them exited.
func fillNode(rt *simruntime.Runtime) {
	at := time.Now().Add(-time.Hour).UnixNano()
	for p := range scalePods {
		uid, sandbox := fmt.Sprintf("uid-%d", p), fmt.Sprintf("sandbox%055d", p)
		labels := map[string]string{
			"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": fmt.Sprintf("pod-%d", p), "io.kubernetes.pod.namespace": "default",
		}
		rt.PutSandbox(&runtimeapi.PodSandboxStatus{
			Id: sandbox, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: at, Labels: labels,
			Metadata: &runtimeapi.PodSandboxMetadata{Name: labels["io.kubernetes.pod.name"], Namespace: "default", Uid: uid},
			Network:  &runtimeapi.PodSandboxNetworkStatus{Ip: fmt.Sprintf("10.%d.%d.1", p/250, p%250)},
		})
		for c := range scaleContainers / scalePods {
			status := &runtimeapi.ContainerStatus{
				Id: fmt.Sprintf("container%051d.%d", p, c), State: runtimeapi.ContainerState_CONTAINER_RUNNING, CreatedAt: at, StartedAt: at + 1,
				Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprintf("c%d", c)}, Image: &runtimeapi.ImageSpec{Image: "registry.k8s.io/app:1"},
				Annotations: map[string]string{"io.kubernetes.container.hash": strings.Repeat("a", 200)},
				Labels: map[string]string{
					"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": labels["io.kubernetes.pod.name"],
					"io.kubernetes.pod.namespace": "default", "io.kubernetes.container.name": fmt.Sprintf("c%d", c),
				},
			}
			if c%2 == 1 {
				status.State, status.FinishedAt, status.ExitCode, status.Reason = runtimeapi.ContainerState_CONTAINER_EXITED, at+2, 3, "Error"
			}
			rt.PutContainer(sandbox, status)
		}
	}
}

func podsOf(g *pleg.Generator) int {
	pods, _ := g.Pods()
	return len(pods)
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

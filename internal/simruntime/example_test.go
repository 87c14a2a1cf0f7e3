package simruntime_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
)

// A runtime on a socket, one container that lives and dies, a fault that hides
// its end from the stream, and the history that knows better.
func Example() {
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithCancel(context.Background())

	rt, err := simruntime.New(simruntime.Config{Seed: 1})
	if err != nil {
		panic(err)
	}
	lis, err := simruntime.Listen(filepath.Join(dir, "cri.sock"))
	if err != nil {
		panic(err)
	}
	served := make(chan error)
	go func() { served <- rt.Serve(ctx, lis) }()

	conn, err := grpc.NewClient("unix://"+lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	stream, err := runtimeapi.NewRuntimeServiceClient(conn).GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		panic(err)
	}
	lost, err := rt.AddRule(simruntime.Rule{Method: simruntime.MethodEvent, Drop: true, Where: func(op simruntime.Op) bool {
		return op.Event.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	}})
	if err != nil {
		panic(err)
	}
	pod, _ := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: "web", UID: "u1"})
	app, _ := rt.CreateContainer(pod, simruntime.ContainerSpec{Name: "app"})
	_ = rt.StartContainer(app)
	_ = rt.ExitContainer(app, 7, "")
	_ = rt.RemoveContainer(app)

	for range 5 {
		ev, err := stream.Recv()
		if err != nil {
			panic(err)
		}
		fmt.Println("event", ev.ContainerEventType)
	}
	fmt.Println("lost", lost.Acted())
	for _, tr := range rt.History() {
		fmt.Println(tr.Kind, tr.Step, tr.ExitCode)
	}
	_ = conn.Close()
	cancel()
	fmt.Println(<-served)
	// Output:
	// event CONTAINER_CREATED_EVENT
	// event CONTAINER_STARTED_EVENT
	// event CONTAINER_CREATED_EVENT
	// event CONTAINER_STARTED_EVENT
	// event CONTAINER_DELETED_EVENT
	// lost 1
	// sandbox created 0
	// sandbox ready 0
	// container created 0
	// container started 0
	// container exited 7
	// container removed 7
	// <nil>
}

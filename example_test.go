package pleg_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/simruntime"
)

// A program that follows a node: it subscribes, runs the generator, and reads
// what happens. Here the node is a simulated runtime; in earnest Endpoint is
// that of containerd or CRI-O.
func Example() {
	dir, err := os.MkdirTemp("", "pleg")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	node := startNode(filepath.Join(dir, "cri.sock"))
	defer node.stop()

	g, err := pleg.New(pleg.Config{
		Endpoint: "unix://" + filepath.Join(dir, "cri.sock"),
		StateDir: filepath.Join(dir, "state"),
	})
	if err != nil {
		panic(err)
	}
	// Subscribing before running misses nothing of this run. A program that
	// has kept a position of an earlier one resumes from it instead.
	sub, err := g.Subscribe(nil)
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()

	// Once this returns, all that is there already can be read: here, nothing.
	if err := g.Relist(ctx); err != nil {
		panic(err)
	}
	go node.play()
	for range 5 {
		ev, err := sub.Next(ctx)
		if err != nil {
			panic(err)
		}
		fmt.Print(ev.Position.Seq, " ", ev.Type, " ", ev.Pod.Name)
		if ev.Container.Name != "" {
			fmt.Print("/", ev.Container.Name)
		}
		if ev.ExitKnown {
			fmt.Print(" exited with ", ev.ExitCode)
		}
		fmt.Println()
	}
	pod, err := g.Pod("7a1f")
	if err != nil {
		panic(err)
	}
	fmt.Println(pod.Name, "has", pod.IP, "and", pod.Containers[0].Name, "is", pod.Containers[0].State)

	stop()
	fmt.Println("stopped:", <-done)
	// Output:
	// 1 SandboxCreated web
	// 2 SandboxReady web
	// 3 ContainerCreated web/app
	// 4 ContainerStarted web/app
	// 5 ContainerDied web/app exited with 7
	// web has 10.0.0.1 and app is exited
	// stopped: <nil>
}

// node is a simulated runtime that is served on a socket.
type node struct {
	rt     *simruntime.Runtime
	cancel context.CancelFunc
	served chan error
}

func startNode(socket string) *node {
	rt, err := simruntime.New(simruntime.Config{Seed: 1})
	if err != nil {
		panic(err)
	}
	lis, err := simruntime.Listen(socket)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{rt: rt, cancel: cancel, served: make(chan error, 1)}
	go func() { n.served <- rt.Serve(ctx, lis) }()
	return n
}

// play is the life of one pod, once somebody listens.
func (n *node) play() {
	_ = n.rt.WaitSubscribers(context.Background(), 1)
	pod, _ := n.rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: "web", UID: "7a1f"})
	app, _ := n.rt.CreateContainer(pod, simruntime.ContainerSpec{Name: "app"})
	_ = n.rt.StartContainer(app)
	_ = n.rt.ExitContainer(app, 7, "")
}

func (n *node) stop() {
	n.cancel()
	<-n.served
}

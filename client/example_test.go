package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/plegd/plegd/client"
)

// A log of what happens, that misses nothing: the last position is kept, and the
// next run goes on after it.
func ExampleClient_Events() {
	ctx := context.Background()
	c, err := client.Dial(client.DefaultSocket, client.Options{
		Disconnected: func(why error) { fmt.Println("lost:", why) },
		Reconnected:  func() { fmt.Println("back") },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	from := client.From{Position: "3f2d1eb849145ffc/85"} // From{} for now
	for ev, err := range c.Events(ctx, from, &client.Filter{Types: []string{"ContainerDied"}}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(ev.Position, ev.GetPod().GetName(), ev.GetContainer().GetName(), ev.GetExitCode())
	}
}

// All pods, and then what happens to them.
func ExampleClient_Watch() {
	ctx := context.Background()
	c, err := client.Dial(client.DefaultSocket, client.Options{Wait: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	for u, err := range c.Watch(ctx, client.WatchOptions{From: client.From{Snapshot: true}, StartOver: true}) {
		switch {
		case err != nil:
			fmt.Println(err)
			return
		case u.Pods != nil:
			fmt.Println(len(u.Pods), "pods as of", u.Position)
		case u.Event != nil:
			fmt.Println(u.Event.Position, u.Event.Type, u.Event.GetPod().GetName())
		}
	}
}

// The pods of one application at hand.
func ExampleClient_NewCache() {
	ctx := context.Background()
	c, err := client.Dial(client.DefaultSocket, client.Options{Wait: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	cache := c.NewCache(client.CacheOptions{
		Filter:  &client.Filter{LabelSelector: "app in (web,api)"},
		Added:   func(pod *client.Pod) { fmt.Println("added", pod.Name, pod.Ips) },
		Deleted: func(pod *client.Pod) { fmt.Println("deleted", pod.Name) },
	})
	ended := make(chan error, 1)
	go func() { ended <- cache.Run(ctx) }()
	select {
	case <-cache.Synced():
		fmt.Println(len(cache.List()), "pods")
	case err := <-ended:
		fmt.Println(err)
	}
}

// One look: the pods of a namespace, and one of them as it is now.
func ExampleClient_Pods() {
	ctx := context.Background()
	c, err := client.Dial(client.DefaultSocket, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	pods, position, err := c.Pods(ctx, &client.Filter{Namespaces: []string{"shop"}}, client.PodOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(pods), "pods as of", position)
	if len(pods) == 0 {
		return
	}
	pod, err := c.Pod(ctx, pods[0].Key, client.PodOptions{NewerThan: time.Now()}) // has the runtime asked
	if errors.Is(err, client.ErrNoPod) {
		fmt.Println("it has gone meanwhile")
		return
	}
	fmt.Println(pod.GetName(), pod.GetIps(), err)
}

// A job that has ended.
func ExampleClient_WaitFor() {
	ctx := context.Background()
	c, err := client.Dial(client.DefaultSocket, client.Options{Wait: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	filter := &client.Filter{Namespaces: []string{"shop"}, Pods: []string{"job-1"}}
	err = c.WaitFor(ctx, filter, func(pods []*client.Pod) (bool, error) {
		for _, pod := range pods {
			for _, container := range pod.Containers {
				if container.State == "exited" {
					return true, nil
				}
			}
		}
		return false, nil
	})
	fmt.Println(err)
}

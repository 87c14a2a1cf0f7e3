// Package client reads plegd: what every pod of the node is doing now, and what
// happened, in order, since the point that the reader last saw.
//
//	c, err := client.Dial(client.DefaultSocket, client.Options{})
//	...
//	defer c.Close()
//	for ev, err := range c.Events(ctx, client.From{}, nil) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(ev.Type, ev.GetPod().GetName(), ev.Position)
//	}
//
// What holds:
//
//  1. [Client.Events] and [Client.Watch] go on over restarts of the agent, broken
//     connections and a reader that was slow for a while. No event comes twice
//     and none is left out: where one would have to be, because the journal
//     doesn't keep it any longer, the error is an [ExpiredError], or with
//     [WatchOptions].StartOver a new snapshot comes.
//  2. A position that came with an event can be stored and gone on from later, by
//     another process too, for as long as the journal keeps what follows it.
//  3. Nothing here changes a pod, and a reader that stops reading holds up
//     nobody.
//  4. An error about the socket names it and says what to do.
//
// Choose by what is needed: Events for a log of what happens; Watch to have the
// pods first and then their events; [Cache] to have the present pods at hand and
// be told of changes; [Client.WaitFor] to wait for one of them; [Client.Pods]
// and [Client.Pod] to look once.
//
// Events and pods are the messages of the API themselves, by the short names of
// this package: nothing is lost between the socket and the user, there is one
// description of each field (api/plegd/v1/plegd.proto), and protojson writes
// them. Their getters may be called on nil. Messages that this package returns
// are the caller's own, but for those of a Cache, which are shared.
package client

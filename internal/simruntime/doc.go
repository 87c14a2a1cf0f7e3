// Package simruntime is a container runtime that exists only in memory and
// speaks CRI: to develop against where no containerd is, and to test against
// where a real one would be too slow, too healthy or too honest.
//
// It behaves like containerd 2.x: the same events in the same order with the
// same parts set and left out, the same codes, the same fields in lists and
// statuses. With another [Profile] it has the habits of CRI-O or of an older
// containerd. Where that looks odd, a comment says which public issue it
// follows, or that it was measured on the real one.
//
// # Starting one
//
// In a test, package simtest does the plumbing:
//
//	rt, path := simtest.Start(t, simruntime.Config{Seed: 1}) // a unix socket
//	conn := simtest.Bufconn(t, simtest.New(t, cfg))          // or in memory, also in testing/synctest
//
// By hand:
//
//	rt, err := simruntime.New(simruntime.Config{})
//	lis, err := simruntime.Listen("/run/sim.sock") // 0660; replaces a stale socket, never a live one
//	err = rt.Serve(ctx, lis)                       // until ctx ends; awaits all that it started
//
// Pods come from CRI clients, from direct calls or from a [Workload]:
//
//	pod, _ := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "default", Name: "web", UID: "u1"})
//	id, _ := rt.CreateContainer(pod, simruntime.ContainerSpec{Name: "app"})
//	rt.StartContainer(id)
//	rt.ExitContainer(id, 137, simruntime.ReasonOOMKilled)
//	rt.Fill(500, 40) // 20,000 containers that have always been there
//
// # Faults
//
// A [Rule] matches calls by method and id, or events ([MethodEvent]), and says
// what becomes of them; see its fields. Some common ones:
//
//	{Method: "ContainerStatus", ID: id, Code: codes.Internal}            // can't be inspected
//	{Method: "ContainerStatus", Hang: true, IgnoreCancel: true}          // stuck until Remove
//	{Method: "ListContainers", After: true, Delay: time.Second}          // an answer that is old when it comes
//	{Method: "GetContainerEvents", Code: codes.Unimplemented}            // no events
//	{Method: "GetContainerEvents", EOF: true}                            // CRI-O with events off
//	{Method: simruntime.MethodEvent, Probability: 0.02, Drop: true}      // two percent are lost
//	{Method: simruntime.MethodEvent, Duplicate: 1, Delay: time.Minute}   // told again a minute later
//	{Method: simruntime.MethodEvent, Every: 5, Hold: 2}                  // every fifth comes two too late
//	{Method: "", Hang: true, IgnoreCancel: true}                         // takes every call and never answers
//	{Method: "ListContainers", Edit: func(m proto.Message) { ... }}      // answers something else
//	{Method: "ListContainers", Edit: simruntime.Omit(id)}                // leaves something out
//	{Method: "ListContainers", Edit: simruntime.Shuffle(1)}              // in another order each time
//	{Method: "ListContainers", Edit: simruntime.PadTo(9 << 20)}          // a message of 9 MiB
//	{Edit: simruntime.ContainerSays(id, exited), Times: 1}               // says what isn't so, once
//	{Method: simruntime.MethodEvent, Edit: simruntime.Seconds}           // created_at in the wrong unit
//	{Method: "ContainerStatus", ID: id, Raw: []byte{0xff}}               // bytes that nobody can decode
//	{Method: "ListContainers", Do: func(simruntime.Op) { ... }}          // something happens between two calls
//
// [Runtime.EndStreams] ends the open streams; [Runtime.Down], [Runtime.Kill],
// [Runtime.Up] and [Runtime.Restart] end and start the runtime itself, and
// [Runtime.SetProfile] in between makes it another version; [Runtime.Freeze]
// and [Runtime.Thaw] are SIGSTOP and SIGCONT; [Runtime.RemoveSocket] takes its
// socket file away; [Runtime.EditContainer] and its kin change the truth behind
// the runtime's back; [Runtime.InjectEvent] sends any message at all; a
// [StepClock] as Config.Wall steps its clock.
//
// # What happened
//
// [Runtime.History] is the oracle: every transition, whether or not anybody was
// told of it. [Runtime.Truth] is the present state. [Runtime.Calls] and
// [Runtime.CallStats] say what clients asked, and [MaxOverlap] how much of it at
// once; [Runtime.EventStats] says what became of the events;
// [Runtime.Keepalive] counts pings that came too early.
//
// # What holds
//
//  1. Without rules, the one client that reads sees every event once, in the
//     order of the history, for every transition that isn't marked silent (but
//     see Profile.StoppedFirst).
//  2. A payload is never newer than its created_at, and never older than the
//     transition that it tells of.
//  3. The same seed and the same sequence of changes give the same ids,
//     addresses and, rule by rule, the same draws. Concurrent clients make
//     their own order, and with it their own draws.
//  4. Nothing polls: waiting is by channel, condition or timer, so virtual time
//     works. No goroutine outlives the Serve that started it.
//  5. Statuses are replaced and never changed in place: what a method returned
//     stays as it was. Callers must not change it either.
//
// A function given in a Rule as Where, or as Edit for events, runs under the
// runtime's locks and must not call it. Do may call everything but Down, Up and
// Restart (and Kill), which wait for the very call that it delays.
package simruntime

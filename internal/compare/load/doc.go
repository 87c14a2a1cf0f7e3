// Package load makes pods come and go during a comparison: [Pods] on a real
// runtime, by CRI calls as a kubelet makes them, and [Simulated], a simulated
// runtime in a process of its own that does so by itself and knows what really
// happened.
//
// What [Pods] makes bears a label with the process that made it. So it is found
// and removed at the end, also after Ctrl-C, and by the next one if that process
// was killed.
package load

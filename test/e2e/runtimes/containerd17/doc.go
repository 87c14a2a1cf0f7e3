// Package containerd17 pins the containerd 1.7 that the tests run on. It is a module of its own since
// `go install` refuses containerd's exclude directives, and since requirements shared with containerd
// 2.x would give both other libraries than their authors built them with.
package containerd17

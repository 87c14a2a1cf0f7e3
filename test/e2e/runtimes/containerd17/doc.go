// Package containerd17 pins the containerd 1.7 that the tests run on. It is a module of its own since
// `go install` refuses containerd's exclude directives, and since its requirements, together with
// those of containerd 2.x, would give both other libraries than their authors built them with.
package containerd17

import (
	_ "github.com/containerd/containerd/cmd/containerd"
	_ "github.com/containerd/containerd/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/cmd/ctr"
)

// Package kubelet pins the kubelet that the tests run as a maker of pods; see ../install.sh. It is a
// module of its own since k8s.io/kubernetes requires its staging modules as v0.0.0, so that each has
// to be replaced by the version of the same release. go.mod names nothing else, and go mod tidy is not
// for it: the rest is as Kubernetes itself requires it.
package kubelet

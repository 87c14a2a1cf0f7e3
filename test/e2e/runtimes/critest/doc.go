// Package critest pins the validation suite of the CRI's own project, which the tests run on plegd's
// endpoint; see ../install.sh. It is a test without a program, so it can't be a tool of a go.mod: it is
// built by go test -c, which fills in what go.mod leaves out, and go mod tidy is not for it.
package critest

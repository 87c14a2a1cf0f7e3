package cri

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/plegd/plegd/internal/unixsock"
)

// ErrEndpoint is wrapped by every error about a malformed endpoint.
var ErrEndpoint = errors.New("malformed runtime endpoint")

// ParseEndpoint returns the path of the socket that an endpoint names. Allowed
// are unix:///path and a bare absolute path. The error wraps [ErrEndpoint] and
// says what is wrong and what is allowed.
func ParseEndpoint(endpoint string) (path string, err error) {
	fail := func(why string) (string, error) {
		return "", fmt.Errorf("runtime endpoint %.200q: %w: %s; want unix:///absolute/path or /absolute/path", endpoint, ErrEndpoint, why)
	}
	scheme, rest, hasScheme := strings.Cut(endpoint, "://")
	switch {
	case endpoint == "":
		return fail("it is empty")
	case hasScheme && strings.EqualFold(scheme, "unix"):
		path = rest
	case hasScheme && (strings.EqualFold(scheme, "tcp") || strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")):
		return fail("CRI is spoken on local sockets only, without encryption or authentication")
	case hasScheme:
		return fail(fmt.Sprintf("scheme %.20q is not supported", scheme))
	case strings.HasPrefix(endpoint, "unix:"):
		path = strings.TrimPrefix(endpoint, "unix:")
	default:
		path = endpoint
	}
	switch {
	case path != strings.TrimSpace(path):
		return fail("it has white space at an end")
	case strings.ContainsRune(path, 0):
		return fail("a path has no zero bytes")
	case !strings.HasPrefix(path, "/"):
		return fail("the path is not absolute")
	}
	path = filepath.Clean(path)
	switch {
	case path == "/":
		return fail("it names no socket")
	case len(path) > unixsock.MaxPath:
		return fail(fmt.Sprintf("the path has %d bytes and a socket's may have %d", len(path), unixsock.MaxPath))
	}
	return path, nil
}

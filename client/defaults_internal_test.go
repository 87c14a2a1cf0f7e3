package client

import (
	"testing"

	"github.com/plegd/plegd/internal/watch"
)

// The client counts on hearing of the agent as often as the agent does by default.
func TestDefaultKeepalive(t *testing.T) {
	if defaultKeepalive != watch.KeepaliveDefault {
		t.Errorf("the client expects a message each %v, and the agent sends one each %v", defaultKeepalive, watch.KeepaliveDefault)
	}
}

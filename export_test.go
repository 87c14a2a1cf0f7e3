package pleg

import (
	"context"
	"net"

	"github.com/plegd/plegd/store"
)

// WithDialer returns a Config whose generator connects by dial.
func WithDialer(c Config, dial func(ctx context.Context, path string) (net.Conn, error)) Config {
	c.hooks.Dialer = dial
	return c
}

// WithStore returns a Config whose generator's store is what wrap returns.
func WithStore(c Config, wrap func(store.Store) store.Store) Config {
	c.hooks.Store = wrap
	return c
}

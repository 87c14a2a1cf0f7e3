package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/criserver"
	"github.com/plegd/plegd/internal/watch"
)

// criOptions are the flags of the read-only CRI endpoint.
type criOptions struct {
	socket    string // "" for none
	untrusted string
	groupName string
	group     *int // nil for the process's own
}

// addTo adds the flags.
func (o *criOptions) addTo(cmd *cobra.Command) {
	var policies []string
	for _, p := range criserver.Policies {
		policies = append(policies, string(p))
	}
	o.untrusted = policies[0]
	cmd.Flags().StringVar(&o.socket, "cri-socket", "", "unix socket of the read-only CRI endpoint, /path or unix:///path (default: none)")
	cmd.Flags().StringVar(&o.groupName, "cri-socket-group", "", "group of --cri-socket, name or number (default: that of the process)")
	choiceFlag(cmd, &o.untrusted, "cri-untrusted", "what the CRI endpoint does while the cache can't be relied on: ask the runtime, or say so", policies...)
}

// complete refuses what contradicts itself. socket is that of the API.
func (o *criOptions) complete(f *pflag.FlagSet, socket string) error {
	if o.socket == "" {
		for _, name := range []string{"cri-socket-group", "cri-untrusted"} {
			if f.Changed(name) {
				return usagef("--%s %.80s: is about the CRI endpoint; give --cri-socket too, or leave it out", name, f.Lookup(name).Value)
			}
		}
		return nil
	}
	path, err := flagPath("cri-socket", o.socket)
	if err != nil {
		return err
	}
	if path == socket {
		return usagef("--cri-socket %q: is the socket of the API (--socket); it must be one of its own", path)
	}
	o.socket = path
	if f.Changed("cri-socket-group") {
		gid, err := groupID(o.groupName)
		if err != nil {
			return usagef("--cri-socket-group %.80q: %v", o.groupName, err)
		}
		o.group = &gid
	}
	return nil
}

// serveCRI takes the socket of the CRI endpoint and returns how to serve on it,
// nil if there is to be none.
func (a *agent) serveCRI(turns *watch.Turns) (run func(context.Context) error, err error) {
	if a.o.cri.socket == "" {
		return nil, nil //nolint:nilnil // nothing to serve is no error
	}
	s, err := criserver.New(criserver.Config{
		Socket: a.o.cri.socket, Group: a.o.cri.group, Untrusted: criserver.Policy(a.o.cri.untrusted), RPCTimeout: a.o.rpcTimeout, Turns: turns, Logger: a.log,
		NoStream: a.o.mode == string(pleg.ModeGeneric),
		Source: func() (criserver.Source, string, error) {
			gen, err := a.source()
			if err != nil {
				return nil, "", err
			}
			return gen, gen.Endpoint(), nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("--cri-socket %w", err)
	}
	return s.Run, nil
}

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os/user"
	"regexp"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/plegd/plegd/internal/unixsock"
)

// socketOptions are the flags that say who may connect to the socket.
type socketOptions struct {
	mode      fs.FileMode
	groupName string
	group     *int // nil for the process's own
}

// addTo adds the flags.
func (o *socketOptions) addTo(cmd *cobra.Command) {
	o.mode = unixsock.GroupMode
	f := cmd.Flags()
	f.Var(&parsed[fs.FileMode]{&o.mode, "mode", parseMode, showMode}, "socket-mode", "permission bits of --socket, octal: who may write may connect")
	f.StringVar(&o.groupName, "socket-group", "", "group of --socket, name or number (default: that of the process)")
}

// complete looks the group up.
func (o *socketOptions) complete(f *pflag.FlagSet, socket string) error {
	for _, name := range []string{"socket-mode", "socket-group"} {
		if f.Changed(name) && socket == "" {
			return usagef("--%s %.80s: has no effect with --socket \"\"", name, f.Lookup(name).Value)
		}
	}
	if !f.Changed("socket-group") {
		return nil
	}
	gid, err := groupID(o.groupName)
	if err != nil {
		return usagef("--socket-group %.80q: %v", o.groupName, err)
	}
	o.group = &gid
	return nil
}

var octal = regexp.MustCompile(`^0?[0-7]{3}$`)

// parseMode reads permission bits. Without those of the owner nobody but root
// could connect, plegd's own commands included.
func parseMode(s string) (fs.FileMode, error) {
	const ownerMay = 0o600
	n, err := strconv.ParseUint(s, 8, 16)
	if err != nil || !octal.MatchString(s) || n&ownerMay != ownerMay {
		return 0, errors.New("must be octal permission bits from 0600 to 0777 with which the owner may read and write, such as 0660 or 0600")
	}
	return fs.FileMode(n), nil
}

func showMode(m fs.FileMode) string { return fmt.Sprintf("%#o", m) }

// groupID looks a group up, by its name or its number.
func groupID(s string) (int, error) {
	if g, err := user.LookupGroup(s); err == nil {
		s = g.Gid
	}
	gid, err := strconv.ParseUint(s, 10, 32)
	if err != nil || gid == 1<<32-1 { // chown takes that for "leave it"
		return 0, errors.New("must be the name of a group of this machine, or a number from 0 to 4294967294")
	}
	return int(gid), nil
}

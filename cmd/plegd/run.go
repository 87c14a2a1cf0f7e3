package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/client"
	"github.com/plegd/plegd/generic"
	"github.com/plegd/plegd/internal/cri"
	"github.com/plegd/plegd/internal/server"
	"github.com/plegd/plegd/internal/unixsock"
	"github.com/plegd/plegd/store"
)

const (
	// endpointEnv is what other CRI clients read too.
	endpointEnv = "CONTAINER_RUNTIME_ENDPOINT"
	// defaultStateDir, defaultListen and defaultSocket are where an agent that
	// nobody configured puts its things.
	defaultStateDir = "/var/lib/plegd"
	defaultListen   = "127.0.0.1:10359"
	defaultSocket   = client.DefaultSocket
)

// runOptions are the flags of `plegd run`. The defaults that depend on others
// are left to the library: it is given zero where a flag isn't given.
type runOptions struct {
	endpoint, endpointFrom string // "" to look for one; and who named it
	stateDir, nodeName     string
	mode, output           string
	period, periodMax      time.Duration
	threshold, rpcTimeout  time.Duration
	inspections            int
	keepAge                time.Duration
	keepEntries            int
	keepBytes              int64
	listen, socket         string
	sock                   socketOptions
	cri                    criOptions
	http                   httpOptions
	kubeletMetrics         bool
	watchdog               time.Duration // 0: none
	since                  *pleg.Position
	log                    logOptions
}

// defaultRun is what is done without flags.
func defaultRun() runOptions {
	return runOptions{
		mode: string(pleg.ModeHybrid), output: outputText,
		period: generic.DefaultBase, periodMax: generic.DefaultMax, threshold: pleg.DefaultRelistThreshold,
		rpcTimeout: generic.DefaultRPCTimeout, inspections: generic.DefaultInspections,
		keepAge: time.Duration(store.DefaultAge), keepEntries: store.DefaultEntries, keepBytes: store.DefaultBytes,
	}
}

// newRun makes `plegd run`.
func newRun(std streams) *cobra.Command {
	o := defaultRun()
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent",
		Long: "run generates the events of the pods of one CRI runtime and writes them to stdout, those\n" +
			"of this run only; --since POSITION continues where an earlier reader stopped. It ends at\n" +
			"SIGTERM, SIGINT or SIGHUP within 3 s, and when the reader of its stdout goes away.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(cmd.Flags(), std.getenv); err != nil {
				return err
			}
			_, child := supervised(std.getenv)
			switch {
			case child:
				takeName()
			case o.watchdog > 0:
				return supervise(o.watchdog, os.Args[1:])
			}
			ctx, stop := stopOnSignal(cmd.Context())
			defer stop()
			return newAgent(o, std).run(ctx)
		},
	}
	o.addTo(cmd)
	return cmd
}

// addTo adds the flags.
func (o *runOptions) addTo(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	endpointFlag(f, &o.endpoint, "else the runtime that the state describes, ")
	choiceFlag(cmd, &o.mode, "mode", "what is used: stream and relist, or one of them", modeNames()...)
	choiceFlag(cmd, &o.output, "output", "form of the events on stdout", outputText, outputJSON, outputKubelet, outputNone)
	f.Var(&sinceValue{&o.since}, "since", "first replay the events after this position, EPOCH/SEQ")
	f.StringVar(&o.stateDir, "state-dir", defaultStateDir, "directory that the state is kept in")
	f.StringVar(&o.nodeName, "node-name", "", "name of the node, to which the state belongs (default: the host's)")
	durationFlag(f, &o.period, "relist-period", "period of relists while the stream can't be relied on")
	durationFlag(f, &o.periodMax, "relist-period-max", "longest period, which a healthy stream earns")
	durationFlag(f, &o.threshold, "relist-threshold", "not ready if the last good relist is older than this and a period")
	durationFlag(f, &o.rpcTimeout, "rpc-timeout", "bound of each call to the runtime")
	countFlag(f, &o.inspections, "max-inspections", "inspections at once")
	durationFlag(f, &o.keepAge, "retention-age", "running time for which events are kept")
	countFlag(f, &o.keepEntries, "retention-entries", "events that are kept")
	sizeFlag(f, &o.keepBytes, "retention-bytes", "size of the events that are kept")
	f.StringVar(&o.listen, "http-listen", defaultListen, "TCP address of /metrics, /livez and /readyz; \"\" for none")
	o.http.addTo(cmd)
	f.StringVar(&o.socket, "socket", defaultSocket, "unix socket of the API, /path or unix:///path; \"\" for none")
	o.sock.addTo(cmd)
	o.cri.addTo(cmd)
	f.BoolVar(&o.kubeletMetrics, "kubelet-metrics", false, "export the kubelet's metrics of pod lifecycle events too, under its names")
	durationFlag(f, &o.watchdog, "watchdog", "run the agent as a child, and kill it when it gives no sign of life for so long (default: off)")
	o.log.addTo(cmd)
}

// complete fills in what flags don't say and refuses what contradicts itself.
func (o *runOptions) complete(f *pflag.FlagSet, getenv func(string) string) error {
	if !f.Changed("relist-period-max") {
		o.periodMax = 0 // at least the period
	}
	from, err := namedEndpoint(f, getenv, &o.endpoint)
	if err != nil {
		return err
	}
	o.endpointFrom = from
	if o.since != nil && o.output == outputNone {
		return usagef("--since %s: nothing is replayed with --output %s; leave one of them out", *o.since, outputNone)
	}
	if o.stateDir == "" {
		return usagef("--state-dir \"\": must be a directory")
	}
	dir, err := filepath.Abs(o.stateDir)
	if err != nil {
		return usagef("--state-dir %q: %v", o.stateDir, err)
	}
	o.stateDir = dir
	if o.watchdog > 0 {
		if err := checkWatchdog(o.watchdog, getenv); err != nil {
			return err
		}
	}
	if err := checkListen(o.listen); err != nil {
		return err
	}
	if err := o.http.complete(f, o.listen); err != nil {
		return err
	}
	if o.socket != "" {
		path, err := socketPath(o.socket)
		if err != nil {
			return err
		}
		o.socket = path
	}
	if err := o.sock.complete(f, o.socket); err != nil {
		return err
	}
	if err := o.cri.complete(f, o.socket); err != nil {
		return err
	}
	runtimes := usualSockets
	if o.endpoint != "" {
		runtimes = []string{o.endpoint}
	}
	if err := o.checkSockets(runtimes...); err != nil {
		return err
	}
	if o.keepBytes > store.DefaultMaxSize/2 { // the library says it in bytes
		return usagef("--retention-bytes %s: must be at most %s, half of what the state file may grow to", showSize(o.keepBytes), showSize(store.DefaultMaxSize/2))
	}
	endpoint := o.endpoint
	if endpoint == "" {
		endpoint = usualSockets[0] // whichever it will be
	}
	return flagOfField(o.config(endpoint).Validate())
}

// checkSockets refuses to serve where a runtime does, or would if it were up: it could not
// come back to its place, and plegd would follow itself.
func (o *runOptions) checkSockets(runtimes ...string) error {
	for _, own := range []struct{ flag, path string }{{"socket", o.socket}, {"cri-socket", o.cri.socket}} {
		if own.path == "" {
			continue
		}
		path, err := filepath.Abs(own.path)
		if err != nil {
			return usagef("--%s %.200q: %v", own.flag, own.path, err)
		}
		for _, endpoint := range runtimes {
			if theirs, err := cri.ParseEndpoint(endpoint); err == nil && filepath.Clean(theirs) == path {
				return usagef("--%s %.200q: is the runtime's socket; it must be one of its own", own.flag, own.path)
			}
		}
	}
	return nil
}

// config returns what the flags say of the library's Config.
func (o *runOptions) config(endpoint string) pleg.Config {
	return pleg.Config{
		Endpoint: endpoint, StateDir: o.stateDir, Mode: pleg.Mode(o.mode), NodeName: o.nodeName,
		RelistPeriod: o.period, RelistPeriodMax: o.periodMax, RelistThreshold: o.threshold,
		RPCTimeout: o.rpcTimeout, MaxInspections: o.inspections, KubeletMetrics: o.kubeletMetrics,
		Retention: store.Retention{Age: int64(o.keepAge), Entries: o.keepEntries, Bytes: o.keepBytes},
	}
}

// fieldFlags names the flags that set the fields of a Config.
var fieldFlags = map[string]string{
	"Endpoint": "runtime-endpoint", "Mode": "mode", "RelistPeriod": "relist-period", "RelistPeriodMax": "relist-period-max",
	"RelistThreshold": "relist-threshold", "RPCTimeout": "rpc-timeout", "MaxInspections": "max-inspections",
	"Retention.Bytes": "retention-bytes",
}

// flagOfField turns an error about a field into one about its flag.
func flagOfField(err error) error {
	var bad *pleg.ConfigError
	if errors.As(err, &bad) && fieldFlags[bad.Field] != "" {
		return usagef("--%s %s: %s", fieldFlags[bad.Field], bad.Value, bad.Reason)
	}
	return err
}

// flagOfAddress turns an error about an address to serve on into one that
// names its flag, as the other errors about flags do.
func flagOfAddress(err error) error {
	var bad *server.AddressError
	if errors.As(err, &bad) {
		flag := map[string]string{"Listen": "http-listen", "Socket": "socket"}[bad.Field]
		if bad.Field == "Listen" && errors.Is(bad, syscall.EADDRINUSE) {
			return fmt.Errorf("--%s %w: perhaps by another plegd; give another address, or \"\" for none", flag, bad)
		}
		return fmt.Errorf("--%s %w", flag, bad)
	}
	return err
}

// ownPlaces says what to do where a default place is root's: whoever named a place knows it.
func (o *runOptions) ownPlaces(err error) error {
	var bad *server.AddressError
	socket := errors.As(err, &bad) && bad.Field == "Socket" && o.socket == defaultSocket
	state := errors.Is(err, store.ErrUnwritable) && o.stateDir == defaultStateDir
	if errors.Is(err, fs.ErrPermission) && (socket || state) {
		return fmt.Errorf("%w; run as root, or give --socket, --state-dir and --runtime-endpoint of your own", err)
	}
	return err
}

// modeError says that --mode asks for what the runtime doesn't have, once and with what to do.
type modeError struct{ err error }

func (e *modeError) Error() string {
	why := strings.TrimPrefix(e.err.Error(), pleg.ErrUnsupported.Error()+": ")
	return fmt.Sprintf("--mode %s: %s; use --mode %s or %s", pleg.ModeEvented, why, pleg.ModeHybrid, pleg.ModeGeneric)
}

func (e *modeError) Unwrap() error { return e.err }

// unfitMode turns the error of a runtime without an event stream into one about --mode.
func unfitMode(err error) error {
	if errors.Is(err, pleg.ErrUnsupported) {
		return &modeError{err}
	}
	return err
}

// checkEndpoint says what is wrong with an endpoint that somebody named.
func checkEndpoint(from, endpoint string) error {
	_, err := cri.ParseEndpoint(endpoint)
	if err == nil {
		return nil
	}
	why := err.Error()
	if _, rest, ok := strings.Cut(why, cri.ErrEndpoint.Error()+": "); ok {
		why = rest
	}
	return usagef("%s %.200q: %s", from, endpoint, why)
}

// checkListen says what is wrong with a TCP address.
func checkListen(address string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return usagef("--http-listen %.200q: must be HOST:PORT with a port from 0 to 65535, such as %s, or \"\" for none", address, defaultListen)
	}
	return nil
}

// checkWatchdog says what is wrong with a watchdog.
func checkWatchdog(limit time.Duration, getenv func(string) string) error {
	_, ok := supervised(getenv)
	switch {
	case limit < minWatchdog:
		return usagef("--watchdog %v: must be at least %v", limit, minWatchdog)
	case getenv(notifyEnv) != "" && !ok:
		return usagef("--watchdog %v: systemd watches this process (%s is set) and would not know its child; use WatchdogSec= in the unit instead", limit, notifyEnv)
	}
	return nil
}

// otherScheme fits what is meant as an address and not as the path of a socket.
var otherScheme = regexp.MustCompile(`^[a-z][a-z0-9+.-]*:`)

// socketPath reads --socket, the unix socket to serve on, as
// --runtime-endpoint is given.
func socketPath(given string) (string, error) { return flagPath("socket", given) }

// flagPath reads a flag that names a unix socket.
func flagPath(flag, given string) (string, error) {
	path := strings.TrimPrefix(given, "unix://")
	switch {
	case path == "" || otherScheme.MatchString(path):
		return "", usagef("--%s %.200q: must be the path of a unix socket, /path or unix:///path", flag, given)
	case len(path) > unixsock.MaxPath:
		return "", usagef("--%s %.200q: the path has %d bytes, a unix socket's may have %d", flag, path, len(path), unixsock.MaxPath)
	}
	return path, nil
}

// modeNames lists the modes, the default first.
func modeNames() []string {
	var names []string
	for _, m := range pleg.Modes {
		names = append(names, string(m))
	}
	return names
}

// tooLarge fits what is no position only because its number is too large.
var tooLarge = regexp.MustCompile(`^[0-9a-f]{16}/[1-9][0-9]{15,}$`)

// sinceValue is the flag --since.
type sinceValue struct{ to **pleg.Position }

// Set implements [pflag.Value].
func (v *sinceValue) Set(s string) error {
	p, err := pleg.ParsePosition(s)
	switch {
	case err != nil && strings.HasPrefix(s, pleg.Position{}.Epoch.String()+"/"):
		return errors.New("no agent has an epoch of zeros; take a position from an event, from /v1/pods or from plegd state show")
	case err != nil && tooLarge.MatchString(s):
		return errors.New("numbers of positions end at 2^53-1, so no event has this one")
	case err != nil:
		return errors.New("must be a position, EPOCH/SEQ, as events have it: 16 lower-case hex digits, a slash and a number")
	}
	*v.to = &p
	return nil
}

// String implements [pflag.Value].
func (v *sinceValue) String() string {
	if *v.to == nil {
		return ""
	}
	return (*v.to).String()
}

// Type implements [pflag.Value].
func (v *sinceValue) Type() string { return "position" }

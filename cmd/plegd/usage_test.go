package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/internal/doctor"
	"github.com/plegd/plegd/internal/unixsock"
	"github.com/plegd/plegd/store"
)

// Every mistake on the command line gives one line that names what was given
// and what is allowed, and code 2.
func TestBadUsage(t *testing.T) {
	long := "/" + strings.Repeat("x", unixsock.MaxPath)
	for _, tc := range []struct {
		args string
		want []string // parts of the line
	}{
		{"frobnicate", []string{`"frobnicate"`, "plegd --help"}},
		{"state frobnicate", []string{`"frobnicate"`}},
		{"compare extra", []string{`plegd compare takes no arguments, but got "extra"`}},
		{"compare --modes fast", []string{"--modes", `"fast"`, "generic, evented, hybrid or hinted"}},
		{"compare --modes generic,generic", []string{"--modes", `"generic"`, "twice"}},
		{"compare --modes evented=2s", []string{"--modes", `"evented=2s"`, "no period"}},
		{"compare --modes generic=1ms", []string{"--modes", `"generic=1ms"`, "from 10ms to 1h"}},
		{"compare --for 0", []string{"--for", `"0"`, "positive"}},
		{"compare --transitions 0", []string{"--transitions", `"0"`, "above 0"}},
		{"compare --late -1s", []string{"--late", `"-1s"`, "positive"}},
		{"compare --fail-on=", []string{"--fail-on", "missed>0"}},
		{"compare --fail-on lost>0", []string{"--fail-on", `"lost"`, "missed, late, wrong"}},
		{"compare --fail-on missed>x", []string{"--fail-on", `"missed>x"`, "a number"}},
		{"compare --fail-on p99>50", []string{"--fail-on", `"p99>50"`, "a duration"}},
		{"compare --fail-on hinted:missed>0", []string{"--fail-on", `"hinted"`, "generic, evented, hybrid"}},
		{"compare --workload pods", []string{"--workload", "pods", "such as pods=20"}},
		{"compare --workload cows=1", []string{"--workload", `"cows=1"`, "seed, pods, rate"}},
		{"compare --workload pods=0", []string{"--workload", "pods=0", "from 1 to 5000"}},
		{"compare --workload rate=-1", []string{"--workload", "rate=-1", "above 0"}},
		{"compare --workload rate=NaN", []string{"--workload", "rate=NaN", "above 0"}},
		{"compare --workload seed=1,seed=2", []string{"--workload", "seed", "twice"}},
		{"compare --workload profile=docker", []string{"--workload", "profile=docker", "cri-o"}},
		{"compare --workload network=host", []string{"--workload", "network", "image="}},
		{"compare --workload image=x,profile=cri-o", []string{"--workload", "profile", "image="}},
		{"compare --workload image=x,pods=501", []string{"--workload", "pods=501", "500"}},
		{"compare --workload seed=1 --runtime-endpoint /run/x.sock", []string{"--workload", "simulated", "--runtime-endpoint"}},
		{"compare --runtime-endpoint run/x.sock", []string{"--runtime-endpoint", "run/x.sock", "not absolute"}},
		{"compare --fault drop", []string{"--fault", "simulated"}},
		{"compare --workload seed=1 --fault foo", []string{"--fault", `"foo"`, "one of method, id"}},
		{"compare --html=", []string{"--html", "file"}},
		{"compare --input=", []string{"--input", "plegd record"}},
		{"compare --input x --for 1m", []string{"--for", "--input"}},
		{"compare -- sleep 1", []string{`"sleep 1"`, "image="}},
		{"run extra", []string{`plegd run takes no arguments, but got "extra"`, "see plegd run --help"}},
		{"state check extra", []string{`plegd state check takes no arguments, but got "extra"`}},
		{"version extra", []string{`plegd version takes no arguments, but got "extra"`}},
		{"completion bash extra", []string{`plegd completion bash takes no arguments, but got "extra"`}},
		{"state show one two", []string{`plegd state show takes one argument, but got "two" too`}},
		{"simulate --socket /x --fault foo", []string{"--fault", `"foo"`, "one of method, id", ", do for a command"}},
		{"run --frobnicate", []string{"--frobnicate", "see plegd run --help"}},
		{"state show --frobnicate", []string{"--frobnicate", "see plegd state show --help"}},
		{"get pods --socket /x", []string{`unknown command "get" of plegd; did you mean pods?`, "see plegd --help"}},
		{"--socket /x", []string{"unknown flag: --socket", "see plegd --help"}},
		{"evnets", []string{`unknown command "evnets" of plegd; did you mean events?`}},
		{"frobnicate", []string{`unknown command "frobnicate" of plegd; see plegd --help`}},
		{"state shwo --state-dir /x", []string{`unknown command "shwo" of plegd state; did you mean show?`}},
		{"wait shop/db-5 --for ready", []string{`unknown command "shop/db-5" of plegd wait: must be one of container, pod; see plegd wait --help`}},
		{"help frobnicate", []string{`"frobnicate"`, "plegd --help"}},
		{"help state frobnicate", []string{`"state frobnicate"`}},
		{"completion tcsh", []string{`"tcsh"`, "plegd completion --help"}},
		{"state show --state-dir=", []string{"--state-dir", "directory"}},
		{"state check --state-dir=", []string{"--state-dir", "directory"}},
		{"state check --timeout 0s", []string{"--timeout", `"0s"`, "positive"}},
		{"state export --state-dir=", []string{"--state-dir", "directory"}},
		{"state export --output json", []string{"--output", "see plegd state export --help"}},
		{"state compact --state-dir=", []string{"--state-dir", "directory"}},
		{"simulate --socket /x --delay-share 0.5", []string{"--delay-share", "without --delay"}},
		{"simulate --socket /x --hang-for 1s", []string{"--hang-for", "without --hang-every"}},
		{"simulate --socket /x --restart-for 1s", []string{"--restart-for", "without --restart-every"}},
		{"run --relist-perod 1s", []string{"--relist-perod"}},
		{"run --mode", []string{"--mode"}},
		{"run --mode both", []string{"--mode", `"both"`, "hybrid, generic, evented"}},
		{"run --output yaml", []string{"--output", `"yaml"`, "text, json, kubelet, none"}},
		{"run --watchdog 10ms", []string{"--watchdog 10ms", "at least 1s"}},
		{"run --watchdog 0", []string{"--watchdog", `"0"`, "positive"}},
		{"run --log-level loud", []string{"--log-level", `"loud"`, "debug, info, warn, error"}},
		{"run --log-format xml", []string{"--log-format", `"xml"`, "text, json"}},
		{"run --socket-mode 660x", []string{"--socket-mode", `"660x"`, "octal", "0600 to 0777"}},
		{"run --socket-mode 0060", []string{"--socket-mode", `"0060"`, "the owner may read and write"}},
		{"run --socket-mode 01777", []string{"--socket-mode", `"01777"`, "0600 to 0777"}},
		{"run --socket-group no-such-group", []string{"--socket-group", `"no-such-group"`, "name of a group of this machine"}},
		{"run --socket-group -1", []string{"--socket-group", `"-1"`, "0 to 4294967294"}},
		{"run --socket-group 4294967295", []string{"--socket-group", `"4294967295"`, "0 to 4294967294"}},
		{"run --socket= --socket-mode 0600", []string{"--socket-mode 0600", `no effect with --socket ""`}},
		{"run --socket tcp://127.0.0.1:1", []string{"--socket", "tcp://127.0.0.1:1", "unix:///path"}},
		{"run --socket unix:/x", []string{"--socket", "unix:/x", "unix:///path"}},
		{"simulate --socket unix://", []string{"--socket", "unix://", "unix:///path"}},
		{"simulate --socket tcp://x", []string{"--socket", "tcp://x", "unix:///path"}},
		{"run --runtime-endpoint tcp://127.0.0.1:1", []string{"--runtime-endpoint", "tcp://127.0.0.1:1", "unix:///absolute/path"}},
		{"run --runtime-endpoint run/x.sock", []string{"--runtime-endpoint", "run/x.sock", "not absolute"}},
		{"run --runtime-endpoint=", []string{"--runtime-endpoint", "empty"}},
		{"run --runtime-endpoint " + long, []string{"--runtime-endpoint", "108 bytes", "107"}},
		{"run --state-dir=", []string{"--state-dir", "directory"}},
		{"run --relist-period soon", []string{"--relist-period", `"soon"`, "duration"}},
		{"run --relist-period 0", []string{"--relist-period", `"0"`, "positive"}},
		{"run --relist-period=-1s", []string{"--relist-period", `"-1s"`, "positive"}},
		{"run --relist-period 1ms", []string{"--relist-period 1ms", "at least 10ms"}},
		{"run --relist-period 1m --relist-period-max 30s", []string{"--relist-period-max 30s", "below the relist period 1m0s"}},
		{"run --relist-threshold 0", []string{"--relist-threshold", `"0"`, "positive"}},
		{"run --rpc-timeout 1us", []string{"--rpc-timeout 1µs", "at least 10ms"}},
		{"run --max-inspections 0", []string{"--max-inspections", `"0"`, "above 0"}},
		{"run --max-inspections many", []string{"--max-inspections", `"many"`, "whole number"}},
		{"run --max-inspections 1000", []string{"--max-inspections 1000", "1 to 256"}},
		{"run --retention-bytes 64MeB", []string{"--retention-bytes", `"64MeB"`, "64MiB"}},
		{"run --retention-bytes 1GiB", []string{"--retention-bytes 1GiB", "at most 256MiB"}},
		{"run --retention-age never", []string{"--retention-age", `"never"`}},
		{"run --retention-entries=-5", []string{"--retention-entries", `"-5"`}},
		{"run --http-listen 10359", []string{"--http-listen", `"10359"`, "HOST:PORT"}},
		{"run --http-listen localhost:http2", []string{"--http-listen", "0 to 65535"}},
		{"run --http-listen :70000", []string{"--http-listen", "0 to 65535"}},
		{"run --http-token-file /x", []string{"--http-token-file", `"/x"`, "without --http-api"}},
		{"run --http-api --http-listen=", []string{"--http-api", "--http-listen"}},
		{"run --http-api --http-listen :0", []string{"--http-api", `":0"`, "loopback", "--http-token-file"}},
		{"run --http-api --http-listen 10.1.2.3:80", []string{`"10.1.2.3:80"`, "--http-token-file"}},
		{"run --http-api --http-listen plegd.example:80", []string{`"plegd.example:80"`, "--http-token-file"}},
		{"run --http-api --http-token-file /nonexistent/token", []string{"--http-token-file", `"/nonexistent/token"`, "no such file"}},
		{"run --http-api --http-token-file=", []string{"--http-token-file", `""`, "no such file"}},
		{"run --http-api --http-token-file /dev/null", []string{"--http-token-file", "regular file"}},
		{"run --socket " + long, []string{"--socket", "108 bytes", "107"}},
		{"run --runtime-endpoint unix:///x/cri.sock --socket /x/y/../cri.sock", []string{"--socket", `"/x/y/../cri.sock"`, "is the runtime's socket"}},
		{"run --runtime-endpoint /x/cri.sock --cri-socket unix:///x/cri.sock", []string{"--cri-socket", `"/x/cri.sock"`, "is the runtime's socket"}},
		{"run --cri-socket /run/crio/crio.sock", []string{"--cri-socket", `"/run/crio/crio.sock"`, "is the runtime's socket"}},
		{"run --since 42", []string{"--since", `"42"`, "EPOCH/SEQ"}},
		{"run --since 0000000000000000/1", []string{"--since", "epoch of zeros"}},
		{"run --since 9f010203040506ab/9007199254740992", []string{"--since", "2^53-1"}},
		{"run --since xyz/42", []string{"--since", "EPOCH/SEQ"}},
		{"run --output none --since 9f010203040506ab/42", []string{"--since 9f010203040506ab/42", "--output none"}},
		{"simulate", []string{"--socket", "required"}},
		{"simulate --socket " + long, []string{"--socket", "107"}},
		{"simulate --socket /x --drop 2", []string{"--drop", `"2"`, "0 to 1"}},
		{"simulate --socket /x --rate NaN", []string{"--rate", `"NaN"`, "above 0"}},
		{"simulate --socket /x --seed -1", []string{"--seed", `"-1"`}},
		{"simulate --socket /x --hang-every 1s", []string{"--hang-for 5s", "shorter than --hang-every 1s"}},
		{"simulate --socket /x --restart-every 1s", []string{"--restart-for 2s", "shorter than --restart-every 1s"}},
		{"state show --output table", []string{"--output", `"table"`}},
		{"version --output yaml", []string{"--output", `"yaml"`}},
	} {
		t.Run(tc.args, func(t *testing.T) {
			var out, errs strings.Builder
			err := execute(strings.Fields(tc.args), streams{&out, &errs, func(string) string { return "" }})
			if code := exitCode(err); code != exitUsage {
				t.Fatalf("code %d, want %d: %v", code, exitUsage, err)
			}
			line := oneLine(err)
			for _, part := range tc.want {
				if !strings.Contains(line, part) {
					t.Errorf("%q is not in %q", part, line)
				}
			}
			if out.Len()+errs.Len() > 0 {
				t.Errorf("also written: %s%s", &out, &errs)
			}
		})
	}
}

// What main makes of an error, seen from outside.
func TestErrorIsOneLine(t *testing.T) {
	code, out, stderr := run(t, "run", "--relist-period", "soon")
	if code != exitUsage || out != "" || stderr != "plegd: --relist-period \"soon\": must be a positive duration, such as 500ms, 10s or 5m\n" {
		t.Errorf("code %d, stdout %q, stderr %q", code, out, stderr)
	}
	if got := oneLine(errors.Join(errors.New("a"), errors.New("b\r\nc"))); got != "a; b; c" {
		t.Errorf("one line: %q", got)
	}
}

// The variable is named when it is at fault.
func TestEndpointVariable(t *testing.T) {
	env := func(key string) string { return map[string]string{endpointEnv: "tcp://x:1"}[key] }
	err := execute([]string{"run"}, streams{&strings.Builder{}, &strings.Builder{}, env})
	if exitCode(err) != exitUsage || !strings.HasPrefix(err.Error(), endpointEnv+` "tcp://x:1"`) {
		t.Errorf("error %v", err)
	}
}

// Two watchdogs would not know of each other.
func TestWatchdogUnderSystemd(t *testing.T) {
	env := func(key string) string { return map[string]string{notifyEnv: "/run/systemd/notify"}[key] }
	err := execute([]string{"run", "--watchdog", "20s"}, streams{&strings.Builder{}, &strings.Builder{}, env})
	if exitCode(err) != exitUsage || !strings.Contains(err.Error(), "WatchdogSec=") {
		t.Errorf("error %v", err)
	}
}

// The longest period grows with the period where nobody set it.
func TestLongestPeriodByDefault(t *testing.T) {
	for _, tc := range []struct {
		args string
		want time.Duration
	}{{"", 5 * time.Minute}, {"--relist-period 10m", 10 * time.Minute}} {
		o, cmd := defaultRun(), &cobra.Command{}
		o.addTo(cmd)
		if err := cmd.ParseFlags(strings.Fields(tc.args)); err != nil {
			t.Fatal(err)
		}
		if err := o.complete(cmd.Flags(), func(string) string { return "" }); err != nil {
			t.Errorf("%q: %v", tc.args, err)
		}
		if got := max(o.periodMax, o.period); o.periodMax != 0 || got > tc.want {
			t.Errorf("%q: longest period %v", tc.args, o.periodMax)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, exitOK},
		{errors.New("x"), exitFailure},
		{usagef("x"), exitUsage},
		{&pleg.ConfigError{}, exitUsage},
		{fmt.Errorf("--since: %w", &arbiter.ExpiredError{}), exitExpired},
		{fmt.Errorf("x: %w", store.ErrLocked), exitLocked},
		{fmt.Errorf("x: %w", store.ErrUnwritable), exitUnwritable},
		{fmt.Errorf("x: %w", store.ErrFull), exitUnwritable},
		{fmt.Errorf("x: %w", store.ErrNewerSchema), exitNewerSchema},
		{errors.Join(nil, store.ErrForeign), exitForeign},
		{fmt.Errorf("x: %w", pleg.ErrUnsupported), exitUnsupported},
		{fmt.Errorf("x: %w", store.ErrDamaged), exitDamaged},
		{fmt.Errorf("x: %w", errStalled), exitStalled},
		{&childError{code: 7}, 7},
	} {
		if got := exitCode(tc.err); got != tc.want {
			t.Errorf("%v: code %d, want %d", tc.err, got, tc.want)
		}
	}
	var codes []int
	for _, row := range exits {
		codes = append(codes, row.code)
	}
	if !slices.IsSorted(codes) || len(slices.Compact(codes)) != len(exits) {
		t.Errorf("codes %v", codes)
	}
}

// The documentation has the table, and every flag.
func TestReferenceIsComplete(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range exits {
		if line := fmt.Sprintf("| %d | %s |", row.code, row.meaning); !strings.Contains(string(doc), line) {
			t.Errorf("docs/reference.md lacks %q", line)
		}
	}
	for _, args := range [][]string{{"run"}, {"simulate"}, {"state", "show"}, {"state", "check"}, {"state", "export"}, {"state", "compact"}, {"version"},
		{"events"}, {"pods"}, {"pod"}, {"status"}, {"wait", "pod"}, {"wait", "container"}, {"relist"}, {"top"}, {"record"}, {"replay"}, {"compare"}, {"doctor"}} {
		for _, name := range flagNames(t, args) {
			if !strings.Contains(string(doc), "`--"+name) {
				t.Errorf("docs/reference.md lacks --%s of plegd %s", name, strings.Join(args, " "))
			}
		}
	}
}

// Every field that is written as JSON is in the documentation.
func TestReferenceListsEveryJSONField(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	var check func(reflect.Type)
	check = func(typ reflect.Type) {
		for typ.Kind() == reflect.Slice || typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range typ.NumField() {
			field := typ.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" && !strings.Contains(string(doc), "`"+name+"`") {
				t.Errorf("docs/reference.md lacks `%s` of %v", name, typ)
			}
			if name != "" || field.Anonymous {
				check(field.Type)
			}
		}
	}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[pleg.Pod](), reflect.TypeFor[pleg.Status](), reflect.TypeFor[shownState](), reflect.TypeFor[checkedState](), reflect.TypeFor[unreadableState](), reflect.TypeFor[compactedState](), reflect.TypeFor[build](),
		reflect.TypeFor[podList](), reflect.TypeFor[agentStatus](), reflect.TypeFor[relistResult](), reflect.TypeFor[cloudEventJSON](), reflect.TypeFor[doctor.Report](),
	} {
		check(typ)
	}
}

// flagNames lists the flags in a command's help.
func flagNames(t *testing.T, args []string) []string {
	t.Helper()
	var out strings.Builder
	if err := execute(append(args, "--help"), streams{&out, &out, os.Getenv}); err != nil {
		t.Fatal(err)
	}
	var names []string
	_, flags, _ := strings.Cut(out.String(), "\nFlags:\n")
	for line := range strings.Lines(flags) {
		_, rest, ok := strings.Cut(line, " --")
		if name, _, _ := strings.Cut(rest, " "); ok && name != "help" {
			names = append(names, name)
		}
	}
	return names
}

// The commands come first: they are what one looks for.
func TestHelpBeginsWithTheCommands(t *testing.T) {
	var out, errs strings.Builder
	if err := execute([]string{"--help"}, streams{&out, &errs, os.Getenv}); err != nil {
		t.Fatal(err)
	}
	commands, codes := strings.Index(out.String(), "Available Commands:"), strings.Index(out.String(), "Exit codes:")
	if commands < 0 || codes < commands || strings.Contains(out.String(), "\n\n\n") {
		t.Errorf("%s", &out)
	}
	out.Reset()
	if err := execute([]string{"wait", "--help"}, streams{&out, &errs, os.Getenv}); err != nil || strings.Contains(out.String(), "Exit codes:") {
		t.Errorf("%v, %s", err, &out)
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"", "Exit codes:\n  0  "},
		{"--help", "Exit codes:\n  0  "},
		{"state", "Available Commands:\n  check"},
		{"completion bash", "bash completion"},
		{"help run", "Usage:\n  plegd run"},
		{"run --help", "else the runtime that the state describes, else the usual sockets"},
		{"help state show", "Usage:\n  plegd state show"},
		{"version", "plegd "},
		{"--version", thisBuild().String() + "\n"},
		{"version --output json", `{"version":"`},
	} {
		var out, errs strings.Builder
		err := execute(strings.Fields(tc.args), streams{&out, &errs, os.Getenv})
		if err != nil || !strings.Contains(out.String(), tc.want) || errs.Len() > 0 {
			t.Errorf("plegd %s: %v\n%s%s", tc.args, err, &out, &errs)
		}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
)

// Every mistake in an item is one error that names the key, the value and what
// is allowed.
func TestBadScriptItems(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                    {"keys and values"},
		",":                                   {"keys and values"},
		"=x":                                  {"keys and values"},
		"metod=ListContainers":                {`"metod"`, "one of method, id, type"},
		"method=ListContainer,hang":           {`method "ListContainer"`, "RuntimeService"},
		"method=,hang":                        {`method ""`},
		"method":                              {"method: needs a value"},
		"hang=5s":                             {`hang "5s"`, "no value"},
		"hang=":                               {`hang ""`, "no value"},
		"hang,hang":                           {"hang: is given twice"},
		"code=internal":                       {`code "internal"`, "Internal", "Unavailable"},
		"code=OK":                             {`code "OK"`},
		"delay=soon":                          {`delay "soon"`, "duration"},
		"delay=-1s":                           {`delay "-1s"`, "positive"},
		"share=0,hang":                        {`share "0"`, "above 0"},
		"share=NaN,hang":                      {`share "NaN"`},
		"share=1.5,hang":                      {`share "1.5"`, "up to 1"},
		"every=0,hang":                        {`every "0"`, "above 0"},
		"times=many,hang":                     {`times "many"`, "whole number"},
		"raw=xyz":                             {`raw "xyz"`, "hex"},
		"pad=1GiB":                            {`pad "1GiB"`, "64MiB"},
		"omit=a++b":                           {`omit "a++b"`, "whole ids"},
		"id=,hang":                            {`id ""`, "whole"},
		"message=,code=Internal":              {`message ""`, "empty"},
		"says=abc:dead":                       {`says "abc:dead"`, "created, exited, notready, ready, running, unknown"},
		"says=:exited":                        {`says ":exited"`, "whole id"},
		"method=ListContainers":               {"does nothing", "delay"},
		"method=ListContainers,from=3s":       {"does nothing"},
		"message=no,hang":                     {"message", "without code"},
		"drop":                                {"drop", "method=event"},
		"type=stopped,hang":                   {"type", "method=event"},
		"method=event,type=paused,drop":       {`type "paused"`, "created, deleted, started, stopped"},
		"method=event,code=Internal":          {"code", "method=event"},
		"method=event,eof":                    {"eof", "method=event"},
		"method=event,drop,hang":              {"drops and does something else"},
		"method=ListContainers,eof":           {"eof", "GetContainerEvents"},
		"ignore-cancel,code=Internal":         {"ignores cancellation"},
		"do=sleep":                            {`do "sleep"`, "clock, down, end-streams, freeze"},
		"do=":                                 {`do ""`},
		"do":                                  {"do: needs a value"},
		"do=freeze,method=event":              {`"method"`, "one of do, at, for"},
		"do=thaw,for=3s":                      {"for", "do=thaw takes only at, each"},
		"do=clock":                            {`do "clock"`, "needs by"},
		"do=clock,by=0s":                      {`by "0s"`, "-30s"},
		"do=profile,at=1s":                    {`do "profile"`, "needs profile"},
		"do=profile,profile=docker":           {`profile "docker"`, "containerd-1.6, containerd-1.7, containerd-2.4, cri-o, cri-o-no-events"},
		"do=freeze,for=5s,each=5s":            {`for "5s"`, "shorter than each, 5s"},
		"do=end-streams,code=Nothing":         {`code "Nothing"`},
		"do=down,at=yesterday":                {`at "yesterday"`},
		"method=Version,code=Internal,raw=00": {"Raw"},
	} {
		item, err := parseScriptItem(text, 0)
		if err == nil {
			t.Errorf("%q: taken as %+v", text, item)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q: %q is not in %q", text, part, err)
			}
		}
	}
}

func TestBadScripts(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"--fault", "hang,code=oops"}, []string{`--fault "hang,code=oops": code "oops"`}},
		{[]string{"--script", file("one", "# ok\n\nhang\ndo=nap\n")}, []string{"--script", "one", `line 4: do "nap"`}},
		{[]string{"--script", filepath.Join(dir, "none")}, []string{"--script", "none", "no such file"}},
		{[]string{"--script", dir}, []string{"--script", "can't be read"}},
		{[]string{"--script", file("long", strings.Repeat("# nothing\n", maxScript/10+1))}, []string{"--script", "more than 1MiB"}},
		{[]string{"--script="}, []string{"--script", "empty"}},
		{[]string{"--profile", "docker"}, []string{"--profile", `"docker"`, "containerd-2.4"}},
		{[]string{"--profile", "cri-o", "--no-events"}, []string{"--no-events", "cri-o-no-events"}},
		{[]string{"--containers", "0"}, []string{"--containers", `"0"`, "above 0"}},
	} {
		args := append([]string{"simulate", "--socket", "/x"}, tc.args...)
		err := execute(args, streams{io.Discard, io.Discard, func(string) string { return "" }})
		if code := exitCode(err); code != exitUsage {
			t.Errorf("%v: code %d: %v", tc.args, code, err)
			continue
		}
		for _, part := range tc.want {
			if line := oneLine(err); !strings.Contains(line, part) {
				t.Errorf("%v: %q is not in %q", tc.args, part, line)
			}
		}
	}
}

// FuzzScript: whatever is in a script, it is taken, with rules that the runtime
// takes too, or it is refused with one line that names the line.
func FuzzScript(f *testing.F) {
	for _, seed := range []string{
		"method=ListContainers,id=abc,code=Internal,message=no,delay=2s,share=0.1,skip=1,every=2,times=3,from=30s,for=10s",
		"method=event,type=stopped,drop\n# comment\n\ndo=freeze,at=1m,for=5s,each=2m",
		"method=ContainerStatus,raw=0aff,pad=9MiB,omit=a+b,repeat=c,says=d:exited,shuffle,reverse",
		"do=profile,profile=cri-o,for=1s\ndo=clock,by=-1h", "hang,hang", "raw=", "=,=", "\x00=\x00",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		items, err := parseScript(text, 1)
		if err != nil {
			var n int
			if _, scanErr := fmt.Sscanf(err.Error(), "line %d: ", &n); scanErr != nil || n < 1 || n > strings.Count(text, "\n")+1 {
				t.Errorf("error %q", err)
			}
			if strings.ContainsAny(err.Error(), "\n\x00") {
				t.Errorf("error %q isn't one line", err)
			}
			return
		}
		rt := simtest.New(t, simruntime.Config{})
		for _, i := range items {
			if i.do != "" {
				continue
			}
			if _, err := rt.AddRule(i.rule); err != nil {
				t.Errorf("taken, and then %v", err)
			}
		}
	})
}

// scripted runs a script in virtual time, with a client.
func scripted(t *testing.T, text string, f func(t *testing.T, rt *simruntime.Runtime, c runtimeapi.RuntimeServiceClient, clock *simruntime.StepClock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		items, err := parseScript(text, 1)
		if err != nil {
			t.Fatal(err)
		}
		s := &script{clock: &simruntime.StepClock{}, items: items}
		rt := simtest.New(t, simruntime.Config{Wall: s.clock.Now})
		conn := simtest.Bufconn(t, rt)
		ctx, cancel := context.WithCancel(t.Context())
		ends, err := s.begin(rt)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.run(ctx, rt, ends) }()
		f(t, rt, runtimeapi.NewRuntimeServiceClient(conn), s.clock)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		rt.ClearRules()
		rt.Thaw()
	})
}

// answer is the code of a call with a second's patience.
func answer(c runtimeapi.RuntimeServiceClient) codes.Code {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := c.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	return status.Code(err)
}

// A fault comes and goes when it is told to.
func TestScriptedFaults(t *testing.T) {
	scripted(t, `
		method=ListContainers,code=NotFound,message=gone,for=10s
		method=ListContainers,code=Internal,from=20s,for=10s,every=2
		method=ListContainers,hang,from=40s`,
		func(t *testing.T, _ *simruntime.Runtime, c runtimeapi.RuntimeServiceClient, _ *simruntime.StepClock) {
			start := time.Now()
			for _, want := range []struct {
				at   time.Duration
				code codes.Code
			}{
				{0, codes.NotFound}, {9 * time.Second, codes.NotFound}, {11 * time.Second, codes.OK},
				{21 * time.Second, codes.Internal}, {22 * time.Second, codes.OK}, {23 * time.Second, codes.Internal},
				{31 * time.Second, codes.OK}, {41 * time.Second, codes.DeadlineExceeded}, {time.Hour, codes.DeadlineExceeded},
			} {
				time.Sleep(want.at - time.Since(start))
				if got := answer(c); got != want.code {
					t.Errorf("at %v: %v, want %v", want.at, got, want.code)
				}
			}
		})
}

// Commands happen when they are told to, for so long, and again.
func TestScriptedCommands(t *testing.T) {
	for text, want := range map[string][]codes.Code{ // at 5 s, 15 s, 25 s, 35 s and 45 s
		"do=down,at=10s,for=10s":                        {codes.OK, codes.Unavailable, codes.OK, codes.OK, codes.OK},
		"do=down,at=10s\ndo=up,at=30s":                  {codes.OK, codes.Unavailable, codes.Unavailable, codes.OK, codes.OK},
		"do=kill,at=10s,for=10s":                        {codes.OK, codes.Unavailable, codes.OK, codes.OK, codes.OK},
		"do=restart,at=10s,for=10s":                     {codes.OK, codes.Unavailable, codes.OK, codes.OK, codes.OK},
		"do=restart,at=10s":                             {codes.OK, codes.OK, codes.OK, codes.OK, codes.OK},
		"do=freeze,at=10s,for=10s,each=20s":             {codes.OK, codes.DeadlineExceeded, codes.OK, codes.DeadlineExceeded, codes.OK},
		"do=freeze,at=10s\ndo=thaw,at=20s":              {codes.OK, codes.DeadlineExceeded, codes.OK, codes.OK, codes.OK},
		"do=profile,profile=cri-o,for=10s":              {codes.Unavailable, codes.OK, codes.OK, codes.OK, codes.OK},
		"do=profile,profile=cri-o,for=10s\ndo=up,at=3s": {codes.OK, codes.OK, codes.OK, codes.OK, codes.OK},
		"do=remove-socket,at=10s":                       {codes.OK, codes.OK, codes.OK, codes.OK, codes.OK},
		"do=clock,at=10s,by=-1h,each=10s":               {codes.OK, codes.OK, codes.OK, codes.OK, codes.OK},
		"do=end-streams,at=10s,code=Internal":           {codes.OK, codes.OK, codes.OK, codes.OK, codes.OK},
	} {
		t.Run(text, func(t *testing.T) {
			scripted(t, text, func(t *testing.T, rt *simruntime.Runtime, c runtimeapi.RuntimeServiceClient, clock *simruntime.StepClock) {
				start := time.Now()
				var ended error
				if strings.Contains(text, "end-streams") {
					stream, err := c.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
					if err != nil {
						t.Fatal(err)
					}
					go func() { _, ended = stream.Recv() }()
				}
				for n, code := range want {
					time.Sleep(time.Duration(5+10*n)*time.Second - time.Since(start))
					if got := answer(c); got != code {
						t.Errorf("after %v: %v, want %v", time.Since(start), got, code)
					}
				}
				synctest.Wait()
				switch {
				case strings.Contains(text, "profile") && rt.Profile() != simruntime.CRIO:
					t.Errorf("profile %+v", rt.Profile())
				case strings.Contains(text, "clock") && time.Until(clock.Now()).Round(time.Hour) != -4*time.Hour:
					t.Errorf("the clock shows %v at %v, want 4 hours less", clock.Now(), time.Now())
				case strings.Contains(text, "end-streams") && status.Code(ended) != codes.Internal:
					t.Errorf("ended with %v", ended)
				}
			})
		})
	}
}

// A runtime that somebody brings up again and again becomes another one all the
// same.
func TestProfileOfARuntimeThatComesUp(t *testing.T) {
	rt, _ := simtest.Start(t, simruntime.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	var up sync.WaitGroup
	up.Go(func() {
		for ctx.Err() == nil {
			rt.Up()
		}
	})
	for range 200 {
		for _, p := range []simruntime.Profile{simruntime.CRIO, simruntime.Containerd24} {
			if err := become(ctx, rt, p); err != nil || rt.Profile() != p {
				t.Errorf("profile %+v, %v", rt.Profile(), err)
			}
		}
	}
	cancel()
	up.Wait()
	rt.Up()
}

// Every kind of fault that an item can name does what it says.
func TestScriptedChangesOfMessages(t *testing.T) {
	for text, check := range map[string]func(*runtimeapi.ListContainersResponse, error) string{
		"method=ListContainers,omit=c1+c3": func(l *runtimeapi.ListContainersResponse, _ error) string {
			if len(l.Containers) != 1 || l.Containers[0].Id != "c2" {
				return "not just c2"
			}
			return ""
		},
		"method=ListContainers,repeat=c2,reverse": func(l *runtimeapi.ListContainersResponse, _ error) string {
			if len(l.Containers) != 4 || l.Containers[0].Id != "c3" || l.Containers[2].Id != "c2" {
				return "not c3 c2 c2 c1"
			}
			return ""
		},
		"says=c1:exited": func(l *runtimeapi.ListContainersResponse, _ error) string {
			if l.Containers[0].State != runtimeapi.ContainerState_CONTAINER_EXITED || l.Containers[1].State != runtimeapi.ContainerState_CONTAINER_CREATED {
				return "not c1 alone exited"
			}
			return ""
		},
		"pad=1MiB": func(l *runtimeapi.ListContainersResponse, _ error) string {
			if len(l.Containers[0].Annotations) == 0 {
				return "not padded"
			}
			return ""
		},
		"method=ListContainers,raw=0aff": func(_ *runtimeapi.ListContainersResponse, err error) string {
			if status.Code(err) != codes.Internal {
				return "decoded"
			}
			return ""
		},
	} {
		scripted(t, text, func(t *testing.T, rt *simruntime.Runtime, c runtimeapi.RuntimeServiceClient, _ *simruntime.StepClock) {
			for n := range 3 {
				rt.PutContainer("p", &runtimeapi.ContainerStatus{Id: fmt.Sprint("c", n+1)})
			}
			l, err := c.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
			if wrong := check(l, err); wrong != "" {
				t.Errorf("%s: %s: %v, %v", text, wrong, l, err)
			}
		})
	}
}

// The whole command, with a profile, a full start and a script.
func TestSimulateProfileAndScript(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte("# the list fails for ever\nmethod=ListPodSandbox,code=Internal\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sim, socket, line := simulated(t, "--profile", "cri-o-no-events", "--pods", "20", "--containers", "10", "--rate", "0.001",
		"--script", file, "--fault", "method=Version,code=NotFound,times=1")
	if want := "simulated cri-o-no-events runtime on unix://" + socket + ": 20 pods of 10 containers, 0.001 transitions a second, seed 0, faults: 2 scripted\n"; line != want {
		t.Errorf("said %q, want %q", line, want)
	}
	c := runtimeapi.NewRuntimeServiceClient(simtest.Dial(t, socket))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := c.Version(ctx, &runtimeapi.VersionRequest{}); status.Code(err) != codes.NotFound {
		t.Errorf("first Version: %v", err)
	}
	if v, err := c.Version(ctx, &runtimeapi.VersionRequest{}); err != nil || v.RuntimeName != "cri-o" {
		t.Errorf("second Version: %v, %v", v, err)
	}
	if _, err := c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{}); status.Code(err) != codes.Internal {
		t.Errorf("list: %v", err)
	}
	eventually(t, "all containers are there", func() bool {
		l, err := c.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		return err == nil && len(l.Containers) == 200
	})
	stream, err := c.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("events: %v, want EOF", err)
	}
	sim.terminate()
}

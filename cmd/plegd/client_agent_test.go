package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/internal/selection"
	"github.com/plegd/plegd/internal/simruntime"
	"github.com/plegd/plegd/internal/simruntime/simtest"
	"github.com/plegd/plegd/store"
)

// ask runs a client command in this process, with stdout as a script has it.
func (d agentDir) ask(args ...string) (code int, stdout, stderr string) {
	var out, errs strings.Builder
	env := func(key string) string { return map[string]string{socketEnv: d.socket()}[key] }
	err := execute(args, streams{&out, &errs, env})
	if err != nil {
		fmt.Fprintln(&errs, "plegd:", oneLine(err))
	}
	return exitCode(err), out.String(), errs.String()
}

// mustAsk is ask for what must work, without a word on stderr.
func (d agentDir) mustAsk(t *testing.T, args ...string) string {
	t.Helper()
	code, out, stderr := d.ask(args...)
	if code != exitOK || stderr != "" {
		t.Fatalf("plegd %s: code %d, %s", strings.Join(args, " "), code, stderr)
	}
	return out
}

// told runs an agent in which something has happened in three pods, and returns
// its directory, and the events as its stdout has them.
func told(t *testing.T) (agentDir, *simruntime.Runtime, []store.Event) {
	t.Helper()
	rt, endpoint := simtest.Start(t, simruntime.Config{Seed: 1})
	dir := newAgentDir(t)
	c := start(t, dir.args(endpoint)...)
	r := c.read()
	t.Cleanup(c.terminate) // before what reads waits for its end
	dir.awaitReady(t)
	for i, name := range []string{"web", "db"} {
		pod := newPod(t, rt, name)
		for n := range 3 {
			life(t, rt, pod, []string{"app", "init", "side"}[n], int32(i*7))
		}
	}
	other, err := rt.RunPodSandbox(simruntime.PodSpec{Namespace: "shop", Name: "api", UID: "uid-api", Labels: map[string]string{"app": "api"}})
	if err != nil {
		t.Fatal(err)
	}
	life(t, rt, other, "app", 3)
	var events []store.Event
	eventually(t, "all is told", func() bool {
		events = r.all(t)
		gone := slices.DeleteFunc(slices.Clone(events), func(ev store.Event) bool { return ev.Type != store.ContainerRemoved })
		return len(gone) == 7
	})
	return dir, rt, events
}

// lines returns events as `plegd run --output json` writes them.
func lines(t *testing.T, events []store.Event) string {
	t.Helper()
	var b strings.Builder
	for i := range events {
		line, err := formatJSON(&events[i])
		if err != nil {
			t.Fatal(err)
		}
		b.Write(line)
	}
	return b.String()
}

// What a client is told is what the agent's stdout tells, byte for byte: all of
// it, and any part of it.
func TestEventsAreTheAgents(t *testing.T) {
	t.Parallel()
	dir, _, all := told(t)
	at := func(i int) string { return all[i].Position.String() }
	clock := func(i int) string { return store.FormatTime(all[i].ObservedAt) }
	chosen := func(f selection.Filter) []store.Event {
		sel, err := selection.New(f)
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(slices.Clone(all), func(ev store.Event) bool { return !sel.Event(&ev) })
	}
	// Several events can be observed at one time; these are the ends of such.
	sameFirst := slices.IndexFunc(all, func(ev store.Event) bool { return ev.ObservedAt == all[9].ObservedAt })
	later := slices.IndexFunc(all, func(ev store.Event) bool { return ev.ObservedAt > all[9].ObservedAt })
	if len(all) < 25 || sameFirst < 1 || later < 0 {
		t.Fatalf("too little happened: %d events", len(all))
	}
	for _, tc := range []struct {
		args string
		want []store.Event
	}{
		{"", all},
		{"--no-follow", all},
		{"--since 1h", all},
		{"--since 1969-12-31T23:59:59Z", all},
		{"--since 0001-01-01T00:00:00Z", all},
		{"--since " + at(9), all[10:]},
		{"--since " + at(len(all)-1), nil},
		{"--since " + clock(9), all[sameFirst:]},
		{"--until " + at(9), all[:10]},
		{"--until " + clock(9), all[:later]},
		{"--until 1h", nil},
		{"--until 9999-12-31T23:59:59Z", all},
		{"--since " + at(3) + " --until " + at(9), all[4:10]},
		{"--since " + at(3) + " --limit 2", all[4:6]},
		{"--limit 2 --follow --since " + at(3), all[4:6]},
		{"--follow --since " + at(3) + " --until " + at(9), all[4:10]},
		{"--pod web", chosen(selection.Filter{Pods: []string{"web"}})},
		{"--pod web --pod api", chosen(selection.Filter{Pods: []string{"web", "api"}})},
		{"--pod web,api", chosen(selection.Filter{Pods: []string{"web", "api"}})},
		{"--namespace shop", chosen(selection.Filter{Namespaces: []string{"shop"}})},
		{"-n default --container init", chosen(selection.Filter{Namespaces: []string{"default"}, Containers: []string{"init"}})},
		{"--uid uid-db", chosen(selection.Filter{UIDs: []string{"uid-db"}})},
		{"-l app=api", chosen(selection.Filter{Labels: "app=api"})},
		{"--selector !app --type ContainerDied", chosen(selection.Filter{Labels: "!app", Types: []string{"ContainerDied"}})},
		{"--type ContainerDied,SandboxReady --pod db", chosen(selection.Filter{Types: []string{"ContainerDied", "SandboxReady"}, Pods: []string{"db"}})},
		{"--source stream", chosen(selection.Filter{Sources: []string{"stream"}})},
		{"--pod web --until " + at(len(all)-1), chosen(selection.Filter{Pods: []string{"web"}})},
	} {
		got := dir.mustAsk(t, append([]string{"events", "-o", "json"}, strings.Fields(tc.args)...)...)
		if diff := cmp.Diff(lines(t, tc.want), got); diff != "" {
			t.Errorf("plegd events %s (-want +got):\n%s", tc.args, diff)
		}
	}
}

// Every other form says the same.
func TestEventsForms(t *testing.T) {
	t.Parallel()
	dir, _, all := told(t)
	t.Run("yaml", func(t *testing.T) {
		docs := strings.Split(dir.mustAsk(t, "events", "-o", "yaml"), "---\n")[1:]
		if len(docs) != len(all) {
			t.Fatalf("%d documents of %d events", len(docs), len(all))
		}
		for i, doc := range docs {
			text, err := yaml.YAMLToJSON([]byte(doc))
			var ev store.Event
			if err == nil {
				err = json.Unmarshal(text, &ev)
			}
			if err != nil || lines(t, []store.Event{ev}) != lines(t, all[i:i+1]) {
				t.Errorf("%s: %v\n%s", all[i].Position, err, doc)
			}
		}
	})
	t.Run("cloudevents", func(t *testing.T) {
		got := strings.Split(strings.TrimSpace(dir.mustAsk(t, "events", "-o", "cloudevents")), "\n")
		if len(got) != len(all) {
			t.Fatalf("%d lines of %d events", len(got), len(all))
		}
		for i, line := range got {
			want, err := cloudEvent(&all[i], "n1")
			if err != nil || line != string(want) {
				t.Errorf("%v\n got %s\nwant %s", err, line, want)
			}
		}
	})
	t.Run("go-template", func(t *testing.T) {
		got := dir.mustAsk(t, "events", "--limit", "6", "-o", "go-template={{.epoch}}/{{.seq}} {{.type}}{{with .container}} {{.name}}{{end}}")
		want := ""
		for _, ev := range all[:6] {
			want += strings.TrimSpace(fmt.Sprintf("%s %s %s", ev.Position, ev.Type, ev.Container.Name)) + "\n"
		}
		if got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		if code, _, stderr := dir.ask("events", "-o", "go-template={{index .type 99}}"); code != exitFailure || !strings.Contains(stderr, "event "+all[0].Position.String()+": --output go-template:") {
			t.Errorf("code %d, %s", code, stderr)
		}
	})
	t.Run("table", func(t *testing.T) {
		got := strings.SplitAfter(dir.mustAsk(t, "events"), "\n")
		if !strings.HasPrefix(got[0], "POSITION ") || len(got) != len(all)+2 {
			t.Fatalf("%d lines of %d events, the first %q", len(got), len(all), got[0])
		}
		for i := range all {
			if want, _ := formatText(&all[i]); got[i+1] != string(want) {
				t.Errorf("got  %swant %s", got[i+1], want)
			}
		}
		if strings.Index(got[0], "TYPE") != strings.Index(got[1], " SandboxCreated")+1 {
			t.Errorf("columns:\n%s%s", got[0], got[1])
		}
	})
	t.Run("colour", func(t *testing.T) {
		got := dir.mustAsk(t, "events", "--color", "always", "--type", "ContainerStarted", "--limit", "1")
		if !strings.Contains(got, " \x1b[32mContainerStarted\x1b[0m ") {
			t.Errorf("%q", got)
		}
	})
	t.Run("kubelet view", func(t *testing.T) {
		var feed pleg.KubeletFeed
		want := ""
		for i := range all {
			for _, k := range feed.Events(&all[i]) {
				line, err := k.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				want += string(line) + "\n"
			}
		}
		if got := dir.mustAsk(t, "events", "--kubelet-view", "-o", "json"); got != want || want == "" {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		rows := strings.Split(dir.mustAsk(t, "events", "--kubelet-view"), "\n")
		if !strings.HasPrefix(rows[0], "POSITION ") || len(rows) != strings.Count(want, "\n")+2 || !strings.Contains(rows[1], "ContainerStarted  uid-web ") {
			t.Errorf("%q", rows[:2])
		}
	})
}

// A CloudEvent has what version 1.0 of its specification requires.
func TestCloudEvent(t *testing.T) {
	ev := store.Event{
		Position: pleg.Position{Epoch: [8]byte{0x9f, 1}, Seq: 7}, Type: store.ContainerDied, SandboxID: "s", ObservedAt: 2e18,
		Pod: store.EventPod{Namespace: "shop", Name: "web"}, Container: store.EventContainer{ID: "c", Name: "app"}, Reason: "a<b",
	}
	data := `"data":` + strings.TrimSpace(lines(t, []store.Event{ev})) + `}`
	check := func(want string) {
		t.Helper()
		got, err := cloudEvent(&ev, "node 1/x")
		if err != nil || string(got) != want {
			t.Errorf("%v\n got %s\nwant %s", err, got, want)
		}
	}
	head := `{"specversion":"1.0","id":"9f01000000000000/7","source":"/nodes/node%201%2Fx/plegd","type":"io.github.plegd.v1.ContainerDied","subject":"shop/web/app","time":`
	check(head + `"2033-05-18T03:33:20Z","datacontenttype":"application/json",` + data)
	ev.OccurredAt = 1e18
	data = `"data":` + strings.TrimSpace(lines(t, []store.Event{ev})) + `}`
	check(head + `"2001-09-09T01:46:40Z","datacontenttype":"application/json",` + data)
	ev.Pod, ev.Container, ev.Type = store.EventPod{}, store.EventContainer{}, store.SandboxReady
	if s := eventSubject(&ev); s != "sandbox:s" {
		t.Errorf("subject %q", s)
	}
	ev.Type = store.SequenceSkipped
	if text, err := cloudEvent(&ev, "n"); err != nil || strings.Contains(string(text), "subject") {
		t.Errorf("%s, %v", text, err) // an empty one is not allowed
	}
}

// An end that lies ahead is waited for, whether or not what comes is chosen.
func TestEventsUntilLater(t *testing.T) {
	t.Parallel()
	dir, rt, all := told(t)
	last := all[len(all)-1].Position
	env := childConfig{env: []string{socketEnv + "=" + dir.socket()}}
	byPosition := startAs(t, env, "events", "--follow", "--pod", "late", "--since", last.String(), "--until", fmt.Sprintf("%s/%d", last.Epoch, last.Seq+3), "-o", "json")
	byTime := startAs(t, env, "events", "--follow", "--pod", "late", "--since", last.String(), "--until", time.Now().Add(8*time.Second).Format(time.RFC3339Nano), "-o", "json")
	events := byPosition.read()
	eventsByTime := byTime.read()
	time.Sleep(time.Second) // both follow by then; if not, they read it from the journal
	newPod(t, rt, "late")   // two events
	newPod(t, rt, "other")  // two more
	for _, c := range []*child{byPosition, byTime} {
		if code := c.code(patience * 2 / 3); code != exitOK { // not only with the next keepalive
			t.Errorf("code %d: %s", code, c.stderr)
		}
	}
	<-events.done
	<-eventsByTime.done
	for _, got := range [][]store.Event{events.all(t), eventsByTime.all(t)} {
		if len(got) != 2 || got[0].Type != store.SandboxCreated || got[1].Type != store.SandboxReady || got[1].Pod.Name != "late" {
			t.Errorf("got %v", got)
		}
	}
}

// Who follows to an end that lies ahead begins now, as any that follows.
func TestEventsUntilLaterBeginNow(t *testing.T) {
	t.Parallel()
	dir, rt, all := told(t)
	last := all[len(all)-1].Position
	for i, until := range []string{fmt.Sprintf("%s/%d", last.Epoch, last.Seq+1e6), time.Now().Add(time.Hour).Format(time.RFC3339Nano)} {
		ended := make(chan struct{})
		var code int
		var out, stderr string
		go func() {
			defer close(ended)
			code, out, stderr = dir.ask("events", "--follow", "--until", until, "--limit", "1", "-o", "json")
		}()
		pods := 0
		eventually(t, "an event of after it has begun is told", func() bool {
			select {
			case <-ended:
				return true
			default:
				newPod(t, rt, fmt.Sprintf("late%d-%d", i, pods))
				pods++
				return false
			}
		})
		var ev store.Event
		if err := json.Unmarshal([]byte(out), &ev); code != exitOK || err != nil || ev.Position.Seq <= last.Seq {
			t.Errorf("--until %s: code %d, %s%s, %v; what was there ends with %s", until, code, out, stderr, err, last)
		}
	}
}

// A position that leads nowhere is an error that says from where to go on, with
// a code of its own.
func TestEventsExpired(t *testing.T) {
	t.Parallel()
	rt, endpoint := simtest.Start(t, roomy)
	dir := newAgentDir(t)
	args := dir.args(endpoint, "--retention-entries", "100", "--output", "none")
	c := start(t, args...)
	dir.awaitReady(t)
	flood(t, rt, 100)
	dir.awaitSeq(t, 400)
	c.terminate()
	c = start(t, args...) // which has no more in memory than is stored
	dir.awaitReady(t)
	var oldest string
	eventually(t, "the journal forgets", func() bool {
		oldest = strings.TrimSpace(dir.mustAsk(t, "status", "-o", "go-template={{.oldest}}"))
		return !strings.HasSuffix(oldest, "/0")
	})
	epoch, _, _ := strings.Cut(oldest, "/")
	for flags, parts := range map[string][]string{
		"--since " + epoch + "/1":                                           {"position " + epoch + "/1 expired", "oldest is " + epoch + "/", "--since " + epoch + "/"},
		"--since 9f00000000000001/7":                                        {"position 9f00000000000001/7", "another epoch", "oldest is " + epoch + "/"},
		"--since " + epoch + "/999999":                                      {"was not given out yet", "newest is " + epoch + "/", "is it mistyped? To go on from now it is --since " + epoch + "/"},
		"--until 9f00000000000001/7":                                        {"--until 9f00000000000001/7", "another epoch", "newest is " + epoch + "/"},
		"--follow --since 9f00000000000001/7 --until 9f00000000000001/9000": {"--until 9f00000000000001/9000", "another epoch"},
	} {
		code, out, stderr := dir.ask(append([]string{"events"}, strings.Fields(flags)...)...)
		if code != exitExpired || out != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: code %d, stdout %.200q, %s", flags, code, out, stderr)
		}
		for _, part := range parts {
			if !strings.Contains(stderr, part) {
				t.Errorf("%s: %q is not in %q", flags, part, stderr)
			}
		}
		// What was not given out yet has nothing before it that is lost.
		if all := strings.Contains(stderr, "without what was before"); all != strings.Contains(stderr, "oldest is ") {
			t.Errorf("%s: %s", flags, stderr)
		}
	}
	c.terminate()
}

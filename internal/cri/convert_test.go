package cri

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"github.com/plegd/plegd/arbiter"
	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

var podLabels = map[string]string{LabelPodUID: "u1", LabelPodName: "web", LabelPodNamespace: "default", "app": "x"}

func sampleSandbox() *runtimeapi.PodSandboxStatus {
	return &runtimeapi.PodSandboxStatus{
		Id:          "sb",
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: "web", Uid: "u1", Namespace: "default", Attempt: 2},
		State:       runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		CreatedAt:   100,
		Network:     &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.5", AdditionalIps: []*runtimeapi.PodIP{nil, {}, {Ip: "fd00::5"}}},
		Labels:      podLabels,
		Annotations: map[string]string{"note": "n", "other": "o"},
	}
}

func sampleContainer() *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id:          "ct",
		Metadata:    &runtimeapi.ContainerMetadata{Name: "app", Attempt: 3},
		State:       runtimeapi.ContainerState_CONTAINER_EXITED,
		CreatedAt:   200,
		StartedAt:   300,
		FinishedAt:  400,
		ExitCode:    7,
		Reason:      "Error",
		Message:     "it broke",
		Image:       &runtimeapi.ImageSpec{Image: "sha256:abc", UserSpecifiedImage: "busybox:1"},
		Labels:      podLabels,
		Annotations: map[string]string{"note": "n"},
		LogPath:     "/log",
	}
}

func sampleEvent() *runtimeapi.ContainerEventResponse {
	return &runtimeapi.ContainerEventResponse{
		ContainerId:        "ct",
		ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
		CreatedAt:          500,
		PodSandboxStatus:   sampleSandbox(),
		ContainersStatuses: []*runtimeapi.ContainerStatus{sampleContainer()},
	}
}

func TestStatusesAreConverted(t *testing.T) {
	sb := SandboxStatus(sampleSandbox())
	want := &arbiter.Item{
		Kind: store.KindSandbox, ID: "sb", Sandbox: "sb", State: 1, Full: true, CreatedAt: 100,
		Identity: store.Identity{Pod: store.PodRef{UID: "u1", Namespace: "default", Name: "web"}, Attempt: 2, Labels: podLabels},
		IPs:      []string{"10.0.0.5", "fd00::5"},
		Rest:     sb.Rest,
	}
	if d := cmp.Diff(want, sb); d != "" {
		t.Error(d)
	}
	var rest runtimeapi.PodSandboxStatus
	if err := proto.Unmarshal([]byte(sb.Rest), &rest); err != nil {
		t.Fatal(err)
	}
	if rest.GetState() != 0 || rest.GetCreatedAt() != 0 || !proto.Equal(rest.GetNetwork(), sampleSandbox().GetNetwork()) || rest.GetAnnotations()["other"] != "o" {
		t.Errorf("rest: %v", &rest)
	}

	ct := ContainerStatus(sampleContainer())
	want = &arbiter.Item{
		Kind: store.KindContainer, ID: "ct", State: 2, Full: true, CreatedAt: 200, StartedAt: 300,
		Identity: store.Identity{Pod: store.PodRef{UID: "u1", Namespace: "default", Name: "web"}, Name: "app", Attempt: 3, Image: "busybox:1"},
		Exit:     store.Exit{Code: 7, FinishedAt: 400, Reason: "Error", Message: "it broke"},
		Rest:     ct.Rest,
	}
	if d := cmp.Diff(want, ct); d != "" {
		t.Error(d)
	}
	var crest runtimeapi.ContainerStatus
	if err := proto.Unmarshal([]byte(ct.Rest), &crest); err != nil {
		t.Fatal(err)
	}
	if crest.GetReason() != "" || crest.GetMessage() != "" || crest.GetExitCode() != 0 || crest.GetFinishedAt() != 0 || crest.GetLogPath() != "/log" {
		t.Errorf("rest: %v", &crest)
	}
}

func TestConversionLeavesTheMessageAlone(t *testing.T) {
	e, before := sampleEvent(), sampleEvent()
	Event(e, timestamps.Stamp{})
	if !proto.Equal(e, before) {
		t.Error("changed the message")
	}
}

func TestExits(t *testing.T) {
	for _, tc := range []struct {
		what   string
		change func(*runtimeapi.ContainerStatus)
		want   store.Exit
	}{
		{"code 0 is a value", func(s *runtimeapi.ContainerStatus) { s.ExitCode = 0 }, store.Exit{FinishedAt: 400, Reason: "Error", Message: "it broke"}},
		{"no finish time", func(s *runtimeapi.ContainerStatus) { s.FinishedAt = 0 }, store.Exit{}},
		{"finished before 1970", func(s *runtimeapi.ContainerStatus) { s.FinishedAt = -6795364578871345152 }, store.Exit{}},
		{"still running", func(s *runtimeapi.ContainerStatus) { s.State = runtimeapi.ContainerState_CONTAINER_RUNNING }, store.Exit{}},
		{"unknown", func(s *runtimeapi.ContainerStatus) { s.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN }, store.Exit{}},
	} {
		s := sampleContainer()
		tc.change(s)
		item := ContainerStatus(s)
		if item.Exit != tc.want {
			t.Errorf("%s: %+v", tc.what, item.Exit)
		}
		if kept := strings.Contains(item.Rest, "it broke"); kept == item.Exit.Known() {
			t.Errorf("%s: message in rest: %v", tc.what, kept)
		}
	}
}

func TestWhatIsMissingStaysZero(t *testing.T) {
	if SandboxStatus(nil) != nil || ContainerStatus(nil) != nil || SandboxStatus(&runtimeapi.PodSandboxStatus{}) != nil {
		t.Error("made an item of nothing")
	}
	e, dropped := Event(nil, timestamps.Stamp{Tick: 9})
	if e == nil || e.At.Tick != 9 || e.Sandbox != nil || e.Containers != nil || dropped != 0 {
		t.Errorf("%+v, %d", e, dropped)
	}
	items, dropped := Containers([]*runtimeapi.Container{nil, {}, {Id: "a"}, {Id: strings.Repeat("x", maxID+1)}, {Id: "b\xff"}})
	if len(items) != 1 || items[0].ID != "a" || dropped != 4 {
		t.Errorf("%+v, %d", items, dropped)
	}
	sandboxes, dropped := Sandboxes([]*runtimeapi.PodSandbox{nil, {Id: "s", CreatedAt: -1, State: 5}})
	if len(sandboxes) != 1 || sandboxes[0].CreatedAt != 0 || sandboxes[0].State != 5 || dropped != 1 {
		t.Errorf("%+v, %d", sandboxes, dropped)
	}
}

// Numbers outside the enums are kept.
func TestUnknownNumbersAreKept(t *testing.T) {
	c := sampleContainer()
	c.State = 7
	e := &runtimeapi.ContainerEventResponse{ContainerId: "ct", ContainerEventType: 9, CreatedAt: -5, ContainersStatuses: []*runtimeapi.ContainerStatus{c}}
	got, _ := Event(e, timestamps.Stamp{})
	if got.Type != 9 || got.CreatedAt != -5 || got.Containers[0].State != 7 {
		t.Errorf("%+v", got)
	}
}

func TestPodsByMetadataOrLabels(t *testing.T) {
	for _, tc := range []struct {
		meta   *runtimeapi.PodSandboxMetadata
		labels map[string]string
		want   store.PodRef
	}{
		{nil, nil, store.PodRef{}},
		{nil, podLabels, store.PodRef{UID: "u1", Namespace: "default", Name: "web"}},
		{&runtimeapi.PodSandboxMetadata{Uid: "m", Name: "n"}, podLabels, store.PodRef{UID: "m", Namespace: "default", Name: "n"}},
		{&runtimeapi.PodSandboxMetadata{Uid: "m", Namespace: "s", Name: "n"}, nil, store.PodRef{UID: "m", Namespace: "s", Name: "n"}},
	} {
		items, _ := Sandboxes([]*runtimeapi.PodSandbox{{Id: "s", Metadata: tc.meta, Labels: tc.labels}})
		if got := items[0].Identity.Pod; got != tc.want {
			t.Errorf("%v %v: %+v", tc.meta, tc.labels, got)
		}
	}
	if id := SandboxStatus(&runtimeapi.PodSandboxStatus{Id: "s"}).Identity; !id.IsZero() {
		t.Errorf("a bare status has an identity: %+v", id)
	}
}

func TestHostNetwork(t *testing.T) {
	s := sampleSandbox()
	s.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}}
	if !SandboxStatus(s).HostNetwork {
		t.Error("not seen")
	}
	s.Linux.Namespaces.Options.Network = runtimeapi.NamespaceMode_POD
	if SandboxStatus(s).HostNetwork {
		t.Error("seen where there is none")
	}
}

// CRI-O puts the containers of all sandboxes of a pod into one message.
func TestSandboxOfContainersInEvents(t *testing.T) {
	status := func(id string, l map[string]string) *runtimeapi.ContainerStatus {
		return &runtimeapi.ContainerStatus{Id: id, Labels: l}
	}
	e := sampleEvent()
	e.ContainersStatuses = []*runtimeapi.ContainerStatus{status("ct", podLabels), status("elsewhere", podLabels), status("bare", nil)}
	got, _ := Event(e, timestamps.Stamp{})
	for i, want := range []string{"sb", "", "sb"} {
		if got.Containers[i].Sandbox != want {
			t.Errorf("%s: sandbox %q, want %q", got.Containers[i].ID, got.Containers[i].Sandbox, want)
		}
	}
	e.PodSandboxStatus = nil
	got, _ = Event(e, timestamps.Stamp{})
	if got.Sandbox != nil || got.Containers[0].Sandbox != "" {
		t.Errorf("%+v", got)
	}
}

func TestLargeParts(t *testing.T) {
	s := sampleSandbox()
	s.Annotations = map[string]string{"big": strings.Repeat("x", maxRest)}
	item := SandboxStatus(s)
	if item.Rest == "" || len(item.Rest) > 10_000 {
		t.Errorf("rest of %d bytes: annotations alone should go", len(item.Rest))
	}
	s.RuntimeHandler = strings.Repeat("x", maxRest)
	if item = SandboxStatus(s); item.Rest != "" {
		t.Errorf("rest of %d bytes", len(item.Rest))
	}
	c := sampleContainer()
	c.Message, c.Reason = strings.Repeat("é", maxExitText), strings.Repeat("r", maxReason+1)
	exit := ContainerStatus(c).Exit
	if len(exit.Message) > maxExitText || !utf8.ValidString(exit.Message) || len(exit.Reason) != maxReason {
		t.Errorf("%d, %d", len(exit.Message), len(exit.Reason))
	}
	many := map[string]string{}
	for i := range 1000 {
		many[strings.Repeat("k", i%50)+string(rune('a'+i%26))+strings.Repeat("z", i)] = "v"
	}
	first, second := labels(many), labels(many)
	if d := cmp.Diff(first, second); d != "" {
		t.Error("not the same twice", d)
	}
	size := 0
	for k, v := range first {
		size += len(k) + len(v)
	}
	if size > maxLabels || size < maxLabels/2 {
		t.Errorf("labels of %d bytes", size)
	}
}

func TestTextIsCutBetweenRunes(t *testing.T) {
	for _, tc := range []struct {
		in   string
		n    int
		want string
	}{
		{"", 3, ""}, {"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aé", 2, "a"}, {"aé", 3, "aé"},
		{"日本", 4, "日"}, {"日本", 5, "日"}, {"日", 1, ""}, {"a\xff", 5, "a�"}, {"a\xff", 2, "a"}, {"\xff\xff", 3, "�"},
	} {
		if got := text(tc.in, tc.n); got != tc.want {
			t.Errorf("text(%q, %d) = %q, want %q", tc.in, tc.n, got, tc.want)
		}
	}
}

// checkEvent asserts what holds of every converted message.
func checkEvent(t interface{ Errorf(string, ...any) }, e *runtimeapi.ContainerEventResponse) {
	got, dropped := Event(e, timestamps.Stamp{})
	again, _ := Event(e, timestamps.Stamp{})
	if d := cmp.Diff(got, again); d != "" {
		t.Errorf("not the same twice: %s", d)
	}
	n := len(got.Containers) + dropped
	if got.Sandbox == nil && e.GetPodSandboxStatus() != nil {
		n--
	}
	if n != len(e.GetContainersStatuses()) {
		t.Errorf("%d of %d statuses, %d dropped", len(got.Containers), len(e.GetContainersStatuses()), dropped)
	}
	items := got.Containers
	if got.Sandbox != nil {
		items = append(items[:len(items):len(items)], *got.Sandbox)
	}
	for _, i := range items {
		texts := append([]string{i.ID, i.Sandbox, i.Identity.Pod.UID, i.Identity.Pod.Name, i.Identity.Pod.Namespace, i.Identity.Name, i.Identity.Image, i.Exit.Reason, i.Exit.Message}, i.IPs...)
		for k, v := range i.Identity.Labels {
			texts = append(texts, k, v)
		}
		for _, s := range texts {
			if !utf8.ValidString(s) || len(s) > maxExitText {
				t.Errorf("text %.50q", s)
			}
		}
		if i.ID == "" || i.CreatedAt < 0 || i.StartedAt < 0 || i.Exit.FinishedAt < 0 || !i.Full || len(i.Rest) > maxRest {
			t.Errorf("%+v", i)
		}
		if i.Exit.Known() && i.State != int32(runtimeapi.ContainerState_CONTAINER_EXITED) {
			t.Errorf("exit of what didn't exit: %+v", i)
		}
	}
}

func TestAnyMessageIsConverted(t *testing.T) {
	str := rapid.OneOf(rapid.String(), rapid.Just(""), rapid.Just("\xff\xfe"), rapid.Just(strings.Repeat("é", 600)))
	num := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{0, -1, 1, -6795364578871345152}))
	m := rapid.MapOf(rapid.OneOf(str, rapid.SampledFrom([]string{LabelPodUID, LabelPodName, LabelPodNamespace})), str)
	container := func(t *rapid.T) *runtimeapi.ContainerStatus {
		if rapid.IntRange(0, 9).Draw(t, "nil") == 0 {
			return nil
		}
		c := &runtimeapi.ContainerStatus{
			Id: str.Draw(t, "id"), State: runtimeapi.ContainerState(rapid.Int32Range(-1, 9).Draw(t, "state")),
			CreatedAt: num.Draw(t, "created"), StartedAt: num.Draw(t, "started"), FinishedAt: num.Draw(t, "finished"),
			ExitCode: rapid.Int32().Draw(t, "code"), Reason: str.Draw(t, "reason"), Message: str.Draw(t, "message"), Labels: m.Draw(t, "labels"),
		}
		if rapid.Bool().Draw(t, "more") {
			c.Metadata = &runtimeapi.ContainerMetadata{Name: str.Draw(t, "name")}
			c.Image = &runtimeapi.ImageSpec{Image: str.Draw(t, "image"), UserSpecifiedImage: str.Draw(t, "user")}
		}
		return c
	}
	rapid.Check(t, func(t *rapid.T) {
		e := &runtimeapi.ContainerEventResponse{
			ContainerId: str.Draw(t, "id"), CreatedAt: num.Draw(t, "created"),
			ContainerEventType: runtimeapi.ContainerEventType(rapid.Int32().Draw(t, "type")),
		}
		if rapid.Bool().Draw(t, "sandbox") {
			e.PodSandboxStatus = &runtimeapi.PodSandboxStatus{
				Id: str.Draw(t, "sandbox id"), CreatedAt: num.Draw(t, "created"), Labels: m.Draw(t, "labels"),
				State: runtimeapi.PodSandboxState(rapid.Int32Range(-1, 9).Draw(t, "state")),
			}
			if rapid.Bool().Draw(t, "network") {
				e.PodSandboxStatus.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: str.Draw(t, "ip"), AdditionalIps: []*runtimeapi.PodIP{nil, {Ip: str.Draw(t, "ip")}}}
				e.PodSandboxStatus.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{}}
			}
		}
		for range rapid.IntRange(0, 4).Draw(t, "containers") {
			e.ContainersStatuses = append(e.ContainersStatuses, container(t))
		}
		checkEvent(t, e)
	})
}

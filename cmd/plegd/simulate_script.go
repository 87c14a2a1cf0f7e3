package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plegd/plegd/internal/simruntime"
)

// scriptItem is one --fault, or one line of a --script: a fault of single calls
// or events, or something that is done to the whole runtime.
type scriptItem struct {
	at     time.Duration // after the start
	length time.Duration // 0: to the end
	rule   simruntime.Rule
	edits  []func(proto.Message)

	do      string        // "" is a fault
	each    time.Duration // commands: again after so long
	code    codes.Code    // of end-streams
	step    time.Duration // of clock
	profile string        // of profile
}

// scriptKey is one key of an item. A key without parse takes no value.
type scriptKey struct {
	name  string
	parse func(*scriptItem, string) error
	set   func(*scriptItem)
}

// faultKeys are the keys of a fault, as its messages list them.
func faultKeys(seed uint64) []scriptKey {
	rule := func(f func(*simruntime.Rule)) func(*scriptItem) {
		return func(i *scriptItem) { f(&i.rule) }
	}
	edit := func(f func(proto.Message)) func(*scriptItem) {
		return func(i *scriptItem) { i.edits = append(i.edits, f) }
	}
	return []scriptKey{
		{name: "method", parse: into(parseMethod, func(i *scriptItem, m string) { i.rule.Method = m })},
		{name: "id", parse: into(parseID, func(i *scriptItem, id string) { i.rule.ID = id })},
		{name: "type", parse: into(parseEventType, func(i *scriptItem, typ runtimeapi.ContainerEventType) {
			i.rule.Where = func(op simruntime.Op) bool { return op.Event.GetContainerEventType() == typ }
		})},
		{name: "skip", parse: into(parseCount, func(i *scriptItem, n int) { i.rule.Skip = n })},
		{name: "every", parse: into(parseCount, func(i *scriptItem, n int) { i.rule.Every = n })},
		{name: "times", parse: into(parseCount, func(i *scriptItem, n int) { i.rule.Times = n })},
		{name: "share", parse: into(parseSomeShare, func(i *scriptItem, v float64) { i.rule.Probability = v })},
		{name: "from", parse: into(parseDuration, func(i *scriptItem, d time.Duration) { i.at = d })},
		{name: "for", parse: into(parseDuration, func(i *scriptItem, d time.Duration) { i.length = d })},
		{name: "delay", parse: into(parseDuration, func(i *scriptItem, d time.Duration) { i.rule.Delay = d })},
		{name: "hang", set: rule(func(r *simruntime.Rule) { r.Hang = true })},
		{name: "ignore-cancel", set: rule(func(r *simruntime.Rule) { r.IgnoreCancel = true })},
		{name: "after", set: rule(func(r *simruntime.Rule) { r.After = true })},
		{name: "code", parse: into(parseCode, func(i *scriptItem, c codes.Code) { i.rule.Code = c })},
		{name: "message", parse: into(parseText, func(i *scriptItem, s string) { i.rule.Message = s })},
		{name: "eof", set: rule(func(r *simruntime.Rule) { r.EOF = true })},
		{name: "raw", parse: into(parseHex, func(i *scriptItem, b []byte) { i.rule.Raw = b })},
		{name: "drop", set: rule(func(r *simruntime.Rule) { r.Drop = true })},
		{name: "duplicate", parse: into(parseCount, func(i *scriptItem, n int) { i.rule.Duplicate = n })},
		{name: "hold", parse: into(parseCount, func(i *scriptItem, n int) { i.rule.Hold = n })},
		{name: "omit", parse: into(parseIDs, func(i *scriptItem, ids []string) { edit(simruntime.Omit(ids...))(i) })},
		{name: "repeat", parse: into(parseIDs, func(i *scriptItem, ids []string) { edit(simruntime.Repeat(ids...))(i) })},
		{name: "reverse", set: edit(simruntime.Reverse)},
		{name: "shuffle", set: edit(simruntime.Shuffle(seed))},
		{name: "pad", parse: into(parsePadding, func(i *scriptItem, n int) { edit(simruntime.PadTo(n))(i) })},
		{name: "says", parse: into(parseSays, func(i *scriptItem, lie func(proto.Message)) { edit(lie)(i) })},
		{name: "seconds", set: edit(simruntime.Seconds)},
		{name: "status-seconds", set: edit(simruntime.StatusSeconds)},
		{name: "no-sandbox", set: edit(simruntime.NoSandboxStatus)},
		{name: "no-containers", set: edit(simruntime.NoContainerStatuses)},
	}
}

// Keys that only one kind of faults has, or that say what a fault does.
var (
	eventKeys  = []string{"type", "drop", "duplicate", "hold", "no-sandbox", "no-containers"}
	callKeys   = []string{"code", "message", "after", "eof", "ignore-cancel"}
	chooseKeys = []string{"method", "id", "type", "skip", "every", "times", "share", "from", "for", "after", "ignore-cancel", "message"}
)

// commandKeys are the keys of a command.
var commandKeys = []scriptKey{
	{name: "do", parse: into(parseDo, func(i *scriptItem, s string) { i.do = s })},
	{name: "at", parse: into(parseDuration, func(i *scriptItem, d time.Duration) { i.at = d })},
	{name: "for", parse: into(parseDuration, func(i *scriptItem, d time.Duration) { i.length = d })},
	{name: "each", parse: into(parseDuration, func(i *scriptItem, d time.Duration) { i.each = d })},
	{name: "code", parse: into(parseCode, func(i *scriptItem, c codes.Code) { i.code = c })},
	{name: "by", parse: into(parseStep, func(i *scriptItem, d time.Duration) { i.step = d })},
	{name: "profile", parse: into(parseProfile, func(i *scriptItem, s string) { i.profile = s })},
}

// commandTakes lists what each command takes beside do, at and each. What ends
// with ! must be given.
var commandTakes = map[string][]string{
	"down": {"for"}, "kill": {"for"}, "up": nil, "restart": {"for"},
	"freeze": {"for"}, "thaw": nil,
	"end-streams": {"code"}, "remove-socket": nil,
	"clock": {"by!"}, "profile": {"profile!", "for"},
}

func into[T any](parse func(string) (T, error), set func(*scriptItem, T)) func(*scriptItem, string) error {
	return func(i *scriptItem, s string) error {
		v, err := parse(s)
		if err == nil {
			set(i, v)
		}
		return err
	}
}

// parseScriptItem reads KEY=VALUE pairs, separated by commas. Its errors name
// the key, the value and what is allowed.
func parseScriptItem(text string, seed uint64) (*scriptItem, error) {
	values := map[string]string{}
	var names []string
	for pair := range strings.SplitSeq(text, ",") {
		name, value, given := strings.Cut(strings.TrimSpace(pair), "=")
		switch {
		case name == "":
			return nil, fmt.Errorf("%q: must be keys and values such as method=StreamContainers,code=Internal", pair)
		case slices.Contains(names, name):
			return nil, fmt.Errorf("%s: is given twice", name)
		case !given:
			value = noValue
		}
		values[name] = value
		names = append(names, name)
	}
	item, keys := &scriptItem{}, faultKeys(seed)
	_, command := values["do"]
	if command {
		keys = commandKeys
	}
	for _, name := range names {
		if err := item.read(keys, name, values[name]); err != nil {
			return nil, err
		}
	}
	if command {
		return item, item.checkCommand(names)
	}
	return item, item.checkFault(names)
}

// noValue stands for a key that has no = behind it, which no value can be.
const noValue = "\x00"

func (i *scriptItem) read(keys []scriptKey, name, value string) error {
	at := slices.IndexFunc(keys, func(k scriptKey) bool { return k.name == name })
	if at < 0 {
		var known []string
		for _, k := range keys {
			known = append(known, k.name)
		}
		if !slices.Contains(known, "do") {
			known = append(known, "do for a command")
		}
		return fmt.Errorf("%q: must be one of %s", name, strings.Join(known, ", "))
	}
	switch key := keys[at]; {
	case key.parse == nil && value != noValue:
		return fmt.Errorf("%s %q: takes no value", name, value)
	case key.parse == nil:
		key.set(i)
		return nil
	case value == noValue:
		return fmt.Errorf("%s: needs a value, as in %s=VALUE", name, name)
	default:
		if err := key.parse(i, value); err != nil {
			return fmt.Errorf("%s %q: %w", name, value, err)
		}
		return nil
	}
}

// checkFault refuses what has no effect, and puts the rule together.
func (i *scriptItem) checkFault(names []string) error {
	event := i.rule.Method == simruntime.MethodEvent
	for _, name := range names {
		switch {
		case !event && slices.Contains(eventKeys, name) && name != "no-sandbox" && name != "no-containers":
			return fmt.Errorf("%s: has no effect without method=%s", name, simruntime.MethodEvent)
		case event && slices.Contains(callKeys, name):
			return fmt.Errorf("%s: has no effect with method=%s", name, simruntime.MethodEvent)
		}
	}
	if !slices.ContainsFunc(names, func(n string) bool { return !slices.Contains(chooseKeys, n) }) {
		return errors.New("does nothing: give at least one of delay, hang, code, eof, raw, drop, duplicate, hold or a change of messages")
	}
	if i.rule.Message != "" && i.rule.Code == codes.OK {
		return errors.New("message: has no effect without code")
	}
	if i.rule.EOF && !isStream(i.rule.Method) {
		return fmt.Errorf("eof: needs a method that streams: one of %s", strings.Join(streamMethods(), ", "))
	}
	switch len(i.edits) {
	case 0:
	case 1:
		i.rule.Edit = i.edits[0]
	default:
		i.rule.Edit = simruntime.Edits(i.edits...)
	}
	if err := i.rule.Validate(); err != nil {
		return err
	}
	return nil
}

// checkCommand refuses keys that the command doesn't take, and their lack.
func (i *scriptItem) checkCommand(names []string) error {
	takes := append([]string{"do", "at", "each"}, commandTakes[i.do]...)
	for n, name := range takes {
		if must, ok := strings.CutSuffix(name, "!"); ok {
			if takes[n] = must; !slices.Contains(names, must) {
				return fmt.Errorf("do %q: needs %s", i.do, must)
			}
		}
	}
	for _, name := range names {
		if !slices.Contains(takes, name) {
			return fmt.Errorf("%s: do=%s takes only %s", name, i.do, strings.Join(takes[1:], ", "))
		}
	}
	if i.each > 0 && i.length >= i.each {
		return fmt.Errorf("for %q: must be shorter than each, %v", showDuration(i.length), showDuration(i.each))
	}
	return nil
}

func parseMethod(s string) (string, error) {
	desc := runtimeapi.RuntimeService_ServiceDesc
	for _, m := range desc.Methods {
		if m.MethodName == s {
			return s, nil
		}
	}
	if s == simruntime.MethodEvent || slices.Contains(streamMethods(), s) {
		return s, nil
	}
	return "", fmt.Errorf("must be %q, or a method of CRI's RuntimeService such as ListContainers", simruntime.MethodEvent)
}

func streamMethods() (names []string) {
	for _, m := range runtimeapi.RuntimeService_ServiceDesc.Streams {
		names = append(names, m.StreamName)
	}
	return names
}

func isStream(method string) bool { return slices.Contains(streamMethods(), method) }

func parseID(s string) (string, error) {
	if s == "" {
		return "", errors.New("must be a whole container or sandbox id")
	}
	return s, nil
}

func parseIDs(s string) ([]string, error) {
	ids := strings.Split(s, "+")
	if slices.Contains(ids, "") {
		return nil, errors.New("must be whole ids, with + between them")
	}
	return ids, nil
}

func parseText(s string) (string, error) {
	if s == "" {
		return "", errors.New("must not be empty")
	}
	return s, nil
}

func parseHex(s string) ([]byte, error) {
	b, err := hex.DecodeString(s)
	if err != nil {
		return nil, errors.New("must be bytes in hex, such as 0aff, or empty for an empty message")
	}
	return b, nil
}

func parseSomeShare(s string) (float64, error) {
	v, err := parseShare(s)
	if err != nil || v == 0 {
		return 0, errors.New("must be a share above 0 and up to 1, such as 0.05")
	}
	return v, nil
}

// maxPadding is more than any client takes.
const maxPadding = 64 << 20

func parsePadding(s string) (int, error) {
	n, err := parseSize(s)
	if err != nil || n > maxPadding {
		return 0, fmt.Errorf("must be a size in bytes above 0 and up to %s, such as 9MiB", showSize(maxPadding))
	}
	return int(n), nil
}

func parseStep(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d == 0 {
		return 0, errors.New("must be a duration, such as 1h or -30s")
	}
	return d, nil
}

// oneOf returns the value of a word, or an error that lists the words.
func oneOf[T any](words map[string]T) func(string) (T, error) {
	return func(s string) (T, error) {
		v, ok := words[s]
		if !ok {
			return v, fmt.Errorf("must be one of %s", strings.Join(slices.Sorted(maps.Keys(words)), ", "))
		}
		return v, nil
	}
}

var parseCode = oneOf(func() map[string]codes.Code {
	words := map[string]codes.Code{}
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		words[c.String()] = c
	}
	return words
}())

var parseEventType = oneOf(map[string]runtimeapi.ContainerEventType{
	"created": runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT,
	"started": runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
	"stopped": runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
	"deleted": runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
})

func parseDo(s string) (string, error) {
	words := map[string]string{}
	for name := range commandTakes {
		words[name] = name
	}
	return oneOf(words)(s)
}

func parseProfile(s string) (string, error) {
	_, err := oneOf(profiles)(s)
	return s, err
}

// parseSays reads ID:STATE.
func parseSays(s string) (func(proto.Message), error) {
	id, state, _ := strings.Cut(s, ":")
	lies := map[string]func(proto.Message){}
	for name, st := range map[string]runtimeapi.ContainerState{
		"created": runtimeapi.ContainerState_CONTAINER_CREATED, "running": runtimeapi.ContainerState_CONTAINER_RUNNING,
		"exited": runtimeapi.ContainerState_CONTAINER_EXITED, "unknown": runtimeapi.ContainerState_CONTAINER_UNKNOWN,
	} {
		lies[name] = simruntime.ContainerSays(id, st)
	}
	lies["ready"] = simruntime.SandboxSays(id, runtimeapi.PodSandboxState_SANDBOX_READY)
	lies["notready"] = simruntime.SandboxSays(id, runtimeapi.PodSandboxState_SANDBOX_NOTREADY)
	lie, ok := lies[state]
	if !ok || id == "" {
		return nil, fmt.Errorf("must be a whole id, a colon and one of %s", strings.Join(slices.Sorted(maps.Keys(lies)), ", "))
	}
	return lie, nil
}

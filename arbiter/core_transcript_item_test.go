package arbiter

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/plegd/plegd/store"
)

// items reads the lines below a command.
func (tr *transcript) items(text string, full bool) (sandboxes, containers []Item, err error) {
	for line := range strings.Lines(text) {
		w := words(strings.Fields(line))
		if len(w) == 0 {
			continue
		}
		it, err := tr.item(w, full)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
		}
		if it.Kind == store.KindSandbox {
			sandboxes = append(sandboxes, it)
		} else {
			containers = append(containers, it)
		}
	}
	return sandboxes, containers, nil
}

func (tr *transcript) item(w words, full bool) (Item, error) {
	id := w.at(0)
	it, ok := tr.known[id]
	if !ok {
		it = Item{ID: id, Kind: store.KindSandbox, Sandbox: id}
		it.Identity.Pod = store.PodRef{UID: "U1", Namespace: "default", Name: "web"}
		if in := w.get("in"); in != "" {
			it.Kind, it.Sandbox = store.KindContainer, in
			it.Identity.Name = "app"
			if s, ok := tr.known[in]; ok {
				it.Identity.Pod = s.Identity.Pod
			}
		}
	}
	for _, a := range w[1:] {
		key, v, ok := strings.Cut(a, "=")
		if !ok {
			continue
		}
		if err := setField(&it, key, v); err != nil {
			return it, err
		}
	}
	state := w.at(1)
	states := map[string]int32{"created": 0, "running": 1, "exited": 2, "unknown": 3, "ready": 0, "notready": 1}
	it.HostNetwork = it.HostNetwork || w.has("hostnet")
	n, ok := states[state]
	if !ok {
		number, err := strconv.Atoi(w.get("state"))
		if err != nil {
			return it, fmt.Errorf("no state")
		}
		n = int32(number)
	}
	it.State = n
	if it.Exit.Code != 0 && it.Exit.FinishedAt == 0 {
		it.Exit.FinishedAt = tr.wall
	}
	tr.known[id] = it

	if it.State != criContainerExited {
		it.Exit = store.Exit{}
	}
	if it.State == criContainerCreated {
		it.StartedAt = 0
	}
	switch {
	case !full:
		it.Full, it.StartedAt, it.Exit, it.IPs, it.HostNetwork, it.Rest = false, 0, store.Exit{}, nil, false, ""
	default:
		it.Full, it.Rest = true, "status of "+id
	}
	if w.has("bare") {
		it.StartedAt, it.Exit, it.IPs = 0, store.Exit{}, nil
	}
	return it, nil
}

func setField(it *Item, key, v string) (err error) {
	none := v == "-"
	switch key {
	case "in", "state":
	case "uid":
		it.Identity.Pod.UID = v
		if none {
			it.Identity.Pod.UID = ""
		}
	case "ns":
		it.Identity.Pod.Namespace = v
	case "pod":
		it.Identity.Pod.Name = v
	case "name":
		it.Identity.Name = v
	case "image":
		it.Identity.Image = v
	case "att":
		var n int
		n, err = strconv.Atoi(v)
		it.Identity.Attempt = uint32(n)
	case "label":
		k, val, _ := strings.Cut(v, ":")
		it.Identity.Labels = map[string]string{k: val}
	case "created":
		it.CreatedAt, err = moment(v)
	case "started":
		it.StartedAt, err = moment(v)
	case "finished":
		it.Exit.FinishedAt, err = moment(v)
	case "code":
		var n int
		n, err = strconv.Atoi(v)
		it.Exit.Code = int32(n)
	case "reason":
		it.Exit.Reason = v
	case "ip":
		it.IPs = strings.Split(v, ",")
		if none {
			it.IPs = nil
		}
	default:
		err = fmt.Errorf("unknown field %q", key)
	}
	return err
}

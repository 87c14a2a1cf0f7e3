package arbiter

import (
	"fmt"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/plegd/plegd/store"
)

// retelling writes actions as a transcript, in the language of testdata, so
// that a counterexample becomes a test by being put there. It is told to a core
// of its own as it is written.
type retelling struct {
	w    *smallWorld
	n    *node
	u    *said
	tr   *transcript
	text strings.Builder
	pass int64 // ns since the last command that says so
}

// retell returns the transcript and the core that it was told to.
func (w *smallWorld) retell(c *counterexample) (string, *rig, error) {
	r := &retelling{w: w, n: newNode(w), u: &said{}}
	r.n.left, r.n.used = 1<<20, 0 // the beginning may spend some too
	r.tr = &transcript{rig: newRig(w.limits), known: map[string]Item{}, sent: map[string]*Call{}, half: map[string]*Call{}}
	fmt.Fprintf(&r.text, "# %s\n", c.why)
	if l := w.limits; l != (Limits{}) {
		fmt.Fprintf(&r.text, "limits tombstones=%d\n----\n\n", l.Tombstones)
	}
	for _, a := range c.path {
		r.pass += pace
		line, input := r.command(a)
		if line == "" {
			continue
		}
		if err := r.tell(line, input); err != nil {
			return r.text.String(), r.tr.rig, err
		}
	}
	return r.text.String(), r.tr.rig, nil
}

// tell gives one command to the transcript's core and writes both.
func (r *retelling) tell(line, input string) error {
	cmd, args, err := datadriven.ParseLine(line)
	if err != nil {
		return err
	}
	out, err := r.tr.run(&datadriven.TestData{Cmd: cmd, CmdArgs: args, Input: input})
	fmt.Fprintf(&r.text, "%s\n%s----\n%s\n", line, input, out)
	return err
}

// command does an action and says it in the language of transcripts; a change
// of the truth alone is a remark.
func (r *retelling) command(a action) (line, input string) {
	var about string
	switch a.kind() {
	case doMove:
		r.n.do(r.w, r.u, a)
		x, p := r.w.things[a.who()], r.n.truly.of(a.who())
		what := "gone"
		if p.exists() {
			what = r.w.thingAt(a.who(), p).state.Name(x.kind)
		}
		fmt.Fprintf(&r.text, "# %s is %s.\n", x.id, what)
		return "", ""
	case doAnswer, doFail:
		about = r.name(r.n.calls[a.who()].key)
	}
	half := a.kind() == doAnswer && r.n.calls[a.who()].key.Kind != ActStatus && !r.n.calls[a.who()].half
	if a.kind() != doAnswer && a.kind() != doFail {
		if err := r.tell("wait "+time.Duration(r.pass).String(), ""); err != nil {
			return "broken: " + err.Error(), ""
		}
		r.pass = 0
	}
	var sending ActionKey
	if a.kind() == doSend && a.who() > 0 {
		sending = r.n.due[a.who()-1].key
	} else {
		sending = ActionKey{Kind: ActList}
	}
	r.n.do(r.w, r.u, a)
	switch a.kind() {
	case doEvent, doRepeat, doFalse:
		return r.event()
	case doSend:
		return "send " + r.name(sending), ""
	case doAnswer:
		switch {
		case half:
			return "half " + about, ""
		case !strings.HasPrefix(about, "status"):
			return "answer " + about, r.items(r.u.list.Sandboxes, false) + r.items(r.u.list.Containers, false)
		case r.u.status.NotFound:
			return "answer " + about + " notfound", ""
		default:
			return "answer " + about, r.items([]Item{*r.u.status.Item}, true)
		}
	case doFail:
		if strings.HasPrefix(about, "status") {
			return "answer " + about + " error", ""
		}
		return "fail " + about, ""
	case doClock:
		return "clock-step " + []string{"-1h", "1h"}[a.who()], ""
	case doWait:
		return "wait " + time.Duration(pauses[a.who()]).String(), ""
	case doConnect:
		return "connect", ""
	case doHold:
		return "hold", ""
	default:
		return "restart", ""
	}
}

func (r *retelling) name(key ActionKey) string {
	return strings.TrimSpace(map[ActionKind]string{ActStatus: "status", ActLook: "look", ActList: "list"}[key.Kind] + " " + key.ID)
}

func (r *retelling) event() (line, input string) {
	ev := &r.u.event
	line = fmt.Sprintf("event %s %s ts=%s", [...]string{"CREATED", "STARTED", "STOPPED", "DELETED"}[ev.Type], ev.ID, at(ev.CreatedAt))
	if ev.Sandbox == nil {
		line += " nil"
	} else {
		input = r.items([]Item{*ev.Sandbox}, true)
	}
	return line, input + r.items(ev.Containers, true)
}

// items writes what an answer or a payload says.
func (r *retelling) items(items []Item, full bool) string {
	var b strings.Builder
	for i := range items {
		it := &items[i]
		b.WriteString(it.ID)
		if it.Kind == store.KindContainer {
			b.WriteString(" in=" + it.Sandbox)
		}
		if shown := rung(it.Kind, it.State); shown != store.StateNone {
			b.WriteString(" " + shown.Name(it.Kind))
		} else {
			fmt.Fprintf(&b, " state=%d", it.State)
		}
		fmt.Fprintf(&b, " created=%s", at(it.CreatedAt))
		if it.Identity.Attempt > 0 {
			fmt.Fprintf(&b, " att=%d", it.Identity.Attempt)
		}
		if full {
			r.details(&b, it)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (r *retelling) details(b *strings.Builder, it *Item) {
	if it.StartedAt != 0 {
		fmt.Fprintf(b, " started=%s", at(it.StartedAt))
	}
	if it.Exit.Known() {
		fmt.Fprintf(b, " code=%d finished=%s reason=%s", it.Exit.Code, at(it.Exit.FinishedAt), it.Exit.Reason)
	}
	if len(it.IPs) > 0 {
		fmt.Fprintf(b, " ip=%s", it.IPs[0])
	}
	if it.StartedAt == 0 && !it.Exit.Known() && len(it.IPs) == 0 {
		b.WriteString(" bare")
	}
}

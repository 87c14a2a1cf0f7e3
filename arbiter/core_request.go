package arbiter

import (
	"maps"

	"github.com/plegd/plegd/store"
	"github.com/plegd/plegd/timestamps"
)

// wish is a look that readers wait for: one sent after the last of them asked.
type wish struct {
	after  timestamps.Tick
	podKey string
	fails  int // failed looks in a row
}

// request: a reader wants a pod looked at. A pod without a UID is keyed by its
// sandbox, and looking at that is looking at the pod.
func (c *Core) request(s *step, in *Requested) {
	s.at = in.At
	uid, sandbox := store.ParsePodKey(in.PodKey)
	key := ActionKey{ActPod, uid}
	if sandbox != "" {
		key = ActionKey{ActLook, sandbox}
	}
	w := c.wanted[key]
	w.after, w.podKey = max(w.after, in.At.Tick), in.PodKey
	c.wanted[key] = w
	c.actWish(s, key, true)
}

// fulfil ends the wishes that a completed list answers. One that was sent
// before the last reader asked answers only the earlier ones.
func (c *Core) fulfil(s *step, l *ListSeen) {
	if len(c.wanted) == 0 {
		return
	}
	sent := l.SandboxCall.Sent.Tick
	if l.Scope.All() {
		maps.DeleteFunc(c.wanted, func(_ ActionKey, w wish) bool { return sent > w.after })
		return
	}
	key := l.Scope.action()
	switch w, ok := c.wanted[key]; {
	case !ok:
	case sent > w.after:
		delete(c.wanted, key)
	default:
		c.actWish(s, key, true)
	}
}

// wishFailed asks again, the later the more often it has failed.
func (c *Core) wishFailed(s *step, key ActionKey) {
	if w, ok := c.wanted[key]; ok {
		w.fails++
		c.wanted[key] = w
		c.actWish(s, key, false)
	}
}

// actWish has a pod looked at; at once for a reader who has just asked, whatever
// became of the looks before.
func (c *Core) actWish(s *step, key ActionKey, fresh bool) {
	w := c.wanted[key]
	a := Action{Kind: key.Kind, ID: key.ID, PodKey: w.podKey, Attempt: w.fails}
	if fresh {
		a.Attempt = 0
	}
	c.act(s, a, fresh)
}

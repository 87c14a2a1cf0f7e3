package arbiter

import (
	"cmp"
	"slices"
	"strings"

	"github.com/plegd/plegd/store"
)

// This file is the one merge function for stream, lists and inspections (O7).
// Each group of fields has evidence of its own; a group that an observation
// doesn't know is skipped and its evidence doesn't move, so what is known is
// never lost to what is not.

// merge puts what an item says into a record.
func merge(r *store.Record, it *Item, ev store.Evidence) {
	if !it.Identity.IsZero() {
		put(&r.Identity, &r.Evidence.Identity, &it.Identity, &ev, compareIdentity)
	}
	// The state as last reported says nothing but itself, so a list's word is
	// as good as a status's.
	reported := ev
	reported.Full = false
	put(&r.Reported, &r.Evidence.Reported, &it.State, &reported, compare[int32])
	if it.CreatedAt > 0 {
		put(&r.CreatedAt, &r.Evidence.Created, &it.CreatedAt, &ev, compare[int64])
	}
	if it.StartedAt > 0 {
		put(&r.StartedAt, &r.Evidence.Started, &it.StartedAt, &ev, compare[int64])
	}
	if it.Exit.Known() {
		put(&r.Exit, &r.Evidence.Exit, &it.Exit, &ev, compareExit)
	}
	if len(it.IPs) > 0 {
		put(&r.IPs, &r.Evidence.IPs, &it.IPs, &ev, compareIPs)
	}
	if it.Full && wins(&r.Evidence.Rest, &ev, func() int { return compareRest(it, r) }) {
		r.Rest, r.HostNetwork, r.Evidence.Rest = it.Rest, it.HostNetwork, ev
	}
}

// put replaces a value if the new evidence wins over the old.
func put[T any](value *T, old *store.Evidence, v *T, ev *store.Evidence, order func(a, b *T) int) {
	if wins(old, ev, func() int { return order(v, value) }) {
		*value, *old = *v, *ev
	}
}

// wins reports whether new evidence for a group replaces the old: a status
// over a list item, then certainly later, then the further state, later end,
// later start, and last the value itself, so that two observations give the
// same record in either order. A status outranks a list item, because CRI-O's
// lists and statuses disagree on times for good (docs/design.md, O7).
func wins(old, ev *store.Evidence, order func() int) bool {
	switch {
	case old.Span.IsZero():
		return true
	case old.Full != ev.Full:
		return ev.Full
	case ev.Span.After(old.Span):
		return true
	case old.Span.After(ev.Span):
		return false
	case ev.State != old.State:
		return ev.State > old.State
	case ev.Span.To != old.Span.To:
		return ev.Span.To > old.Span.To
	case ev.Span.From != old.Span.From:
		return ev.Span.From > old.Span.From
	}
	return order() > 0
}

func compare[T cmp.Ordered](a, b *T) int { return cmp.Compare(*a, *b) }

func compareIPs(a, b *[]string) int { return slices.Compare(*a, *b) }

// compareRest orders what else a status says: its bytes, and then whether the
// network is the host's.
func compareRest(it *Item, r *store.Record) int {
	if c := strings.Compare(it.Rest, r.Rest); c != 0 || it.HostNetwork == r.HostNetwork {
		return c
	}
	if it.HostNetwork {
		return 1
	}
	return -1
}

func compareExit(a, b *store.Exit) int {
	return cmp.Or(cmp.Compare(a.FinishedAt, b.FinishedAt), cmp.Compare(a.Code, b.Code),
		strings.Compare(a.Reason, b.Reason), strings.Compare(a.Message, b.Message))
}

func compareIdentity(a, b *store.Identity) int {
	return cmp.Or(strings.Compare(a.Pod.UID, b.Pod.UID), strings.Compare(a.Pod.Namespace, b.Pod.Namespace),
		strings.Compare(a.Pod.Name, b.Pod.Name), strings.Compare(a.Name, b.Name), cmp.Compare(a.Attempt, b.Attempt),
		strings.Compare(a.Image, b.Image), compareLabels(a.Labels, b.Labels))
}

func compareLabels(a, b map[string]string) int {
	ka, kb := sortedKeys(a), sortedKeys(b)
	if c := slices.Compare(ka, kb); c != 0 {
		return c
	}
	for _, k := range ka {
		if c := strings.Compare(a[k], b[k]); c != 0 {
			return c
		}
	}
	return 0
}

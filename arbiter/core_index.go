package arbiter

import (
	"maps"

	"github.com/plegd/plegd/store"
)

// index finds ids by a key. A node may have thousands of ids under one key, so
// they are a set.
type index map[string]map[string]struct{}

func (x index) add(key, id string) {
	if x[key] == nil {
		x[key] = map[string]struct{}{}
	}
	x[key][id] = struct{}{}
}

func (x index) drop(key, id string) {
	delete(x[key], id)
	if len(x[key]) == 0 {
		delete(x, key)
	}
}

// ids returns the ids under a key, sorted: what is decided in their order is
// to be the same each time.
func (x index) ids(key string) []string {
	if len(x[key]) == 0 {
		return nil
	}
	return sortedKeys(x[key])
}

func (x index) clone() index {
	y := make(index, len(x))
	for key, ids := range x {
		y[key] = maps.Clone(ids)
	}
	return y
}

// placeOf is the key under which an entity is found: a sandbox by its pod, a
// container by its sandbox.
func placeOf(r *store.Record) string {
	if r.Kind == store.KindSandbox {
		return r.PodKey()
	}
	return r.Sandbox
}

// places is the index of an entity's kind.
func (c *Core) places(k store.Kind) index {
	if k == store.KindSandbox {
		return c.sandboxes
	}
	return c.members
}

func (c *Core) index(r *store.Record) { c.places(r.Kind).add(placeOf(r), r.ID) }

func (c *Core) unindex(r *store.Record, at string) { c.places(r.Kind).drop(at, r.ID) }

// sandboxAndMembers returns a sandbox's id and those of the containers that
// name it.
func (c *Core) sandboxAndMembers(id string) []string {
	return append([]string{id}, c.members.ids(id)...)
}

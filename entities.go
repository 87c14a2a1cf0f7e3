package pleg

import "github.com/plegd/plegd/arbiter"

// Entity is one sandbox or container with its record as it is stored. It is
// for who needs more than [Pod] says; records are shared, don't change them.
type Entity = arbiter.Entity

// Entity returns the sandbox or container with this id. Like a Pod it is
// committed state.
func (g *Generator) Entity(id string) (Entity, bool) { return g.loop.Entity(id) }

// Entities returns all sandboxes and containers, ordered by id.
func (g *Generator) Entities() []Entity { return g.loop.Entities() }

// EntitiesOf returns the sandboxes and containers of one pod by its key, as
// [Generator.Pod] orders them; none if there is no such pod.
func (g *Generator) EntitiesOf(key string) (sandboxes, containers []Entity) {
	p, err := g.loop.Pod(key)
	if err != nil {
		return nil, nil // gone
	}
	return p.Sandboxes, p.Containers
}

// Endpoint returns the path of the runtime's socket.
func (g *Generator) Endpoint() string { return g.client.Path() }

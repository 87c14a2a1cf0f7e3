package recording

// Count is how much of what was recorded.
type Count struct {
	Entries, Events, Lists, Statuses, Errors, Lost int64
}

func (c *Count) merge(o Count) {
	c.Entries, c.Events, c.Lists = c.Entries+o.Entries, c.Events+o.Events, c.Lists+o.Lists
	c.Statuses, c.Errors, c.Lost = c.Statuses+o.Statuses, c.Errors+o.Errors, c.Lost+o.Lost
}

// add counts an entry.
func (c *Count) add(e *Entry) {
	c.Entries++
	c.Lost += e.Lost
	switch {
	case e.Code != 0:
		c.Errors++
	case e.Kind == KindEvent:
		c.Events++
	case e.Kind == KindAnswer && (e.Method == "ListPodSandbox" || e.Method == "ListContainers"):
		c.Lists++
	case e.Kind == KindAnswer && (e.Method == "PodSandboxStatus" || e.Method == "ContainerStatus"):
		c.Statuses++
	}
}

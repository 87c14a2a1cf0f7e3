package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	pleg "github.com/plegd/plegd"
	"github.com/plegd/plegd/client"
)

// topMost is how many events rate and latency are taken from: a minute of a very
// busy node, in a few hundred KiB.
const topMost = 20_000

// topEvent is what rate and latency need of an event.
type topEvent struct {
	observed time.Time
	latency  time.Duration // -1 if the runtime didn't say when it occurred
}

// topEvents are the last events, in their order.
type topEvents struct {
	list    []topEvent
	pending bool // those of before are still on their way: there is no rate yet
	dropped bool // there were more than are kept: the list may not go back for topWindow
}

// add adds an event, nil for none.
func (e *topEvents) add(ev *client.Event) {
	if ev == nil {
		return
	}
	t := topEvent{observed: moment(ev.GetObservedAt()), latency: -1}
	if ev.GetOccurredAt() != nil && ev.GetChange() == "" {
		t.latency = max(0, t.observed.Sub(moment(ev.GetOccurredAt())))
	}
	e.list = append(e.list, t)
	if len(e.list) > topMost {
		e.list, e.dropped = slices.Delete(e.list, 0, topMost/2), true
	}
}

// trim forgets what is older than topWindow.
func (e *topEvents) trim(now time.Time) {
	e.list = slices.DeleteFunc(e.list, func(t topEvent) bool { return now.Sub(t.observed) > topWindow })
}

// text says how many there were and how late. It forgets those that are too old.
func (e *topEvents) text(now time.Time) string {
	if e.pending {
		return "are being counted"
	}
	e.trim(now)
	window := topWindow
	if e.dropped && len(e.list) > 0 {
		window = max(now.Sub(e.list[0].observed), time.Millisecond)
	}
	text := fmt.Sprintf("%.1f/s in the last minute", float64(len(e.list))/window.Seconds())
	var late []time.Duration
	for _, t := range e.list {
		if t.latency >= 0 {
			late = append(late, t.latency)
		}
	}
	if len(late) == 0 {
		return text
	}
	slices.Sort(late)
	return text + fmt.Sprintf(", detected after %v (median) to %v (latest)", short(late[len(late)/2]), short(late[len(late)-1]))
}

// short is a duration for people.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	default:
		return d.Round(100 * time.Millisecond).String()
	}
}

// topView is all that one view shows.
type topView struct {
	now         time.Time
	status      agentStatus
	pods        []pleg.Pod
	podsUnknown string // why they are
	events      *topEvents
	trouble     string // the agent is lost: what is shown is old
}

// lines returns the view. A width and height of 0 don't limit it.
func (v *topView) lines(width, height int, colors bool) []string {
	var lines []string
	add := func(c color, format string, args ...any) {
		lines = append(lines, paint(cut(printable(fmt.Sprintf(format, args...)), width), c, colors))
	}
	s := &v.status
	if v.trouble != "" {
		add(bad, "%s", v.trouble)
	}
	add(strong, "plegd on %s, mode %s, %s %s", dash(s.Node), s.Mode, cmp.Or(s.Runtime.Name, "runtime not known yet"), s.Runtime.Version)
	add(s.healthColor(), "%s", s.healthText())
	for i := range s.Health.Conditions {
		add(waits, "  %s", s.Health.Conditions[i].text(v.now))
	}
	add(plain, "stream   %s", s.Stream.text(v.now))
	add(plain, "relist   %s; %d inspections, %d to be reinspected", s.Relist.text(), s.Relist.Waiting+s.Relist.InFlight, len(s.Asks))
	add(plain, "events   %s; queue %d", v.events.text(v.now), s.Queued)
	if v.podsUnknown != "" {
		add(waits, "pods     %s", v.podsUnknown)
		return crop(lines, width, height, 0)
	}
	ready := 0
	for i := range v.pods {
		if podState(&v.pods[i]) == stateReady {
			ready++
		}
	}
	add(plain, "pods     %d, %d ready", len(v.pods), ready)
	if len(v.pods) == 0 {
		return crop(lines, width, height, 0)
	}
	lines = append(lines, "")
	return crop(append(lines, v.podLines(width, colors)...), width, height, len(v.pods))
}

// crop leaves out what a screen has no room for, and says how many pods that
// are.
func crop(lines []string, width, height, pods int) []string {
	if height <= 0 || len(lines) <= height {
		return lines
	}
	left := len(lines) - height + 1
	lines = lines[:height-1]
	if left <= pods {
		return append(lines, cut(fmt.Sprintf("… %d more", left), width))
	}
	return append(lines, "…")
}

// topColumns are those of the pods, the dispensable ones with the order in which
// they go where a terminal is narrow.
var topColumns = []struct {
	name string
	goes int // 0: never
	cell func(p *pleg.Pod, now time.Time) cell
}{
	{"POD", 0, func(p *pleg.Pod, _ time.Time) cell { return field(podName(p)) }},
	{"STATE", 0, func(p *pleg.Pod, _ time.Time) cell {
		return cell{printable(podState(p)), stateColor(podState(p))}
	}},
	{"CONTAINERS", 2, func(p *pleg.Pod, _ time.Time) cell {
		running, all := runningContainers(p)
		return cell{text: fmt.Sprintf("%d/%d", running, all)}
	}},
	{"RESTARTS", 4, func(p *pleg.Pod, _ time.Time) cell {
		n := restarts(p)
		if n == 0 {
			return cell{text: "0"}
		}
		return cell{fmt.Sprint(n), waits}
	}},
	{"AGE", 3, func(p *pleg.Pod, now time.Time) cell { return cell{text: age(now, podCreated(p))} }},
	{"IP", 1, func(p *pleg.Pod, _ time.Time) cell { return field(p.IP) }},
}

// podLines returns the table of the pods, those that aren't ready first.
func (v *topView) podLines(width int, colors bool) []string {
	pods := slices.Clone(v.pods)
	slices.SortStableFunc(pods, func(a, b pleg.Pod) int {
		return cmp.Or(readyLast(&a)-readyLast(&b), podOrder(a, b))
	})
	for without := 0; ; without++ {
		t := &table{colored: colors}
		for _, c := range topColumns {
			if c.goes == 0 || c.goes > without {
				t.header = append(t.header, c.name)
			}
		}
		for i := range pods {
			var row []cell
			for _, c := range topColumns {
				if c.goes == 0 || c.goes > without {
					row = append(row, c.cell(&pods[i], v.now))
				}
			}
			t.rows = append(t.rows, row)
		}
		spare := width - t.width()
		last := without == len(topColumns)-2 // two never go
		if width > 0 && spare < 0 && !last {
			continue
		}
		if width > 0 && spare < 0 {
			t.shrink(0, -spare)
		}
		var b strings.Builder
		_ = t.write(&b) // a Builder takes all
		return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	}
}

// readyLast orders pods by whether they need a look.
func readyLast(p *pleg.Pod) int {
	if podState(p) == stateReady {
		return 1
	}
	return 0
}

// width is that of the table as it would be written.
func (t *table) width() int {
	all := 0
	for i, name := range t.header {
		most := utf8.RuneCountInString(name)
		for _, row := range t.rows {
			most = max(most, utf8.RuneCountInString(row[i].text))
		}
		all += most + 2
	}
	return all - 2
}

// shrink makes a column so much narrower.
func (t *table) shrink(column, by int) {
	most := utf8.RuneCountInString(t.header[column])
	for _, row := range t.rows {
		most = max(most, utf8.RuneCountInString(row[column].text))
	}
	most = max(1, most-by)
	t.header[column] = cut(t.header[column], most)
	for _, row := range t.rows {
		row[column].text = cut(row[column].text, most)
	}
}

// cut shortens a text to a width, 0 for any.
func cut(text string, width int) string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

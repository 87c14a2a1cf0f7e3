package compare

import (
	"fmt"
	"slices"
	"time"

	"github.com/plegd/plegd/store"
)

// DefaultLate is twice the kubelet's relist period: by then a kubelet with its
// GenericPLEG and nothing in its way has told what happened.
const DefaultLate = 2 * time.Second

// sameTime is how far a time that was told may be from the runtime's: CRI-O's
// lists and statuses are up to 180 ms apart.
const sameTime = int64(500 * time.Millisecond)

// Input is what a comparison has collected.
type Input struct {
	Traces   []*Trace
	From, To int64         // what happened between is judged
	Close    int64         // when the closing relists were asked for; 0 if they were not
	Late     time.Duration // what is told later is late
	History  []Happened    // of a runtime that keeps one, else nil
	Load     string        // in words
	Cut      string        // why the measurement ended before it was to, "" where it did not
	Runtime  Runtime
	Notes    []string
}

// Judge makes the report.
func Judge(in Input) *Report {
	in.shorten()
	t := newTruth(&in)
	all := t.sorted(in.From, in.To)
	r := &Report{
		Format: ReportFormat, From: in.From, To: in.To, Load: in.Load, Cut: in.Cut, Runtime: in.Runtime, Late: in.Late,
		Counts: map[store.EventType]int{}, Basis: map[Basis]int{}, Notes: append([]string{}, in.Notes...), Broken: []string{},
	}
	for i := range all {
		r.Counts[all[i].Type]++
		r.Basis[all[i].Basis]++
	}
	var judges []*judge
	for m, trace := range in.Traces {
		j := &judge{in: &in, t: t, m: m, trace: trace, report: newModeReport(trace, &in)}
		judges = append(judges, j)
		if j.report.NotRun == "" {
			j.transitions(all)
			j.order()
			j.report.StateWrong = j.stateWrong()
		}
		j.report.Cost, j.report.Series = cost(trace, in.From, in.To)
	}
	r.Transitions, r.Unlisted = listed(all, judges)
	numbers := map[key]int{}
	for i, tr := range r.Transitions {
		numbers[key{tr.ID, tr.Type}] = i
	}
	around := newAround(in.Traces)
	for _, j := range judges {
		j.finish(numbers, around)
		r.Modes = append(r.Modes, j.report)
	}
	r.Winner = winner(r)
	r.Verdict = verdict(r)
	return r
}

// shorten ends the measurement where the events of a mode became too many to keep: what
// it told later would be missed.
func (in *Input) shorten() {
	for _, t := range in.Traces {
		if end := t.Full - int64(in.Late); t.Full != 0 && end < in.To {
			in.To = max(in.From, end)
			in.Notes = append(slices.Clone(in.Notes), fmt.Sprintf("%s told more than %d events; the report is about the time before", t.Mode.Name, maxEvents))
		}
	}
}

// newModeReport says whether a mode ran, and until when.
func newModeReport(t *Trace, in *Input) ModeReport {
	r := ModeReport{Mode: t.Mode, Latency: map[store.EventType]Latency{}, Findings: []Finding{}, Notes: t.Notes}
	if t.Ready != nil {
		r.Stream = t.Ready.Stream
	}
	ended := ""
	if t.End == nil {
		ended = "it ended without a word"
	} else if t.End.Err != "" {
		ended = t.End.Err
	}
	switch {
	case t.Ready == nil && ended != "":
		r.NotRun = ended
	case t.Ready == nil:
		r.NotRun = "it did not become ready"
	case t.Ready.At > in.From:
		r.NotRun = "it became ready only after the measurement had begun"
	case ended != "":
		r.Ended, r.EndedAt = ended, lastWord(t)
	}
	if r.Ended != "" && r.EndedAt <= in.From {
		r.NotRun = r.Ended
	}
	if t.Dropped > 0 {
		r.Notes = append(slices.Clone(r.Notes), Note{Text: fmt.Sprintf("%d lines were too many to keep", t.Dropped)})
	}
	return r
}

// lastWord is the time of the last line.
func lastWord(t *Trace) int64 {
	last := int64(0)
	if t.End != nil {
		return t.End.At
	}
	if n := len(t.Samples); n > 0 {
		last = t.Samples[n-1].At
	}
	if n := len(t.Events); n > 0 {
		last = max(last, t.Events[n-1].At)
	}
	return last
}

// judge judges one mode.
type judge struct {
	in     *Input
	t      *truth
	m      int
	trace  *Trace
	report ModeReport
}

// until is up to when the mode is judged.
func (j *judge) until() int64 {
	if j.report.EndedAt != 0 {
		return min(j.report.EndedAt, j.in.To)
	}
	return j.in.To
}

// transitions judges how each was told.
func (j *judge) transitions(all []Transition) {
	took := map[store.EventType][]time.Duration{}
	judged := map[store.EventType]int{}
	var every []time.Duration
	for i := range all {
		tr := &all[i]
		if tr.At > j.until() {
			break
		}
		j.report.Judged++
		judged[tr.Type]++
		one := j.t.told[j.m].by[key{tr.ID, tr.Type}]
		if one == nil {
			j.report.Missed++
			j.find(tr, Missed, tr.At, "never told")
			continue
		}
		j.report.Told++
		d := max(0, time.Duration(one.first.At-tr.At))
		took[tr.Type] = append(took[tr.Type], d)
		every = append(every, d)
		switch {
		case j.report.Kind != Evented && j.in.Close != 0 && one.first.At >= j.in.Close:
			j.report.Late++
			j.find(tr, Late, tr.At, fmt.Sprintf("told only by the relist at the end, %s after it happened; its next relist was not due before", words(int64(d))))
		case d > j.in.Late:
			j.report.Late++
			j.find(tr, Late, tr.At, fmt.Sprintf("told %s after it happened", words(int64(d))))
		}
		j.values(tr, one)
	}
	j.report.All = latency(every)
	j.report.All.Judged = j.report.Judged
	for typ, d := range took {
		l := latency(d)
		l.Judged = judged[typ]
		j.report.Latency[typ] = l
	}
}

// values compares what was told with what the runtime says.
func (j *judge) values(tr *Transition, one *telling) {
	wrong := j.differs(tr, &one.last)
	if one.fixed && len(wrong) == 0 {
		j.report.Corrected++
	}
	if len(wrong) > 0 {
		j.report.Wrong++
		j.find(tr, Wrong, one.first.At, list(wrong))
	}
}

// differs lists what is wrong about an event.
func (j *judge) differs(tr *Transition, ev *Event) (wrong []string) {
	if tr.Pod.UID != "" && ev.Pod != tr.Pod {
		wrong = append(wrong, fmt.Sprintf("told of pod %s, the runtime says %s", ev.Pod.word(), tr.Pod.word()))
	}
	if tr.Type == store.ContainerDied && tr.Exit != nil {
		switch {
		case !ev.ExitKnown:
			wrong = append(wrong, fmt.Sprintf("told without exit code, the runtime says %d", *tr.Exit))
		case ev.ExitCode != *tr.Exit:
			wrong = append(wrong, fmt.Sprintf("told exit code %d, the runtime says %d", ev.ExitCode, *tr.Exit))
		case ev.Reason != tr.Reason:
			wrong = append(wrong, fmt.Sprintf("told reason %q, the runtime says %q", ev.Reason, tr.Reason))
		}
	}
	f := j.t.facts[tr.ID]
	if f == nil || ev.OccurredAt == 0 {
		return wrong
	}
	if at := f.field(tr.Type); at != 0 && (ev.OccurredAt-at > sameTime || at-ev.OccurredAt > sameTime) {
		wrong = append(wrong, fmt.Sprintf("told a time that is %s from the runtime's", words(ev.OccurredAt-at)))
	}
	return wrong
}

// order finds what was told twice, in a wrong order, or did not happen.
func (j *judge) order() {
	for k, one := range j.t.told[j.m].by {
		if one.first.At < j.in.From || one.first.At > j.in.To {
			continue
		}
		tr := &Transition{ID: k.id, Type: k.typ, Pod: one.first.Pod, Name: one.first.Name}
		if one.again > 0 {
			j.report.Duplicated++
			j.find(tr, Duplicated, one.first.At, fmt.Sprintf("told %d times", one.again+1))
		}
		if one.mixed != nil {
			j.report.Reordered++
			j.find(tr, Reordered, one.first.At, fmt.Sprintf("told %s after %s, which comes later", words(one.first.At-one.mixed.At), one.mixed.Type))
		}
		if why := j.t.false(k); why != "" {
			j.report.Wrong++
			j.find(tr, Wrong, one.first.At, "told, but "+why)
		}
	}
}

package compare

import (
	"cmp"
	"slices"
)

// find notes a finding; which of them is listed is decided at the end.
func (j *judge) find(tr *Transition, f Fault, at int64, what string) {
	j.report.Findings = append(j.report.Findings, Finding{Fault: f, Type: tr.Type, ID: tr.ID, Transition: -1, At: at, What: what})
}

// finish sorts and bounds the findings, and puts beside each what the runtime
// said.
func (j *judge) finish(numbers map[key]int, around *around) {
	found := j.report.Findings
	slices.SortFunc(found, byTime)
	if len(found) > MaxFindings {
		j.report.Unlisted = len(found) - MaxFindings
		found = found[:MaxFindings]
	}
	for i := range found {
		f := &found[i]
		if n, ok := numbers[key{f.ID, f.Type}]; ok {
			f.Transition = n
		}
		f.Around = around.of(f)
	}
	j.report.Findings = found
}

// listed bounds the transitions: those that some mode did not tell well stay
// first of all, and then the earliest.
func listed(all []Transition, judges []*judge) ([]Transition, int) {
	if len(all) <= MaxTransitions {
		return all, 0
	}
	faulty := map[key]bool{}
	for _, j := range judges {
		for _, f := range j.report.Findings {
			faulty[key{f.ID, f.Type}] = true
		}
	}
	room := MaxTransitions
	keep := make([]bool, len(all))
	for _, wanted := range []bool{true, false} {
		for i, tr := range all {
			if room > 0 && faulty[key{tr.ID, tr.Type}] == wanted {
				keep[i] = true
				room--
			}
		}
	}
	var out []Transition
	for i, tr := range all {
		if keep[i] {
			out = append(out, tr)
		}
	}
	return out, len(all) - len(out)
}

func byTime(a, b Finding) int {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Fault, b.Fault))
}

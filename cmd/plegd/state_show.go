package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/plegd/plegd/store"
)

// newStateShow makes `plegd state show`.
func newStateShow(std streams) *cobra.Command {
	var o stateOptions
	cmd := &cobra.Command{
		Use:   "show [ID]",
		Short: "Show what a state file holds, or one pod",
		Long: "show lists what a state file holds. With a pod's UID, or the id of one of its sandboxes or\n" +
			"containers, or the beginning of one, it lists that pod only, and what was removed of it lately\n" +
			"too.",
		Args: atMostOne,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			if len(args) > 0 && args[0] == "" {
				return usagef("ID \"\": must be a pod's UID, or the id of a sandbox or container, or the beginning of one")
			}
			shown, err := readState(o.dir, strings.Join(args, ""))
			if err != nil {
				return o.explain(err)
			}
			if o.output == outputJSON {
				return writeIndented(std.out, shown)
			}
			return shown.write(std.out)
		},
	}
	o.addTo(cmd)
	return cmd
}

// shownState is a whole state file, but for its events.
type shownState struct {
	stateSummary
	Dropped int           `json:"unreadable"` // entries left out, see plegd state check
	Records []shownRecord `json:"records"`
}

// shownRecord is what is stored of one sandbox or container.
type shownRecord struct {
	Kind        string    `json:"kind"`
	ID          string    `json:"id"`
	SandboxID   string    `json:"sandbox_id"`
	PodUID      string    `json:"pod_uid"`
	Namespace   string    `json:"namespace"`
	Pod         string    `json:"pod"`
	Name        string    `json:"name,omitempty"`
	Attempt     uint32    `json:"attempt"`
	State       string    `json:"state"`
	Incarnation uint32    `json:"incarnation"`
	CreatedAt   time.Time `json:"created_at,omitzero"`
	StartedAt   time.Time `json:"started_at,omitzero"`
	FinishedAt  time.Time `json:"finished_at,omitzero"`
	ExitCode    *int32    `json:"exit_code"` // null unless the runtime has said it
	Reason      string    `json:"reason,omitempty"`
	IPs         []string  `json:"ips,omitempty"`
	Asked       []string  `json:"reinspect,omitempty"` // why it is to be inspected again
}

// readState reads a state file, or of it the pod that an id names.
func readState(dir, id string) (shown shownState, err error) {
	db, err := store.OpenBoltReadOnly(dir)
	if err != nil {
		return shown, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	snap, err := db.Load()
	if err != nil {
		return shown, err
	}
	asked := asksByID(snap)
	counts := stateCounts{Tombstones: len(snap.Tombstones), Reinspections: len(snap.Asks)}
	for _, r := range snap.Records {
		if r.Kind == store.KindSandbox {
			counts.Sandboxes++
		} else {
			counts.Containers++
		}
	}
	records := snap.Records
	if id != "" {
		records = slices.Concat(snap.Records, snap.Tombstones)
		pod, err := podOf(db, records, id)
		if err != nil {
			return shown, err
		}
		records = slices.DeleteFunc(records, func(r *store.Record) bool { return r.PodKey() != pod })
	}
	shown.Records = []shownRecord{}
	for _, r := range records {
		shown.Records = append(shown.Records, showRecord(r, asked[r.ID]))
	}
	// By pod, its sandboxes first.
	slices.SortStableFunc(shown.Records, func(a, b shownRecord) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.PodUID, b.PodUID),
			-cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.ID, b.ID))
	})
	shown.Dropped = snap.Dropped
	shown.stateSummary = summary(db.Path(), snap.Meta, counts, db.Journal())
	return shown, nil
}

// asksByID says of each entity that is to be inspected again why.
func asksByID(snap *store.Snapshot) map[string][]string {
	asked := map[string][]string{}
	for _, a := range snap.Asks {
		asked[a.ID] = a.Why.Names()
	}
	return asked
}

// podOf returns the key of the pod that is named by its UID or key, or by the
// id of one of its sandboxes or containers, or by the beginning of one of them.
func podOf(db *store.Bolt, records []*store.Record, id string) (string, error) {
	pods := map[string]string{} // by whatever is called so, or begins so
	add := func(name, pod string) {
		if strings.HasPrefix(name, id) {
			pods[name] = pod
		}
	}
	for _, r := range records {
		add(r.ID, r.PodKey())
		add(r.Identity.Pod.UID, r.PodKey())
		add(r.PodKey(), r.PodKey())
	}
	found, err := db.Containers(id, 2) // those too whose records can't be read
	if err != nil {
		return "", err
	}
	for _, container := range found {
		if p, ok := db.PodOf(container); ok {
			add(container, p.Pod)
		}
	}
	if pod, ok := pods[id]; ok {
		return pod, nil
	}
	names := slices.Sorted(maps.Keys(pods))
	for _, name := range names {
		if pods[name] != pods[names[0]] {
			return "", usagef("ID %.200q: more than one begins with it, %s and %s", id, names[0], name)
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("state file %s: no pod, sandbox or container %.200q, nor was one removed lately", db.Path(), id)
	}
	return pods[names[0]], nil
}

func showRecord(r *store.Record, asked []string) shownRecord {
	s := shownRecord{
		Kind: r.Kind.String(), ID: r.ID, SandboxID: r.Sandbox, PodUID: r.Identity.Pod.UID,
		Namespace: r.Identity.Pod.Namespace, Pod: r.Identity.Pod.Name, Name: r.Identity.Name, Attempt: r.Identity.Attempt,
		State: r.State.Name(r.Kind), Incarnation: r.Incarnation, CreatedAt: timeOf(r.CreatedAt), StartedAt: timeOf(r.StartedAt),
		FinishedAt: timeOf(r.Exit.FinishedAt), Reason: r.Exit.Reason, IPs: r.IPs, Asked: asked,
	}
	if r.Exit.Known() {
		s.ExitCode = &r.Exit.Code
	}
	return s
}

// timeOf returns a time in ns, the zero Time for unknown.
func timeOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

// write writes the state as text.
func (s shownState) write(w io.Writer) error {
	s.stateSummary.write(w)
	if s.Dropped > 0 {
		fmt.Fprintf(w, "unreadable     %d entries, see plegd state check\n", s.Dropped)
	}
	if len(s.Records) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "POD\tKIND\tNAME\tATTEMPT\tSTATE\tEXIT\tIP\tID\tREINSPECT")
	for _, r := range s.Records {
		exit, ip := "-", "-"
		if r.ExitCode != nil {
			exit = fmt.Sprint(*r.ExitCode)
		}
		if len(r.IPs) > 0 {
			ip = r.IPs[0]
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\n", printable(r.Namespace+"/"+r.Pod), r.Kind, dash(printable(r.Name)),
			r.Attempt, r.State, exit, printable(ip), printable(r.ID[:min(len(r.ID), shortID)]), dash(strings.Join(r.Asked, ",")))
	}
	return tab.Flush()
}

// dash stands for what is empty, so that columns stay columns.
func dash(s string) string { return cmp.Or(s, "-") }

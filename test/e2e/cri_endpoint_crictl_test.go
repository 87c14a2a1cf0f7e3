package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// crictl runs crictl on a socket.
func crictl(t *testing.T, socket string, args ...string) (stdout string, err error) {
	t.Helper()
	cmd := crictlCommand(socket, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("crictl %v: %w\n%s", args, err, errs.String())
	}
	return out.String(), nil
}

func crictlCommand(socket string, args ...string) *exec.Cmd {
	endpoint := "unix://" + socket
	return exec.Command(filepath.Join(runtimesDir(), "bin", "crictl"), append([]string{"-r", endpoint, "-i", endpoint, "-t", "30s"}, args...)...)
}

// compareCrictl compares what crictl prints on both sockets.
func (c *criClients) compareCrictl(t *testing.T) {
	t.Helper()
	both := func(args ...string) (theirs, ours any) {
		t.Helper()
		for socket, v := range map[string]*any{c.rt.socket: &theirs, c.socket: &ours} {
			out, err := crictl(t, socket, args...)
			if err != nil {
				t.Fatalf("on %s: %v", socket, err)
			}
			if json.Unmarshal([]byte(out), v) != nil {
				*v = out // it is text
			}
		}
		return theirs, ours
	}
	ids := func(args ...string) []string {
		out, err := crictl(t, c.rt.socket, args...)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(out)
	}
	pods, containers := ids("pods", "-q"), ids("ps", "-a", "-q")
	for _, args := range [][]string{
		{"ps", "-a", "-o", "json"}, {"pods", "-o", "json"}, {"ps", "-o", "json"}, {"pods", "--state", "notready", "-o", "json"},
		{"ps", "-a", "--pod", pods[0], "-o", "json"}, {"pods", "--label", "group=1", "-o", "json"},
		append([]string{"inspect", "-o", "json"}, containers...), append([]string{"inspectp", "-o", "json"}, pods...),
		{"version"}, {"info", "-o", "json"}, {"images", "-o", "json"}, {"inspecti", "-o", "json", imageName}, {"runtime-config"},
	} {
		theirs, ours := both(args...)
		if d := cmp.Diff(sortedByID(theirs), sortedByID(ours)); d != "" || theirs == "" {
			t.Errorf("crictl %s: %s", strings.Join(args[:min(4, len(args))], " "), d)
		}
	}
	// Of statistics, whose they are; the numbers are those of the moment.
	for _, args := range [][]string{{"stats", "-a", "-o", "json"}, {"statsp", "-o", "json"}, {"imagefsinfo", "-o", "json"}} {
		theirs, ours := both(args...)
		if d := cmp.Diff(shape(theirs), shape(ours)); d != "" {
			t.Errorf("crictl %v: %s", args, d)
		}
	}
	running, exited, down := ids("ps", "-q")[0], ids("ps", "-a", "--state", "exited", "-q")[0], ids("pods", "--state", "notready", "-q")[0]
	for _, args := range [][]string{
		{"exec", "-s", running, "/workload"}, {"exec", running, "/workload"}, {"stop", running}, {"rm", exited}, {"rm", "-f", running},
		{"stopp", pods[0]}, {"rmp", down}, {"rmp", "-f", pods[0]}, {"pull", imageName}, {"rmi", imageName}, {"update", "--cpu-share", "2", running},
		{"attach", running}, {"port-forward", pods[0], "80"}, {"checkpoint", "--export=/tmp/x", running},
	} {
		out, err := crictl(t, c.socket, args...)
		if err == nil || !strings.Contains(err.Error(), "PermissionDenied") || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("crictl %v is not refused: %s, %v", args[:2], out, err)
		}
	}
}

// sortedByID sorts the lists in a JSON value, whose order is not defined.
func sortedByID(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = sortedByID(x)
		}
	case []any:
		for i, x := range v {
			v[i] = sortedByID(x)
		}
		slices.SortStableFunc(v, func(a, b any) int { return strings.Compare(idOf(a), idOf(b)) })
	}
	return v
}

// idOf finds the id that an item of a list is about.
func idOf(v any) string {
	m, _ := v.(map[string]any)
	for _, key := range []string{"id", "status", "attributes"} {
		switch x := m[key].(type) {
		case string:
			return x
		case map[string]any:
			if id := idOf(x); id != "" {
				return id
			}
		}
	}
	return ""
}

// shape is a JSON value with its numbers made equal.
func shape(v any) any {
	switch v := sortedByID(v).(type) {
	case map[string]any:
		for k, x := range v {
			if _, ok := x.(string); ok && (k == "value" || k == "timestamp") {
				v[k] = k
				continue
			}
			v[k] = shape(x)
		}
		return v
	case []any:
		for i, x := range v {
			v[i] = shape(x)
		}
		return v
	case float64:
		return 0.0
	default:
		return v
	}
}

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plegd/plegd/internal/compare"
)

// comparisonEnv is the folder that `make comparison` has the reports written to.
const comparisonEnv = "PLEGD_COMPARISON"

const (
	comparisonPage  = "../../docs/comparison.md"
	comparisonBegin = "<!-- what make comparison measured -->\n"
	comparisonEnd   = "<!-- end -->\n"
	comparisonModes = "generic,evented,hybrid,hinted"
)

// maxOwnCPU is the share of a core that a comparison itself may take at 110 pods and 5
// transitions a second: its CPU from start to end, by the time that is measured.
const maxOwnCPU = 0.05

// scenario is one comparison.
type scenario struct {
	name    string
	flavour *flavour // of a real runtime; nil: simulated
	pods    int
	rate    float64
	faulty  bool
	seconds int
}

// faults are what goes wrong in a faulty scenario.
var faults = []string{
	"method=event,drop,share=0.02",
	"method=event,delay=3s,share=0.05",
	"method=event,duplicate=1,share=0.05",
	"do=end-streams,at=10s,each=20s",
}

func scenarios() []scenario {
	all := []scenario{
		{name: "containerd-2.4.2", flavour: &containerd2, pods: 10, rate: 5, seconds: 60},
		{name: "containerd-1.6.20", flavour: &containerd16, pods: 10, rate: 5, seconds: 60},
	}
	for _, pods := range []int{110, 500, 2000} {
		for _, rate := range []float64{5, 50} {
			for _, faulty := range []bool{false, true} {
				name := fmt.Sprintf("simulated-%d-%g", pods, rate)
				if faulty {
					name += "-faults"
				}
				all = append(all, scenario{name: name, pods: pods, rate: rate, faulty: faulty, seconds: 40})
			}
		}
	}
	return all
}

// args are those of plegd compare, without where the reports go.
func (s *scenario) args() []string {
	workload := fmt.Sprintf("seed=1,pods=%d,rate=%g,containers=2", s.pods, s.rate)
	if s.flavour != nil {
		workload += ",image=" + imageName + ",cgroup-parent=" + cgroupParent()
	}
	args := []string{"compare", "--modes", comparisonModes, "--for", fmt.Sprintf("%ds", s.seconds), "--workload", workload}
	if s.faulty {
		for _, f := range faults {
			args = append(args, "--fault", f)
		}
	}
	return args
}

// run compares and leaves the reports in a folder.
func (s *scenario) run(t *testing.T, dir string) *compare.Report {
	t.Helper()
	page := filepath.Join(dir, s.name+".html")
	args := append(s.args(), "--json", "--html", page)
	if s.flavour != nil {
		rt := startContainerd(t, *s.flavour)
		args = append(args, "--runtime-endpoint", "unix://"+rt.socket)
	}
	cmd := exec.Command(binary(), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("plegd %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	if err := os.WriteFile(filepath.Join(dir, s.name+".json"), stdout.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &compare.Report{}
	if err := json.Unmarshal(stdout.Bytes(), r); err != nil {
		t.Fatal(err)
	}
	// The comparison itself must not be part of what it measures.
	if share := float64(r.OwnCPU) / float64(r.To-r.From); s.pods <= 110 && s.rate <= 5 && share > maxOwnCPU {
		t.Errorf("%s: comparing took %.1f %% of a core, want at most %.0f %%", s.name, 100*share, 100*maxOwnCPU)
	}
	return r
}

// rows are a report's lines in the table, one for each mode.
func (s *scenario) rows(r *compare.Report) string {
	var b strings.Builder
	for i := range r.Modes {
		m := &r.Modes[i]
		name := m.Name
		if r.Winner == m.Name {
			name = "**" + name + "**"
		}
		if m.NotRun != "" {
			fmt.Fprintf(&b, "| %s | %s | can't run: %s |\n", s.name, name, m.NotRun)
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %d of %d | %d | %d | %d | %s | %s | %s | %.1f | %.2f |\n", s.name, name, m.Told, m.Judged,
			m.Missed, m.Late, m.Wrong, compare.Duration(m.All.P50), compare.Duration(m.All.P99), compare.Duration(m.StateWrong),
			float64(m.Cost.Total.Calls)/m.Cost.Seconds, 100*m.Cost.CPU.Seconds()/m.Cost.Seconds)
	}
	return b.String()
}

// TestComparison measures what docs/comparison.md publishes, and writes it there. It
// takes a quarter of an hour, so it runs for `make comparison` alone.
func TestComparison(t *testing.T) {
	dir := os.Getenv(comparisonEnv)
	if dir == "" {
		t.Skipf("measures for a quarter of an hour: make comparison")
	}
	needBinary(t)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Measured on %s, %d processors, %s/%s.\n\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	b.WriteString("| scenario | mode | told | missed | late | wrong | p50 | p99 | state wrong | calls/s | CPU, % of a core |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) { // one after the other: each is to have the machine
			r := s.run(t, dir)
			b.WriteString(s.rows(r))
			t.Logf("%s: %s", s.name, strings.Join(r.Verdict, "\n\t"))
		})
	}
	if t.Failed() {
		return
	}
	page, err := os.ReadFile(comparisonPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(page, []byte(comparisonBegin))
	_, after, ends := bytes.Cut(rest, []byte(comparisonEnd))
	if !ok || !ends {
		t.Fatalf("%s has no place for the figures", comparisonPage)
	}
	page = slices.Concat(before, []byte(comparisonBegin), []byte(b.String()), []byte(comparisonEnd), after)
	if err := os.WriteFile(comparisonPage, page, 0o644); err != nil { //nolint:gosec // a page of the documentation
		t.Fatal(err)
	}
}

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// seeds is a range of them, both ends included.
type seeds struct{ From, To uint64 }

// String is "7", or "7-9" for several.
func (s seeds) String() string {
	if s.From == s.To {
		return fmt.Sprint(s.From)
	}
	return fmt.Sprintf("%d-%d", s.From, s.To)
}

// chunk is one line of the progress file: what some seeds came to.
type chunk struct {
	From       uint64            `json:"from"`
	To         uint64            `json:"to"`
	Counts     map[string]int    `json:"counts"`
	Violations map[string]string `json:"violations"`        // by seed, or seeds
	Digests    map[string]string `json:"digests,omitempty"` // of all that a seed did, logged and told
	Build      string            `json:"build"`
	Seconds    float64           `json:"seconds"`
}

// progress is what is done of a campaign. It is written chunk by chunk.
type progress struct {
	build string

	mu   sync.Mutex
	file *os.File
	done map[seeds]chunk
}

// openProgress opens a progress file. Lines of another binary, and with resume
// unset all lines, count for nothing.
func openProgress(path, build string, resume bool) (*progress, error) {
	p := &progress{build: build, done: map[seeds]chunk{}}
	if resume {
		if err := p.load(path); err != nil {
			return nil, err
		}
	} else if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var err error
	p.file, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	_, err = p.file.WriteString("\n") // the last line may be cut short
	return p, err
}

func (p *progress) load(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var c chunk
		if json.Unmarshal(lines.Bytes(), &c) == nil && c.Build == p.build { // the last line may be cut short
			p.done[seeds{c.From, c.To}] = c
		}
	}
	return lines.Err()
}

func (p *progress) close() { _ = p.file.Close() }

// cover chooses chunks that are done so that no seed of a range counts twice,
// whatever ranges were asked for before, and returns what is left to be run. What
// is left never crosses a multiple of size, so that a range that is extended goes
// on in chunks of that size.
func (p *progress) cover(r seeds, size uint64) (done []chunk, left []seeds) {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest := map[uint64]uint64{} // from where up to where something is done
	for s := range p.done {
		if s.From >= r.From && s.To <= r.To && s.To >= longest[s.From] {
			longest[s.From] = s.To
		}
	}
	for from := r.From; from <= r.To; from++ {
		to, ok := longest[from]
		switch n := len(left); {
		case ok:
			done = append(done, p.done[seeds{from, to}])
			from = to
		case n > 0 && left[n-1].To+1 == from && from%size != 0:
			left[n-1].To = from
		default:
			left = append(left, seeds{from, from})
		}
	}
	return done, left
}

// add counts what another chunk found, too.
func (c *chunk) add(other chunk) {
	for k, n := range other.Counts {
		if strings.HasPrefix(k, "max: ") {
			c.Counts[k] = max(c.Counts[k], n)
		} else {
			c.Counts[k] += n
		}
	}
	maps.Copy(c.Violations, other.Violations)
}

// violate notes a violation that the seeds' process did not write down itself.
func (c *chunk) violate(s seeds, what string) {
	c.Counts["violations"]++
	c.Violations[s.String()] = what
}

// compare counts whether two runs of a seed were the same, and whether they
// came to the same verdict.
func (c *chunk) compare(one, again chunk) {
	c.Counts["twice: seeds"]++
	if maps.Equal(one.Digests, again.Digests) {
		c.Counts["twice: the same to the last bit"]++
	}
	if len(one.Violations) == len(again.Violations) {
		c.Counts["twice: the same verdict"]++
	}
}

// keep writes down what a chunk came to.
func (p *progress) keep(c chunk, took time.Duration) error {
	c.Build, c.Seconds = p.build, took.Seconds()
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[seeds{c.From, c.To}] = c
	_, err = p.file.Write(append(line, '\n'))
	return err
}

// report prints what the whole range came to. It fails if there is a violation,
// or if the campaign was stopped.
func (p *progress) report(w io.Writer, o options, took time.Duration, stopped error) error {
	all := chunk{Counts: map[string]int{}, Violations: map[string]string{}}
	seconds := 0.0
	done, _ := p.cover(seeds{o.from, o.to}, o.chunk)
	for _, c := range done {
		all.add(c)
		seconds += c.Seconds
	}
	total := all.Counts
	var violations []string
	for seed, v := range all.Violations {
		from, to, several := strings.Cut(seed, "-")
		if !several {
			to = from
		}
		violations = append(violations, fmt.Sprintf("seed %s: %s\n  reproduce: make sim FROM=%s TO=%s", seed, v, from, to))
	}
	for _, k := range slices.Sorted(maps.Keys(total)) {
		_, _ = fmt.Fprintf(w, "%12d  %s\n", total[k], k)
	}
	_, _ = fmt.Fprintf(w, "seeds %d to %d, build %s: %.1f virtual hours in %v, %.0f s of processes in all\n",
		o.from, o.to, o.build, float64(total["virtual seconds"])/3600, took.Round(time.Second), seconds)
	slices.Sort(violations)
	for _, v := range violations {
		_, _ = fmt.Fprintln(w, v)
	}
	switch {
	case errors.Is(stopped, context.Canceled) && !o.resume:
		return errors.New("stopped")
	case errors.Is(stopped, context.Canceled):
		return errors.New("stopped; the same command goes on with the seeds that are not in these figures")
	case stopped != nil:
		return fmt.Errorf("stopped: %w", stopped)
	case len(violations) > 0:
		return fmt.Errorf("%d seeds with violations", len(violations))
	}
	return nil
}

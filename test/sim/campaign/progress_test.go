package main

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEachSeedCountsOnce: whatever ranges a campaign is asked for one after the
// other, each seed of the last one is run, and counts once.
func TestEachSeedCountsOnce(t *testing.T) {
	for _, tc := range []struct {
		name   string
		ranges []seeds
		left   []seeds // to be run of the last range
	}{
		{"nothing is done", []seeds{{0, 45}}, []seeds{{0, 19}, {20, 39}, {40, 45}}},
		{"extended", []seeds{{0, 110}, {0, 125}}, []seeds{{111, 119}, {120, 125}}},
		{"asked again", []seeds{{0, 110}, {0, 110}}, nil},
		{"ends within a chunk that is done", []seeds{{0, 39}, {0, 25}, {0, 39}}, nil},
		{"begins within one", []seeds{{0, 39}, {25, 45}}, []seeds{{25, 39}, {40, 45}}},
		{"overlaps that don't contain each other", []seeds{{0, 10}, {5, 19}, {0, 19}}, []seeds{{11, 19}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := openProgress(filepath.Join(t.TempDir(), "progress"), "build", false)
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			for i, r := range tc.ranges {
				_, left := p.cover(r, 20)
				if i == len(tc.ranges)-1 {
					if diff := cmp.Diff(tc.left, left); diff != "" {
						t.Errorf("to be run (-want +got):\n%s", diff)
					}
				}
				for _, s := range left {
					err := p.keep(chunk{From: s.From, To: s.To, Counts: map[string]int{"seeds": int(s.To - s.From + 1)}}, 0)
					if err != nil {
						t.Fatal(err)
					}
				}
				done, left := p.cover(r, 20)
				all := chunk{Counts: map[string]int{}, Violations: map[string]string{}}
				for _, c := range done {
					all.add(c)
				}
				if got, want := all.Counts["seeds"], int(r.To-r.From+1); got != want || left != nil {
					t.Errorf("%v: %d seeds count and %v are left, want %d and none", r, got, left, want)
				}
			}
		})
	}
}

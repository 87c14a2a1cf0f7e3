package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// parsed is a flag whose text a function turns into a value. The function's
// error says what is allowed.
type parsed[T any] struct {
	to    *T
	kind  string
	parse func(string) (T, error)
	show  func(T) string
}

// Set implements [pflag.Value].
func (p *parsed[T]) Set(s string) error {
	v, err := p.parse(s)
	if err == nil {
		*p.to = v
	}
	return err
}

// String implements [pflag.Value].
func (p *parsed[T]) String() string { return p.show(*p.to) }

// Type implements [pflag.Value].
func (p *parsed[T]) Type() string { return p.kind }

// durationFlag adds a flag for a positive duration; what p holds is the default.
func durationFlag(f *pflag.FlagSet, p *time.Duration, name, usage string) {
	f.Var(&parsed[time.Duration]{p, "duration", parseDuration, showDuration}, name, usage)
}

func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, errors.New("must be a positive duration, such as 500ms, 10s or 5m")
	}
	return d, nil
}

// showDuration leaves out what Go's own form adds: 5m rather than 5m0s. Zero
// is a default that isn't one of time, so nothing is shown.
func showDuration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// countFlag adds a flag for a positive number.
func countFlag(f *pflag.FlagSet, p *int, name, usage string) {
	f.Var(&parsed[int]{p, "count", parseCount, strconv.Itoa}, name, usage)
}

func parseCount(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n <= 0 {
		return 0, errors.New("must be a whole number above 0")
	}
	return n, nil
}

// seedFlag adds a flag for any number.
func seedFlag(f *pflag.FlagSet, p *uint64, name, usage string) {
	show := func(n uint64) string { return strconv.FormatUint(n, 10) }
	f.Var(&parsed[uint64]{p, "number", parseSeed, show}, name, usage)
}

func parseSeed(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, errors.New("must be a whole number, 0 or more")
	}
	return n, nil
}

// rateFlag adds a flag for a positive number with a fraction.
func rateFlag(f *pflag.FlagSet, p *float64, name, usage string) {
	f.Var(&parsed[float64]{p, "rate", parseRate, showFloat}, name, usage)
}

func parseRate(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) {
		return 0, errors.New("must be a number above 0")
	}
	return v, nil
}

func showFloat(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// shareFlag adds a flag for a share of events.
func shareFlag(f *pflag.FlagSet, p *float64, name, usage string) {
	f.Var(&parsed[float64]{p, "share", parseShare, showFloat}, name, usage)
}

func parseShare(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v >= 0 && v <= 1) {
		return 0, errors.New("must be a share from 0 to 1, such as 0.05")
	}
	return v, nil
}

// sizeUnits are the suffixes of a size, the longest that fits first.
var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30},
	{"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
	{"B", 1}, {"", 1},
}

// sizeFlag adds a flag for a number of bytes.
func sizeFlag(f *pflag.FlagSet, p *int64, name, usage string) {
	f.Var(&parsed[int64]{p, "size", parseSize, showSize}, name, usage)
}

func parseSize(s string) (int64, error) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n <= 0 || n > math.MaxInt64/u.bytes {
			break
		}
		return n * u.bytes, nil
	}
	return 0, errors.New("must be a size in bytes above 0, such as 65536, 512KiB or 64MiB")
}

func showSize(n int64) string {
	for _, u := range []int{2, 1, 0} {
		if n >= sizeUnits[u].bytes && n%sizeUnits[u].bytes == 0 {
			return fmt.Sprintf("%d%s", n/sizeUnits[u].bytes, sizeUnits[u].suffix)
		}
	}
	return strconv.FormatInt(n, 10)
}

// choiceFlag adds a flag that takes one of a few words, and their completion.
func choiceFlag(cmd *cobra.Command, p *string, name, usage string, words ...string) {
	parse := func(s string) (string, error) {
		if !slices.Contains(words, s) {
			return "", fmt.Errorf("must be one of %s", strings.Join(words, ", "))
		}
		return s, nil
	}
	kind := strings.Join(words, "|")
	cmd.Flags().Var(&parsed[string]{p, kind, parse, func(s string) string { return s }}, name, usage)
	// It fails for a flag that doesn't exist only.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

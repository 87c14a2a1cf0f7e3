package main

import (
	"testing"
	"time"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "65536": 65536, "1B": 1, "512KiB": 512 << 10, "512Ki": 512 << 10, "64MiB": 64 << 20, "2GiB": 2 << 30,
		"10kB": 10_000, "3MB": 3_000_000, "9223372036854775807": 1<<63 - 1,
		"": 0, "0": 0, "-1": 0, "0MiB": 0, "1.5MiB": 0, "MiB": 0, "1 MiB": 0, "1mib": 0, "1TiB": 0, "8589934592GiB": 0, "0x10": 0,
	} {
		got, err := parseSize(text)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for n, want := range map[int64]string{1: "1", 1000: "1000", 1024: "1KiB", 64 << 20: "64MiB", 3 << 30: "3GiB", 1<<20 + 1: "1048577"} {
		got := showSize(n)
		if back, err := parseSize(got); got != want || err != nil || back != n {
			t.Errorf("%d is shown as %q and read as %d, %v", n, got, back, err)
		}
	}
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "", time.Second: "1s", 5 * time.Minute: "5m", 24 * time.Hour: "24h", 90 * time.Second: "1m30s", time.Hour + time.Second: "1h0m1s",
		time.Hour + time.Minute: "1h1m", 100 * time.Millisecond: "100ms", 10 * time.Second: "10s", 10 * time.Minute: "10m",
	} {
		got := showDuration(d)
		if back, err := parseDuration(got); got != want || d != 0 && (err != nil || back != d) {
			t.Errorf("%v is shown as %q and read as %v, %v", d, got, back, err)
		}
	}
}

func TestShares(t *testing.T) {
	for text, ok := range map[string]bool{"0": true, "1": true, "0.05": true, "1e-3": true, "-0.1": false, "1.1": false, "NaN": false, "x": false} {
		if _, err := parseShare(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

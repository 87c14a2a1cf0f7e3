package compare_test

import (
	"strings"
	"testing"

	"github.com/plegd/plegd/internal/compare"
)

func TestThresholds(t *testing.T) {
	modes, err := compare.ParseModes("generic=5s,evented,hybrid")
	if err != nil {
		t.Fatal(err)
	}
	traces := []*compare.Trace{trace("generic=5s", life(900*ms)), trace("evented", life(ms)[:2]), trace("hybrid", life(ms), lifeSaid()...)}
	for _, tc := range []struct {
		list   string
		broken []string
	}{
		{"hybrid:missed>0", nil},
		{"missed>0", []string{"evented has 2"}},
		{"missed>=2,missed>2", []string{"missed>=2: evented has 2"}},
		{"missed>49%,missed>50%", []string{"missed>49%: evented has 2 of 4"}},
		{"p99>50ms", []string{"p99>50ms: generic=5s has 900ms"}},
		{"generic=5s:p50<1s", []string{"generic=5s:p50<1s: generic=5s has 900ms"}},
		{"generic=5s:missed=0", []string{"generic=5s has 0"}},
		{" hybrid:late > 0 , hybrid:max<=1ms", []string{"hybrid has 1ms"}},
		{"hybrid:cpu>1s", []string{"hybrid:cpu>1s: hybrid could not be judged: it was not measured"}},
		{"state-wrong>3s", []string{"state-wrong>3s: generic=5s", "state-wrong>3s: evented"}},
	} {
		thresholds, err := compare.ParseThresholds(tc.list, modes)
		if err != nil {
			t.Fatalf("%q: %v", tc.list, err)
		}
		r := judge(traces...)
		compare.Check(r, thresholds)
		ok := len(r.Broken) == len(tc.broken)
		for i := range min(len(tc.broken), len(r.Broken)) {
			ok = ok && strings.Contains(r.Broken[i], tc.broken[i])
		}
		if !ok {
			t.Errorf("%q: broken %q, want %q", tc.list, r.Broken, tc.broken)
		}
	}
	for list, why := range map[string]string{
		"":               "must be METRIC",
		"missed":         "must be METRIC",
		"lost>0":         "is none of missed, late",
		"missed>":        "the value of missed must be a number",
		"missed>x":       "the value of missed must be a number",
		"missed>-1":      "the value of missed must be a number",
		"missed>NaN":     "the value of missed must be a number",
		"calls>1%":       "the value of calls must be a number",
		"p99>50":         "the value of p99 must be a duration",
		"hinted:p99>1s":  `no mode "hinted" is compared, only generic=5s, evented, hybrid`,
		"missed>0,":      "must be METRIC",
		"missed=>0":      "the value of missed must be a number",
		"missed>0 late":  "the value of missed must be a number",
		":missed>0":      "no mode",
		"missed !> 0":    "is none of",
		"p99>1h>2h":      "the value of p99 must be a duration",
		"state-wrong>-1": "must be a duration",
		"p99>-1s":        "must be a duration",
	} {
		if _, err := compare.ParseThresholds(list, modes); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", list, err, why)
		}
	}
}

// What could not be judged holds for nothing.
func TestThresholdsOfWhatIsNotKnown(t *testing.T) {
	modes, _ := compare.ParseModes("evented,hybrid")
	thresholds, err := compare.ParseThresholds("missed>0", modes)
	if err != nil {
		t.Fatal(err)
	}
	never := trace("evented", nil)
	never.Ready, never.End = nil, &compare.End{Err: "event stream is not supported"}
	r := judge(never, trace("hybrid", life(ms)))
	if compare.Check(r, thresholds); len(r.Broken) != 1 || !strings.Contains(r.Broken[0], "evented could not be judged: event stream") {
		t.Errorf("%q", r.Broken)
	}
	r = judge(trace("hybrid", nil))
	if compare.Check(r, thresholds); len(r.Broken) != 1 || !strings.Contains(r.Broken[0], "nothing happened") {
		t.Errorf("%q", r.Broken)
	}
}

// What was cut short says nothing of the rest, however good it was.
func TestThresholdOfWhatWasCutShort(t *testing.T) {
	modes, err := compare.ParseModes("hybrid")
	if err != nil {
		t.Fatal(err)
	}
	thresholds, err := compare.ParseThresholds("missed>0", modes)
	if err != nil {
		t.Fatal(err)
	}
	r := judge(trace("hybrid", life(ms), lifeSaid()...))
	r.Cut = "the runtime went away"
	compare.Check(r, thresholds)
	if len(r.Broken) != 1 || r.Broken[0] != "the runtime went away, so no threshold could be judged to the end" {
		t.Errorf("broken %q", r.Broken)
	}
}

// A mode that told nothing has no latency: that it is 0 is not below any bound.
func TestThresholdOfNoLatency(t *testing.T) {
	modes, err := compare.ParseModes("evented,hybrid")
	if err != nil {
		t.Fatal(err)
	}
	thresholds, err := compare.ParseThresholds("p99>50ms", modes)
	if err != nil {
		t.Fatal(err)
	}
	r := judge(trace("evented", nil), trace("hybrid", life(ms), lifeSaid()...))
	compare.Check(r, thresholds)
	if len(r.Broken) != 1 || r.Broken[0] != "p99>50ms: evented could not be judged: it told nothing, so it has no latency" {
		t.Errorf("broken %q", r.Broken)
	}
}

package bench

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuantileIsLeastValueThatCoversPercentage(t *testing.T) {
	t.Parallel()
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}
	tests := map[string]struct {
		why     string
		took    []time.Duration
		percent float64
		want    time.Duration
	}{
		"median":          {"half are not above", hundred, 50, 50},
		"p99":             {"one of a hundred is above", hundred, 99, 99},
		"all":             {"the longest", hundred, 100, 100},
		"none":            {"the shortest", hundred, 0, 1},
		"p99 of few":      {"1 % of three values is none", []time.Duration{3, 1, 2}, 99, 3},
		"median of three": {"the one in the middle", []time.Duration{3, 1, 2}, 50, 2},
		"one":             {"there is no other", []time.Duration{7}, 50, 7},
		"nothing":         {"it mustn't panic", nil, 99, 0},
	}
	for name, test := range tests {
		if got := quantile(test.took, test.percent); got != test.want {
			t.Errorf("%s: %d, want %d: %s", name, got, test.want, test.why)
		}
	}
}

func TestRowMeetsItsAim(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why  string
		row  Row
		want bool
	}{
		"rate at the aim":     {"the aim is the minimum", Row{Unit: PerSecond, Value: 10, Aim: 10}, true},
		"rate under the aim":  {"more is better", Row{Unit: PerSecond, Value: 9, Aim: 10}, false},
		"time under the aim":  {"less is better", Row{Unit: Seconds, Value: 9, Aim: 10}, true},
		"time at the aim":     {"it should be under it", Row{Unit: Seconds, Value: 10, Aim: 10}, false},
		"disk over the aim":   {"less is better", Row{Unit: Bytes, Value: 11, Aim: 10}, false},
		"statements over it":  {"less is better", Row{Unit: Frequency, Value: 2, Aim: 1}, false},
		"processor under it":  {"less is better", Row{Unit: Percent, Value: 0, Aim: 1}, true},
		"no aim":              {"there is no aim to miss", Row{Unit: Seconds, Value: 10}, true},
		"an aim, not a value": {"a row without a value misses its aim", Row{Unit: Seconds, Aim: 10, Missing: "x"}, false},
	}
	for name, test := range tests {
		if got := test.row.Met(); got != test.want {
			t.Errorf("%s: %t, want %t: %s", name, got, test.want, test.why)
		}
	}
}

func tables() []Table {
	return []Table{
		{Backend: "one", Rows: []Row{
			{What: "rate", Value: 900, Unit: PerSecond, Aim: 1000, Note: "slow|ish"},
			{What: "time", Value: 0.0123, Unit: Seconds, Aim: 0.1},
			{What: "disk", Value: 2523, Unit: Bytes},
			{What: "gone", Missing: "no such\nmethod"},
		}},
		{Backend: "two", Rows: []Row{
			{What: "rate", Value: 200, Unit: PerSecond, Aim: 1000, Note: "slower"},
			{What: "time", Value: 0.0369, Unit: Seconds, Aim: 0.1},
			{What: "disk", Value: 9000, Unit: Bytes},
			{What: "more", Value: 1.5, Unit: Percent},
		}},
	}
}

func TestMarkdownMarksMissedAimsAndSlowerRows(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := Markdown(&b, tables()); err != nil {
		t.Fatal(err)
	}
	want := `| what | aim | one | | two | |
|---|---:|---:|---|---:|---|
| rate | 1000/s | **900/s** | slow\|ish | **200/s** | **4.5x slower**; slower |
| time | under 100ms | 12ms |  | 37ms |  |
| disk |  | 2523 B |  | 9000 B | **3.6x slower** |
| gone |  | not measured | no such method | | |
| more |  | | | 1.50 % |  |
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMarkdownWithoutTablesHasHeaderOnly(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	if err := Markdown(&b, nil); err != nil || !strings.HasPrefix(b.String(), "| what | aim |\n|---|---:|\n") {
		t.Errorf("%q, %v", b.String(), err)
	}
}

func TestJSONHasAllTablesAndRawRates(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := JSON(&b, RawRates{Inserts: []float64{5}, Streams: []float64{6}}, tables()); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Raw    RawRates
		Tables []Table
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tables(), got.Tables); diff != "" || got.Raw.String() != "Raw PostgreSQL in the same run, measured just before each comparison: 5 single-row INSERT transactions/s, 6 rows/s of SELECT." {
		t.Errorf("%+v (-want +got):\n%s", got.Raw, diff)
	}
}

package execute_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
)

// measured returns a rollout with the metric errors.
func measured(change ...func(*spec.Metric)) execute.Rollout {
	r := rollout()
	m := spec.Metric{Name: "errors", Compare: spec.Compare{To: spec.ToUnchanged, MaxDifference: new(0.01)}, Every: time.Minute, Timeout: 30 * time.Second, NoData: spec.NoDataPause}
	for _, c := range change {
		c(&m)
	}
	r.Spec.Health.Metrics = []spec.Metric{m}
	return r
}

func report(t *testing.T, r execute.Rollout, v execute.Outcome, asked time.Time) execute.Rollout {
	t.Helper()
	to, changes := r.Measured("errors", v, "0.03 at changed sites", asked)
	if !changes {
		t.Fatal("the measurement changes nothing")
	}
	return to
}

func blocks(o execute.Output) string {
	var all []string
	for _, b := range o.Blocks {
		all = append(all, b.Code)
	}
	return strings.Join(all, " ")
}

func TestJudgeNeverTakesAbsentDataForGood(t *testing.T) {
	t.Parallel()
	unchanged := spec.Compare{To: spec.ToUnchanged, MaxDifference: new(0.01)}
	percent := spec.Compare{To: spec.ToBefore, MaxPercent: new(10.0), MinPercent: new(-10.0)}
	bounds := spec.Compare{To: spec.ToValue, Max: new(5.0), Min: new(1.0)}
	none := execute.Value{Reason: "the server did not respond"}
	value := func(f float64) execute.Value { return execute.Value{Number: &f} }
	tests := map[string]struct {
		compare           spec.Compare
		begins            bool
		changed, compared execute.Value
		want              execute.Outcome
		text              string
	}{
		"equal":                            {unchanged, false, value(0.02), value(0.02), execute.Good, "0.02 at changed sites, 0.02 at unchanged sites"},
		"a bad night everywhere":           {unchanged, false, value(0.92), value(0.915), execute.Good, ""},
		"a small local harm":               {unchanged, false, value(0.03), value(0.01), execute.Bad, "the difference is more than 0.01"},
		"better":                           {unchanged, false, value(0), value(1), execute.Good, ""},
		"no value at changed sites":        {unchanged, false, none, value(1), execute.NoData, "at changed sites: the server did not respond"},
		"no value to compare with":         {unchanged, false, value(1), none, execute.NoData, "the server did not respond"},
		"neither":                          {unchanged, false, execute.Value{}, execute.Value{}, execute.NoData, "the query gave no value"},
		"0/0":                              {unchanged, false, value(math.NaN()), value(0), execute.NoData, "division by zero"},
		"to compare with 0/0":              {unchanged, false, value(0), value(math.NaN()), execute.NoData, ""},
		"infinite":                         {bounds, false, value(math.Inf(-1)), execute.Value{}, execute.NoData, ""},
		"9 percent more":                   {percent, false, value(109), value(100), execute.Good, ""},
		"11 percent more":                  {percent, false, value(111), value(100), execute.Bad, "more than 10 %"},
		"11 percent less":                  {percent, false, value(89), value(100), execute.Bad, "less than -10 %"},
		"more than nothing":                {percent, false, value(0.001), value(0), execute.Bad, ""},
		"nothing, as before":               {percent, false, value(0), value(0), execute.Good, ""},
		"more, of a negative value":        {percent, false, value(-50), value(-100), execute.Bad, "more than 10 %"},
		"within bounds":                    {bounds, false, value(5), execute.Value{}, execute.Good, ""},
		"above":                            {bounds, false, value(5.1), execute.Value{}, execute.Bad, "it is more than 5"},
		"below":                            {bounds, false, value(0), execute.Value{}, execute.Bad, "it is less than 1"},
		"before the first change":          {unchanged, true, execute.Value{}, value(7), execute.Good, "before the first change it is 7"},
		"before the first change, no data": {unchanged, true, execute.Value{}, none, execute.NoData, "before the first change: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, text := execute.Judge(test.compare, test.begins, test.changed, test.compared)
			if got != test.want || !strings.Contains(text, test.text) {
				t.Errorf("%s (%s), want %s (%s)", got, text, test.want, test.text)
			}
		})
	}
}

// A query with a typo is seen before anything is changed.
func TestNothingIsChangedBeforeAQueryGivesAValue(t *testing.T) {
	t.Parallel()
	r, rs := measured(), rows(3)
	out := next(r, rs, execute.Observation{}, noon)
	if len(out.Admit) != 0 || blocks(out) != "Metric" || out.Wake.IsZero() || out.Wake.After(noon.Add(execute.Interval)) {
		t.Fatalf("%d are admitted; %v; again at %s", len(out.Admit), out.Blocks, out.Wake)
	}
	r = report(t, r, execute.NoData, noon)
	for _, after := range []time.Duration{time.Minute, 14 * time.Minute} {
		out = next(r, rs, execute.Observation{}, noon.Add(after))
		if len(out.Admit) != 0 || out.Rollout.State != execute.Running {
			t.Errorf("after %s: %d are admitted, and it is %s", after, len(out.Admit), out.Rollout.State)
		}
	}
	out = next(r, rs, execute.Observation{}, noon.Add(15*time.Minute))
	if out.Rollout.State != execute.Paused || out.Rollout.Reason.Code != "NoData" {
		t.Errorf("%s, %+v", out.Rollout.State, out.Rollout.Reason)
	}
	r = report(t, r, execute.Good, noon.Add(2*time.Minute))
	out = next(r, rs, execute.Observation{}, noon.Add(3*time.Minute))
	if len(out.Admit) != 1 {
		t.Errorf("%d are admitted, %v", len(out.Admit), out.Blocks)
	}
	value := measured(func(m *spec.Metric) { m.Compare = spec.Compare{To: spec.ToValue, Max: new(1.0)} }) // what only the new version has
	out = next(value, rs, execute.Observation{}, noon)
	if len(out.Admit) != 1 {
		t.Errorf("bounds: %d are admitted, %v", len(out.Admit), out.Blocks)
	}
}

// A deployment that is healthy and has soaked becomes Healthy only by a measurement that began
// after that; however long the server doesn't respond.
func TestSlowMeasurementDelaysAndNeverPasses(t *testing.T) {
	t.Parallel()
	healthy := execute.Observation{Healthy: true}
	r, rs := report(t, measured(func(m *spec.Metric) { m.NoData = spec.NoDataWait }), execute.Good, noon), rows(2)
	rs[0] = rs[0].Apply(noon.Add(time.Second), false)
	at := noon
	step := func(after time.Duration) execute.Output {
		var out execute.Output
		for end := at.Add(after); at.Before(end); {
			at = at.Add(execute.Interval)
			out = next(r, rs, healthy, at)
			r, rs = out.Rollout, out.Rows
		}
		return out
	}
	r = report(t, r, execute.Good, noon.Add(30*time.Second)) // of before the end of the soak
	out := step(10 * time.Minute)
	if rs[0].Progress != execute.Soaking || len(out.Admit) != 0 || out.Rollout.State != execute.Running {
		t.Fatalf("without a measurement it is %s, and %d are admitted (%s)", rs[0].Progress, len(out.Admit), out.Rollout.State)
	}
	if written := len(next(r, rs, healthy, at.Add(execute.Interval)).Update); written != 0 {
		t.Errorf("each evaluation writes %d rows", written)
	}
	r = report(t, r, execute.NoData, at)
	if step(10 * time.Minute); rs[0].Progress != execute.Soaking {
		t.Fatalf("without data it is %s", rs[0].Progress)
	}
	r = report(t, r, execute.Good, at)
	out = step(execute.Interval)
	if rs[0].Progress != execute.Healthy || len(out.Admit) != 1 {
		t.Errorf("it is %s, and %d are admitted: %v", rs[0].Progress, len(out.Admit), out.Blocks)
	}
}

func TestBadMetricStopsAndPausesOrUndoes(t *testing.T) {
	t.Parallel()
	flying := func() []execute.Row {
		rs := rows(4)
		for i := range rs {
			rs[i].Wave = 0
		}
		rs[0] = rs[0].Apply(noon, false)
		return rs
	}
	at := noon.Add(time.Minute)
	r := report(t, measured(func(m *spec.Metric) { m.For = 2 * time.Minute }), execute.Bad, at)
	out := next(r, flying(), execute.Observation{}, at.Add(time.Minute))
	if len(out.Admit) != 0 || blocks(out) != "Metric" || out.Rollout.State != execute.Running {
		t.Errorf("at once: %d are admitted, %s, %v", len(out.Admit), out.Rollout.State, out.Blocks)
	}
	recovered := report(t, r, execute.Good, at.Add(time.Minute))
	out = next(recovered, flying(), execute.Observation{}, at.Add(3*time.Minute))
	if out.Rollout.State != execute.Running || len(out.Admit) == 0 {
		t.Errorf("recovered: %s, %v", out.Rollout.State, out.Blocks)
	}
	r = report(t, r, execute.Bad, at.Add(time.Minute))
	out = next(r, flying(), execute.Observation{}, at.Add(2*time.Minute))
	if out.Rollout.State != execute.Paused || out.Rollout.Reason.Code != "Metric" || !strings.Contains(out.Rollout.Reason.Message, `the metric "errors" is bad: 0.03 at changed sites: undo the rollout`) {
		t.Errorf("%s, %+v", out.Rollout.State, out.Rollout.Reason)
	}
	r.Spec.OnFailure = spec.Undo
	out = next(r, flying(), execute.Observation{}, at.Add(2*time.Minute))
	if !out.StartUndo || out.Rollout.State != execute.Undoing {
		t.Errorf("onFailure Undo: %s, %+v", out.Rollout.State, out.Rollout.Reason)
	}
}

// A rollout that goes on after a pause is measured anew, before anything more is changed.
func TestResumeMeasuresAnew(t *testing.T) {
	t.Parallel()
	rs := rows(3)
	rs[0] = rs[0].Apply(noon, false)
	r := report(t, measured(), execute.Bad, noon.Add(time.Minute))
	r.State = execute.Paused
	r, err := execute.Resume(r, execute.Summarize(rs), r.Plan, "")
	if err != nil {
		t.Fatal(err)
	}
	out := next(r, rs, execute.Observation{Healthy: true}, noon.Add(2*time.Minute))
	if out.Rollout.State != execute.Running || len(out.Admit) != 0 || !strings.Contains(fmt.Sprint(out.Blocks), "not yet measured") {
		t.Errorf("%s, %v", out.Rollout.State, out.Blocks)
	}
	if due := execute.DueMetrics(r, rs, noon.Add(2*time.Minute)); len(due) != 1 {
		t.Errorf("%d measurements are due", len(due))
	}
}

func TestWaivedMetricDoesNotCount(t *testing.T) {
	t.Parallel()
	rs := rows(3)
	rs[0] = rs[0].Apply(noon, false)
	r := report(t, measured(), execute.Bad, noon.Add(time.Minute))
	if _, err := r.Waive("error"); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("another metric: %v", err)
	}
	waived, err := r.Waive("errors")
	if err != nil {
		t.Fatal(err)
	}
	if out := next(waived, rs, execute.Observation{}, noon.Add(2*time.Minute)); out.Rollout.State != execute.Running || strings.Contains(blocks(out), "Metric") {
		t.Errorf("%s, %v", out.Rollout.State, out.Blocks)
	}
	if due := execute.DueMetrics(waived, rs, noon.Add(time.Hour)); len(due) != 0 {
		t.Errorf("%d measurements are due", len(due))
	}
	if r.Metrics["errors"].Waived {
		t.Error("the former state has changed")
	}
	for _, s := range execute.States() {
		r.State = s
		if s != execute.Running && s != execute.Paused {
			if _, err := r.Waive("errors"); !errors.Is(err, tko.ErrConflict) {
				t.Errorf("%s: %v", s, err)
			}
		}
	}
}

// A metric that the operator lets be absent doesn't hold the rollout meanwhile.
func TestAbsentDataIsIgnoredOnlyIfTheRolloutSaysSo(t *testing.T) {
	t.Parallel()
	rs := rows(2)
	rs[0] = rs[0].Apply(noon, false)
	healthy := execute.Observation{Healthy: true}
	for policy, want := range map[spec.NoData]execute.Progress{spec.NoDataPause: execute.Soaking, spec.NoDataWait: execute.Soaking, spec.NoDataIgnore: execute.Healthy} {
		r, rs := measured(func(m *spec.Metric) { m.NoData = policy }), slices.Clone(rs)
		for at := noon; at.Before(noon.Add(5 * time.Minute)); at = at.Add(execute.Interval) {
			if at.Sub(noon)%time.Minute == 0 {
				r = report(t, r, execute.NoData, at)
			}
			out := next(r, rs, healthy, at)
			r, rs = out.Rollout, out.Rows
		}
		if rs[0].Progress != want {
			t.Errorf("%s: it is %s, want %s", policy, rs[0].Progress, want)
		}
	}
}

// A report that comes late, or twice, changes nothing.
func TestOlderMeasurementChangesNothing(t *testing.T) {
	t.Parallel()
	r := report(t, measured(), execute.Bad, noon.Add(time.Minute))
	for _, at := range []time.Time{noon, noon.Add(time.Minute)} {
		if _, changes := r.Measured("errors", execute.Good, "", at); changes {
			t.Errorf("a measurement of %s changes one of %s", at, noon.Add(time.Minute))
		}
	}
}

func TestSitesOfMeasurements(t *testing.T) {
	t.Parallel()
	rs := rows(6) // waves 0 and 1
	apply := func(after time.Duration, which ...int) {
		for _, i := range which {
			rs[i] = rs[i].Apply(noon.Add(after), false)
		}
	}
	check := func(what string, to spec.CompareTo, changed, compared, before string) {
		t.Helper()
		due := execute.DueMetrics(measured(func(m *spec.Metric) { m.Compare.To = to }), rs, noon)
		got := "none"
		if len(due) == 1 {
			got = fmt.Sprint(due[0].Changed, due[0].Compared)
			if !due[0].Before.IsZero() {
				got += " " + due[0].Before.Sub(noon).String()
			}
		}
		want := "none"
		if changed+compared != "" {
			want = strings.TrimSpace(fmt.Sprintf("[%s] [%s] %s", changed, compared, before))
		}
		got = strings.ReplaceAll(got, "][", "] [")
		if got != want {
			t.Errorf("%s, compared to %s: %s, want %s", what, to, got, want)
		}
	}
	check("before the first change", spec.ToUnchanged, "", "s0 s1 s2 s3 s4 s5", "")
	check("before the first change", spec.ToBefore, "", "s0 s1 s2 s3 s4 s5", "")
	check("before the first change", spec.ToValue, "", "", "")
	apply(time.Minute, 0)
	check("the canary", spec.ToUnchanged, "s0", "s1 s2 s3 s4 s5", "")
	check("the canary", spec.ToBefore, "s0", "s0", "59s")
	check("the canary", spec.ToValue, "s0", "", "")
	rs[0].Progress = execute.Healthy
	check("between the waves", spec.ToUnchanged, "s0", "s1 s2 s3 s4 s5", "")
	apply(time.Hour, 1, 2)
	check("the second wave", spec.ToUnchanged, "s1 s2", "s3 s4 s5", "")
	apply(2*time.Hour, 3, 4, 5)
	check("no site is unchanged", spec.ToUnchanged, "s1 s2 s3 s4 s5", "s1 s2 s3 s4 s5", "59m59s")
	for i := range rs {
		rs[i].Progress = execute.Healthy
	}
	check("at the end", spec.ToUnchanged, "", "", "")
}

// Queries are bounded, and the sample of a large wave doesn't change by itself.
func TestMeasuredSitesAreASample(t *testing.T) {
	t.Parallel()
	const n = 5000
	rs := make([]execute.Row, n)
	for i := range rs {
		rs[i] = execute.Row{Deployment: tko.DeploymentID(strconv.Itoa(i)), Site: tko.SiteID(fmt.Sprintf("s%04d", i)), Kind: 1, Progress: execute.Waiting}
		if i < n/2 {
			rs[i] = rs[i].Apply(noon, false)
		}
	}
	first := execute.DueMetrics(measured(), rs, noon)[0]
	slices.Reverse(rs)
	second := execute.DueMetrics(measured(), rs, noon)[0]
	if len(first.Changed) != spec.MaxMeasured || len(first.Compared) != spec.MaxMeasured || !slices.Equal(first.Changed, second.Changed) || !slices.Equal(first.Compared, second.Compared) {
		t.Errorf("%d and %d sites, then %d and %d others", len(first.Changed), len(first.Compared), len(second.Changed), len(second.Compared))
	}
}

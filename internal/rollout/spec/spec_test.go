package spec_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

const full = `
apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: smf-v2}
spec:
  edits:
  - upgrade: {to: "workload/smf:v2"}
    select: {templateIdPatterns: ["workload/smf:v1"], siteMetadataPatterns: {region: north}}
  - merge: [{apiVersion: v1, kind: ConfigMap, name: logging}]
    select: {metadataPatterns: {NetworkFunction.name: upf}}
  - function: {image: "ghcr.io/kptdev/krm-functions-catalog/set-annotations:v0.1.4", config: {owner: core-team}}
    select: {templateIdPatterns: ["workload/**"]}
  - package: {deployment: "abc", resources: [{apiVersion: v1, kind: ConfigMap, name: logging}]}
  - delete: {}
    select: {parent: "p"}
  waves:
  - {name: canary, count: 3, spread: region}
  - {name: tenth, percent: 10, spread: tier, approval: Required}
  - {name: rest}
  limits:
    concurrent: 200
    per: [{key: tac, max: 5}]
    apart: [redundancy]
    failures: {count: 5, percent: 2}
  health: {within: 15m, soak: 10m}
  windows: [{days: [Mon, Tue, Wed], from: "01:00", to: "04:00", zone: {key: timezone, default: UTC}}]
  onFailure: Undo
  conflicts: KeepTheirs
---
apiVersion: v1
kind: ConfigMap
metadata: {name: logging}
`

// minimal is a spec with an edit that selects, and more lines.
func minimal(more string) string {
	return "apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec:\n  edits: [{delete: {}, select: {parent: p}}]\n" + more
}

func withEdit(edit string) string {
	return "apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec:\n  edits: [" + edit + "]\n"
}

func parse(t testing.TB, text string) (spec.Rollout, error) {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return spec.Parse(p)
}

func TestTheExampleOfTheContractIsParsed(t *testing.T) {
	t.Parallel()
	got, err := parse(t, full)
	if err != nil {
		t.Fatal(err)
	}
	logging := krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "logging"}}}
	five, two := 5, 2.0
	want := spec.Rollout{
		Edits: []spec.Edit{
			{Upgrade: &spec.Upgrade{To: "workload/smf:v2"}, Select: tko.DeploymentSelect{Templates: []string{"workload/smf:v1"}, SiteMetadata: map[string]string{"region": "north"}}},
			{Merge: logging, Select: tko.DeploymentSelect{Metadata: map[string]string{"NetworkFunction.name": "upf"}}},
			{Function: &spec.Function{Image: "ghcr.io/kptdev/krm-functions-catalog/set-annotations:v0.1.4", Config: map[string]any{"owner": "core-team"}}, Select: tko.DeploymentSelect{Templates: []string{"workload/**"}}},
			{Package: &spec.Package{Deployment: "abc", Resources: logging}},
			{Delete: true, Select: tko.DeploymentSelect{Parent: "p"}},
		},
		Waves:     []spec.Wave{{Name: "canary", Count: 3, Spread: "region"}, {Name: "tenth", Percent: 10, Spread: "tier", Approval: true}, {Name: "rest"}},
		Limits:    spec.Limits{Concurrent: 200, Per: []spec.Per{{Key: "tac", Max: 5}}, Apart: []string{"redundancy"}, Failures: spec.Failures{Count: &five, Percent: &two}},
		Health:    spec.Health{Within: 15 * time.Minute, Soak: 10 * time.Minute},
		Windows:   spec.Windows{{Days: [7]bool{false, true, true, true}, From: time.Hour, To: 4 * time.Hour, Key: "timezone", Zone: time.UTC}},
		OnFailure: spec.Undo, Unreachable: spec.UnreachableWait, Conflicts: merge.KeepTheirs,
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b *time.Location) bool { return a.String() == b.String() })); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"tac", "redundancy"}, got.Limits.Keys()); diff != "" {
		t.Error(diff)
	}
}

func TestDefaultsAreCautious(t *testing.T) {
	t.Parallel()
	got, err := parse(t, minimal(""))
	if err != nil {
		t.Fatal(err)
	}
	if got.OnFailure != spec.Pause || got.Unreachable != spec.UnreachableWait || got.Conflicts != merge.Fail || got.Limits.Concurrent != spec.DefaultConcurrent || !got.Limits.Failures.Exceeded(1, 20000) || got.Limits.Failures.Exceeded(0, 1) {
		t.Errorf("the defaults are %+v", got)
	}
	if diff := cmp.Diff([]spec.Wave{{Name: "rest", Implicit: true}}, got.Waves); diff != "" {
		t.Error(diff)
	}
	got, err = parse(t, minimal("  waves: [{name: rest, count: 1}]\n  limits: {failures: {percent: 2}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got.Waves[1].Name != "rest-2" || got.Limits.Failures.Count != nil || got.Limits.Failures.Exceeded(2, 100) || !got.Limits.Failures.Exceeded(3, 100) {
		t.Errorf("%+v", got)
	}
}

// Each mistake is refused with its field and what to do.
func TestMistakesAreRefusedWithFieldAndRemedy(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, field, remedy string }{
		"restore without select":    {withRestore(`{asOf: 7}`), "spec.restore.select", "say which ones"},
		"restore of everything":     {withRestore(`{asOf: 7, select: {}}`), "spec.restore.select", "add a filter"},
		"restore to a moving time":  {withRestore(`{asOf: 2h, select: {parent: p}}`), "spec.restore.asOf", "RFC 3339"},
		"restore to no time":        {withRestore(`{select: {parent: p}}`), "spec.restore.asOf", "RFC 3339"},
		"restore by state":          {withRestore(`{asOf: 7, select: {prepared: true}}`), "spec.restore.select", "other filters"},
		"restore and edits":         {withRestore(`{asOf: 7, select: {parent: p}}, edits: [{delete: {}, select: {parent: p}}]`), "spec.edits", "another rollout"},
		"no select":                 {withEdit(`{delete: {}}`), "spec.edits[0].select", "say which ones"},
		"empty select":              {withEdit(`{delete: {}, select: {}}`), "spec.edits[0].select", "add a filter"},
		"empty patterns":            {withEdit(`{delete: {}, select: {templateIdPatterns: []}}`), "spec.edits[0].select.templateIdPatterns", "the list is empty"},
		"empty pattern":             {withEdit(`{delete: {}, select: {siteIdPatterns: [""]}}`), "spec.edits[0].select.siteIdPatterns[0]", "isn't empty"},
		"empty metadata patterns":   {withEdit(`{delete: {}, select: {siteMetadataPatterns: {}}}`), "spec.edits[0].select.siteMetadataPatterns", "the map is empty"},
		"empty parent":              {withEdit(`{delete: {}, select: {parent: ""}}`), "spec.edits[0].select.parent", "isn't empty"},
		"mistyped filter":           {withEdit(`{delete: {}, select: {parent: p, templateIdPattern: [a]}}`), "spec.edits[0].select.templateIdPattern", "did you mean templateIdPatterns?"},
		"number as pattern":         {withEdit(`{delete: {}, select: {siteMetadataPatterns: {a.b: 5}}}`), `spec.edits[0].select.siteMetadataPatterns["a.b"]`, "put it in quotes"},
		"bad pattern":               {withEdit(`{delete: {}, select: {siteIdPatterns: ['a\']}}`), "spec.edits[0].select.siteIdPatterns[0]", `write \\`},
		"two actions":               {withEdit(`{delete: {}, upgrade: {to: a}, select: {parent: p}}`), "spec.edits[0]", "exactly one of"},
		"no action":                 {withEdit(`{select: {parent: p}}`), "spec.edits[0]", "exactly one of"},
		"delete with fields":        {withEdit(`{delete: {all: true}, select: {parent: p}}`), "spec.edits[0].delete.all", "unknown field"},
		"upgrade to nothing":        {withEdit(`{upgrade: {}, select: {parent: p}}`), "spec.edits[0].upgrade.to", "isn't empty"},
		"upgrade to a pattern":      {withEdit(`{upgrade: {to: "a*"}, select: {parent: p}}`), "spec.edits[0].upgrade.to", "use only"},
		"merge of nothing":          {withEdit(`{merge: [{apiVersion: v1, kind: ConfigMap, name: x}], select: {parent: p}}`), "spec.edits[0].merge[0]", "add the resource"},
		"package with select":       {withEdit(`{package: {deployment: d}, select: {parent: p}}`) + "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n", "spec.edits[0].select", "remove select"},
		"package without resources": {withEdit(`{package: {deployment: d}}`), "spec.edits[0].package", "add those"},
		"no edits":                  {withEdit(``), "spec.edits", "the list is empty"},
		"missing edits":             {"apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {}\n", "spec.edits", "is missing"},
		"missing spec":              {"apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\n", "spec", "is missing"},
		"unknown field":             {minimal("  wave: []\n"), "spec.wave", "did you mean waves?"},
		"unknown field of resource": {minimal("spek: 1\n"), "spek", "did you mean spec?"},
		"percent 0":                 {minimal("  waves: [{name: a, percent: 0}]\n"), "spec.waves[0].percent", "more than 0"},
		"percent 101":               {minimal("  waves: [{name: a, percent: 101}]\n"), "spec.waves[0].percent", "at most 100"},
		"percent as text":           {minimal("  waves: [{name: a, percent: 10%}]\n"), "spec.waves[0].percent", "without %"},
		"count 0":                   {minimal("  waves: [{name: a, count: 0}]\n"), "spec.waves[0].count", "at least 1"},
		"count and percent":         {minimal("  waves: [{name: a, count: 1, percent: 1}]\n"), "spec.waves[0]", "remove one"},
		"two waves of a name":       {minimal("  waves: [{name: a, count: 1}, {name: a}]\n"), "spec.waves[1].name", "rename"},
		"wave after the rest":       {minimal("  waves: [{name: a}, {name: b, count: 1}]\n"), "spec.waves[0]", "make it the last wave"},
		"bad approval":              {minimal("  waves: [{name: a, approval: required}]\n"), "spec.waves[0].approval", "Required or None"},
		"concurrent 0":              {minimal("  limits: {concurrent: 0}\n"), "spec.limits.concurrent", "at least 1"},
		"fraction":                  {minimal("  limits: {concurrent: 1.5}\n"), "spec.limits.concurrent", "integer"},
		"per twice":                 {minimal("  limits: {per: [{key: a, max: 1}, {key: a, max: 2}]}\n"), "spec.limits.per[1].key", "remove one"},
		"apart twice":               {minimal("  limits: {apart: [a, a]}\n"), "spec.limits.apart[1]", "remove one"},
		"any number of failures":    {minimal("  limits: {failures: {}}\n"), "spec.limits.failures", "add count or percent"},
		"negative failures":         {minimal("  limits: {failures: {count: -1}}\n"), "spec.limits.failures.count", "at least 0"},
		"within 0":                  {minimal("  health: {within: 0s}\n"), "spec.health.within", "such as 15m"},
		"duration without unit":     {minimal("  health: {soak: 10}\n"), "spec.health.soak", "such as 15m"},
		"window never opens":        {minimal("  windows: [{from: \"01:00\", to: \"01:00\"}]\n"), "spec.windows[0]", "never opens"},
		"window without days":       {minimal("  windows: [{days: [], from: \"01:00\", to: \"02:00\"}]\n"), "spec.windows[0].days", "the list is empty"},
		"no windows":                {minimal("  windows: []\n"), "spec.windows", "the list is empty"},
		"unknown day":               {minimal("  windows: [{days: [Monday], from: \"01:00\", to: \"02:00\"}]\n"), "spec.windows[0].days[0]", "Mon"},
		"time without quotes":       {minimal("  windows: [{from: 01:00, to: 25:00}]\n"), "spec.windows[0].to", "in quotes"},
		"unknown zone":              {minimal("  windows: [{from: \"01:00\", to: \"02:00\", zone: {default: Europe/Berlim}}]\n"), "spec.windows[0].zone.default", "Europe/Berlin"},
		"zone of the server":        {minimal("  windows: [{from: \"01:00\", to: \"02:00\", zone: {default: Local}}]\n"), "spec.windows[0].zone.default", "UTC"},
		"zone without default":      {minimal("  windows: [{from: \"01:00\", to: \"02:00\", zone: {key: timezone}}]\n"), "spec.windows[0].zone.default", "is missing"},
		"bad onFailure":             {minimal("  onFailure: Rollback\n"), "spec.onFailure", "Pause, Undo or Continue"},
		"bad conflicts":             {minimal("  conflicts: Force\n"), "spec.conflicts", "Fail, KeepTheirs or TakeEdit"},
		"limits aren't a map":       {minimal("  limits: 5\n"), "spec.limits", "must be a map"},
		"waves are null":            {minimal("  waves: null\n"), "spec.waves", "must be a list"},
		"unused resource":           {minimal("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n"), "", "no edit uses the resource"},
		"no Rollout":                {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n", "", "exactly one"},
		"two Rollouts":              {minimal("---\n") + minimal(""), "", "exactly one"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			_, err := parse(t, test.text)
			var invalid *tko.InvalidPackageError
			if !errors.As(err, &invalid) || !errors.Is(err, tko.ErrInvalid) {
				t.Fatalf("the error is %v", err)
			}
			for _, f := range invalid.Findings {
				if f.Path == test.field && strings.Contains(f.Reason, test.remedy) {
					return
				}
			}
			t.Errorf("no finding at %q with %q in %v", test.field, test.remedy, err)
		})
	}
}

func withRestore(restore string) string {
	return "apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {restore: " + restore + "}\n"
}

func at(t testing.TB, zone, text string) time.Time {
	t.Helper()
	l, err := time.LoadLocation(zone)
	if err != nil {
		t.Fatal(err)
	}
	moment, err := time.ParseInLocation("2006-01-02 15:04", text, l)
	if err != nil {
		t.Fatal(err)
	}
	return moment
}

func TestWindowsOpenByTheClockOfTheSite(t *testing.T) {
	t.Parallel()
	const night = "  windows: [{days: [Mon], from: \"22:00\", to: \"04:00\", zone: {key: tz, default: UTC}}]\n"
	const early = "  windows: [{days: [Sun], from: \"02:15\", to: \"03:30\", zone: {default: Europe/Berlin}}]\n"
	const hour = "  windows: [{days: [Sun], from: \"02:00\", to: \"02:30\", zone: {default: Europe/Berlin}}]\n"
	tests := map[string]struct {
		why, windows string
		now          time.Time
		site         map[string]string
		open         bool
		next         time.Time
	}{
		"before":             {"", night, at(t, "UTC", "2026-11-23 21:59"), nil, false, at(t, "UTC", "2026-11-23 22:00")},
		"begins":             {"", night, at(t, "UTC", "2026-11-23 22:00"), nil, true, at(t, "UTC", "2026-11-23 22:00")},
		"after midnight":     {"the window belongs to Monday", night, at(t, "UTC", "2026-11-24 03:59"), nil, true, at(t, "UTC", "2026-11-24 03:59")},
		"ends":               {"", night, at(t, "UTC", "2026-11-24 04:00"), nil, false, at(t, "UTC", "2026-11-30 22:00")},
		"Monday morning":     {"that is Sunday's window", night, at(t, "UTC", "2026-11-23 03:00"), nil, false, at(t, "UTC", "2026-11-23 22:00")},
		"zone of the site":   {"", night, at(t, "UTC", "2026-11-23 13:00"), map[string]string{"tz": "Asia/Tokyo"}, true, at(t, "UTC", "2026-11-23 13:00")},
		"unknown zone":       {"the default counts", night, at(t, "UTC", "2026-11-23 13:00"), map[string]string{"tz": "Asia/Tokio"}, false, at(t, "UTC", "2026-11-23 22:00")},
		"spring forward":     {"02:15 doesn't exist: the window opens when the clock goes on", early, at(t, "Europe/Berlin", "2027-03-28 01:59"), nil, false, at(t, "UTC", "2027-03-28 01:15")},
		"spring, inside":     {"", early, at(t, "UTC", "2027-03-28 01:00"), nil, true, at(t, "UTC", "2027-03-28 01:00")},
		"fall back, first":   {"", hour, at(t, "UTC", "2026-10-25 00:10"), nil, true, at(t, "UTC", "2026-10-25 00:10")},
		"fall back, between": {"02:00 comes again", hour, at(t, "UTC", "2026-10-25 00:40"), nil, false, at(t, "UTC", "2026-10-25 01:00")},
		"fall back, second":  {"", hour, at(t, "UTC", "2026-10-25 01:10"), nil, true, at(t, "UTC", "2026-10-25 01:10")},
		"fall back, opens":   {"at the first of two 02:00", "  windows: [{days: [Sun], from: \"02:00\", to: \"00:15\", zone: {key: tz, default: Europe/Berlin}}]\n", at(t, "Europe/Berlin", "2026-10-25 00:30"), nil, false, at(t, "UTC", "2026-10-25 00:00")},
		"no windows":         {"", "", at(t, "UTC", "2026-10-25 01:10"), nil, true, at(t, "UTC", "2026-10-25 01:10")},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			r, err := parse(t, minimal(test.windows))
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Windows.Open(test.now, test.site); got != test.open {
				t.Errorf("open is %t", got)
			}
			if got := r.Windows.NextOpening(test.now, test.site); !got.Equal(test.next) {
				t.Errorf("the next opening is %s, want %s", got.UTC(), test.next.UTC())
			}
		})
	}
	r, err := parse(t, minimal(night))
	if err != nil {
		t.Fatal(err)
	}
	if key, value, ok := r.Windows.UnknownZone(map[string]string{"tz": "Asia/Tokio"}); !ok || key != "tz" || value != "Asia/Tokio" {
		t.Errorf("%q %q %t", key, value, ok)
	}
}

// A window opens at its next opening, and not before.
func TestTheNextOpeningIsTheFirst(t *testing.T) {
	t.Parallel()
	zones := []string{"UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu"}
	begin := at(t, "UTC", "2026-10-20 00:00")
	rapid.Check(t, func(rt *rapid.T) {
		zone, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(rt, "zone"))
		if err != nil {
			rt.Fatal(err)
		}
		w := spec.Window{Zone: zone, From: time.Duration(rapid.IntRange(0, 95).Draw(rt, "from")) * 15 * time.Minute, To: time.Duration(rapid.IntRange(1, 96).Draw(rt, "to")) * 15 * time.Minute}
		if w.From == w.To {
			return
		}
		w.Days[rapid.IntRange(0, 6).Draw(rt, "day")] = true
		windows := spec.Windows{w}
		now := begin.Add(time.Duration(rapid.IntRange(0, 14*96).Draw(rt, "now")) * 15 * time.Minute)
		next := windows.NextOpening(now, nil)
		if next.IsZero() {
			rt.Fatalf("never")
		}
		if !windows.Open(next, nil) {
			rt.Fatalf("closed at %s", next)
		}
		for moment := now; moment.Before(next); moment = moment.Add(15 * time.Minute) {
			if windows.Open(moment, nil) {
				rt.Fatalf("open at %s, before %s", moment.In(zone), next.In(zone))
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(full)
	f.Add(minimal("  waves: {}\n  limits: [a]\n  health: null\n  windows: [[]]\n"))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{Bytes: 1 << 16})
		if err != nil {
			return
		}
		r, err := spec.Parse(p)
		if err != nil {
			if !errors.Is(err, tko.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		if len(r.Edits) == 0 || len(r.Waves) == 0 || !r.Waves[len(r.Waves)-1].Rest() || r.Limits.Concurrent < 1 || r.Health.Within <= 0 {
			t.Fatalf("%+v", r)
		}
	})
}

func TestShareIsOfTheDecimalFraction(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 7, 1000, 20_000, 1_000_000} {
		for tenths := range 1001 {
			if got, want := spec.Share(float64(tenths)/10, n), tenths*n/1000; got != want {
				t.Fatalf("%.1f %% of %d are %d, want %d", float64(tenths)/10, n, got, want)
			}
		}
	}
	third := 32.3
	if budget := (spec.Failures{Percent: &third}); budget.Exceeded(323, 1000) || !budget.Exceeded(324, 1000) {
		t.Error("323 failures of 1,000 are 32.3 %, 324 are more")
	}
}

func TestWindowsOfOwnersHaveNoKeys(t *testing.T) {
	t.Parallel()
	night := map[string]any{"from": "01:00", "to": "04:00", "zone": map[string]any{"default": "Europe/Berlin"}}
	got, err := spec.ParseWindows([]any{night})
	if err != nil || len(got) != 1 || got.Open(time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC), nil) || !got.Open(time.Date(2026, 1, 5, 0, 30, 0, 0, time.UTC), nil) {
		t.Errorf("%+v, %v", got, err)
	}
	for what, one := range map[string]any{
		"key": map[string]any{"from": "01:00", "to": "04:00", "zone": map[string]any{"default": "UTC", "key": "tz"}}, "map": "at night",
		"time": map[string]any{"from": "1", "to": "04:00"}, "open": map[string]any{"from": "04:00", "to": "04:00"},
	} {
		if _, err := spec.ParseWindows([]any{one}); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "window[0]") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

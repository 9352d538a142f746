package plan_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

func specOf(t *testing.T, text string) spec.Rollout {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte("apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {edits: [{delete: {}, select: {siteIdPatterns: ['**']}}], "+text+"}\n"), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Parse(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Each field that names a key of site metadata is checked: a key that no site has is refused.
func TestKeysThatNoSiteHasAreRefused(t *testing.T) {
	t.Parallel()
	fields := map[string]string{
		"spec.waves[0].spread":  "waves: [{name: canary, count: 1, spread: KEY}]",
		"spec.limits.per[0]":    "limits: {per: [{key: KEY, max: 1}]}",
		"spec.limits.apart[0]":  "limits: {apart: [KEY]}",
		"spec.windows[0].zone":  "windows: [{from: '01:00', to: '02:00', zone: {key: KEY, default: UTC}}]",
		"spec.limits.apart[1]":  "limits: {apart: [redundancy, KEY]}",
		"spec.waves[0].spread ": "waves: [{name: canary, count: 1, spread: {key: KEY}}]", //nolint:gocritic // another form of the same field
	}
	site := plan.Site{Metadata: map[string]string{"redundancy": "UTC", "tier": "core"}}
	for path, text := range fields {
		path = strings.TrimSpace(path)
		for key, want := range map[string]string{"redundnacy": `did you mean "redundancy"?`, "rack": "correct the key, or remove it", "redundancy": ""} { //nolint:misspell // on purpose
			if key == "redundancy" && path == "spec.limits.apart[1]" {
				continue // it is there twice
			}
			c := plan.NewChecker(specOf(t, strings.ReplaceAll(text, "KEY", key)))
			if len(c.Warnings(time.Now(), nil)) > 0 || c.Check() != nil {
				t.Errorf("%s: a plan without sites is refused: %v", path, c.Check())
			}
			for i := range 12 {
				c.Site(tko.SiteID(fmt.Sprint("s", i)), site)
			}
			err := c.Check()
			switch {
			case want == "" && err != nil:
				t.Errorf("%s: %v", path, err)
			case want != "" && (!errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), path+": none of the 12 sites") || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), want)):
				t.Errorf("%s with %q: %v", path, key, err)
			}
		}
	}
}

func TestSitesWithoutAKeyAreCountedOrInvalid(t *testing.T) {
	t.Parallel()
	for text, required := range map[string]bool{
		"limits: {apart: [pair]}": false, "limits: {apart: [{key: pair, required: true}]}": true, "limits: {apart: [{key: pair, required: false}]}": false,
		"limits: {per: [{key: pair, max: 1}]}": false, "limits: {per: [{key: pair, max: 1, required: true}]}": true,
		"waves: [{name: c, count: 1, spread: {key: pair, required: true}}]": true, "waves: [{name: c, count: 1, spread: pair}]": false,
		"windows: [{from: '01:00', to: '02:00', zone: {key: pair, default: UTC, required: true}}]": true,
	} {
		c := plan.NewChecker(specOf(t, text))
		findings := 0
		for i := range 6 {
			s := plan.Site{Metadata: map[string]string{"tier": "core"}}
			if i == 0 {
				s.Metadata["pair"] = "UTC"
			}
			if f := c.Site(tko.SiteID(fmt.Sprint("s", i)), s); f != "" {
				findings++
				if !strings.Contains(f, `no metadata "pair", which spec.`) {
					t.Errorf("%s: %s", text, f)
				}
			}
		}
		warnings := strings.Join(c.Warnings(time.Now(), nil), "\n")
		if required != (findings == 5) || required != (warnings == "") || c.Check() != nil {
			t.Errorf("%s: %d findings, %q, %v", text, findings, warnings, c.Check())
		}
		if !required && !strings.Contains(warnings, `5 sites lack the metadata "pair"`) && !strings.Contains(warnings, `"s1", "s2", "s3"`) {
			t.Errorf("%s: %q", text, warnings)
		}
	}
}

func TestPlansWarnOfWhatAReviewerShouldKnow(t *testing.T) {
	t.Parallel()
	night := "windows: [{from: '01:00', to: '03:00', zone: {key: tz, default: UTC}}], waves: [{name: canary, count: 1}, {name: rest}]"
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	deployment := func(metadata ...string) *plan.State {
		d := tko.Deployment{Metadata: map[string]string{}}
		for _, key := range metadata {
			d.Metadata[key] = "x"
		}
		return &plan.State{Deployment: d}
	}
	tests := map[string]struct {
		spec       string
		zones      []string // of the canary, and of the rest
		unreported bool
		before     []string // metadata of the deployment; after it has only tier
		vanished   []tko.DeploymentID
		want       string // "": no warning
	}{
		"nothing":                {spec: night, zones: []string{"UTC", "UTC"}},
		"zones that overlap":     {spec: night, zones: []string{"UTC", "Europe/Berlin"}},
		"zones that never do":    {spec: night, zones: []string{"Asia/Tokyo", "America/Los_Angeles"}, want: `the windows of wave "canary" and wave "rest" are never open at the same time`},
		"no reports of health":   {spec: night, zones: []string{"UTC", "UTC"}, unreported: true, want: "2 deployments are at sites that report no health: start the rollout with --blind"},
		"and that is accepted":   {spec: night + ", health: {none: Accept}", zones: []string{"UTC", "UTC"}, unreported: true},
		"metadata that goes":     {spec: night, zones: []string{"UTC", "UTC"}, before: []string{"tier", "owner"}, want: `2 deployments lose the metadata "owner"`},
		"deployments that went":  {spec: night, zones: []string{"UTC", "UTC"}, vanished: []tko.DeploymentID{"a", "b", "c", "d"}, want: `4 deployments are no longer selected of the former plan, such as "a", "b", "c"`},
		"a window for each wave": {spec: strings.Replace(night, "{from: '01:00'", "{from: '00:00', to: '24:00'}, {from: '01:00'", 1), zones: []string{"Asia/Tokyo", "America/Los_Angeles"}},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			c := plan.NewChecker(specOf(t, test.spec))
			for wave, zone := range test.zones {
				site := tko.SiteID(fmt.Sprint("s", wave))
				if f := c.Site(site, plan.Site{Metadata: map[string]string{"tz": zone}, Unreported: test.unreported}); f != "" {
					t.Error(f)
				}
				c.Row(plan.Draft{Row: plan.Row{Kind: plan.Change}, Site: site, BeforeState: deployment(append(test.before, "tier")...), AfterState: deployment("tier")})
				c.Placed(site, wave)
			}
			if got := strings.Join(c.Warnings(now, test.vanished), "\n"); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

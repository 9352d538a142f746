package cli

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/bundle"
	"github.com/tko-orchestrator/tko/krm"
)

// agentSite returns a site whose agent has a key.
func agentSite(id tko.SiteID, revision int64, key string) tko.Site {
	return tko.Site{ID: id, Stamp: tko.Stamp{Revision: revision}, Package: krm.Package{{
		"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "c"}, "spec": map[string]any{"agent": map[string]any{"key": key}},
	}}}
}

// Site returns one of the sites.
func (f *fake) Site(ctx context.Context, id tko.SiteID, _ int64) (tko.Site, error) {
	for _, s := range f.sites {
		if s.ID == id {
			return s, f.got(ctx, "site %s", id)
		}
	}
	return tko.Site{}, tko.NotFound(tko.KindSite, string(id))
}

// SetConditions records conditions.
func (f *fake) SetConditions(ctx context.Context, kind tko.Kind, id string, conditions []tko.Condition) error {
	texts := values(conditions, func(c tko.Condition) string { return fmt.Sprintf("%s=%s of %d", c.Type, c.Status, c.ObservedRevision) })
	return f.got(ctx, "set %s %s: %s", kind, id, fmt.Sprint(texts...))
}

// report writes the report of an agent, and returns its file.
func report(t *testing.T, key ed25519.PrivateKey, site tko.SiteID, at time.Time, states ...bundle.State) string {
	t.Helper()
	var b bytes.Buffer
	_, err := bundle.Write(&b, bundle.Statement{Site: site, Serial: 7, Time: at}, bundle.Options{Type: bundle.TypeReport, Key: key}, func(yield func(bundle.Row, error) bool) {
		for i := range states {
			if !yield(bundle.Row{State: &states[i]}, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "report")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// healthy returns the state of a deployment that an agent reports as healthy.
func healthy(id string, revision int64) bundle.State {
	return bundle.State{Kind: tko.KindDeployment, ID: id, Revision: revision, Conditions: []bundle.Condition{
		{Type: tko.ConditionDelivered, Status: tko.ConditionTrue, Reason: "Delivered"},
		{Type: tko.ConditionHealthy, Status: tko.ConditionTrue, Reason: "Healthy"},
	}}
}

// An agent can change nothing but Scheduled and Healthy of its own site's entities, of the
// revisions that they have.
func TestAgentsReportOnNothingButTheirOwnSite(t *testing.T) {
	t.Parallel()
	mine, _, err := bundle.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := bundle.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	newer := tko.ReportedCondition(tko.Condition{Type: tko.ConditionHealthy, Status: tko.ConditionFalse, ObservedRevision: 3}, noon.Add(time.Hour))
	serve := func() *fake {
		return &fake{
			sites: []tko.Site{agentSite("ships/7", 2, bundle.PublicText(mine)), agentSite("ships/8", 2, bundle.PublicText(other)), agentSite("unknown", 1, "")},
			deployments: func() []tko.Deployment {
				return []tko.Deployment{
					{ID: "a", Site: "ships/7", Stamp: tko.Stamp{Revision: 3}},
					{ID: "b", Site: "ships/8", Stamp: tko.Stamp{Revision: 3}},
					{ID: "c", Site: "ships/7", Stamp: tko.Stamp{Revision: 3, Conditions: []tko.Condition{newer}}},
				}
			},
		}
	}
	tests := map[string]struct {
		why  string
		file string
		code int
		out  string
		set  string
	}{
		"its own":             {"the revision that it has", report(t, mine, "ships/7", noon, healthy("a", 3)), 0, "written", "set deployment a: Healthy=True of 3"},
		"another revision":    {"nothing is known of a newer one", report(t, mine, "ships/7", noon, healthy("a", 2)), 0, "the server has revision 3", ""},
		"a later revision":    {"an agent can't know it", report(t, mine, "ships/7", noon, healthy("a", 4)), 0, "the server has revision 3", ""},
		"another deployment":  {"the attacker owns the agent of ships/7", report(t, mine, "ships/7", noon, healthy("b", 3)), 0, "no longer at the site", ""},
		"an unknown one":      {"it was deleted meanwhile", report(t, mine, "ships/7", noon, healthy("zzz", 3)), 0, "deleted", ""},
		"older":               {"sticks arrive in any order", report(t, mine, "ships/7", noon, healthy("c", 3)), 0, "has a report of 2026-03-04", ""},
		"another site":        {"the key is of ships/7", report(t, mine, "ships/8", noon, healthy("b", 3)), exitDenied, "", ""},
		"a site without key":  {"nothing is trusted by default", report(t, mine, "unknown", noon, healthy("a", 3)), exitUsage, "", ""},
		"an unknown site":     {"it was deleted", report(t, mine, "nowhere", noon, healthy("a", 3)), exitNotFound, "", ""},
		"a key of the caller": {"the public key of the agent isn't that of the server", report(t, other, "ships/7", noon, healthy("a", 3)), exitDenied, "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := serve()
			r := run(t, f, "", "bundle", "report", test.file, "--write", "-o", "table")
			set := strings.Join(slices.DeleteFunc(f.asked, func(asked string) bool { return !strings.HasPrefix(asked, "set ") }), ", ")
			if r.code != test.code || !strings.Contains(r.out, test.out) || set != test.set {
				t.Errorf("exit code %d, %q, %s%s: %s", r.code, set, r.out, r.err, test.why)
			}
		})
	}
}

package schedule_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
)

// A pullingCluster is a target for clusters that only pulls.
type pullingCluster struct {
	schedule.Clusters

	stage func(name string, p tko.SiteStaging) (state string, err error)
	asked []string
}

func (c *pullingCluster) Schedule(context.Context, krm.Resource, tko.Site, []tko.Deployment, []tko.DeploymentID) (report.Report, error) {
	return report.Report{}, nil
}

func (c *pullingCluster) Stage(_ context.Context, of krm.Resource, p tko.SiteStaging) (tko.SiteStaging, error) {
	c.asked = append(c.asked, of.Name())
	var err error
	p.State, err = c.stage(of.Name(), p)
	p.Text = "at " + of.Name()
	return p, err
}

func (*pullingCluster) Namespace(krm.Resource) string { return "default" }

func (*pullingCluster) Close() {}

func TestSitesPullWhatRolloutsWant(t *testing.T) {
	t.Parallel()
	at := func(names ...string) (all krm.Package) {
		for _, name := range names {
			all = append(all, krm.Resource{"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": name}, "spec": map[string]any{}})
		}
		return all
	}
	git := krm.Package{{"apiVersion": "git.plugin.nephio.org/v1alpha1", "kind": "Repository", "metadata": map[string]any{"name": "r"}, "spec": map[string]any{"url": "/missing.git"}}}
	byState := func(states map[string]string) func(string, tko.SiteStaging) (string, error) {
		return func(name string, _ tko.SiteStaging) (string, error) { return states[name], nil }
	}
	tests := map[string]struct {
		why    string
		pkg    krm.Package
		stage  func(string, tko.SiteStaging) (string, error)
		want   string // state and text; "": nothing is reported
		again  bool
		failed bool
	}{
		"pulled":         {"", at("a"), byState(map[string]string{"a": "Pulled"}), "Pulled at a", false, false},
		"pulling":        {"it is looked at again soon", at("a"), byState(map[string]string{"a": "Pulling"}), "Pulling at a", true, false},
		"two, one pulls": {"all clusters must have the images", at("a", "b"), byState(map[string]string{"a": "Pulling", "b": "Pulled"}), "Pulling at a", true, false},
		"two, one fails": {"", at("a", "b"), byState(map[string]string{"a": "Pulling", "b": "Failed"}), "Failed at b", false, false},
		"no cluster":     {"never staged in silence", git, nil, `Failed nothing can be pulled at site "lagos", because TKO doesn't reach clusters behind the target git`, false, true},
		"an error":       {"it may pass", at("a"), func(string, tko.SiteStaging) (string, error) { return "", errors.New("the program ended") }, "Pulling the program ended", true, false},
		"stopped": {"the rollout knows of the stop", at("a"), func(string, tko.SiteStaging) (string, error) {
			return "", fence.NewError(tko.Errorf(tko.ErrStopped, "stopped"))
		}, "", true, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &records{sites: map[tko.SiteID]tko.Site{"lagos": {ID: "lagos", Package: test.pkg}}, wanted: []tko.SiteStaging{{Site: "lagos", Rollout: "r", Key: "0123", Images: []string{"a:1"}}}}
			c := &pullingCluster{stage: test.stage}
			s := schedule.New(r, &runner{}, schedule.Options{GitCache: t.TempDir(), Kubernetes: func(func(...tko.SiteID)) schedule.Clusters { return c }})
			result := s.Reconcile(t.Context(), "lagos")
			var all []string
			for _, p := range r.staged {
				all = append(all, p.State+" "+p.Text)
				if p.Key != "0123" || p.Rollout != "r" {
					t.Errorf("reports %+v", p)
				}
			}
			got := strings.Join(all, "")
			if !strings.HasPrefix(got, test.want) || test.want == "" && got != "" {
				t.Errorf("%s: reports %q, want %q", test.why, got, test.want)
			}
			if again := result.Outcome == tko.WorkLater && result.Retry > 0 && result.Retry < 10*time.Second; again != test.again || !test.failed && result.Err != nil {
				t.Errorf("%s: %+v", test.why, result)
			}
		})
	}
}

// A pull that isn't wanted any more is removed at all clusters, and only then reported as ended.
func TestSitesRemoveWhatRolloutsNoLongerWant(t *testing.T) {
	t.Parallel()
	cluster := func(name string) krm.Resource {
		return krm.Resource{"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": name}, "spec": map[string]any{}}
	}
	for name, test := range map[string]struct {
		pkg    krm.Package
		states map[string]string // of the clusters
		err    error
		want   string // reported state
	}{
		"removed":                   {krm.Package{cluster("a"), cluster("b")}, map[string]string{"a": "Ended", "b": "Ended"}, nil, "Ended"},
		"the second is unreachable": {krm.Package{cluster("a"), cluster("b")}, map[string]string{"a": "Ended", "b": "Pulling"}, nil, ""},
		"the first is":              {krm.Package{cluster("a"), cluster("b")}, map[string]string{"a": "Pulling", "b": "Ended"}, nil, ""},
		"an error":                  {krm.Package{cluster("a")}, nil, errors.New("the program ended"), ""},
		"no cluster any more":       {nil, nil, nil, "Ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &records{sites: map[tko.SiteID]tko.Site{"lagos": {ID: "lagos", Package: test.pkg}}, wanted: []tko.SiteStaging{{Site: "lagos", Rollout: "r", Key: "0123", Images: []string{"a:1"}, Over: true}}}
			c := &pullingCluster{stage: func(name string, _ tko.SiteStaging) (string, error) { return test.states[name], test.err }}
			s := schedule.New(r, &runner{}, schedule.Options{GitCache: t.TempDir(), Kubernetes: func(func(...tko.SiteID)) schedule.Clusters { return c }})
			result := s.Reconcile(t.Context(), "lagos")
			var all []string
			for _, p := range r.staged {
				all = append(all, p.State)
			}
			got := strings.Join(all, "")
			if again := result.Outcome == tko.WorkLater && result.Retry < 10*time.Second; got != test.want || again != (test.want == "") {
				t.Errorf("reports %q, want %q: %+v", got, test.want, result)
			}
		})
	}
}

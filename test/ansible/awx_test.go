package ansible

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/plugin/awx/awxtest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

var (
	edge = krm.GVK{Group: "edge.plugin.nephio.org", Version: "v1", Kind: "Edge"}
	fill = krm.GVK{Group: "fill.plugin.nephio.org", Version: "v1", Kind: "Fill"}
)

func awxPlugin(s *awxtest.Server, typ, template string, trigger krm.GVK) tko.Plugin {
	return tko.Plugin{
		Type: typ, Name: "ansible", Executor: tko.ExecutorAnsible, Arguments: []string{template}, Triggers: []krm.GVK{trigger},
		Properties: map[string]string{"_awx.host": s.URL, "_awx.username": awxtest.User, "_awx.password": "env:AWX_PASSWORD", "_awx.inventory": "sites"},
	}
}

// startAWX starts a server with a store that survives it, and a client.
func startAWX(t *testing.T, store string) (*process.Server, *client.Client) {
	t.Helper()
	server := process.StartServer(t, "--store=sqlite:"+store, "--remote-addresses=127.0.0.0/8", "--secret-environment=AWX_PASSWORD", "--work-lease=2s", "--retry-max=2s")
	c, err := client.Dial(client.Options{Address: server.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return server, c
}

func resource(kind krm.GVK) krm.Resource {
	return krm.Resource{"apiVersion": kind.APIVersion(), "kind": kind.Kind, "metadata": map[string]any{"name": "it"}}
}

func registerSite(ctx context.Context, c *client.Client, kinds ...krm.GVK) error {
	site := tko.Site{ID: "lagos"}
	for _, kind := range kinds {
		site.Package = append(site.Package, resource(kind))
	}
	_, err := c.RegisterSite(ctx, site)
	return err
}

// wait waits for what a server does, which other programs may slow down.
func wait(t *testing.T, condition func() bool, what string) {
	t.Helper()
	eventually.Within(t, 3*time.Minute, what, func() error {
		if condition() {
			return nil
		}
		return errors.New("not yet")
	})
}

func condition(s tko.Stamp, name string) tko.Condition {
	for _, c := range s.Conditions {
		if c.Type == name {
			return c
		}
	}
	return tko.Condition{}
}

// siteCondition waits until the condition Scheduled of the site has a reason, and returns it.
func siteCondition(t *testing.T, c *client.Client, reason string) (found tko.Condition) {
	t.Helper()
	wait(t, func() bool {
		site, err := c.Site(t.Context(), "lagos", 0)
		if err != nil {
			return false
		}
		found = condition(site.Stamp, tko.ConditionScheduled)
		return found.Reason == reason
	}, "the site's condition Scheduled has the reason "+reason)
	return found
}

// The server is killed while AWX processes its launch: the job exists, and the server has
// not read the response. Its successor follows that job.
func TestServerKilledWhileItLaunchesFollowsThatJob(t *testing.T) {
	t.Setenv("AWX_PASSWORD", awxtest.Password)
	s := awxtest.Start(t, false, awxtest.Template{Name: "apply"})
	var victim atomic.Pointer[process.Server]
	s.AfterLaunch = func() {
		if server := victim.Swap(nil); server != nil {
			server.Kill()
		}
	}
	store := t.TempDir() + "/tko.db"
	server, c := startAWX(t, store)
	victim.Store(server)
	ctx := context.WithoutCancel(t.Context())
	if _, err := c.RegisterPlugin(ctx, awxPlugin(s, "schedule", "apply", edge)); err != nil {
		t.Fatal(err)
	}
	_ = registerSite(ctx, c, edge) // the server may be killed before it responds
	wait(t, func() bool { return victim.Load() == nil }, "the server is killed")
	_, c = startAWX(t, store)
	if got := siteCondition(t, c, "Running"); got.Status != tko.ConditionFalse || !strings.Contains(got.Message, "/#/jobs/playbook/1000/output) is pending") {
		t.Errorf("the condition is %+v", got)
	}
	s.Change(1000, func(j *awxtest.Job) { j.Status = "successful" })
	if got := siteCondition(t, c, "Scheduled"); !strings.Contains(got.Message, "job 1000 of AWX") {
		t.Errorf("the condition is %+v", got)
	}
	if n := s.Launches(); n != 1 {
		t.Errorf("%d jobs were launched, want 1", n)
	}
	if input := string(s.Jobs()[0].Variables["plugin"]); !strings.Contains(input, `"siteId":"lagos"`) || strings.Contains(input, "oken") {
		t.Errorf("the job's input is %s", input)
	}

	// An unchanged site launches nothing, and one that no longer triggers cancels its job.
	if err := c.EnqueueSites(ctx, []tko.SiteID{"lagos"}); err != nil {
		t.Fatal(err)
	}
	before := len(s.Requests())
	wait(t, func() bool { return len(s.Requests()) > before }, "the site is reconciled")
	if n := s.Launches(); n != 1 {
		t.Errorf("an unchanged site launched %d jobs", n-1)
	}
	if err := registerSite(ctx, c, edge, krm.GVK{Group: "settings.example", Version: "v1", Kind: "Settings"}); err != nil {
		t.Fatal(err)
	}
	siteCondition(t, c, "Running")
	if err := registerSite(ctx, c); err != nil {
		t.Fatal(err)
	}
	wait(t, func() bool { return s.Jobs()[1].Status == "canceled" }, "the job is canceled")
}

// The preparer is killed while AWX processes its launch. Its successor follows that job.
func TestPreparerKilledWhileItLaunchesFollowsThatJob(t *testing.T) {
	t.Setenv("AWX_PASSWORD", awxtest.Password)
	s := awxtest.Start(t, false, awxtest.Template{Name: "fill"})
	var victim atomic.Pointer[process.Server]
	s.AfterLaunch = func() {
		if server := victim.Swap(nil); server != nil {
			server.Kill()
		}
	}
	store := t.TempDir() + "/tko.db"
	server, c := startAWX(t, store)
	victim.Store(server)
	ctx := context.WithoutCancel(t.Context())
	if _, err := c.RegisterPlugin(ctx, awxPlugin(s, "prepare", "fill", fill)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RegisterTemplate(ctx, tko.Template{ID: "nf:v1", Package: krm.Package{resource(fill)}}); err != nil {
		t.Fatal(err)
	}
	_, _ = c.CreateDeployment(ctx, tko.NewDeployment{Template: "nf:v1"}) // the server may be killed before it responds
	wait(t, func() bool { return victim.Load() == nil }, "the server is killed")
	_, c = startAWX(t, store)
	var d tko.Deployment
	wait(t, func() bool {
		for found, err := range c.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{Packages: true}) {
			d = found
			return err == nil && condition(d.Stamp, tko.ConditionPrepared).Reason == "Running"
		}
		return false
	}, "the deployment waits for the job")
	s.Change(1000, func(j *awxtest.Job) { j.Status, j.Artifacts = "successful", prepared(d.Package) })
	wait(t, func() bool {
		d, err := c.Deployment(ctx, d.ID, 0)
		return err == nil && d.Prepared
	}, "the deployment is prepared")
	if n := s.Launches(); n != 1 {
		t.Errorf("%d jobs were launched, want 1", n)
	}
}

// prepared returns the artifacts of a job that has prepared a package.
func prepared(pkg krm.Package) map[string]any {
	out := pkg.Clone()
	for _, r := range out {
		if r.GVK() == fill {
			r.SetPrepared()
		}
	}
	return map[string]any{"plugin_output": map[string]any{"prepared": true, "package": out}}
}

func TestJobsThatAreNoLongerWantedAreCanceled(t *testing.T) {
	t.Setenv("AWX_PASSWORD", awxtest.Password)
	s := awxtest.Start(t, false, awxtest.Template{Name: "apply"}, awxtest.Template{Name: "fill"})
	moved := awxtest.Start(t, false, awxtest.Template{Name: "apply"})
	_, c := startAWX(t, t.TempDir()+"/tko.db")
	ctx := t.Context()
	if _, err := c.RegisterTemplate(ctx, tko.Template{ID: "nf:v1", Package: krm.Package{resource(fill)}}); err != nil {
		t.Fatal(err)
	}
	site := func() error {
		_, err := c.RegisterPlugin(ctx, awxPlugin(s, "schedule", "apply", edge))
		return errors.Join(err, registerSite(ctx, c, edge))
	}
	var id tko.DeploymentID
	deployment := func() (err error) {
		_, registerErr := c.RegisterPlugin(ctx, awxPlugin(s, "prepare", "fill", fill))
		id, err = c.CreateDeployment(ctx, tko.NewDeployment{Template: "nf:v1"})
		return errors.Join(registerErr, err)
	}
	for _, test := range []struct {
		why         string
		begin, undo func() error
	}{
		{"the site was deleted", site, func() error {
			_, err := c.DeleteSite(ctx, "lagos")
			return err
		}},
		{"the plugin of the site was deleted", site, func() error {
			_, err := c.DeletePlugin(ctx, "schedule", "ansible")
			return err
		}},
		{"the plugin of the site uses another AWX", site, func() error {
			_, err := c.RegisterPlugin(ctx, awxPlugin(moved, "schedule", "apply", edge))
			return err
		}},
		{"the deployment was deleted", deployment, func() error {
			_, err := c.DeleteDeployment(ctx, id)
			return err
		}},
		{"the plugin of the deployment was deleted", deployment, func() error {
			_, err := c.DeletePlugin(ctx, "prepare", "ansible")
			return err
		}},
		{"the deployment was changed", deployment, func() error {
			m, err := c.StartModification(ctx, id)
			if err != nil {
				return err
			}
			_, _, err = c.EndModification(ctx, m.Token, slices.DeleteFunc(m.Package, func(r krm.Resource) bool { return r.GVK() == fill }))
			return err
		}},
	} {
		before := len(s.Jobs())
		if err := test.begin(); err != nil {
			t.Fatal(err)
		}
		wait(t, func() bool { return len(s.Jobs()) > before }, "a job runs before "+test.why)
		// the condition says so, which is what a change is compared with
		wait(t, func() bool {
			return strings.Contains(messages(ctx, c, id), fmt.Sprintf("job %d of AWX", s.Jobs()[before].ID))
		}, "the condition has the job before "+test.why)
		if err := test.undo(); err != nil {
			t.Fatal(err)
		}
		wait(t, func() bool { return s.Jobs()[before].Status == "canceled" }, "the job is canceled because "+test.why)
		if n := len(s.Jobs()); n != before+1 {
			t.Errorf("%s: %d jobs were launched, want 1", test.why, n-before)
		}
	}
}

// messages returns the messages of the conditions of the site and of a deployment.
func messages(ctx context.Context, c *client.Client, id tko.DeploymentID) string {
	text := ""
	if site, err := c.Site(ctx, "lagos", 0); err == nil {
		text += condition(site.Stamp, tko.ConditionScheduled).Message
	}
	if d, err := c.Deployment(ctx, id, 0); err == nil {
		text += condition(d.Stamp, tko.ConditionPrepared).Message
	}
	return text
}

func TestJobOfAWXPreparesADeployment(t *testing.T) {
	t.Setenv("AWX_PASSWORD", awxtest.Password)
	s := awxtest.Start(t, false, awxtest.Template{Name: "fill", Workflow: true})
	_, c := startAWX(t, t.TempDir()+"/tko.db")
	ctx := t.Context()
	if _, err := c.RegisterPlugin(ctx, awxPlugin(s, "prepare", "workflow:fill", fill)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RegisterTemplate(ctx, tko.Template{ID: "nf:v1", Package: krm.Package{resource(fill)}}); err != nil {
		t.Fatal(err)
	}
	id, err := c.CreateDeployment(ctx, tko.NewDeployment{Template: "nf:v1"})
	if err != nil {
		t.Fatal(err)
	}
	var d tko.Deployment
	wait(t, func() bool {
		var err error
		d, err = c.Deployment(ctx, id, 0)
		return err == nil && strings.Contains(condition(d.Stamp, tko.ConditionPrepared).Message, "workflow job 1000 of AWX")
	}, "the deployment waits for the job")
	node := s.Add(awxtest.Job{Type: "job", Status: "successful", Artifacts: prepared(d.Package)})
	s.Change(1000, func(j *awxtest.Job) { j.Status, j.Nodes = "successful", []int64{node} })
	wait(t, func() bool {
		d, err := c.Deployment(ctx, id, 0)
		return err == nil && d.Prepared
	}, "the deployment is prepared")
	if n := s.Launches(); n != 1 {
		t.Errorf("%d jobs were launched, want 1", n)
	}
}

package grpcapi_test

import (
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/grpcapi/grpctest"
	"github.com/tko-orchestrator/tko/krm"
)

func configMap(value string) krm.Package {
	return krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"key": value}}}
}

func collect[T any](t *testing.T, list iter.Seq2[T, error], text func(T) string) []string {
	t.Helper()
	texts := []string{}
	for e, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text(e))
	}
	return texts
}

// position returns the position of the newest change.
func position(t *testing.T, c *client.Client) tko.AsOf {
	t.Helper()
	about, err := c.About(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tko.AsOf{Position: about.Position}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestReadsAreAsOfAMoment(t *testing.T) {
	t.Parallel()
	c := grpctest.Start(t, client.Options{})
	ctx := t.Context()
	revision, id := must[int64](t), must[tko.DeploymentID](t)
	plugin := tko.Plugin{Type: tko.PluginPrepare, Name: "p", Executor: tko.ExecutorCommand, Arguments: []string{"first"}, Triggers: []krm.GVK{{Group: "example.com", Version: "v1", Kind: "Other"}}}
	revision(c.RegisterTemplate(ctx, tko.Template{ID: "t:v1", Metadata: map[string]string{"kind": "old"}, Package: configMap("first")}))
	revision(c.RegisterSite(ctx, tko.Site{ID: "s", Metadata: map[string]string{"region": "north"}}))
	d := id(c.CreateDeployment(ctx, tko.NewDeployment{Template: "t:v1", Site: "s"}))
	revision(c.RegisterPlugin(ctx, plugin))
	then := position(t, c)
	plugin.Arguments = []string{"second"}
	revision(c.RegisterPlugin(ctx, plugin))
	revision(c.RegisterTemplate(ctx, tko.Template{ID: "t:v1", Metadata: map[string]string{"kind": "new"}, Package: configMap("second")}))
	revision(c.RegisterSite(ctx, tko.Site{ID: "s", Metadata: map[string]string{"region": "south"}}))
	revision(c.RegisterSite(ctx, tko.Site{ID: "s2"}))
	if _, err := c.DeleteDeployment(ctx, d); err != nil {
		t.Fatal(err)
	}
	past := tko.WithAsOf(ctx, then)

	deployments := func(ctx context.Context, sel tko.DeploymentSelect) []string {
		return collect(t, c.Deployments(ctx, sel, tko.ListOptions{Packages: true}), func(d tko.Deployment) string { return string(d.ID) })
	}
	north := map[string]string{"region": "north"}
	for name, one := range map[string]struct{ got, want []string }{
		"deployments now":                    {deployments(ctx, tko.DeploymentSelect{}), []string{}},
		"deployments then":                   {deployments(past, tko.DeploymentSelect{}), []string{string(d)}},
		"by the metadata of sites then":      {deployments(past, tko.DeploymentSelect{SiteMetadata: north, TemplateMetadata: map[string]string{"kind": "old"}}), []string{string(d)}},
		"by the metadata of sites now":       {deployments(past, tko.DeploymentSelect{SiteMetadata: map[string]string{"region": "south"}}), []string{}},
		"sites then, with their deployments": {collect(t, c.Sites(past, tko.SiteSelect{Metadata: north}, tko.ListOptions{Deployments: true}), func(s tko.Site) string { return string(s.ID) + " " + string(s.Deployments[0]) }), []string{"s " + string(d)}},
		"templates then":                     {collect(t, c.Templates(past, tko.TemplateSelect{}, tko.ListOptions{Counts: true}), func(t tko.Template) string { return t.Metadata["kind"] }), []string{"old"}},
		"plugins then":                       {collect(t, c.Plugins(past, tko.PluginSelect{}, tko.ListOptions{}), func(p tko.Plugin) string { return p.Arguments[0] }), []string{"first"}},
	} {
		if diff := cmp.Diff(one.want, one.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}

	if got := must[tko.Deployment](t)(c.Deployment(past, d, 0)); got.Site != "s" || got.Package == nil {
		t.Errorf("the deleted deployment is %+v", got)
	}
	if got := must[tko.Template](t)(c.Template(past, "t:v1", 0)); got.Metadata["kind"] != "old" || len(got.Deployments) != 1 || got.Package[0]["data"].(map[string]any)["key"] != "first" {
		t.Errorf("the template is %+v", got)
	}
	if got := must[tko.Plugin](t)(c.Plugin(past, tko.PluginPrepare, "p")); got.Arguments[0] != "first" {
		t.Errorf("the plugin is %+v", got)
	}
	for name, want := range map[tko.AsOf]error{
		then:                             tko.ErrNotFound,
		{Position: then.Position + 1000}: tko.ErrInvalid,
	} {
		if _, err := c.Site(tko.WithAsOf(ctx, name), "s2", 0); !errors.Is(err, want) {
			t.Errorf("the later site as of %v: %v, want %v", name, err, want)
		}
	}
	if _, err := c.Site(past, "s", 1); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("a revision as of a moment: %v", err)
	}
}

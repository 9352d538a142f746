package grpcapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/grpcapi/grpctest"
	"github.com/tko-orchestrator/tko/krm"
)

const thingCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, kind: Thing}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}]
`

// Whatever a registration accepts with a warning reaches its client, by all methods that write
// packages.
func TestWarningsReachClients(t *testing.T) {
	t.Parallel()
	c := grpctest.Start(t, client.Options{})
	decode := func(text string) krm.Package {
		t.Helper()
		pkg, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return pkg
	}
	ctx := t.Context()
	if _, err := c.RegisterTemplate(ctx, tko.Template{ID: "operator", Package: decode(thingCRD)}); err != nil {
		t.Fatal(err)
	}
	later := decode("{apiVersion: example.com/v1, kind: Thing, metadata: {name: t}, spec: {size: 1, later: 1}}")
	for name, write := range map[string]func() error{
		"a template": func() error { _, err := c.RegisterTemplate(ctx, tko.Template{ID: "t", Package: later}); return err },
		"a site":     func() error { _, err := c.RegisterSite(ctx, tko.Site{ID: "s", Package: later}); return err },
		"a deployment": func() error {
			_, err := c.CreateDeployment(ctx, tko.NewDeployment{Merge: later, Prepared: true})
			return err
		},
		"a put": func() error {
			_, err := c.PutEntity(ctx, tko.Put{Kind: tko.KindSite, ID: "p", Package: later})
			return err
		},
		"a dry run": func() error {
			_, err := c.PutEntity(ctx, tko.Put{Kind: tko.KindSite, ID: "d", Package: later, DryRun: true})
			return err
		},
		"nothing wrong": func() error { _, err := c.RegisterSite(ctx, tko.Site{ID: "good"}); return err },
	} {
		var got []string
		ctx = tko.WithWarnings(t.Context(), func(text string) { got = append(got, text) }) //nolint:fatcontext // each write replaces it
		if err := write(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "nothing wrong" {
			if len(got) > 0 {
				t.Errorf("%s: the warnings are %q", name, got)
			}
			continue
		}
		if len(got) != 1 || !strings.Contains(got[0], "spec.later: unknown property") || !strings.Contains(got[0], `"operator"`) {
			t.Errorf("%s: the warnings are %q", name, got)
		}
	}
	var many []string
	for i := range 50 {
		many = append(many, fmt.Sprintf("later%d: 1", i))
	}
	var got []string
	ctx = tko.WithWarnings(t.Context(), func(text string) { got = append(got, text) })
	pkg := decode("{apiVersion: example.com/v1, kind: Thing, metadata: {name: " + strings.Repeat("t", 2000) + "}, spec: {" + strings.Join(many, ", ") + "}}")
	if _, err := c.RegisterTemplate(ctx, tko.Template{ID: "many", Package: pkg}); err != nil {
		t.Fatal(err)
	}
	if size := len(strings.Join(got, "")); len(got) != 11 || got[10] != "and 40 more warnings" || size > 6000 {
		t.Errorf("%d warnings of %d bytes: %q", len(got), size, got)
	}
}

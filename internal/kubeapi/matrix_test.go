package kubeapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/kubename"
)

// Each verb of each resource of the Kubernetes API, as discovery lists them, subresources
// included, is called by a caller whose scope is a/**, about what is of b/**: nothing changes,
// and nothing of it is in the response. The same call about what is of a/** succeeds. A resource or verb that
// the test doesn't know fails it.

// tenants is a Kubernetes API with a template, a site, and a prepared deployment of each of two
// tenants, whose caller may do everything in a/**, and nothing elsewhere.
type tenants struct {
	*world
	root   context.Context //nolint:containedctx // the administrator's calls
	inA    tko.DeploymentID
	inB    tko.DeploymentID
	marked []string // texts that only b's entities have
}

func newTenants(t *testing.T) *tenants {
	t.Helper()
	w := &tenants{world: newWorldWith(t, catalog.Options{Access: rights.Enforce}, nil)}
	if _, err := rights.InitAccess(t.Context(), w.store, "cert:root", "test", time.Time{}); err != nil {
		t.Fatal(err)
	}
	w.root = identity.With(t.Context(), identity.Identity{Subject: "cert:root", Authenticator: "cert"})
	w.marked = []string{"marked-b"}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, scope := range []access.Scope{{SiteID: "a/**"}, {TemplateID: "a/**", Kinds: []tko.Kind{tko.KindTemplate}}} {
		_, err := w.Bind(w.root, access.Binding{Subject: identity.AnonymousName, Role: access.Delegated, Scope: scope})
		check(err)
	}
	for _, tenant := range []string{"a", "b"} {
		marked := krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "marked-" + tenant}}}
		_, err := w.RegisterTemplate(w.root, tko.Template{ID: tko.TemplateID(tenant + "/t"), Package: marked, Metadata: map[string]string{"of": "marked-" + tenant}})
		check(err)
		_, err = w.RegisterSite(w.root, tko.Site{ID: tko.SiteID(tenant + "/1"), Package: marked, Metadata: map[string]string{"of": "marked-" + tenant}})
		check(err)
		id, err := w.CreateDeployment(w.root, tko.NewDeployment{Template: tko.TemplateID(tenant + "/t"), Site: tko.SiteID(tenant + "/1"), Prepared: true})
		check(err)
		if tenant == "a" {
			w.inA = id
		} else {
			w.inB = id
		}
	}
	_, err := w.RegisterPlugin(w.root, tko.Plugin{Type: "validate", Name: "marked-b", Executor: "command", Arguments: []string{"true"}})
	check(err)
	_, _, err = w.PutRecord(w.root, catalog.Put{Key: record.Key{Kind: tko.KindRollout, ID: "marked-b"}, Package: krm.Package{{"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": "r"}, "spec": map[string]any{
		"edits": []any{map[string]any{"delete": map[string]any{}, "select": map[string]any{"siteIdPatterns": []any{"b/**"}}}},
	}}}})
	check(err)
	return w
}

// name returns the name of an object of a tenant; "" if the resource has none of it.
func (w *tenants) name(resource, tenant string) string {
	escape := func(id string) string {
		name, err := kubename.Escape(id)
		if err != nil {
			w.t.Fatal(err)
		}
		return name
	}
	switch resource {
	case "templates":
		return escape(tenant + "/t")
	case "sites":
		return escape(tenant + "/1")
	case "deployments":
		return map[string]string{"a": string(w.inA), "b": string(w.inB)}[tenant]
	case "plugins":
		return map[string]string{"b": escape("validate/marked-b")}[tenant]
	case "rollouts":
		return map[string]string{"b": "marked-b"}[tenant]
	}
	w.t.Errorf("the resource %q is new: say which object of it each tenant has", resource)
	return ""
}

var kindsOf = map[string]string{"templates": "Template", "sites": "Site", "deployments": "Deployment", "plugins": "Plugin", "rollouts": "Rollout"}

// call makes the requests of a verb about what a tenant has, and returns the codes and bodies.
func (w *tenants) call(resource, verb, tenant string) (codes []int, bodies string) {
	base, sub, isPart := strings.Cut(resource, "/")
	name := w.name(base, tenant)
	path := base + "/" + name
	if isPart {
		path += "/" + sub
	}
	try := func(method, path string, body any, headers ...string) {
		code, got := w.do(method, path, body, headers...)
		codes, bodies = append(codes, code), bodies+fmt.Sprint(got)
	}
	object := func(name string) obj {
		o := obj{"apiVersion": "tko.nephio.org/v1alpha1", "kind": kindsOf[base], "metadata": obj{"name": name, "labels": obj{"x": "1"}}}
		if base == "deployments" {
			o = o.set("spec.siteId", tenant+"/1")
		}
		return o
	}
	changed := `{"metadata":{"labels":{"x":"1"}}}`
	switch sub {
	case "status":
		changed = `{"status":{"conditions":[{"type":"X","status":"True","reason":"X","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
	case "approval":
		changed = `{"status":{"approved":true}}`
	}
	applied := `{"apiVersion":"tko.nephio.org/v1alpha1","kind":"` + kindsOf[base] + `",` + strings.TrimPrefix(changed, "{")
	if !isPart {
		applied = strings.Replace(applied, `"metadata":{`, `"metadata":{"name":"`+name+`",`, 1)
	}
	switch verb {
	case "get":
		try("GET", path, nil)
	case "list":
		try("GET", base, nil)
		try("GET", base+"?fieldSelector=metadata.name="+name, nil)
		try("GET", base+"?labelSelector=of=marked-"+tenant, nil)
	case "create":
		switch made, err := kubename.Escape(tenant + "/new"); {
		case err != nil:
			w.t.Fatal(err)
		case isPart: // a command of a rollout
			try("POST", path, obj{"apiVersion": "tko.nephio.org/v1alpha1", "kind": "RolloutCommand"})
		case base == "deployments":
			try("POST", base, object("").set("metadata.name", nil).set("metadata.generateName", "new-"))
		default:
			try("POST", base, object(made))
		}
	case "update":
		code, now := w.do("GET", base+"/"+name, nil)
		if code != http.StatusOK { // what isn't seen is estimated
			now = object(name).set("metadata.resourceVersion", "1")
		}
		switch sub {
		case "status":
			now = now.set("status.conditions", []any{obj{"type": "X", "status": "True", "reason": "X", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}})
		case "approval":
			now = now.set("status.approved", true)
		default:
			now = now.set("metadata.labels.x", "1")
		}
		try("PUT", path, now)
	case "patch":
		for _, typ := range []string{merge, "application/strategic-merge-patch+json"} {
			try("PATCH", path, changed, "Content-Type", typ)
		}
		if !isPart {
			try("PATCH", path, `[{"op":"add","path":"/metadata/labels","value":{"y":"1"}}]`, "Content-Type", "application/json-patch+json")
		}
		try("PATCH", path+"?fieldManager=m&force=true", applied, "Content-Type", apply)
	case "delete":
		try("DELETE", path+"?dryRun=All", nil)
		try("DELETE", path, nil)
	case "deletecollection":
		try("DELETE", base+"?fieldSelector=metadata.name="+name, nil)
		try("DELETE", base+"?labelSelector=of=marked-"+tenant, nil)
	case "watch":
		request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+group+base+"?watch=true&resourceVersion=0&timeoutSeconds=1", nil)
		if err != nil {
			w.t.Fatal(err)
		}
		if response, err := w.client.Do(request); err == nil {
			body, _ := io.ReadAll(response.Body) // until the server ends the watch
			bodies += string(body)
			codes = append(codes, response.StatusCode)
			_ = response.Body.Close()
		}
	default:
		w.t.Errorf("%s %s: the verb is new: say how it is called", verb, resource)
	}
	return codes, bodies
}

// resources returns the verbs of all resources, as discovery lists them.
func (w *tenants) resources() map[string][]string {
	w.t.Helper()
	all := map[string][]string{}
	list, _ := w.must("GET", strings.TrimSuffix(group, "/"), nil)["resources"].([]any)
	for _, r := range list {
		m, _ := r.(map[string]any)
		verbs, _ := m["verbs"].([]any)
		for _, v := range verbs {
			all[fmt.Sprint(m["name"])] = append(all[fmt.Sprint(m["name"])], fmt.Sprint(v))
		}
	}
	if len(all) < 8+len(tko.RolloutVerbs()) {
		w.t.Fatalf("discovery lists only %d resources", len(all))
	}
	return all
}

func TestEachVerbOfEachResourceStaysInTheScopeOfItsCaller(t *testing.T) {
	t.Parallel()
	foreign := newTenants(t)
	for resource, verbs := range foreign.resources() {
		for _, verb := range verbs {
			before, err := foreign.Position(foreign.root)
			if err != nil {
				t.Fatal(err)
			}
			codes, bodies := foreign.call(resource, verb, "b")
			after, err := foreign.Position(foreign.root)
			if err != nil || after != before {
				t.Errorf("%s %s about b: %v: something has changed (%v): %.300s", verb, resource, codes, err, bodies)
			}
			if len(codes) == 0 {
				t.Errorf("%s %s: it makes no request", verb, resource)
			}
			for _, text := range foreign.marked {
				for _, told := range []string{`"` + text, ":" + text + " ", ":" + text + "]"} {
					if (verb == "list" || verb == "get" || verb == "watch") && strings.Contains(bodies, told) && slices.Contains(codes, http.StatusOK) {
						t.Errorf("%s %s: %v: the response shows what is of b: %.300s", verb, resource, codes, bodies)
					}
				}
			}
			base, _, _ := strings.Cut(resource, "/")
			if base == "plugins" || base == "rollouts" { // they are of no site
				continue
			}
			t.Run(verb+" "+resource, func(t *testing.T) {
				t.Parallel()
				own := newTenants(t)
				before, err := own.Position(own.root)
				if err != nil {
					t.Fatal(err)
				}
				codes, bodies := own.call(resource, verb, "a")
				after, _ := own.Position(own.root)
				writes := verb != "get" && verb != "list" && verb != "watch"
				if slices.ContainsFunc(codes, func(code int) bool { return code >= 300 }) || writes && after == before || !writes && !strings.Contains(bodies, "marked-a") {
					t.Errorf("about a, it does nothing: %v: %.600s", codes, bodies)
				}
			})
		}
	}
}

package planner_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

// canaries is a package with a secret in each form in which packages have one. Each
// value has the words canary and n.
func canaries(n int) string {
	value := fmt.Sprintf("canary-%d", n)
	encoded := base64.StdEncoding.EncodeToString([]byte("..." + value))
	manifest := "apiVersion: v1\nkind: Secret\nmetadata: {name: inner}\nstringData: {p: " + value + "}\n"
	indented := strings.ReplaceAll(manifest, "\n", "\n    ")
	return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata:
  name: plain
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"stringData": {"p": "%[1]s"}}'}
data: {p: %[2]s}
stringData: {q: %[1]s}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: texts
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"apiVersion": "v1", "kind": "Secret", "data": {"p": "%[2]s"}}'}
data:
  number: "%[5]d"
  yaml: |
    %[3]s
  script: |
    kubectl apply -f - <<EOF
    %[3]s
    EOF
  values: |
    db:
      password: %[1]s
  json: '{"apiVersion": "v1", "kind": "Secret", "stringData": {"p": "%[1]s"}}'
binaryData: {manifest: %[4]s}
---
apiVersion: v1
kind: List
metadata: {name: list}
items:
- {apiVersion: v1, kind: Secret, metadata: {name: item}, stringData: {p: %[1]s}}
---
apiVersion: example.org/v1
kind: Wrapper
metadata: {name: wrapper}
spec:
  manifest: {apiVersion: v1, kind: Secret, metadata: {name: wrapped}, stringData: {p: %[1]s}}
  values: {adminPassword: x, db: {password: %[1]s, user: u}, api_key: %[1]s}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: nf}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers:
      - {name: main, image: "nf:%[5]d", env: [{name: DB_PASSWORD, value: %[1]s}]}
`, value, encoded, indented, base64.StdEncoding.EncodeToString([]byte(manifest)), n)
}

// secretForms are what no output may have.
func secretForms() []string {
	forms := []string{"canary-"}
	for _, lead := range []string{"", ".", ".."} { // in base64 at each alignment
		encoded := base64.StdEncoding.EncodeToString([]byte(lead + "canary-"))
		forms = append(forms, encoded[4:8])
	}
	return forms
}

func TestNoSecretIsInADiffAPlanAHistoryABlameOrALog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := w.ctx
	check := func(what string, value any) {
		t.Helper()
		text := fmt.Sprintf("%+v", value)
		for _, form := range secretForms() {
			if at := strings.Index(text, form); at >= 0 {
				t.Errorf("%s has %q: …%s…", what, form, text[max(0, at-200):min(len(text), at+60)])
			}
		}
	}
	w.template("t:v1", canaries(1))
	w.template("t:v2", canaries(2))
	w.site("s", map[string]string{"a": "b"})
	id := w.deploy("t:v1", "", "s")
	position := w.deployment(id).Stamp.Position
	edit := func(n int) {
		for _, one := range read(t, canaries(n)) {
			if one.GVK().Kind != "Deployment" || one.GVK().Group == "apps" {
				for _, field := range []string{"metadata", "data", "stringData", "binaryData", "items", "spec"} {
					if value, ok := one.Get(field); ok {
						w.edit(id, set(t, one.Identity().String(), value, field))
					}
				}
			}
		}
	}
	edit(3)

	groups := 0
	for group, err := range w.DiffPast(ctx, tko.DiffRequest{Select: tko.PastSelect{Kind: tko.KindDeployment}, From: tko.AsOf{Position: position}}) {
		if err != nil {
			t.Fatal(err)
		}
		groups++
		check("the difference since a position", group)
	}
	for group, err := range w.DiffPast(ctx, tko.DiffRequest{Select: tko.PastSelect{Kind: tko.KindDeployment, ID: string(id)}, FromRevision: 1}) {
		if err != nil {
			t.Fatal(err)
		}
		groups++
		if len(group.Changes) < 10 {
			t.Errorf("only %d changes differ", len(group.Changes))
		}
		check("the difference of revisions", group)
	}
	if groups != 2 {
		t.Errorf("%d groups", groups)
	}
	for _, kind := range []tko.Kind{tko.KindDeployment, tko.KindTemplate} {
		for entry, err := range w.HistoryOf(ctx, tko.HistoryRequest{Select: tko.PastSelect{Kind: kind}}) {
			if err != nil {
				t.Fatal(err)
			}
			check("the history", entry)
		}
	}
	blame := func(kind tko.Kind, id, field string) tko.Blame {
		t.Helper()
		b, err := w.Blame(ctx, tko.BlameRequest{Kind: kind, ID: id, Field: field, History: field != ""})
		if err != nil {
			t.Fatal(err)
		}
		check("the blame of "+id+" "+field, b)
		return b
	}
	hidden := 0
	for _, field := range blame(tko.KindDeployment, string(id), "").Fields {
		if field.Hidden {
			hidden++
			blame(tko.KindDeployment, string(id), field.Resource+" "+field.Path)
		}
	}
	if hidden < 14 {
		t.Errorf("only %d fields are hidden", hidden)
	}
	blame(tko.KindTemplate, "t:v1", "")

	status := w.create("r", upgrade)
	check("the status of a rollout with conflicts", status)
	rows := w.changes("r")
	if len(rows) != 1 || !strings.Contains(fmt.Sprint(rows), "set different values") {
		t.Errorf("the rows have no conflict: %+v", rows)
	}
	check("the rows of a rollout with conflicts", rows)
	impact, err := w.TemplateImpact(ctx, tko.TemplateImpactRequest{Template: "t:v1", Package: read(t, canaries(4))})
	if err != nil || len(impact.Groups) != 1 {
		t.Errorf("%+v, %v", impact, err)
	}
	check("the impact of a template", impact)
	w.create("back", fmt.Sprintf("apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {restore: {asOf: %d, select: {deploymentIds: [%s]}}}\n", position, id))
	rows = w.changes("back")
	check("the rows of a restore", rows)
	if len(rows) != 1 || len(rows[0].Changes) < 10 {
		t.Errorf("the rows of the restore are %+v", rows)
	}
	for target, body := range w.web(id, position) {
		check(target, body)
	}
	edit(1) // as in the template
	w.create("r2", strings.ReplaceAll(upgrade, "name: r", "name: r2"))
	rows = w.changes("r2")
	check("the rows of a rollout", rows)
	if len(rows) != 1 || len(rows[0].Changes) < 10 {
		t.Errorf("the rows of the second rollout are %+v", rows)
	}
	plan, err := w.RolloutPlan(ctx, "r2")
	if err != nil {
		t.Fatal(err)
	}
	check("the plan of a rollout", plan)
	if w.deletesWith(id); w.log.Len() == 0 {
		t.Error("nothing is logged")
	}
	check("the log", w.log.String())
}

// deletesWith deletes a deployment, which is logged.
func (w *world) deletesWith(id tko.DeploymentID) {
	w.t.Helper()
	if _, err := w.DeleteDeployment(w.ctx, id); err != nil {
		w.t.Fatal(err)
	}
}

// permitted permits everything.
type permitted struct{ webapi.Watcher }

func (permitted) CanI(context.Context, access.Verb, tko.Kind, string) (bool, error) {
	return true, nil
}

// web returns responses of the HTTP API and of that of dashboards, by path: those about a
// deployment, the template "t:v1", the site "s", and the rollout "back", now and as of a
// position.
func (w *world) web(id tko.DeploymentID, position int64) map[string]string {
	w.t.Helper()
	log := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	mux := http.NewServeMux()
	mux.Handle("/api/", webapi.New(client{w.Service}, nil, log))
	mux.Handle("/api/v1/", webapi.NewLive(webapi.LiveCatalog{
		Catalog: client{w.Service}, Watcher: permitted{}, LiveRollouts: w.Service, Past: w.Service, Reasons: w.Service,
	}, webapi.LiveOptions{Log: log}))
	asOf := fmt.Sprint("asOf=", position)
	targets := []string{
		fmt.Sprintf("/api/v1/diff?kind=deployment&from=%d", position), fmt.Sprintf("/api/v1/diff?kind=deployment&entity=%s&from=%d", id, position),
		"/api/v1/blame?kind=deployment&id=" + string(id), "/api/v1/blame?kind=template&id=t:v1",
		"/api/v1/blame?history=true&kind=deployment&id=" + string(id) + "&field=" + url.QueryEscape(`v1 Secret "plain" data.p`),
		"/api/v1/rollout/status?id=back", "/api/v1/rollout/plan?id=back", "/api/v1/rollout/rows?id=back",
		"/api/blame?kind=deployment&id=" + string(id), "/api/template/impact?id=t:v1", "/api/site/explain?id=s&deployment=" + string(id),
		"/api/rollout/status?id=back",
	}
	for kind, one := range map[tko.Kind]string{tko.KindDeployment: string(id), tko.KindTemplate: "t:v1", tko.KindSite: "s"} {
		v1 := "/api/v1/" + string(kind)
		targets = append(targets, v1+"?id="+one, v1+"?revision=1&id="+one, v1+"?id="+one+"&"+asOf, v1+"/list", v1+"/list?"+asOf, v1+"/count?by=state&"+asOf,
			"/api/"+string(kind)+"/list?"+asOf)
	}
	found := map[string]string{}
	for _, target := range targets {
		response := httptest.NewRecorder()
		mux.ServeHTTP(response, httptest.NewRequest(http.MethodGet, target, nil))
		if response.Code != http.StatusOK || response.Body.Len() < 2 {
			w.t.Errorf("GET %s: status %d: %s", target, response.Code, response.Body)
		}
		found[target] = response.Body.String()
	}
	return found
}

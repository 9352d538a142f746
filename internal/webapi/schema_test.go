package webapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/entitytest"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

// A filledFake is a catalog whose values have each field, or none.
type filledFake struct {
	rolloutFake

	full bool
}

func filled[T any](f *filledFake) (T, error) {
	if f.full {
		value := entitytest.Fill[T]()
		enlarge(reflect.ValueOf(&value).Elem())
		return value, f.err
	}
	var empty T
	return empty, f.err
}

func filledList[T any](f *filledFake) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) { yield(filled[T](f)) }
}

func (f *filledFake) About(context.Context) (tko.About, error) { return filled[tko.About](f) }

func (f *filledFake) Template(context.Context, tko.TemplateID, int64) (tko.Template, error) {
	return filled[tko.Template](f)
}

func (f *filledFake) Site(context.Context, tko.SiteID, int64) (tko.Site, error) {
	return filled[tko.Site](f)
}

func (f *filledFake) Deployment(context.Context, tko.DeploymentID, int64) (tko.Deployment, error) {
	return filled[tko.Deployment](f)
}

func (f *filledFake) Plugin(context.Context, string, string) (tko.Plugin, error) {
	return filled[tko.Plugin](f)
}

func (f *filledFake) Rollout(context.Context, tko.RolloutID, int64) (tko.Rollout, error) {
	return filled[tko.Rollout](f)
}

func (f *filledFake) Templates(context.Context, tko.TemplateSelect, tko.ListOptions) iter.Seq2[tko.Template, error] {
	return filledList[tko.Template](f)
}

func (f *filledFake) Sites(context.Context, tko.SiteSelect, tko.ListOptions) iter.Seq2[tko.Site, error] {
	return filledList[tko.Site](f)
}

func (f *filledFake) Deployments(context.Context, tko.DeploymentSelect, tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	return filledList[tko.Deployment](f)
}

func (f *filledFake) Plugins(context.Context, tko.PluginSelect, tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	return filledList[tko.Plugin](f)
}

func (f *filledFake) Rollouts(context.Context, tko.RolloutSelect, tko.ListOptions) iter.Seq2[tko.Rollout, error] {
	return filledList[tko.Rollout](f)
}

func (f *filledFake) RolloutStatus(context.Context, tko.RolloutID) (tko.RolloutStatus, error) {
	return filled[tko.RolloutStatus](f)
}

func (f *filledFake) RolloutDo(context.Context, tko.RolloutCommand) (tko.RolloutStatus, error) {
	return filled[tko.RolloutStatus](f)
}

func (f *filledFake) RolloutPlan(context.Context, tko.RolloutID) (tko.RolloutPlan, error) {
	return filled[tko.RolloutPlan](f)
}

func (f *filledFake) RolloutRows(context.Context, tko.RolloutRows) iter.Seq2[tko.RolloutRow, error] {
	return filledList[tko.RolloutRow](f)
}

func (f *filledFake) DiffPast(context.Context, tko.DiffRequest) iter.Seq2[tko.PastGroup, error] {
	return filledList[tko.PastGroup](f)
}

func (f *filledFake) HistoryOf(context.Context, tko.HistoryRequest) iter.Seq2[tko.HistoryEntry, error] {
	return filledList[tko.HistoryEntry](f)
}

func (f *filledFake) Retention(context.Context) (tko.Retention, error) {
	return filled[tko.Retention](f)
}

func (f *filledFake) Watch(context.Context, int64, ...tko.Kind) iter.Seq2[tko.Change, error] {
	return func(yield func(tko.Change, error) bool) {
		change, _ := filled[tko.Change](f)
		_ = yield(change, nil) && yield(tko.Change{}, tko.ErrUnavailable) // the stream ends
	}
}

func (f *filledFake) Changes(context.Context, int64, ...tko.Kind) iter.Seq2[tko.Change, error] {
	return filledList[tko.Change](f)
}

func (f *filledFake) BeforeNewest(context.Context, int) (int64, error) { return 0, nil }

func (f *filledFake) CanI(context.Context, access.Verb, tko.Kind, string) (bool, error) {
	return f.full, nil
}

func (f *filledFake) ViewKey(context.Context) (string, error) { return "", nil }

func (f *filledFake) ApproveDeployment(context.Context, tko.DeploymentID) (int, error) { return 1, nil }

func (f *filledFake) ApproveDeployments(context.Context, tko.DeploymentSelect, bool) (int, error) {
	return 1, nil
}

func (f *filledFake) PurgeDeployments(context.Context, tko.DeploymentSelect, bool) (tko.Deleted, error) {
	return filled[tko.Deleted](f)
}

func (f *filledFake) PurgeSites(context.Context, tko.SiteSelect, bool) (tko.Deleted, error) {
	return filled[tko.Deleted](f)
}

func (f *filledFake) PurgeTemplates(context.Context, tko.TemplateSelect, bool) (tko.Deleted, error) {
	return filled[tko.Deleted](f)
}

func (f *filledFake) Remove(context.Context, tko.Kind, []string, bool) (tko.Deleted, error) {
	return filled[tko.Deleted](f)
}

func (f *filledFake) Blame(context.Context, tko.BlameRequest) (tko.Blame, error) {
	b, err := filled[tko.Blame](f)
	for i := range b.Fields {
		b.Fields[i].Origin = 0
	}
	return b, err
}

func (f *filledFake) ExplainSite(context.Context, tko.SiteExplanationRequest) (tko.SiteExplanation, error) {
	return filled[tko.SiteExplanation](f)
}

func (f *filledFake) TemplateImpact(context.Context, tko.TemplateImpactRequest) (tko.TemplateImpact, error) {
	return filled[tko.TemplateImpact](f)
}

func (f *filledFake) PluginRuns(context.Context, tko.Kind, string) (tko.PluginRuns, error) {
	return filled[tko.PluginRuns](f)
}

func (f *filledFake) Views(context.Context) ([]tko.View, error) {
	v, err := filled[tko.View](f)
	return []tko.View{v}, err
}

func (f *filledFake) RegisterViews(context.Context, []tko.View, bool) ([]tko.RegisteredView, error) {
	return nil, f.err
}

func (f *filledFake) DeleteView(context.Context, string) error { return f.err }

func (f *filledFake) CompareSite(context.Context, tko.SiteID) (tko.SiteComparison, error) {
	return filled[tko.SiteComparison](f)
}

// queries are those of requests that need one.
var queries = map[string]string{
	"/api/v1/deployment": "id=x", "/api/v1/site": "id=x", "/api/v1/template": "id=x", "/api/v1/plugin": "id=a%7Cb", "/api/v1/rollout": "id=x",
	"/api/v1/rollout/status": "id=x", "/api/v1/rollout/plan": "id=x", "/api/v1/rollout/rows": "id=x&changes=true",
	"/api/v1/diff": "kind=site&from=2h", "/api/v1/history": "kind=site&id=x", "/api/v1/runs": "kind=site&id=x", "/api/v1/blame": "kind=site&id=x",
}

// FleetAtHand has numbers that are all set, or none.
func (f *filledFake) FleetAtHand(context.Context) (tko.Fleet, bool, error) {
	n := tko.FleetCounts{Total: 9, Failing: 1, Working: 2, Waiting: 1, Healthy: 3, Unknown: 2}
	return tko.Fleet{Position: 7, Time: time.UnixMilli(7), Sites: n, Deployments: n, Waits: []tko.FleetWait{{Kind: tko.KindDeployment, What: tko.WaitsApproval, Count: 1}}}, f.full, nil
}

// bodies are those of requests that write.
var bodies = map[string]string{
	"/api/v1/actions":         `{"verb":"delete","kind":"site","ids":["x"],"dryRun":true}`,
	"/api/v1/rollout/command": `{"id":"x","command":"pause"}`,
	"/api/v1/views":           `{"name":"x","address":"/sites"}`,
}

// Each response has the schema that the description has for its request, whether the entities
// have all of their fields or none, and no field that isn't described.
func TestEachResponseHasTheDescribedSchema(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{false, true} {
		f := &filledFake{full: full}
		day := webapi.NewFleetDay(f)
		stopped, stop := context.WithCancel(t.Context())
		stop()
		if err := day.Run(stopped); err != nil { // it takes the numbers once
			t.Fatal(err)
		}
		handler := webapi.NewLive(webapi.LiveCatalog{Catalog: f, Watcher: f, Actor: f, LiveRollouts: f, Past: f, Reasons: f, Fleets: f, SavedViews: f, Day: day}, webapi.LiveOptions{})
		request := func(method, path string) []byte {
			body := bytes.NewBufferString(bodies[path])
			r := httptest.NewRequestWithContext(t.Context(), method, path+"?"+queries[path], body)
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code != http.StatusOK {
				t.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
			}
			return w.Body.Bytes()
		}
		description := decoded(t, request(http.MethodGet, "/api/v1/openapi.json"))
		closed(description)
		compiler := jsonschema.NewCompiler()
		if err := compiler.AddResource("tko.json", description); err != nil {
			t.Fatal(err)
		}
		paths, _ := description.(map[string]any)["paths"].(map[string]any)
		n := 0
		for path, methods := range paths {
			for method := range methods.(map[string]any) {
				n++
				if path == "/api/v1/stream" {
					continue // TestEventsOfAStreamHaveTheDescribedSchemas
				}
				pointer := "tko.json#/paths/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(path) + "/" + method + "/responses/200/content/application~1json/schema"
				schema, err := compiler.Compile(pointer)
				if err != nil {
					t.Fatal(err)
				}
				response := decoded(t, request(strings.ToUpper(method), path))
				if err := schema.Validate(response); err != nil {
					t.Errorf("%s %s, all fields set: %t: %v", method, path, full, err)
				}
				if path != "/api/v1/openapi.json" { // whose fields are schemas
					exact(t, path, response)
				}
			}
		}
		if n != 34 {
			t.Errorf("%d operations were compared, want 34: count them again", n)
		}
	}
}

func decoded(t *testing.T, data []byte) any {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	return value
}

// closed makes schemas refuse fields that they don't describe: clients ignore them, but this
// test looks for them.
func closed(value any) {
	switch value := value.(type) {
	case map[string]any:
		if value["properties"] != nil {
			value["additionalProperties"] = false
		}
		for _, part := range value {
			closed(part)
		}
	case []any:
		for _, part := range value {
			closed(part)
		}
	}
}

// The data of the events of a stream have the types that the description names.
func TestEventsOfAStreamHaveTheDescribedSchemas(t *testing.T) {
	t.Parallel()
	f := &filledFake{full: true}
	handler := webapi.NewLive(webapi.LiveCatalog{Catalog: f, Watcher: f, Actor: f, LiveRollouts: f, Past: f, Reasons: f, SavedViews: f}, webapi.LiveOptions{})
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/openapi.json", nil))
	description := decoded(t, w.Body.Bytes())
	closed(description)
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("tko.json", description); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil {
		t.Fatal(err)
	}
	var seen []string
	for frame := range strings.SplitSeq(strings.TrimSpace(text.String()), "\n\n") {
		event, data := "", ""
		for line := range strings.SplitSeq(frame, "\n") {
			if name, value, _ := strings.Cut(line, ": "); name == "event" {
				event = value
			} else if name == "data" {
				data = value
			}
		}
		seen = append(seen, event)
		if data == "{}" {
			continue
		}
		schema, err := compiler.Compile("tko.json#/paths/~1api~1v1~1stream/get/responses/200/content/text~1event-stream/schema/x-events/" + event)
		if err != nil {
			t.Fatal(err)
		}
		body := decoded(t, []byte(data))
		if err := schema.Validate(body); err != nil {
			t.Errorf("%s: %v", event, err)
		}
		exact(t, event, body)
	}
	if !slices.Equal(seen, []string{"open", "changes", "bye"}) {
		t.Errorf("the events are %v: %s", seen, &text)
	}
	if _, err := json.Marshal(description); err != nil {
		t.Fatal(err)
	}
}

package webapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/webapi"
	"github.com/tko-orchestrator/tko/krm"
)

var at = time.UnixMilli(1700000000123).UTC()

var stamp = tko.Stamp{Revision: 3, Created: at, Updated: at.Add(time.Second), Conditions: []tko.Condition{
	{Type: "Healthy", Status: "True", Reason: "Fine", LastTransition: at, ObservedRevision: 3},
	{Type: "Prepared", Status: "False", Message: "boom", LastTransition: at, Attempt: 3, NextTry: at.Add(time.Second)},
}}

// A fake has two of everything, and fails where err is set, after the first.
type fake struct {
	err     error
	windows []tko.Window
}

func (f *fake) About(context.Context) (tko.About, error) {
	return tko.About{InstanceName: "n", Version: "v1", Backend: "SQLite", DefaultPackageFormat: krm.CBOR, Position: 7}, f.err
}

var thing = krm.Package{{"apiVersion": "v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}}}

func (f *fake) found(id string, revision int64) (krm.Package, error) {
	switch {
	case f.err != nil:
		return nil, f.err
	case id == "there" && revision == 0:
		return thing, nil
	case id == "there" && revision == 2:
		return nil, nil
	default:
		return nil, tko.NotFound(tko.KindSite, id)
	}
}

func (f *fake) Template(_ context.Context, id tko.TemplateID, revision int64) (tko.Template, error) {
	p, err := f.found(string(id), revision)
	return tko.Template{Package: p}, err
}

func (f *fake) Site(_ context.Context, id tko.SiteID, revision int64) (tko.Site, error) {
	p, err := f.found(string(id), revision)
	return tko.Site{Package: p}, err
}

func (f *fake) Deployment(_ context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	p, err := f.found(string(id), revision)
	return tko.Deployment{Package: p}, err
}

func list[T any](f *fake, options tko.ListOptions, items ...T) iter.Seq2[T, error] {
	f.windows = append(f.windows, options.Window)
	return func(yield func(T, error) bool) {
		for i, item := range items {
			if i > 0 && f.err != nil {
				yield(item, f.err)
				return
			}
			if !yield(item, nil) {
				return
			}
		}
	}
}

func (f *fake) Templates(_ context.Context, _ tko.TemplateSelect, o tko.ListOptions) iter.Seq2[tko.Template, error] {
	first := tko.Template{ID: "t1", Metadata: map[string]string{"a": "<b>"}, Stamp: stamp}
	if o.Deployments {
		first.Deployments = []tko.DeploymentID{"d1"}
	}
	if o.Counts {
		first.DeploymentCount = 1
	}
	return list(f, o, first, tko.Template{ID: "t2", Stamp: stamp})
}

func (f *fake) Sites(_ context.Context, _ tko.SiteSelect, o tko.ListOptions) iter.Seq2[tko.Site, error] {
	return list(f, o, tko.Site{ID: "s1", Template: "t1", Stamp: stamp}, tko.Site{ID: "s2", Stamp: stamp})
}

func (f *fake) Deployments(_ context.Context, s tko.DeploymentSelect, o tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	if s.Outdated != nil && *s.Outdated {
		return list(f, o, tko.Deployment{ID: "d2", Template: "t1", Replaces: []tko.DeploymentID{"d1"}, TemplateRevision: 1, Stamp: stamp})
	}
	return list(f, o, tko.Deployment{ID: "d1", Parent: "d0", Template: "t1", Site: "s1", Prepared: true, Approved: true, Stamp: stamp})
}

func (f *fake) Plugins(_ context.Context, _ tko.PluginSelect, o tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	return list(f, o, tko.Plugin{
		Type: "schedule", Name: "p", Executor: "ansible", Arguments: []string{"job"},
		Properties: map[string]string{"_awx.password": "hunter2", "_awx.host": "h", "password": "shown"},
		Triggers:   []krm.GVK{{Group: "g", Version: "v1", Kind: "K"}}, Stamp: stamp,
	})
}

func get(t *testing.T, f *fake, log io.Writer, method, url string) *httptest.ResponseRecorder {
	t.Helper()
	handler := webapi.New(f, func() []string { return []string{"[::1]:50051"} }, slog.New(slog.NewTextHandler(log, nil)))
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), method, url, nil))
	return recorder
}

func TestEntitiesAreServedAsJSONAndPackagesAsYAML(t *testing.T) {
	t.Parallel()
	const stamped = `"createdTimestamp":1700000000123,"updatedTimestamp":1700000001123,"revision":3,` +
		`"conditions":[{"type":"Healthy","status":"True","reason":"Fine","message":"","lastTransitionTime":"2023-11-14T22:13:20.123Z","observedRevision":3},` +
		`{"type":"Prepared","status":"False","reason":"","message":"boom","lastTransitionTime":"2023-11-14T22:13:20.123Z","observedRevision":0,"attempt":3,"nextTry":"2023-11-14T22:13:21.123Z"}]`
	tests := map[string]struct {
		why, url string
		want     string // JSON, or YAML
		status   int
	}{
		"about": {
			why: "the names are those of existing dashboards", url: "/api/about",
			want: `{"instanceName":"n","instanceDescription":"","tkoVersion":"v1","backend":"SQLite","http":{"addressPorts":["[::1]:50051"]},"grpc":{"addressPorts":[],"defaultPackageFormat":"cbor"},"position":"7"}`,
		},
		"templates": {
			why: "dashboards read these names; lists and maps are never null", url: "/api/template/list",
			want: `[{"id":"t1","metadata":{"a":"<b>"},"deployments":["d1"],"deploymentCount":1,` + stamped + `},{"id":"t2","metadata":{},"deployments":[],"deploymentCount":0,` + stamped + `}]`,
		},
		"templates with counts": {
			why: "which ones a dashboard doesn't need to know", url: "/api/template/list?deployments=count",
			want: `[{"id":"t1","metadata":{"a":"<b>"},"deployments":[],"deploymentCount":1,` + stamped + `},` +
				`{"id":"t2","metadata":{},"deployments":[],"deploymentCount":0,` + stamped + `}]`,
		},
		"unknown value of outdated": {
			why: "a misspelled one must not cost all IDs", url: "/api/site/list?deployments=counts", status: 400,
			want: `{"error":"deployments=\"counts\" is unknown: use ids or count"}`,
		},
		"sites": {
			why: "as templates, with the template", url: "/api/site/list?offset=1&count=5",
			want: `[{"id":"s1","template":"t1","metadata":{},"deployments":[],"deploymentCount":0,` + stamped + `},{"id":"s2","template":"","metadata":{},"deployments":[],"deploymentCount":0,` + stamped + `}]`,
		},
		"deployments": {
			why: "rows have their references and state", url: "/api/deployment/list?count=-1",
			want: `[{"id":"d1","parent":"d0","template":"t1","site":"s1","metadata":{},"prepared":true,"approved":true,` + stamped + `}]`,
		},
		"outdated deployments": {
			why: "a template that was registered again reaches none: they must be found", url: "/api/deployment/list?outdated=true",
			want: `[{"id":"d2","parent":"","template":"t1","site":"","metadata":{},"prepared":false,"approved":false,"templateRevision":1,"replaces":["d1"],` + stamped + `}]`,
		},
		"deployments that are perhaps outdated": {
			why: "a misspelled filter must not list all", url: "/api/deployment/list?outdated=perhaps", status: 400,
			want: `{"error":"outdated=\"perhaps\" is unknown: use true or false"}`,
		},
		"plugins": {
			why: "browsers must not see credentials of executors", url: "/api/plugin/list",
			want: `[{"id":"schedule|p","type":"schedule","name":"p","executor":"ansible","arguments":["job"],` +
				`"properties":{"_awx.host":"h","_awx.password":"[secret]","password":"shown"},"triggers":["g/v1,K"],` + stamped + `}]`,
		},
		"a template's package":   {why: "as manifests are written", url: "/api/template?id=there", want: "apiVersion: v1\nkind: Thing\nmetadata:\n  name: a\n"},
		"a site's package":       {why: "the same", url: "/api/site?id=there", want: "apiVersion: v1\nkind: Thing\nmetadata:\n  name: a\n"},
		"a deployment's package": {why: "the same", url: "/api/deployment?id=there", want: "apiVersion: v1\nkind: Thing\nmetadata:\n  name: a\n"},
		"an earlier revision":    {why: "history can be looked at", url: "/api/site?id=there&revision=2", want: ""},
		"an unknown site":        {why: "said as any error", url: "/api/site?id=nowhere", status: 404, want: `{"error":"site \"nowhere\": not found"}`},
		"no ID":                  {why: "the error has the remedy", url: "/api/site", status: 400, want: `{"error":"there is no ID: add ?id=ID"}`},
		"no number":              {why: "the culprit is named", url: "/api/site/list?offset=many", status: 400, want: `{"error":"offset=\"many\" is not a number, or too large"}`},
		"a negative offset":      {why: "there is nothing before the first", url: "/api/site/list?offset=-1", status: 400, want: `{"error":"offset=-1 is negative: use 0 to start at the beginning"}`},
		"a large count":          {why: "bounded", url: "/api/site/list?count=99999999999", status: 400, want: `{"error":"count=\"99999999999\" is not a number, or too large"}`},
		"an unknown path":        {why: "said as any error", url: "/api/planet/list", status: 404, want: `{"error":"there is no \"/api/planet/list\" in this API"}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.status == 0 {
				test.status = http.StatusOK
			}
			response := get(t, &fake{}, io.Discard, http.MethodGet, test.url)
			got := response.Body.String()
			if response.Code != test.status {
				t.Errorf("status %d, want %d: %s", response.Code, test.status, got)
			}
			if response.Header().Get("Content-Type") == "application/json" {
				got = compact(t, got)
				test.want = compact(t, test.want)
			} else if response.Header().Get("Content-Type") != "application/yaml" {
				t.Errorf("content type %q", response.Header().Get("Content-Type"))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.why, diff)
			}
		})
	}
}

func compact(t *testing.T, text string) string {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	sorted, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(sorted)
}

func TestOffsetAndCountSelectAPartOfAList(t *testing.T) {
	t.Parallel()
	f := &fake{}
	get(t, f, io.Discard, http.MethodGet, "/api/site/list?offset=5&count=10")
	get(t, f, io.Discard, http.MethodGet, "/api/site/list")
	if w := f.windows[0]; w.Offset != 5 || w.Max == nil || *w.Max != 10 {
		t.Errorf("%+v: want 10 after 5", w)
	}
	if w := f.windows[1]; w.Offset != 0 || w.Max == nil || *w.Max >= 0 {
		t.Errorf("%+v: want no limit", w)
	}
}

func TestFaultsAreLoggedAndNotSent(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"/api/about", "/api/site?id=there", "/api/site/list"} {
		var log bytes.Buffer
		response := get(t, &fake{err: errors.New("SELECT secrets FROM database")}, &log, http.MethodGet, url)
		text := response.Body.String()
		if strings.Contains(text, "SELECT") || !strings.Contains(log.String(), "SELECT") {
			t.Errorf("the response to %s is %q and the log %q: want the cause in the log only", url, text, log.String())
		}
		if cut := strings.HasSuffix(url, "list"); cut == json.Valid([]byte(text)) {
			t.Errorf("the response to %s is %q: want a list that was cut short to be invalid JSON", url, text)
		} else if !cut && response.Code != http.StatusInternalServerError {
			t.Errorf("%s: status %d", url, response.Code)
		}
	}
}

func TestErrorKindsHaveHTTPStatuses(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]int{
		tko.ErrInvalid: 400, tko.ErrNotFound: 404, tko.ErrConflict: 409, tko.ErrBusy: 409, tko.ErrDenied: 403, tko.ErrGone: 410, tko.ErrUnavailable: 503,
	} {
		if got := get(t, &fake{err: err}, io.Discard, http.MethodGet, "/api/about").Code; got != want {
			t.Errorf("%v: status %d, want %d", err, got, want)
		}
	}
	doubled := tko.Errorf(tko.ErrInvalid, `site "a": site "a": it is wrong`)
	if text := get(t, &fake{err: doubled}, io.Discard, http.MethodGet, "/api/about").Body.String(); !strings.Contains(text, `"site \"a\": it is wrong"`) {
		t.Errorf("an error names its subject twice: %s", text)
	}
	response := get(t, &fake{}, io.Discard, http.MethodPost, "/api/site/list")
	if text := response.Body.String(); response.Code != http.StatusMethodNotAllowed || !strings.Contains(text, "only reads") {
		t.Errorf("status %d, %s: want an error that this API only reads", response.Code, text)
	}
}

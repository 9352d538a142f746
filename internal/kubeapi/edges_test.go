package kubeapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/changelog"
	"github.com/tko-orchestrator/tko/internal/kubeapi"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/test/eventually"
)

const merge = "application/merge-patch+json"

// A failing catalog returns a configured error, and records the fields that
// lists read.
type failing struct {
	kubeapi.Catalog
	err    atomic.Pointer[error]
	events atomic.Pointer[error]
	fields atomic.Pointer[record.Fields]
}

func (f *failing) fault() error {
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *failing) Position(ctx context.Context) (int64, error) {
	if err := f.fault(); err != nil {
		return 0, err
	}
	return f.Catalog.Position(ctx)
}

func (f *failing) Record(ctx context.Context, fields record.Fields, key record.Key) (record.Record, error) {
	if err := f.fault(); err != nil {
		return record.Record{}, err
	}
	return f.Catalog.Record(ctx, fields, key)
}

func (f *failing) Events(ctx context.Context, kind tko.Kind, after int64) (events []changelog.Event, upTo int64, wait <-chan struct{}, err error) {
	if err := f.events.Load(); err != nil {
		return nil, 0, nil, *err
	}
	return f.Catalog.Events(ctx, kind, after)
}

func (f *failing) Records(ctx context.Context, query record.Query, position int64) iter.Seq2[record.Record, error] {
	f.fields.Store(&query.Fields)
	return f.Catalog.Records(ctx, query, position)
}

// Each kind of error has a status code. The client of an internal error gets an
// ID, and the log contains the cause with that ID.
func TestErrorsBecomeStatusesAndInternalOnesAreLogged(t *testing.T) {
	t.Parallel()
	var f failing
	var l eventually.Buffer
	w := newWorldOf(t, func(s kubeapi.Catalog) kubeapi.Catalog { f.Catalog = s; return &f }, func(o *kubeapi.Options) {
		o.Log = slog.New(slog.NewTextHandler(&l, &slog.HandlerOptions{Level: slog.LevelInfo}))
	})
	w.must("POST", "templates", template("t", nil))
	for err, code := range map[error]int{
		tko.ErrBusy: 429, tko.ErrUnavailable: 503, tko.ErrDenied: 403, tko.ErrNotFound: 404, tko.ErrConflict: 409, tko.ErrGone: 410, tko.ErrInvalid: 422, context.DeadlineExceeded: 504, context.Canceled: 504,
	} {
		wrapped := tko.Errorf(err, "of this kind")
		f.err.Store(&wrapped)
		if got, response := w.do("GET", "templates/t", nil); got != code {
			t.Errorf("%v is %d %v, want %d", err, got, response["message"], code)
		}
	}
	secret := errors.New("password is swordfish")
	f.err.Store(&secret)
	response := w.fails(500, "see the server's log", "GET", "templates/t", nil)
	if strings.Contains(fmt.Sprint(response), "swordfish") || !strings.Contains(l.String(), "swordfish") {
		t.Errorf("got the status %v and the log %s, want the ID in both and the cause only in the log", response, &l)
	}
	w.fails(500, "see the server's log", "GET", "templates", nil)
	if code, text := w.get("/readyz"); code != 500 || !strings.Contains(text, "[-]store failed") {
		t.Errorf("/readyz without a store: %d %s, want it not ready", code, text)
	}
	if code, _ := w.get("/livez"); code != 200 {
		t.Errorf("/livez without a store: %d, want it alive", code)
	}
	f.err.Store(nil)
	w.must("GET", "templates/t", nil)
	for err, code := range map[error]float64{tko.ErrBusy: 503, tko.ErrGone: 410, tko.ErrUnavailable: 503, secret: 500} {
		wrapped := fmt.Errorf("of this kind: %w", err)
		f.events.Store(&wrapped)
		e := w.watch("templates?watch=1&resourceVersion=1")()
		if e.Type != "ERROR" || e.Object.at("code") != code || strings.Contains(fmt.Sprint(e.Object), "swordfish") {
			t.Errorf("%v ends a watch with %v, want %v: a client watches again at once, or lists again if it is Expired", err, e, code)
		}
	}
	if strings.Contains(l.String(), "level=INFO") {
		t.Errorf("the log contains Info records of Kubernetes' libraries: %s", &l)
	}
}

// Requests for metadata or rows only don't read packages.
func TestMetadataAndRowsAreReadWithoutPackages(t *testing.T) {
	t.Parallel()
	var f failing
	w := newWorldOf(t, func(s kubeapi.Catalog) kubeapi.Catalog { f.Catalog = s; return &f })
	w.must("POST", "templates", template("t", nil, configMap("a", nil)))
	tests := map[string]struct {
		query, accept, kind string
		fields              record.Fields
		at, not             string
	}{
		"everything": {accept: "application/json", kind: "TemplateList", fields: record.Fields{Package: true, Deployments: true}, at: "ConfigMap"},
		"metadata": {
			accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", kind: "PartialObjectMetadataList",
			fields: record.Fields{Counts: true}, at: "creationTimestamp", not: "ConfigMap",
		},
		"rows":         {accept: "application/json;as=Table;v=v1;g=meta.k8s.io", kind: "Table", fields: record.Fields{Counts: true}, at: "cells", not: "ConfigMap"},
		"whole rows":   {query: "?includeObject=Object", accept: "application/json;as=Table;v=v1;g=meta.k8s.io", kind: "Table", fields: record.Fields{Package: true, Deployments: true}, at: "ConfigMap"},
		"another kind": {accept: "application/json;as=Table;v=v1;g=other, application/json", kind: "TemplateList", fields: record.Fields{Package: true, Deployments: true}, at: "ConfigMap"},
		"another form": {accept: "text/html;as=Table;v=v1;g=meta.k8s.io, application/json", kind: "TemplateList", fields: record.Fields{Package: true, Deployments: true}, at: "ConfigMap"},
		"rather whole": {accept: "application/json;as=Table;v=v1;g=meta.k8s.io;q=0.1, application/json", kind: "TemplateList", fields: record.Fields{Package: true, Deployments: true}, at: "ConfigMap"},
		"protobuf":     {accept: "application/vnd.kubernetes.protobuf,application/json", kind: "TemplateList", fields: record.Fields{Package: true, Deployments: true}, at: "ConfigMap"},
	}
	for name, test := range tests {
		response := w.must("GET", "templates"+test.query, nil, "Accept", test.accept)
		text := fmt.Sprint(response)
		if response.text("kind") != test.kind || !strings.Contains(text, test.at) || test.not != "" && strings.Contains(text, test.not) {
			t.Errorf("%s: %s", name, text)
		}
		if got := *f.fields.Load(); got != test.fields {
			t.Errorf("%s reads the fields %+v, want %+v", name, got, test.fields)
		}
	}
	for accept, want := range map[string]int{
		"application/vnd.kubernetes.protobuf":                                                     http.StatusNotAcceptable,
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1":     http.StatusOK,
		"application/vnd.kubernetes.protobuf, application/cbor":                                   http.StatusNotAcceptable,
		"application/vnd.kubernetes.protobuf;stream=watch, application/json;stream=watch;q=0.9":   http.StatusOK,
		"application/vnd.kubernetes.protobuf;as=Other;g=meta.k8s.io;v=v1, application/json;q=0.5": http.StatusOK,
	} {
		if got, header := w.header("GET", group+"templates", "Accept", accept); got != want {
			t.Errorf("Accept %s: got %d %s, want %d", accept, got, header.Get("Content-Type"), want)
		}
	}
}

// Integers, owners and metadata that can't be a label survive an update.
func TestUpdatesPreserveIntegersOwnersAndMetadata(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	deployment := obj{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": obj{"name": "a"}, "spec": obj{"replicas": 3}}
	made := w.must("POST", "templates", template("t", nil, deployment, configMap("b", nil)))
	stored, err := w.Template(t.Context(), "t", 0)
	if err != nil {
		t.Fatal(err)
	}
	if spec, _ := stored.Package[0]["spec"].(map[string]any); fmt.Sprintf("%T", spec["replicas"]) != "int64" {
		t.Errorf("the number 3 became a %T, want an integer", spec["replicas"])
	}
	owners := []any{obj{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "00000000-0000-0000-0000-000000000001"}}
	made = w.must("PUT", "templates/t", made.set("metadata.ownerReferences", owners))
	if got, _ := w.must("GET", "templates/t", nil).at("metadata.ownerReferences").([]any); len(got) != 1 {
		t.Errorf("got the owners %v", got)
	}
	w.fails(422, "metadata.finalizers", "PUT", "templates/t", made.set("metadata.finalizers", []any{"a.example/b"}))

	long := strings.Repeat("/", 60) // escaped, longer than a label may be
	if _, err := w.RegisterTemplate(t.Context(), tko.Template{ID: "long", Metadata: map[string]string{"long": long, "short": "1"}}); err != nil {
		t.Fatal(err)
	}
	shown := w.must("GET", "templates/long", nil)
	if diff := cmp.Diff(any(map[string]any{"short": "1"}), shown.at("metadata.labels")); diff != "" {
		t.Error(diff)
	}
	w.must("PUT", "templates/long", shown.set("metadata.labels.short", "2"))
	if stored, err = w.Template(t.Context(), "long", 0); err != nil || !cmp.Equal(stored.Metadata, map[string]string{"long": long, "short": "2"}) {
		t.Errorf("got the metadata %v, %v, want it unchanged, as it can't be a label", stored.Metadata, err)
	}
	w.fails(422, "metadata.labels", "POST", "plugins", obj{
		"kind": "Plugin", "apiVersion": "tko.nephio.org/v1alpha1", "metadata": obj{"name": "validate-007ca", "labels": obj{"a b": "c"}}, "spec": obj{"arguments": []any{"true"}},
	})
}

// Requests for missing objects, and for other UIDs and versions, fail.
func TestRequestsForMissingObjectsAndOtherVersionsFail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const other = "00000000-0000-0000-0000-000000000001"
	made := w.must("POST", "templates", template("t", nil))
	w.fails(409, "uid", "PUT", "templates/t", made.set("metadata.uid", other))
	w.fails(404, "not found", "PUT", "templates/gone", made.set("metadata.name", "gone").set("spec.templateId", "gone"))
	gone := "apiVersion: tko.nephio.org/v1alpha1\nkind: Template\nmetadata: {name: gone%s}\n"
	w.fails(409, "uid mismatch", "PATCH", "templates/gone?fieldManager=x", fmt.Sprintf(gone, ", uid: "+other), "Content-Type", apply)
	w.fails(409, "not found, and an object with a uid", "PATCH", "templates/gone?fieldManager=x", fmt.Sprintf(gone, ", resourceVersion: '1'"), "Content-Type", apply)
	w.must("PATCH", "templates/gone?fieldManager=x", fmt.Sprintf(gone, ""), "Content-Type", apply)
	w.fails(400, "resourceVersion should not be set", "POST", "templates", template("new", nil).set("metadata.resourceVersion", "1"))
	w.fails(400, "not one of TKO", "GET", "templates?resourceVersion=x", nil)
	for _, path := range []string{"templates/t?resourceVersion=1000", "templates?resourceVersion=1000", "templates?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=1000"} {
		response := w.fails(504, "Too large resource version", "GET", path, nil)
		if response.text("reason") != "Timeout" {
			t.Errorf("%s: %v", path, response)
		}
	}
}

// Deployments are selected by each of their fields, and their rows have the
// reason why they wait.
func TestDeploymentsAreSelectedByFieldAndRowsHaveReasons(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must("POST", "templates", template("t/1", nil))
	w.must("POST", "templates", template("t/2", nil))
	for _, site := range []string{"s/1", "s/2"} {
		w.must("POST", "sites", obj{"kind": "Site", "apiVersion": "tko.nephio.org/v1alpha1", "spec": obj{"siteId": site}})
	}
	create := func(spec obj) string {
		t.Helper()
		return w.must("POST", "deployments", obj{"kind": "Deployment", "apiVersion": "tko.nephio.org/v1alpha1", "spec": spec}).text("metadata.name")
	}
	one, two := create(obj{"templateId": "t/1", "siteId": "s/1"}), create(obj{"templateId": "t/2", "siteId": "s/2"})
	child := create(obj{"parentDeploymentId": one})
	flag := func(id, annotation string) {
		t.Helper()
		d, err := w.Deployment(t.Context(), tko.DeploymentID(id), 0)
		if err != nil {
			t.Fatal(err)
		}
		d.Package[len(d.Package)-1].SetAnnotation(annotation, "true")
		if _, err := w.CommitDeployment(t.Context(), tko.DeploymentCommit{ID: d.ID, Revision: d.Stamp.Revision, Package: d.Package}); err != nil {
			t.Fatal(err)
		}
	}
	flag(one, "nephio.org/prepared")
	flag(two, "nephio.org/prepared")
	for path, code := range map[string]int{one: 200, child: 422} {
		if got, response := w.do("PATCH", "deployments/"+path+"/approval?dryRun=All", `{"status":{"approved":true}}`, "Content-Type", merge); got != code {
			t.Errorf("approving %s as a dry run: %d %v, want %d", path, got, response["message"], code)
		}
	}
	w.must("PATCH", "deployments/"+two+"/approval", `{"status":{"approved":true}}`, "Content-Type", merge)
	tests := map[string][]string{
		"spec.templateId=t/*":                      {one, two},
		"spec.templateId=t/2":                      {two},
		"spec.siteId=s/1":                          {one},
		"spec.siteId!=s/1":                         {two, child},
		"spec.parentDeploymentId=" + one:           {child},
		"spec.parentDeploymentId=":                 {one, two},
		"spec.deploymentId=" + two:                 {two},
		"status.prepared=true":                     {one, two},
		"status.prepared=false":                    {child},
		"status.approved=true":                     {two},
		"status.approved=false":                    {one, child},
		"status.approved=false,spec.siteId=s/1":    {one},
		"status.prepared=true,spec.templateId=t/1": {one},
	}
	for selector, want := range tests {
		slices.Sort(want)
		if got := w.must("GET", "deployments?fieldSelector="+selector, nil).names(); !cmp.Equal(got, want) {
			t.Errorf("%s selects %v, want %v", selector, got, want)
		}
	}
	w.fails(400, "status.prepared", "GET", "deployments?fieldSelector=status.prepared=maybe", nil)

	if err := w.SetConditions(t.Context(), tko.KindDeployment, child, []tko.Condition{
		{Type: tko.ConditionHealthy, Status: tko.ConditionFalse, Reason: "Sick"},
		{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: "Waits", Message: "for it"},
		{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, ObservedRevision: 7},
	}); err != nil {
		t.Fatal(err)
	}
	for selector, want := range map[string][]string{
		"status.conditions.Healthy=False":                                  {child},
		"status.conditions.Prepared=False:Waits":                           {child},
		"status.conditions.Prepared=False:Other":                           {},
		"status.conditions.Scheduled!=True":                                {one, two},
		"status.conditions.Healthy=False,status.conditions.Scheduled=True": {child},
	} {
		slices.Sort(want)
		if got := w.must("GET", "deployments?fieldSelector="+selector, nil).names(); !slices.Equal(got, want) {
			t.Errorf("%s selects %v, want %v", selector, got, want)
		}
	}
	w.fails(400, "use True, False or Unknown", "GET", "deployments?fieldSelector=status.conditions.Healthy=Flase", nil)
	table := w.must("GET", "deployments/"+child, nil, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	rows, _ := table["rows"].([]any)
	row, _ := rows[0].(map[string]any)
	cells, _ := row["cells"].([]any)
	cells[7] = "age"
	if got := fmt.Sprint(cells); got != fmt.Sprintf("[%s   false false True Waits age false %s 1 for it]", child, one) {
		t.Errorf("the row is %s, want the reason of the first condition that is not True", got)
	}
	for _, c := range w.must("GET", "deployments/"+child, nil).at("status.conditions").([]any) {
		m, _ := c.(map[string]any)
		if m["type"] == tko.ConditionScheduled && (m["reason"] != "Unknown" || m["observedGeneration"] != 7.0) {
			t.Errorf("a condition without a reason became %v", m)
		}
	}
	w.must("PATCH", "deployments/"+child+"/status",
		`{"status":{"conditions":[{"type":"Mine","status":"True","reason":"x","message":"","observedGeneration":5,"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, "Content-Type", merge)
	if d, err := w.Deployment(t.Context(), tko.DeploymentID(child), 0); err != nil || d.Stamp.Conditions[slices.IndexFunc(d.Stamp.Conditions, func(c tko.Condition) bool { return c.Type == "Mine" })].ObservedRevision != 5 {
		t.Errorf("got the conditions %v, %v, want the observed revision preserved", d.Stamp.Conditions, err)
	}

	for status, reason := range map[string]string{tko.ConditionTrue: "Going", tko.ConditionFalse: ""} {
		if err := w.SetConditions(t.Context(), tko.KindSite, "s/2", []tko.Condition{{Type: tko.ConditionDeleting, Status: status, Reason: "Going"}}); err != nil {
			t.Fatal(err)
		}
		table := w.must("GET", "sites/s-002f2", nil, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		rows, _ := table["rows"].([]any)
		row, _ := rows[0].(map[string]any)
		if cells, _ := row["cells"].([]any); cells[5] != reason {
			t.Errorf("the reason of a deployment in deletion (%s) is %v, want %q", status, cells[5], reason)
		}
	}

	// The creation by client-side apply is refused for each field manager.
	w.fails(422, "apply never creates", "POST", "deployments?fieldManager=flux", obj{
		"kind": "Deployment", "apiVersion": "tko.nephio.org/v1alpha1", "metadata": obj{"annotations": obj{"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
	})
	// The deletion of a parent warns of its descendants, and deleting a
	// descendant in the same request is not an error.
	if _, header := w.header("DELETE", group+"deployments/"+one+"?dryRun=All"); !strings.Contains(header.Get("Warning"), "1 descendants") {
		t.Errorf("got the warning %q", header.Get("Warning"))
	}
	w.must("DELETE", "deployments", nil)
	if left := w.must("GET", "deployments", nil).names(); len(left) != 0 {
		t.Errorf("got the remaining deployments %v, want none", left)
	}
}

// header makes a request and returns the code and the header.
func (w *world) header(method, path string, headers ...string) (int, http.Header) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := w.client.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		w.t.Fatal(err)
	}
	return response.StatusCode, response.Header
}

// A watcher far behind gets all events, records without a name are skipped, and
// an idle watcher gets bookmarks.
func TestWatchersFarBehindGetAllEventsAndBookmarks(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *kubeapi.Options) { o.Bookmarks = 20 * time.Millisecond })
	write := func(id string) {
		t.Helper()
		if _, err := w.RegisterTemplate(t.Context(), tko.Template{ID: tko.TemplateID(id)}); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	from := w.must("GET", "templates", nil).text("metadata.resourceVersion")
	live := w.watch("templates?watch=1&resourceVersion=" + from)
	marked := w.watch("templates?watch=1&allowWatchBookmarks=true&labelSelector=none&resourceVersion=" + from)
	unmarked := w.watch("templates?watch=1&fieldSelector=metadata.name=t599&resourceVersion=" + from)
	write("no" + strings.Repeat("/", 60))
	const n = 600 // more than the hub caches
	follow := func(next func() event) {
		t.Helper()
		for i := range n {
			if e := next(); e.Type != "ADDED" || e.Object.text("metadata.name") != fmt.Sprintf("t%03d", i) {
				t.Fatalf("event %d is %s %s", i, e.Type, e.Object.text("metadata.name"))
			}
		}
	}
	for i := range n {
		write(fmt.Sprintf("t%03d", i))
	}
	follow(live)
	follow(w.watch("templates?watch=1&resourceVersion=" + from))
	if e := unmarked(); e.Type != "ADDED" || e.Object.text("metadata.name") != "t599" {
		t.Errorf("got %v without requesting bookmarks", e)
	}
	head := w.must("GET", "templates", nil).text("metadata.resourceVersion")
	for {
		e := marked()
		if e.Type != "BOOKMARK" || e.Object.text("kind") != "Template" {
			t.Fatalf("%v, want a bookmark", e)
		}
		if e.Object.text("metadata.resourceVersion") == head {
			break
		}
	}
	whole := w.watch("templates?watch=1&fieldSelector=metadata.name=first")
	if e := whole(); e.Type != "ADDED" || e.Object.text("metadata.name") != "first" {
		t.Errorf("got %v first, want the existing object, as there was no resourceVersion", e)
	}
}

// A list continues even if all its objects were deleted meanwhile.
func TestPagesContinueAfterTheirObjectsAreDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"a", "b", "c"} {
		if _, err := w.RegisterTemplate(t.Context(), tko.Template{ID: tko.TemplateID(id)}); err != nil {
			t.Fatal(err)
		}
	}
	first := w.must("GET", "templates?limit=1", nil)
	w.must("DELETE", "templates", nil)
	rest := w.must("GET", "templates?limit=5&continue="+first.text("metadata.continue"), nil)
	if got := strings.Join(append(first.names(), rest.names()...), " "); got != "a b c" {
		t.Errorf("listed %s", got)
	}
}

// The server serves all addresses until it ends, and then ends watches.
func TestServerServesAllAddressesAndEndsWatches(t *testing.T) {
	t.Parallel()
	var addresses []net.Addr
	var watching func() error
	t.Run("serves", func(t *testing.T) {
		w := newWorld(t, func(o *kubeapi.Options) {
			for _, l := range o.Listeners {
				addresses = append(addresses, l.Addr())
			}
		})
		for _, a := range addresses {
			w.url = "https://" + a.String()
			w.must("GET", "templates", nil)
		}
		request, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, w.url+group+"templates?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := w.client.Do(request) //nolint:bodyclose // closed below
		if err != nil {
			t.Fatal(err)
		}
		body := response.Body
		watching = func() error {
			_, err := io.Copy(io.Discard, body)
			return errors.Join(err, body.Close())
		}
	})
	if err := watching(); err != nil {
		t.Errorf("the watch was cut off: %v", err)
	}
	for _, a := range addresses {
		if conn, err := net.Dial("tcp", a.String()); err == nil {
			conn.Close()
			t.Errorf("%s is still served", a)
		}
	}
}

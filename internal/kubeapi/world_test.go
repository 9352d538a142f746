package kubeapi_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/kubeapi"
	"github.com/tko-orchestrator/tko/internal/kubeapi/remote"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/sibling/siblingtest"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/turn"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A world is a Kubernetes API server with its own catalog.
type world struct {
	*catalog.Service
	t      *testing.T
	store  record.Store
	url    string
	client *http.Client
}

func newWorld(t *testing.T, change ...func(*kubeapi.Options)) *world {
	t.Helper()
	return newWorldOf(t, nil, change...)
}

// newWorldOf serves a catalog that wraps the world's own.
func newWorldOf(t *testing.T, around func(kubeapi.Catalog) kubeapi.Catalog, change ...func(*kubeapi.Options)) *world {
	t.Helper()
	return newWorldWith(t, catalog.Options{}, around, change...)
}

// newWorldWith serves a catalog with options.
func newWorldWith(t *testing.T, of catalog.Options, around func(kubeapi.Catalog) kubeapi.Catalog, change ...func(*kubeapi.Options)) *world {
	t.Helper()
	store, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	validator, err := validate.New(validate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	service := catalog.New(store, validator, of)
	sockets, err := config.Listen(t.Context(), "localhost:0", "dual")
	if err != nil {
		t.Fatal(err)
	}
	// The catalog is in another process, as in tko-kubernetes.
	served := kubeapi.Catalog(remote.New(t.Context(), siblingtest.Connect(t, remote.Methods(service, turn.New()))))
	if around != nil {
		served = around(served)
	}
	options := kubeapi.Options{Listeners: sockets, Trusting: true}
	for _, c := range change {
		c(&options)
	}
	server, err := kubeapi.New(t.Context(), served, options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(func() {
		transport.CloseIdleConnections() // the server waits for connections that were never used
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &world{Service: service, t: t, store: store, url: "https://" + sockets[0].Addr().String(), client: &http.Client{Transport: transport}}
}

const group = "/apis/tko.nephio.org/v1alpha1/"

// An obj is a JSON object.
type obj map[string]any

// at returns the value at a dotted path.
func (o obj) at(path string) any {
	var value any = map[string]any(o)
	for key := range strings.SplitSeq(path, ".") {
		m, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = m[key]
	}
	return value
}

func (o obj) text(path string) string {
	s, _ := o.at(path).(string)
	return s
}

func (o obj) items() []obj {
	var list []obj
	items, _ := o["items"].([]any)
	for _, i := range items {
		m, _ := i.(map[string]any)
		list = append(list, m)
	}
	return list
}

func (o obj) names() []string {
	names := []string{}
	for _, i := range o.items() {
		names = append(names, i.text("metadata.name"))
	}
	return names
}

// set returns a copy with another value at a dotted path.
func (o obj) set(path string, value any) obj {
	o.at(path)
	text, _ := json.Marshal(o)
	var c map[string]any
	_ = json.Unmarshal(text, &c)
	m := c
	keys := strings.Split(path, ".")
	for _, key := range keys[:len(keys)-1] {
		next, ok := m[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[key] = next
		}
		m = next
	}
	m[keys[len(keys)-1]] = value
	return c
}

// do makes a request below the API group. The body is text or an object.
func (w *world) do(method, path string, body any, headers ...string) (int, obj) {
	w.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			w.t.Fatal(err)
		}
		reader = bytes.NewReader(text)
	}
	if !strings.HasPrefix(path, "/") {
		path = group + path
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), eventually.Limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, w.url+path, reader)
	if err != nil {
		w.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := w.client.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	status := obj{}
	if err := json.Unmarshal(text, &status); err != nil && strings.HasPrefix(path, group) {
		w.t.Fatalf("%s %s: %d %s", method, path, response.StatusCode, text)
	}
	return response.StatusCode, status
}

// get returns the code and the text at a path.
func (w *world) get(path string) (int, string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), eventually.Limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	response, err := w.client.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// must makes a request that must succeed.
func (w *world) must(method, path string, body any, headers ...string) obj {
	w.t.Helper()
	code, status := w.do(method, path, body, headers...)
	if code/100 != 2 {
		w.t.Fatalf("%s %s: %d %v", method, path, code, status["message"])
	}
	return status
}

// fails makes a request that must fail with a code and a message that contains
// text.
func (w *world) fails(code int, message string, method, path string, body any, headers ...string) obj {
	w.t.Helper()
	got, status := w.do(method, path, body, headers...)
	if got != code || !strings.Contains(status.text("message"), message) {
		w.t.Fatalf("%s %s: %d %q, want %d and %q", method, path, got, status["message"], code, message)
	}
	return status
}

// An event is an event of a watch.
type event struct {
	Type   string
	Object obj
}

// watch starts a watch. next waits for its next event.
func (w *world) watch(path string) (next func() event) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), eventually.Limit)
	w.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+group+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	response, err := w.client.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { response.Body.Close() })
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		w.t.Fatalf("watch %s: %s", path, text)
	}
	lines := json.NewDecoder(bufio.NewReader(response.Body))
	return func() event {
		w.t.Helper()
		var e event
		if err := lines.Decode(&e); err != nil {
			w.t.Fatal(err)
		}
		return e
	}
}

func template(id string, labels obj, resources ...any) obj {
	return obj{"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Template", "metadata": obj{"labels": labels}, "spec": obj{"templateId": id, "package": obj{"resources": resources}}}
}

func configMap(name string, data obj) obj {
	return obj{"apiVersion": "v1", "kind": "ConfigMap", "metadata": obj{"name": name}, "data": data}
}

package catalog_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// A world is a catalog on a store of its own.
type world struct {
	claims map[string]tko.WorkItem // of sources, by name
	*catalog.Service
	t         *testing.T
	ctx       context.Context
	store     record.Store
	validator *validator
}

func newWorld(t *testing.T, options catalog.Options) *world {
	t.Helper()
	store := openStore(t)
	v := &validator{}
	return &world{Service: catalog.New(store, v, options), t: t, ctx: t.Context(), store: store, validator: v}
}

// A validator refuses resources with spec.invalid and, if validation is complete,
// resources with spec.picky and without spec.required. It records its requests.
type validator struct {
	mu    sync.Mutex
	asked []tko.Validation
}

func (v *validator) Validate(_ context.Context, validation tko.Validation) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked = append(v.asked, validation)
	var findings []tko.Finding
	for _, r := range validation.Package {
		if _, ok := r.Get("spec", "invalid"); ok {
			findings = append(findings, tko.Finding{Resource: r.Identity(), Path: "spec.invalid", Reason: "is invalid"})
		}
		_, picky := r.Get("spec", "picky")
		if _, ok := r.Get("spec", "required"); picky && !ok && validation.Complete {
			findings = append(findings, tko.Finding{Resource: r.Identity(), Path: "spec.required", Reason: "is required"})
		}
	}
	if len(findings) > 0 {
		return &tko.InvalidPackageError{Findings: findings}
	}
	for _, r := range validation.Package {
		if _, ok := r.Get("spec", "odd"); ok && validation.Warn != nil {
			validation.Warn([]tko.Finding{{Resource: r.Identity(), Path: "spec.odd", Reason: "unknown property"}})
		}
	}
	return nil
}

// take returns the requests since the last call.
func (v *validator) take() []tko.Validation {
	v.mu.Lock()
	defer v.mu.Unlock()
	asked := v.asked
	v.asked = nil
	return asked
}

// pkg reads a package from YAML.
func pkg(t *testing.T, yaml string) krm.Package {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(yaml), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// thing returns a resource with a spec.
func thing(name, spec string) string {
	return "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: " + name + "}\nspec: {" + spec + "}\n---\n"
}

// facts is a metadata resource.
func facts(spec string) string {
	return "apiVersion: metadata.nephio.org/v1alpha1\nkind: NF\nmetadata: {name: nf}\nspec: {" + spec + "}\n---\n"
}

// state is a Deployment resource.
func state(spec, annotations string) string {
	return "apiVersion: deployment.nephio.org/v1alpha1\nkind: Deployment\n" +
		"metadata: {name: deployment, annotations: {" + annotations + "}}\nspec: {" + spec + "}\n---\n"
}

const (
	isPrepared = `nephio.org/prepared: "true"`
	isApproved = `nephio.org/approved: "true"`
)

func (w *world) template(id, yaml string, metadata ...string) {
	w.t.Helper()
	if _, err := w.RegisterTemplate(w.ctx, tko.Template{ID: tko.TemplateID(id), Package: pkg(w.t, yaml), Metadata: pairs(metadata)}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) site(id, yaml string, metadata ...string) {
	w.t.Helper()
	if _, err := w.RegisterSite(w.ctx, tko.Site{ID: tko.SiteID(id), Package: pkg(w.t, yaml), Metadata: pairs(metadata)}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(request tko.NewDeployment) tko.DeploymentID {
	w.t.Helper()
	id, err := w.CreateDeployment(w.ctx, request)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *world) deployment(id tko.DeploymentID) tko.Deployment {
	w.t.Helper()
	d, err := w.Deployment(w.ctx, id, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *world) start(id tko.DeploymentID) tko.Modification {
	w.t.Helper()
	m, err := w.StartModification(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *world) head() int64 {
	w.t.Helper()
	head, err := w.store.Head(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return head
}

func pairs(keysAndValues []string) map[string]string {
	m := map[string]string{}
	for pair := range slices.Chunk(keysAndValues, 2) {
		m[pair[0]] = pair[1]
	}
	return m
}

// all collects a list.
func all[T any](t *testing.T, list iter.Seq2[T, error]) []T {
	t.Helper()
	var items []T
	for item, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	return items
}

// wantError checks the kind of an error, and that its text contains the given
// texts.
func wantError(t *testing.T, err, kind error, names ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("error %v, want one of the kind %v", err, kind)
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error %q doesn't name %q", err, name)
		}
	}
}

// named finds a resource of example.com/v1 Thing.
func named(p krm.Package, name string) krm.Resource {
	return p.Find(krm.Identity{GVK: krm.GVK{Group: "example.com", Version: "v1", Kind: "Thing"}, Name: name})
}

func deploymentResource(t *testing.T, p krm.Package) krm.Resource {
	t.Helper()
	r, err := p.Deployment()
	if err != nil {
		t.Fatal(err)
	}
	if r == nil {
		t.Fatal("the package has no Deployment resource")
	}
	return r
}

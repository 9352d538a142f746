package plan_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/gitops/plan/plantest"
	"github.com/tko-orchestrator/tko/internal/grpcapi/grpctest"
	"github.com/tko-orchestrator/tko/internal/prune"
	"github.com/tko-orchestrator/tko/krm"
)

// A world is a source with its inventory, and a real data controller.
type world struct {
	testing.TB
	*client.Client // as another client than the source
	policy         plan.Policy
	items          []tko.SourceItem
	others         []tko.Source // other sources, with their inventories
}

// Sources returns the other sources, and the own one.
func (w *world) Sources(context.Context) ([]tko.Source, error) {
	own := tko.Source{Name: w.policy.Source, Status: tko.SourceStatus{Items: w.items}}
	return append(slices.Clone(w.others), own), nil
}

// owns records that another source has entities in its inventory.
func (w *world) owns(source string, items ...tko.SourceItem) {
	w.others = append(w.others, tko.Source{Name: source, Status: tko.SourceStatus{Items: items}})
}

func newWorld(t testing.TB, policy plan.Policy) *world {
	t.Helper()
	policy.Source = "fleet"
	return &world{TB: t, Client: grpctest.Start(t, client.Options{Author: tko.Author{Who: "ada"}}), policy: policy}
}

// pruning is the policy of a source of a repository by default.
func pruning() plan.Policy { return plan.Policy{Prune: true, Budget: prune.Default} }

// of returns the manifest of an entity. The ID of a deployment is its name.
func of(t testing.TB, put tko.Put) manifest.Manifest {
	t.Helper()
	m, err := manifest.Of("fleet.yaml", put)
	if err != nil {
		t.Fatal(err)
	}
	if put.Kind == tko.KindDeployment {
		m.Put.ID = ""
	}
	return m
}

func (w *world) of(puts ...tko.Put) []manifest.Manifest {
	w.Helper()
	all := make([]manifest.Manifest, len(puts))
	for i, put := range puts {
		all[i] = of(w, put)
	}
	return all
}

func template(id, value string) tko.Put {
	return tko.Put{Kind: tko.KindTemplate, ID: id, Package: configMap("settings", value)}
}

func site(id string, template tko.TemplateID, metadata ...string) tko.Put {
	p := tko.Put{Kind: tko.KindSite, ID: id, Template: template}
	for i := 0; i < len(metadata); i += 2 {
		if p.Metadata == nil {
			p.Metadata = map[string]string{}
		}
		p.Metadata[metadata[i]] = metadata[i+1]
	}
	return p
}

func deployment(name, value string) tko.Put {
	return tko.Put{Kind: tko.KindDeployment, ID: name, Package: configMap("own", value)}
}

func plugin(name string) tko.Put {
	return tko.Put{Kind: tko.KindPlugin, ID: "schedule|" + name, Plugin: tko.Plugin{
		Type: "schedule", Name: name, Executor: "command", Arguments: []string{"x"}, Triggers: []krm.GVK{{Group: "g", Version: "v1", Kind: "K"}},
	}}
}

func configMap(name, value string) krm.Package {
	return krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"k": value}}}
}

// numbered returns entities with the IDs prefix00, prefix01 and so on.
func numbered(n int, one func(id string) tko.Put, prefix string) []tko.Put {
	puts := make([]tko.Put, n)
	for i := range puts {
		puts[i] = one(fmt.Sprintf("%s%02d", prefix, i))
	}
	return puts
}

func plainSite(id string) tko.Put { return site(id, "") }

func plainDeployment(name string) tko.Put { return deployment(name, "1") }

// put writes an entity as another client.
func (w *world) put(p tko.Put) tko.PutResult {
	w.Helper()
	r, err := w.PutEntity(w.Context(), p)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// remove deletes an entity as another client.
func (w *world) remove(kind tko.Kind, id string) {
	w.Helper()
	if _, err := w.RemoveEntity(w.Context(), kind, id, false); err != nil {
		w.Fatal(err)
	}
}

// grow creates children of a deployment of the source.
func (w *world) grow(name string, n int) {
	w.Helper()
	children := tko.NewChildren{Parent: tko.DeploymentID(w.item(tko.KindDeployment, name).ID)}
	for i := range n {
		children.Children = append(children.Children, tko.NewChild{Origin: fmt.Sprintf("%s-%d", name, i)})
	}
	if _, _, err := w.CreateChildren(w.Context(), children); err != nil {
		w.Fatal(err)
	}
}

func (w *world) item(kind tko.Kind, name string) tko.SourceItem {
	w.Helper()
	i := slices.IndexFunc(w.items, func(i tko.SourceItem) bool { return i.Kind == string(kind) && i.Name == name })
	if i < 0 {
		w.Fatalf("the inventory has no %s %q: %v", kind, name, w.items)
	}
	return w.items[i]
}

// plan makes the plan of a revision.
func (w *world) plan(manifests ...manifest.Manifest) *plan.Plan {
	w.Helper()
	p, err := plan.Make(w.Context(), w, manifests, w.items, w.policy)
	if err != nil {
		w.Fatal(err)
	}
	return p
}

// apply makes and applies the plan of a revision.
func (w *world) apply(manifests ...manifest.Manifest) *plan.Plan {
	w.Helper()
	p := w.plan(manifests...)
	if _, err := p.Apply(w.Context(), w.Client, "r", w.save); err != nil {
		w.Fatal(err)
	}
	w.policy.Origins = p.Origins
	return p
}

func (w *world) save(_ context.Context, items []tko.SourceItem) error {
	w.items = items
	return nil
}

// refused makes the plan of a revision, and checks that it is invalid, with an error that
// has all parts, and that nothing is changed.
func (w *world) refused(parts []string, manifests ...manifest.Manifest) {
	w.Helper()
	before := w.entities()
	_, err := plan.Make(w.Context(), w, manifests, w.items, w.policy)
	if !errors.Is(err, tko.ErrInvalid) {
		w.Fatalf("the error is %v, want an ErrInvalid", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			w.Errorf("the error is %v, want one with %q", err, part)
		}
	}
	equal(w, "after a refused revision", before, w.entities())
}

// entities returns a line for each entity: see [plantest.Entities].
func (w *world) entities() []string {
	w.Helper()
	return plantest.Entities(w, w.Client, func(d tko.Deployment) string { return string(d.ID) })
}

// actions returns the actions as text.
func actions(list []plan.Action) []string {
	texts := []string{}
	for _, a := range list {
		texts = append(texts, a.String())
	}
	return texts
}

// verbs counts actions by verb and kind.
func verbs(list []plan.Action) map[string]int {
	counts := map[string]int{}
	for _, a := range list {
		counts[a.Verb+" "+string(a.Kind)]++
	}
	return counts
}

func equal[T any](t testing.TB, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: -want +got:\n%s", what, diff)
	}
}

// names returns "kind name" of each item.
func names(items []tko.SourceItem) []string {
	texts := []string{}
	for _, i := range items {
		texts = append(texts, i.Kind+" "+i.Name)
	}
	return texts
}

// A recorder records the writes of Apply in their order. Before each write it calls allow,
// whose error is the result of the write.
type recorder struct {
	*client.Client
	mu     sync.Mutex
	writes []string
	allow  func(write string, n int) error
}

func (r *recorder) record(write string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.allow != nil {
		if err := r.allow(write, len(r.writes)); err != nil {
			return err
		}
	}
	r.writes = append(r.writes, write)
	return nil
}

func (r *recorder) PutEntity(ctx context.Context, p tko.Put) (tko.PutResult, error) {
	if !p.DryRun {
		id := p.ID
		if id == "" {
			id = p.Origin
		}
		if err := r.record("put " + string(p.Kind) + " " + id); err != nil {
			return tko.PutResult{}, err
		}
	}
	return r.Client.PutEntity(ctx, p)
}

func (r *recorder) RemoveEntity(ctx context.Context, kind tko.Kind, id string, dryRun bool) (tko.Deleted, error) {
	if !dryRun {
		if err := r.record("remove " + string(kind) + " " + id); err != nil {
			return tko.Deleted{}, err
		}
	}
	return r.Client.RemoveEntity(ctx, kind, id, dryRun)
}

package flux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
)

// What is read and written in the cluster.
const (
	Group = "tko.nephio.org"
	// Version is not that of the aggregated API, which claims v1alpha1 as a whole.
	Version = "v1beta1"
	// Finalizer keeps a GitOps object until its source has come to its end.
	Finalizer = "gitops." + Group + "/finalizer"
	// PruneAnnotation set to "true" on a GitRepository that is used as it is lets
	// what left it be removed.
	PruneAnnotation = "gitops." + Group + "/prune"

	requestedAt = "reconcile.fluxcd.io/requestedAt"
	fluxGroup   = "source.toolkit.fluxcd.io"
)

var (
	gitopsResource = schema.GroupVersionResource{Group: Group, Version: Version, Resource: "gitops"}
	eventResource  = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	sourceKinds    = map[string]string{
		"GitRepository": "gitrepositories", "OCIRepository": "ocirepositories", "Bucket": "buckets", "ExternalArtifact": "externalartifacts",
	}
)

// Options are the settings of a Watcher. Config is required.
type Options struct {
	Config     *rest.Config
	Namespaces []string // whose objects are followed; all if empty
	// AsItIs uses GitRepository objects that no GitOps object refers to, if they
	// have an osm_ops_config.yaml: as OSM Ops did.
	AsItIs bool
	Events string // where notification-controller listens, "" for nowhere
	Host   string // where artifacts are, in place of what their URLs say
	Dir    string // for the files of revisions
	Limits tree.Limits
	Log    *slog.Logger // nowhere if nil
}

// Controller is what does the work.
type Controller interface {
	// Set adds or changes a source.
	Set(s gitops.Spec)
	// Drop forgets one.
	Drop(name string)
	// Call has sources looked at now.
	Call(ctx context.Context, names ...string) error
}

// Records are how sources are.
type Records interface {
	// Source answers one; ErrNotFound if there is none.
	Source(ctx context.Context, name string) (tko.Source, error)
}

// A Watcher follows objects in a cluster.
type Watcher struct {
	options Options
	log     *slog.Logger
	client  dynamic.Interface
	disc    discovery.DiscoveryInterface
	http    *http.Client
	records Records

	mu         sync.Mutex
	controller Controller
	stores     map[string][]cache.Indexer // by kind
	synced     map[string]bool            // kinds
	gone       map[string]bool            // sources that came to their end
	set        map[string]string          // generations of sources that were set
	told       map[string]string          // what was told of sources last

	changed chan struct{}
	publish chan string
}

// New makes a watcher. It asks nobody.
func New(records Records, o Options) (*Watcher, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	config := rest.CopyConfig(o.Config)
	config.QPS, config.Burst = 50, 100
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the management cluster: %w", err)
	}
	disc, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the management cluster: %w", err)
	}
	if len(o.Namespaces) == 0 {
		o.Namespaces = []string{metav1.NamespaceAll}
	}
	return &Watcher{
		options: o, log: o.Log, client: client, disc: disc, records: records, http: &http.Client{Timeout: 5 * time.Minute},
		stores: map[string][]cache.Indexer{}, synced: map[string]bool{}, gone: map[string]bool{}, set: map[string]string{}, told: map[string]string{},
		changed: make(chan struct{}, 1), publish: make(chan string, 1000),
	}, nil
}

// Changed is told how a source is: see gitops.Options. It doesn't wait.
func (w *Watcher) Changed(_ context.Context, s tko.Source) {
	if s.Version == 0 {
		w.mu.Lock()
		w.gone[s.Name] = true
		w.mu.Unlock()
	}
	select {
	case w.publish <- s.Name:
	default: // it is told when its object is looked at again
		w.wake()
	}
}

func (w *Watcher) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// settle is how long changes of objects are gathered.
const settle = 50 * time.Millisecond

// Run follows the objects until the context ends.
func (w *Watcher) Run(ctx context.Context, c Controller) error {
	w.controller = c
	var wait sync.WaitGroup
	defer wait.Wait()
	wait.Go(func() { w.follow(ctx, "GitOps", gitopsResource) })
	for kind, resource := range sourceKinds {
		wait.Go(func() {
			w.follow(ctx, kind, schema.GroupVersionResource{Group: fluxGroup, Version: "v1", Resource: resource})
		})
	}
	again := time.NewTicker(time.Minute)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case name := <-w.publish:
			w.tell(ctx, name)
			continue
		case <-w.changed:
		case <-again.C:
			clear(w.told)
		}
		select { // what comes together is looked at together
		case <-ctx.Done():
			return nil
		case <-time.After(settle):
		}
		w.look(ctx)
	}
}

// follow follows the objects of a kind, once the cluster has it.
func (w *Watcher) follow(ctx context.Context, kind string, resource schema.GroupVersionResource) {
	said := false
	for {
		if served, err := w.served(resource); served {
			break
		} else if !said {
			w.log.InfoContext(ctx, "the cluster doesn't have these objects yet", "resource", resource.String(), "err", err)
			said = true
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Second):
		}
	}
	var running sync.WaitGroup
	defer running.Wait()
	var synced []cache.InformerSynced
	for _, namespace := range w.options.Namespaces {
		informer := dynamicinformer.NewFilteredDynamicInformer(w.client, resource, namespace, 10*time.Minute, cache.Indexers{}, nil).Informer()
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { w.wake() }, UpdateFunc: func(any, any) { w.wake() }, DeleteFunc: func(any) { w.wake() },
		}); err != nil {
			w.log.ErrorContext(ctx, "objects can't be followed", "resource", resource.String(), "err", err)
			return
		}
		w.mu.Lock()
		w.stores[kind] = append(w.stores[kind], informer.GetIndexer())
		w.mu.Unlock()
		synced = append(synced, informer.HasSynced)
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	if cache.WaitForCacheSync(ctx.Done(), synced...) {
		w.mu.Lock()
		w.synced[kind] = true
		w.mu.Unlock()
		w.wake()
	}
}

// served says whether the cluster has objects of a kind.
func (w *Watcher) served(resource schema.GroupVersionResource) (bool, error) {
	list, err := w.disc.ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Resource }), err
}

// objects are those of a kind that are known.
func (w *Watcher) objects(kind string) []*unstructured.Unstructured {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*unstructured.Unstructured
	for _, store := range w.stores[kind] {
		for _, o := range store.List() {
			if u, ok := o.(*unstructured.Unstructured); ok {
				all = append(all, u)
			}
		}
	}
	return all
}

func (w *Watcher) find(kind, namespace, name string) *unstructured.Unstructured {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, store := range w.stores[kind] {
		if o, ok, err := store.GetByKey(namespace + "/" + name); err == nil && ok {
			if u, ok := o.(*unstructured.Unstructured); ok {
				return u
			}
		}
	}
	return nil
}

func text(o *unstructured.Unstructured, path ...string) string {
	s, _, err := unstructured.NestedString(o.Object, path...)
	if err != nil {
		return ""
	}
	return s
}

func boolean(o *unstructured.Unstructured, path ...string) bool {
	b, _, err := unstructured.NestedBool(o.Object, path...)
	return err == nil && b
}

// look makes the controller's sources those that the objects ask for.
func (w *Watcher) look(ctx context.Context) {
	w.mu.Lock()
	synced := w.synced["GitOps"]
	w.mu.Unlock()
	if !synced {
		// GitRepository objects might be used as they are that somebody refers to.
		if served, err := w.served(gitopsResource); served || err != nil {
			return
		}
	}
	wanted := map[string]string{} // generations
	revisions := map[string]bool{}
	used := map[string]bool{}
	set := func(s gitops.Spec, ref source) {
		wanted[s.Name] = s.Generation + " " + w.revision(ref)
		if w.set[s.Name] == wanted[s.Name] {
			return
		}
		if strings.HasPrefix(w.set[s.Name], s.Generation+" ") {
			revisions[s.Name] = true
			return
		}
		w.controller.Set(s)
	}
	for _, o := range w.objects("GitOps") {
		spec, ref, err := w.spec(o)
		used[ref.kind+"/"+ref.namespace+"/"+ref.name] = true
		if err == nil {
			err = w.hold(ctx, o)
		}
		if err != nil {
			w.log.WarnContext(ctx, "a GitOps object can't be used", "namespace", o.GetNamespace(), "name", o.GetName(), "err", err)
			spec.From = broken{err}
		}
		set(spec, ref)
		w.tell(ctx, spec.Name)
	}
	if w.options.AsItIs {
		for _, o := range w.objects("GitRepository") {
			ref := source{"GitRepository", o.GetNamespace(), o.GetName()}
			if used[ref.kind+"/"+ref.namespace+"/"+ref.name] || o.GetDeletionTimestamp() != nil {
				continue
			}
			set(w.asItIs(o, ref), ref)
		}
	}
	for name := range w.set {
		if _, still := wanted[name]; !still {
			w.controller.Drop(name)
		}
	}
	w.set = wanted
	if len(revisions) > 0 {
		if err := w.controller.Call(ctx, slices.Sorted(maps.Keys(revisions))...); err != nil && ctx.Err() == nil {
			w.log.WarnContext(ctx, "sources could not be called for", "err", err)
			for name := range revisions {
				delete(w.set, name)
			}
			time.AfterFunc(5*time.Second, w.wake)
		}
	}
}

// broken is a source that can't be read.
type broken struct{ err error }

func (b broken) Revision(context.Context) (string, error)          { return "", b.err }
func (b broken) Fetch(context.Context, string) (*tree.Tree, error) { return nil, b.err }

// A source is what an object refers to.
type source struct{ kind, namespace, name string }

func (w *Watcher) revision(s source) string {
	a, err := w.artifact(s)
	if err != nil {
		return ""
	}
	return a.revision + " " + a.url
}

// artifact is what source-controller published.
func (w *Watcher) artifact(s source) (*artifact, error) {
	o := w.find(s.kind, s.namespace, s.name)
	if o == nil {
		return nil, &gitops.AgainError{After: noArtifact, Err: fmt.Errorf("%s %s/%s is not there", s.kind, s.namespace, s.name)}
	}
	a := &artifact{url: text(o, "status", "artifact", "url"), revision: text(o, "status", "artifact", "revision"), digest: text(o, "status", "artifact", "digest")}
	if a.url == "" || a.revision == "" {
		return nil, &gitops.AgainError{After: noArtifact, Err: fmt.Errorf("%s %s/%s has no artifact yet", s.kind, s.namespace, s.name)}
	}
	return a, nil
}

func (w *Watcher) reader(s source) *reader {
	return &reader{find: func() (*artifact, error) { return w.artifact(s) }, http: w.http, host: w.options.Host, limits: w.options.Limits, dir: w.options.Dir}
}

// nameOf is the name of the source that a GitOps object is.
func nameOf(o *unstructured.Unstructured) string { return o.GetNamespace() + "/" + o.GetName() }

// spec is the source that a GitOps object asks for.
func (w *Watcher) spec(o *unstructured.Unstructured) (gitops.Spec, source, error) {
	ref := source{text(o, "spec", "sourceRef", "kind"), text(o, "spec", "sourceRef", "namespace"), text(o, "spec", "sourceRef", "name")}
	if ref.namespace == "" {
		ref.namespace = o.GetNamespace()
	}
	s := gitops.Spec{
		Name: nameOf(o), Kind: ref.kind, URL: ref.namespace + "/" + ref.name, Path: text(o, "spec", "path"), Prune: boolean(o, "spec", "prune"),
		Suspend: boolean(o, "spec", "suspend"), Adopt: boolean(o, "spec", "adopt"), Budget: plan.DefaultBudget, OSM: gitops.DefaultOSM(boolean(o, "spec", "prune")),
		Generation: fmt.Sprintf("%s/%d/%s/%t", o.GetUID(), o.GetGeneration(), o.GetAnnotations()[requestedAt], o.GetDeletionTimestamp() != nil),
		From:       w.reader(ref),
	}
	if sourceKinds[ref.kind] == "" {
		return s, ref, tko.Errorf(tko.ErrInvalid, "spec.sourceRef.kind is %q: use GitRepository, OCIRepository, Bucket or ExternalArtifact", ref.kind)
	}
	if d := text(o, "spec", "interval"); d != "" {
		interval, err := time.ParseDuration(d)
		if err != nil || interval < time.Second {
			return s, ref, tko.Errorf(tko.ErrInvalid, "spec.interval is %q: use a time of at least 1s", d)
		}
		s.Interval = interval
	}
	depends, _, err := unstructured.NestedSlice(o.Object, "spec", "dependsOn")
	if err != nil {
		return s, ref, tko.Errorf(tko.ErrInvalid, "spec.dependsOn: %w", err)
	}
	for _, d := range depends {
		m, ok := d.(map[string]any)
		name, named := m["name"].(string)
		if !ok || !named {
			return s, ref, tko.Errorf(tko.ErrInvalid, "spec.dependsOn has an element without a name")
		}
		namespace, ok := m["namespace"].(string)
		if !ok || namespace == "" {
			namespace = o.GetNamespace()
		}
		s.DependsOn = append(s.DependsOn, namespace+"/"+name)
	}
	if o.GetDeletionTimestamp() != nil {
		s.Forget = true
		switch text(o, "spec", "deletionPolicy") {
		case "Delete", "WaitForTermination":
			s.Prune = true
		case "Orphan":
			s.Prune = false
		}
	}
	return s, ref, nil
}

// asItIs is the source that a GitRepository is for users of OSM Ops.
func (w *Watcher) asItIs(o *unstructured.Unstructured, ref source) gitops.Spec {
	prune := o.GetAnnotations()[PruneAnnotation] == "true"
	return gitops.Spec{
		Name: "gitrepository/" + nameOf(o), Kind: ref.kind, URL: nameOf(o), OSMOnly: true, Prune: prune, OSM: gitops.DefaultOSM(prune),
		Budget: plan.DefaultBudget, From: w.reader(ref), Interval: 5 * time.Minute,
		Generation: fmt.Sprintf("%s/%t/%s", o.GetUID(), prune, o.GetAnnotations()[requestedAt]),
	}
}

// hold keeps an object from going before its source has come to its end.
func (w *Watcher) hold(ctx context.Context, o *unstructured.Unstructured) error {
	if o.GetDeletionTimestamp() != nil || slices.Contains(o.GetFinalizers(), Finalizer) {
		return nil
	}
	return w.finalizers(ctx, o, append(slices.Clone(o.GetFinalizers()), Finalizer))
}

func (w *Watcher) finalizers(ctx context.Context, o *unstructured.Unstructured, finalizers []string) error {
	if finalizers == nil {
		finalizers = []string{}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers, "resourceVersion": o.GetResourceVersion()}})
	if err != nil {
		return err
	}
	_, err = w.client.Resource(gitopsResource).Namespace(o.GetNamespace()).Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "tko-gitops"})
	if apierrors.IsConflict(err) {
		w.wake() // it has changed, and is looked at again
		return nil
	}
	return err
}

// tell writes into its object how a source is, if that is news.
func (w *Watcher) tell(ctx context.Context, name string) {
	namespace, object, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(object, "/") {
		return // no GitOps object
	}
	o := w.find("GitOps", namespace, object)
	if o == nil {
		return
	}
	s, err := w.records.Source(ctx, name)
	if errors.Is(err, tko.ErrNotFound) {
		w.mu.Lock()
		gone := w.gone[name]
		w.mu.Unlock()
		if gone && o.GetDeletionTimestamp() != nil && strings.HasPrefix(w.set[name], string(o.GetUID())) && strings.Contains(w.set[name], "/true ") {
			err = w.finalizers(ctx, o, slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == Finalizer }))
			if err != nil && !apierrors.IsNotFound(err) {
				w.log.WarnContext(ctx, "a GitOps object can't be let go", "source", name, "err", err)
				return
			}
			w.mu.Lock()
			delete(w.gone, name)
			w.mu.Unlock()
		}
		return
	}
	if err != nil {
		return
	}
	status := statusOf(o, s)
	encoded, err := json.Marshal(map[string]any{"status": status})
	if err != nil || w.told[name] == string(encoded)+string(o.GetUID()) {
		return
	}
	_, err = w.client.Resource(gitopsResource).Namespace(namespace).Patch(ctx, object, types.MergePatchType, encoded, metav1.PatchOptions{FieldManager: "tko-gitops"}, "status")
	if err != nil {
		if !apierrors.IsNotFound(err) && ctx.Err() == nil {
			w.log.WarnContext(ctx, "the status of a GitOps object can't be written", "source", name, "err", err)
		}
		return
	}
	w.told[name] = string(encoded) + string(o.GetUID())
	w.event(ctx, o, s)
}

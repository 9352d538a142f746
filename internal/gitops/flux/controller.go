package flux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/pause"
)

// An Engine reconciles sources: [gitops.Controller].
type Engine interface {
	// Set adds a source, or replaces its Spec, and enqueues it.
	Set(s gitops.Spec)
	// Drop removes a source from the engine. Its record stays.
	Drop(name string)
	// Approve approves the pending removal of a source; ErrConflict if another one
	// is pending.
	Approve(ctx context.Context, name, digest string) error
}

// Options are the settings of a Controller. The zero value works.
type Options struct {
	Namespaces []string // to watch; all if empty
	Worker     string   // the engine's
	// OSMOps makes sources of GitRepository objects to which no GitOps object
	// refers, if osm_ops_config.yaml is in their root, as OSM Ops did.
	OSMOps bool
	// NoCrossNamespaceRefs refuses references to other namespaces.
	NoCrossNamespaceRefs bool
	// EventsAddress is the URL of Flux's notification-controller; no notifications
	// are sent if it is empty.
	EventsAddress string
	Fetch         FetchOptions
	Discover      time.Duration // interval of checks for kinds that the cluster lacks; 30 s if 0
	Wait          time.Duration // until a source without an artifact is reconciled again; 30 s if 0
	Poll          time.Duration // interval of polling OSM's operations in progress; its reconciler's default if 0
	Log           *slog.Logger  // nowhere if nil
}

// A Controller creates sources from objects in a cluster.
type Controller struct {
	engine  Engine
	options Options
	log     *slog.Logger
	dynamic dynamic.Interface
	typed   kubernetes.Interface
	fetcher *Fetcher
	events  *events
	queue   workqueue.TypedRateLimitingInterface[reference]

	mu         sync.Mutex
	informers  map[schema.GroupVersionResource]map[string]cache.SharedIndexInformer // by namespace, "" for all
	known      map[reference]known
	reports    map[reference]report     // to be written
	considered map[reference]tko.Source // the last source that an event was considered for
	certain    bool                     // it is known whether the cluster has the kind GitOps
}

// known identifies the Spec that the engine has.
type known struct {
	generation string
	forget     bool
}

// New returns a Controller for a cluster, without connecting to it. The error is
// an ErrInvalid.
func New(cluster *rest.Config, engine Engine, o Options) (*Controller, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if len(o.Namespaces) == 0 {
		o.Namespaces = []string{meta.NamespaceAll}
	}
	if o.Discover <= 0 {
		o.Discover = 30 * time.Second
	}
	if o.Wait <= 0 {
		o.Wait = 30 * time.Second
	}
	cluster = rest.CopyConfig(cluster)
	cluster.UserAgent, cluster.QPS, cluster.Burst = "tko-gitops", 50, 100
	client, err := dynamic.NewForConfig(cluster)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the cluster of Flux: %w", err)
	}
	typed, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the cluster of Flux: %w", err)
	}
	return &Controller{
		engine: engine, options: o, log: o.Log, dynamic: client, typed: typed, fetcher: NewFetcher(o.Fetch),
		informers: map[schema.GroupVersionResource]map[string]cache.SharedIndexInformer{}, known: map[reference]known{}, reports: map[reference]report{},
		considered: map[reference]tko.Source{},
	}, nil
}

const (
	workers     = 4
	syncTimeout = 30 * time.Second
	bySource    = "source"
)

// Run watches objects until the context ends. While the cluster is unreachable, it
// retries.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[reference](250*time.Millisecond, time.Minute))
	c.events = newEvents(c.typed, c.options, c.log)
	defer c.fetcher.Close()
	var all sync.WaitGroup
	defer all.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	all.Go(func() { c.events.run(ctx) })
	c.discover(ctx, &all)
	c.awaitSync(ctx)
	all.Go(func() {
		<-ctx.Done()
		c.queue.ShutDown()
	})
	for range workers {
		all.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	for pause.For(ctx, c.options.Discover) == nil {
		c.discover(ctx, &all)
	}
	return nil
}

// discover begins to watch the supported kinds that the cluster serves and that
// are not watched yet.
func (c *Controller) discover(ctx context.Context, all *sync.WaitGroup) {
	wanted := map[schema.GroupVersion][]schema.GroupVersionResource{{Group: Group, Version: Version}: {gitOpsResource}}
	for kind := range sources {
		r := sourceResource(kind)
		wanted[r.GroupVersion()] = append(wanted[r.GroupVersion()], r)
	}
	for gv, resources := range wanted {
		resources = slices.DeleteFunc(resources, func(r schema.GroupVersionResource) bool { return len(c.informersOf(r)) > 0 })
		if len(resources) == 0 {
			continue
		}
		served, err := c.typed.Discovery().ServerResourcesForGroupVersionWithContext(ctx, gv.String())
		if err != nil {
			if apierrors.IsNotFound(err) && gv.Group == Group {
				c.setCertain()
			}
			if ctx.Err() == nil && !apierrors.IsNotFound(err) {
				c.log.WarnContext(ctx, "the kinds of the cluster can't be listed", "group", gv.String(), "err", err)
			}
			continue
		}
		for _, r := range resources {
			if slices.ContainsFunc(served.APIResources, func(a meta.APIResource) bool { return a.Name == r.Resource }) {
				c.watch(ctx, all, r)
			}
		}
		if gv.Group == Group {
			c.setCertain()
		}
	}
}

// setCertain records that it is known whether the cluster has the kind GitOps.
func (c *Controller) setCertain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.certain = true
}

// watch begins to watch a kind.
func (c *Controller) watch(ctx context.Context, all *sync.WaitGroup, r schema.GroupVersionResource) {
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	if r == gitOpsResource {
		indexers[bySource] = func(of any) ([]string, error) {
			u, ok := of.(*unstructured.Unstructured)
			if !ok {
				return nil, nil
			}
			o, err := readObject(u)
			if err != nil {
				return nil, nil //nolint:nilerr // reported when the object is reconciled
			}
			return []string{o.sourceOf(u.GetNamespace()).String()}, nil
		}
	}
	kind := Kind
	for k := range sources {
		if sourceResource(k) == r {
			kind = k
		}
	}
	informers := map[string]cache.SharedIndexInformer{}
	for _, namespace := range c.options.Namespaces {
		informers[namespace] = c.informer(kind, r, namespace, indexers)
	}
	c.mu.Lock()
	c.informers[r] = informers
	c.mu.Unlock()
	for _, informer := range informers {
		all.Go(func() { informer.RunWithContext(ctx) })
	}
	c.log.InfoContext(ctx, "watching", "kind", kind)
}

// informer watches objects of a kind in a namespace, or in all.
func (c *Controller) informer(kind string, r schema.GroupVersionResource, namespace string, indexers cache.Indexers) cache.SharedIndexInformer {
	informer := dynamicinformer.NewFilteredDynamicInformer(c.dynamic, r, namespace, 0, indexers, nil).Informer()
	_ = informer.SetTransform(func(of any) (any, error) {
		if u, ok := of.(*unstructured.Unstructured); ok {
			u.SetManagedFields(nil)
		}
		return of, nil
	})
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil {
			c.log.WarnContext(ctx, "objects can't be watched; retrying", "kind", kind, "err", err)
		}
	})
	add := func(of any) {
		if gone, ok := of.(cache.DeletedFinalStateUnknown); ok {
			of = gone.Obj
		}
		if u, ok := of.(*unstructured.Unstructured); ok {
			c.queue.Add(reference{kind, u.GetNamespace(), u.GetName()})
			if kind == Kind {
				c.addSource(u)
			}
		}
	}
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, DeleteFunc: add,
		UpdateFunc: func(old, now any) {
			if u, ok := old.(*unstructured.Unstructured); ok && kind == Kind {
				c.addSource(u)
			}
			add(now)
		},
	})
	return informer
}

// addSource enqueues the GitRepository to which an object refers or referred: it
// may become, or cease to be, a source without a GitOps object.
func (c *Controller) addSource(u *unstructured.Unstructured) {
	if o, err := readObject(u); err == nil && o.Spec.SourceRef.Kind == "GitRepository" {
		c.queue.Add(o.sourceOf(u.GetNamespace()))
	}
}

// informersOf returns the informers of a kind, by namespace.
func (c *Controller) informersOf(r schema.GroupVersionResource) map[string]cache.SharedIndexInformer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.informers[r]
}

// awaitSync waits for the informers' first lists, for a limited time: a kind that
// may not be read must not block the others.
func (c *Controller) awaitSync(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	c.mu.Lock()
	var synced []cache.InformerSynced
	for _, informers := range c.informers {
		for _, informer := range informers {
			synced = append(synced, informer.HasSynced)
		}
	}
	c.mu.Unlock()
	cache.WaitForCacheSync(ctx.Done(), synced...)
}

// get returns an object from the informer's cache; nil if there is none. It
// returns an error if the kind or namespace isn't watched.
func (c *Controller) get(r reference) (*unstructured.Unstructured, error) {
	resource := gitOpsResource
	if r.kind != Kind {
		if sources[r.kind] == "" {
			return nil, tko.Errorf(tko.ErrInvalid, "%q is not a kind of sources: use GitRepository, OCIRepository, Bucket or ExternalArtifact", r.kind)
		}
		resource = sourceResource(r.kind)
	}
	informers := c.informersOf(resource)
	if len(informers) == 0 {
		return nil, fmt.Errorf("the cluster has no kind %s of %s: install Flux", r.kind, resource.GroupVersion())
	}
	informer := informers[meta.NamespaceAll]
	if informer == nil {
		informer = informers[r.namespace]
	}
	if informer == nil {
		return nil, tko.Errorf(tko.ErrDenied, "%s is in a namespace that is not watched: add it to --flux-namespaces", r)
	}
	if !informer.HasSynced() {
		return nil, fmt.Errorf("objects of kind %s can't be read from the cluster yet", r.kind)
	}
	found, ok, err := informer.GetStore().GetByKey(r.namespace + "/" + r.name)
	u, is := found.(*unstructured.Unstructured)
	if err != nil || !ok || !is {
		return nil, err
	}
	return u, nil
}

// next reconciles the next object of the queue. It returns false when the queue
// has shut down.
func (c *Controller) next(ctx context.Context) bool {
	r, stop := c.queue.Get()
	if stop {
		return false
	}
	defer c.queue.Done(r)
	err := c.reconcile(ctx, r)
	switch {
	case err == nil:
		c.queue.Forget(r)
	case ctx.Err() == nil:
		if !apierrors.IsConflict(err) {
			c.log.WarnContext(ctx, "an object could not be reconciled; retrying", "object", r.String(), "err", err)
		}
		c.queue.AddRateLimited(r)
	}
	return true
}

// reconcile updates the engine's sources for an object, and writes its status.
func (c *Controller) reconcile(ctx context.Context, r reference) error {
	if r.kind != Kind {
		return errors.Join(c.reconcileSource(r), c.write(ctx, r))
	}
	return errors.Join(c.reconcileGitOps(ctx, r), c.write(ctx, r))
}

// users returns the GitOps objects that refer to a source.
func (c *Controller) users(r reference) (all []reference, err error) {
	c.mu.Lock()
	informers, certain := c.informers[gitOpsResource], c.certain
	c.mu.Unlock()
	if len(informers) == 0 && !certain {
		return nil, errors.New("the GitOps objects are not listed yet")
	}
	for _, informer := range informers {
		if !informer.HasSynced() {
			return nil, errors.New("the GitOps objects are not listed yet")
		}
		found, err := informer.GetIndexer().ByIndex(bySource, r.String())
		if err != nil {
			return nil, err
		}
		for _, of := range found {
			if u, ok := of.(*unstructured.Unstructured); ok {
				all = append(all, reference{Kind, u.GetNamespace(), u.GetName()})
			}
		}
	}
	return all, nil
}

// reconcileSource enqueues the GitOps objects that refer to a Flux object. If none
// does, it may make a source of a GitRepository.
func (c *Controller) reconcileSource(r reference) error {
	users, err := c.users(r)
	if err != nil {
		return err
	}
	for _, user := range users {
		c.queue.Add(user)
	}
	if r.kind != "GitRepository" || !c.options.OSMOps {
		return nil
	}
	u, err := c.get(r)
	if err != nil {
		return err
	}
	if u == nil || len(users) > 0 {
		c.orphan(r)
		return nil
	}
	artifact, _ := artifactOf(u)
	suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend")
	prune := u.GetAnnotations()[AnnotationPrune] == "true"
	c.set(r, gitops.Spec{
		Name: r.source(), Kind: r.kind, URL: r.namespace + "/" + r.name, Suspend: suspended, Prune: prune, OSMOnly: true,
		OSM: gitops.OSM{Policy: gitops.OSMSettings{}.Policy(prune)}, Interval: sourceInterval, Resync: sourceInterval,
		Generation: fmt.Sprintf("%s/%t/%t/%s/%s", u.GetUID(), suspended, prune, u.GetAnnotations()[AnnotationRequested], artifact.generation()),
		From:       &sourceFetcher{controller: c, ref: r, osmOps: true},
		Report:     c.report(r, 0, "", artifact),
	})
	return nil
}

// sourceInterval is the interval of sources without a GitOps object. The
// GitRepository's own interval is that of polling git.
const sourceInterval = 10 * time.Minute

// set gives the engine the Spec of a source, if it has changed.
func (c *Controller) set(r reference, s gitops.Spec) {
	now := known{s.Generation, s.Forget}
	c.mu.Lock()
	same := c.known[r] == now
	c.known[r] = now
	c.mu.Unlock()
	if !same {
		s.OSM.Policy.Poll = c.options.Poll
		c.engine.Set(s)
	}
}

// orphan removes the source of a GitRepository without a GitOps object. Its
// entities stay: a GitOps object may own them now.
func (c *Controller) orphan(r reference) {
	c.mu.Lock()
	before, was := c.known[r]
	c.mu.Unlock()
	if was && !before.forget {
		c.set(r, gitops.Spec{Name: r.source(), Kind: r.kind, URL: r.namespace + "/" + r.name, Forget: true, Generation: "end", Report: c.report(r, 0, "", Artifact{})})
	}
}

// drop removes a source from the engine and from the caches.
func (c *Controller) drop(r reference) {
	c.mu.Lock()
	delete(c.known, r)
	delete(c.reports, r)
	delete(c.considered, r)
	c.mu.Unlock()
	c.engine.Drop(r.source())
}

// reconcileGitOps gives the engine the Spec of a GitOps object.
func (c *Controller) reconcileGitOps(ctx context.Context, r reference) error {
	u, err := c.get(r)
	if err != nil {
		return err
	}
	if u == nil {
		c.drop(r)
		return nil
	}
	o, err := readObject(u)
	if err != nil {
		return err
	}
	deleted := u.GetDeletionTimestamp() != nil
	has := slices.Contains(u.GetFinalizers(), Finalizer)
	switch {
	case deleted && !has:
		c.drop(r)
		return nil
	case !deleted && !has:
		return c.setFinalizers(ctx, u, append(u.GetFinalizers(), Finalizer)) // the change is watched
	}
	s := o.gitOpsSpec(r)
	source := o.sourceOf(r.namespace)
	var artifact Artifact
	if found, err := c.get(source); err == nil && found != nil {
		artifact, _ = artifactOf(found)
	}
	requested := u.GetAnnotations()[AnnotationRequested]
	s.Generation = fmt.Sprintf("%s/%d/%s/%s", u.GetUID(), u.GetGeneration(), requested, artifact.generation())
	from := &sourceFetcher{controller: c, ref: source, owner: u, timeout: duration(o.Spec.Timeout, 0), retry: duration(o.Spec.RetryInterval, c.options.Wait)}
	if d := o.Spec.Decryption; d != nil {
		from.keys = c.keys(r.namespace, d.SecretRef)
	}
	if ref := o.Spec.OSM.ConnectionSecretRef; ref != nil {
		s.OSM.Connection = c.connection(r.namespace, *ref)
	}
	if other := o.otherNamespaces(r.namespace); len(other) > 0 && c.options.NoCrossNamespaceRefs {
		s.DependsOn = nil
		from.denied = tko.Errorf(tko.ErrDenied, "references to other namespaces are not allowed here: %s", strings.Join(other, ", "))
	}
	s.From = from
	if deleted {
		s.Forget, s.Prune = true, o.prunes()
	}
	s.Report = c.report(r, u.GetGeneration(), requested, artifact)
	c.set(r, s)
	if o.Spec.Approve != "" && o.Spec.Approve == o.Status.Asks {
		if err := c.engine.Approve(ctx, r.source(), o.Spec.Approve); err != nil && !errors.Is(err, tko.ErrConflict) && !errors.Is(err, tko.ErrNotFound) {
			return fmt.Errorf("approve: %w", err)
		}
	}
	return nil
}

// setFinalizers sets the finalizers of an object. The error is a conflict if the
// object has changed.
func (c *Controller) setFinalizers(ctx context.Context, u *unstructured.Unstructured, finalizers []string) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": u.GetResourceVersion(), "finalizers": finalizers}})
	if err != nil {
		return err
	}
	_, err = c.dynamic.Resource(gitOpsResource).Namespace(u.GetNamespace()).Patch(ctx, u.GetName(), types.MergePatchType, data, meta.PatchOptions{FieldManager: manager})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

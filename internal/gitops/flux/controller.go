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
)

// An Engine works on sources: [gitops.Controller].
type Engine interface {
	// Set adds a source, or changes one, and has it looked at soon.
	Set(s gitops.Spec)
	// Drop forgets that a source was asked for.
	Drop(name string)
	// Approve approves the removal that a source asks about; ErrConflict if it
	// asks about another.
	Approve(ctx context.Context, name, digest string) error
}

// Options are the settings of a Controller. The zero value works.
type Options struct {
	Namespaces []string // those to look at; all if empty
	Worker     string   // as the engine calls itself
	// OSMOps takes GitRepository objects that no GitOps object refers to, if
	// osm_ops_config.yaml is in their root: what users of OSM Ops have.
	OSMOps bool
	// NoCrossNamespaceRefs refuses references to other namespaces.
	NoCrossNamespaceRefs bool
	// EventsAddress is the URL of Flux's notification-controller; it is told
	// nothing if empty.
	EventsAddress string
	Fetch         FetchOptions
	Discover      time.Duration // how often to look for kinds that the cluster doesn't have; 30 s if 0
	Wait          time.Duration // for an artifact, before its source is looked at again; 30 s if 0
	Poll          time.Duration // how often OSM is asked for what is in flight there; its reconciler's default if 0
	Log           *slog.Logger  // nowhere if nil
}

// A Controller makes sources of objects in a cluster.
type Controller struct {
	engine  Engine
	options Options
	log     *slog.Logger
	dynamic dynamic.Interface
	typed   kubernetes.Interface
	fetcher *Fetcher
	events  *events
	queue   workqueue.TypedRateLimitingInterface[reference]

	mu        sync.Mutex
	informers map[schema.GroupVersionResource]map[string]cache.SharedIndexInformer // by namespace, "" for all
	known     map[reference]known
	reports   map[reference]report // that are to be written
	told      map[reference]tko.Source
	certain   bool // whether there are GitOps objects
}

// known is what the engine was given.
type known struct {
	generation string
	forget     bool
}

// New makes a Controller of the cluster that a configuration reaches. It asks
// nobody yet.
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
		told: map[reference]tko.Source{},
	}, nil
}

const (
	workers     = 4
	syncPatient = 30 * time.Second
	bySource    = "source"
)

// Run watches until the context ends. While the cluster is away, it keeps
// trying.
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
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.options.Discover):
			c.discover(ctx, &all)
		}
	}
}

// discover begins to watch those of our kinds that the cluster has.
func (c *Controller) discover(ctx context.Context, all *sync.WaitGroup) {
	wanted := map[schema.GroupVersion][]schema.GroupVersionResource{{Group: Group, Version: Version}: {gitOpsResource}}
	for kind := range sources {
		r := sourceResource(kind)
		wanted[r.GroupVersion()] = append(wanted[r.GroupVersion()], r)
	}
	for gv, resources := range wanted {
		resources = slices.DeleteFunc(resources, func(r schema.GroupVersionResource) bool { return len(c.of(r)) > 0 })
		if len(resources) == 0 {
			continue
		}
		served, err := c.typed.Discovery().ServerResourcesForGroupVersionWithContext(ctx, gv.String())
		if err != nil {
			if apierrors.IsNotFound(err) && gv.Group == Group {
				c.sure()
			}
			if ctx.Err() == nil && !apierrors.IsNotFound(err) {
				c.log.WarnContext(ctx, "the cluster does not say which kinds it has", "group", gv.String(), "err", err)
			}
			continue
		}
		for _, r := range resources {
			if slices.ContainsFunc(served.APIResources, func(a meta.APIResource) bool { return a.Name == r.Resource }) {
				c.watch(ctx, all, r)
			}
		}
		if gv.Group == Group {
			c.sure()
		}
	}
}

// sure notes that it is known whether the cluster has our kind.
func (c *Controller) sure() {
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
				return nil, nil //nolint:nilerr // said when the object is looked at
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
			c.log.WarnContext(ctx, "objects can't be watched: trying on", "kind", kind, "err", err)
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

// addSource has the GitRepository looked at that an object refers to, or
// doesn't any more: somebody may have to take it, or leave it.
func (c *Controller) addSource(u *unstructured.Unstructured) {
	if o, err := readObject(u); err == nil && o.Spec.SourceRef.Kind == "GitRepository" {
		c.queue.Add(o.sourceOf(u.GetNamespace()))
	}
}

// of are the informers of a kind, by namespace.
func (c *Controller) of(r schema.GroupVersionResource) map[string]cache.SharedIndexInformer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.informers[r]
}

// awaitSync waits for what is there, but not for ever: a kind that may not be
// read keeps us from no other.
func (c *Controller) awaitSync(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, syncPatient)
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

// get is an object as it was seen last; nil if there is none. A kind that isn't
// watched is an error.
func (c *Controller) get(r reference) (*unstructured.Unstructured, error) {
	resource := gitOpsResource
	if r.kind != Kind {
		if sources[r.kind] == "" {
			return nil, tko.Errorf(tko.ErrInvalid, "%q is no kind of sources: use GitRepository, OCIRepository, Bucket or ExternalArtifact", r.kind)
		}
		resource = sourceResource(r.kind)
	}
	informers := c.of(resource)
	if len(informers) == 0 {
		return nil, fmt.Errorf("the cluster has no kind %s of %s: install Flux", r.kind, resource.GroupVersion())
	}
	informer := informers[meta.NamespaceAll]
	if informer == nil {
		informer = informers[r.namespace]
	}
	if informer == nil {
		return nil, tko.Errorf(tko.ErrDenied, "%s is in a namespace that is not looked at: see --flux-namespaces", r)
	}
	if !informer.HasSynced() {
		return nil, fmt.Errorf("the cluster doesn't let us read objects of kind %s yet", r.kind)
	}
	found, ok, err := informer.GetStore().GetByKey(r.namespace + "/" + r.name)
	u, is := found.(*unstructured.Unstructured)
	if err != nil || !ok || !is {
		return nil, err
	}
	return u, nil
}

// next looks at one object.
func (c *Controller) next(ctx context.Context) bool {
	r, stop := c.queue.Get()
	if stop {
		return false
	}
	defer c.queue.Done(r)
	err := c.look(ctx, r)
	switch {
	case err == nil:
		c.queue.Forget(r)
	case ctx.Err() == nil:
		if !apierrors.IsConflict(err) {
			c.log.WarnContext(ctx, "an object could not be looked at: trying on", "object", r.String(), "err", err)
		}
		c.queue.AddRateLimited(r)
	}
	return true
}

func (c *Controller) look(ctx context.Context, r reference) error {
	if r.kind != Kind {
		return errors.Join(c.lookAtSource(r), c.write(ctx, r))
	}
	return errors.Join(c.lookAtGitOps(ctx, r), c.write(ctx, r))
}

// users are the GitOps objects that refer to a source.
func (c *Controller) users(r reference) (all []reference, err error) {
	c.mu.Lock()
	informers, certain := c.informers[gitOpsResource], c.certain
	c.mu.Unlock()
	if len(informers) == 0 && !certain {
		return nil, errors.New("it isn't known yet whether there are GitOps objects")
	}
	for _, informer := range informers {
		if !informer.HasSynced() {
			return nil, errors.New("it isn't known yet which GitOps objects there are")
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

// lookAtSource has those looked at that use a source, or takes it by itself.
func (c *Controller) lookAtSource(r reference) error {
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
		c.leave(r)
		return nil
	}
	artifact, _ := artifactOf(u)
	suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend")
	prune := u.GetAnnotations()[AnnotationPrune] == "true"
	c.set(r, gitops.Spec{
		Name: r.source(), Kind: r.kind, URL: r.namespace + "/" + r.name, Suspend: suspended, Prune: prune, OSMOnly: true,
		OSM: gitops.DefaultOSM(prune), Interval: sourceInterval, Resync: sourceInterval,
		Generation: fmt.Sprintf("%s/%t/%t/%s/%s", u.GetUID(), suspended, prune, u.GetAnnotations()[AnnotationRequested], artifact.generation()),
		From:       &from{controller: c, ref: r, osmOps: true},
		Report:     c.report(r, 0, "", artifact),
	})
	return nil
}

// sourceInterval is how often we look at what was made for a GitRepository by
// itself. Its own interval is how often git is asked.
const sourceInterval = 10 * time.Minute

// set gives the engine a source, if it hasn't it so already.
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

// leave ends a source that was made of a GitRepository by itself. What it owns
// stays: somebody else has it now, or nobody said that it should go.
func (c *Controller) leave(r reference) {
	c.mu.Lock()
	before, was := c.known[r]
	c.mu.Unlock()
	if was && !before.forget {
		c.set(r, gitops.Spec{Name: r.source(), Kind: r.kind, URL: r.namespace + "/" + r.name, Forget: true, Generation: "end", Report: c.report(r, 0, "", Artifact{})})
	}
}

// drop forgets a source.
func (c *Controller) drop(r reference) {
	c.mu.Lock()
	delete(c.known, r)
	delete(c.reports, r)
	delete(c.told, r)
	c.mu.Unlock()
	c.engine.Drop(r.source())
}

// lookAtGitOps gives the engine what an object asks for.
func (c *Controller) lookAtGitOps(ctx context.Context, r reference) error {
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
		return c.setFinalizers(ctx, u, append(u.GetFinalizers(), Finalizer)) // what that changes is seen
	}
	s := o.gitOpsSpec(r)
	source := o.sourceOf(r.namespace)
	var artifact Artifact
	if found, err := c.get(source); err == nil && found != nil {
		artifact, _ = artifactOf(found)
	}
	requested := u.GetAnnotations()[AnnotationRequested]
	s.Generation = fmt.Sprintf("%s/%d/%s/%s", u.GetUID(), u.GetGeneration(), requested, artifact.generation())
	origin := &from{controller: c, ref: source, owner: u, timeout: duration(o.Spec.Timeout, 0), retry: duration(o.Spec.RetryInterval, c.options.Wait)}
	if d := o.Spec.Decryption; d != nil {
		origin.keys = c.keys(r.namespace, d.SecretRef)
	}
	if ref := o.Spec.OSM.ConnectionSecretRef; ref != nil {
		s.OSM.Connection = c.connection(r.namespace, *ref)
	}
	if other := o.otherNamespaces(r.namespace); len(other) > 0 && c.options.NoCrossNamespaceRefs {
		s.DependsOn = nil
		origin.denied = tko.Errorf(tko.ErrDenied, "references to other namespaces are not allowed here: %s", strings.Join(other, ", "))
	}
	s.From = origin
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

// setFinalizers changes an object that nobody changed meanwhile.
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

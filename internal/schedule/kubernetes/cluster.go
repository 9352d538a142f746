package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/krm"
)

// manager is the name of TKO's field manager.
const manager = "tko"

const pageSize = 500 // objects per page of a list

// A cluster is a connection to a cluster. It is safe for concurrent use.
type cluster struct {
	digest  string // of the credentials
	host    string // URL of the API server
	client  *http.Client
	dynamic dynamic.Interface
	plain   *rest.RESTClient
	config  *rest.Config // the configuration of the connection

	// users, used and retired are guarded by connections.mu.
	users   int
	used    time.Time
	retired bool

	mu    sync.Mutex
	kinds map[schema.GroupVersion]map[string]kind
}

// A kind holds the resource name of a kind, and whether its objects are in
// namespaces.
type kind struct {
	resource   schema.GroupVersionResource
	namespaced bool
}

func newCluster(config *rest.Config, digest string, timeout time.Duration) (*cluster, error) {
	client, err := newTransport(config, timeout)
	if err != nil {
		return nil, err
	}
	made, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	original := config
	config = dynamic.ConfigFor(config)
	config.GroupVersion = &schema.GroupVersion{}
	plain, err := rest.UnversionedRESTClientForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	host, _, err := rest.DefaultServerURL(config.Host, config.APIPath, schema.GroupVersion{}, config.CAData != nil || config.Insecure)
	if err != nil {
		return nil, err
	}
	return &cluster{digest: digest, host: host.String(), client: client, dynamic: made, plain: plain, config: original, kinds: map[schema.GroupVersion]map[string]kind{}}, nil
}

func (c *cluster) close() { closeTransport(c.client) }

// kindOf asks the cluster for the kinds of a group and version, and caches them. It
// asks again for a kind that is not cached, because definitions are created and deleted.
func (c *cluster) kindOf(ctx context.Context, gvk krm.GVK) (k kind, known bool, err error) {
	gv := schema.GroupVersion{Group: gvk.Group, Version: gvk.Version}
	c.mu.Lock()
	k, known = c.kinds[gv][gvk.Kind]
	c.mu.Unlock()
	if known {
		return k, true, nil
	}
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	text, err := c.plain.Get().AbsPath(path).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return kind{}, false, nil
	}
	if err != nil {
		return kind{}, false, fmt.Errorf("list the kinds of %s: %w", gv, err)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(text, &list); err != nil {
		return kind{}, false, fmt.Errorf("list the kinds of %s: %w", gv, err)
	}
	kinds := map[string]kind{}
	for _, r := range list.APIResources {
		if isSubresource(r.Name) || r.Kind == "" {
			continue
		}
		kinds[r.Kind] = kind{resource: gv.WithResource(r.Name), namespaced: r.Namespaced}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kinds[gv] = kinds
	k, known = kinds[gvk.Kind]
	return k, known, nil
}

func isSubresource(name string) bool { return strings.Contains(name, "/") }

// forget drops the cached kinds of a group and version.
func (c *cluster) forget(gv schema.GroupVersion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.kinds, gv)
}

// of returns the client for an object's resource and namespace. The error is the
// API's NotFound if the cluster doesn't have the kind.
func (c *cluster) of(ctx context.Context, k key, version string) (dynamic.ResourceInterface, error) {
	found, known, err := c.kindOf(ctx, krm.GVK{Group: k.Group, Version: version, Kind: k.Kind})
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: k.Group, Resource: k.Kind}, k.Name)
	}
	if found.namespaced {
		return c.dynamic.Resource(found.resource).Namespace(k.Namespace), nil
	}
	return c.dynamic.Resource(found.resource), nil
}

// get returns an object, or nil if it does not exist.
func (c *cluster) get(ctx context.Context, k key, version string) (*unstructured.Unstructured, error) {
	at, err := c.of(ctx, k, version)
	if err == nil {
		var r *unstructured.Unstructured
		if r, err = at.Get(ctx, k.Name, metav1.GetOptions{}); err == nil {
			return r, nil
		}
	}
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return nil, fmt.Errorf("read %s: %w", k, err)
}

// list returns all objects with a label.
func (c *cluster) list(ctx context.Context, r schema.GroupVersionResource, namespace, label string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	restart := func() { all = nil }
	_, err := eachPage(ctx, c.dynamic.Resource(r).Namespace(namespace).List, metav1.ListOptions{LabelSelector: label}, restart, func(page *unstructured.UnstructuredList) {
		for i := range page.Items {
			all = append(all, &page.Items[i])
		}
	})
	return all, err
}

// eachPage calls do for each page of a list, and returns the version of the list. If the
// list expires before its last page was read, it calls restart, and do for the whole list.
func eachPage[L metav1.ListInterface](ctx context.Context, list func(context.Context, metav1.ListOptions) (L, error), options metav1.ListOptions, restart func(), do func(L)) (version string, err error) {
	for options.Limit = pageSize; ; {
		page, err := list(ctx, options)
		switch {
		case apierrors.IsResourceExpired(err) && options.Limit > 0:
			options.Continue, options.Limit = "", 0
			restart()
			continue
		case err != nil:
			return "", err
		}
		do(page)
		options.Continue = page.GetContinue()
		if options.Continue == "" {
			return page.GetResourceVersion(), nil
		}
	}
}

// listMatching lists the objects of a kind that options select and that match; none if the
// definition of the kind was deleted. If there are more than most, give or take a page, it
// ends, and more is true. What was found is valid also with an error.
func listMatching(ctx context.Context, at metadata.ResourceInterface, options metav1.ListOptions, most int, matches func(*metav1.PartialObjectMetadata) bool) (found []metav1.PartialObjectMetadata, more bool, err error) {
	for options.Limit = pageSize; ; {
		page, err := at.List(ctx, options)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			return found, false, nil
		case err != nil:
			return found, false, err
		}
		for i := range page.Items {
			if matches(&page.Items[i]) {
				found = append(found, page.Items[i])
			}
		}
		options.Continue = page.GetContinue()
		if options.Continue == "" || len(found) > most {
			return found, options.Continue != "", nil
		}
	}
}

// servedVersions returns the names of the versions of a definition that are served.
func servedVersions(definition *unstructured.Unstructured) []string {
	var names []string
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		if version, ok := v.(map[string]any); ok && version["served"] == true {
			name, _ := version["name"].(string)
			names = append(names, name)
		}
	}
	return names
}

// apply applies content and returns the resulting object. If dry, nothing changes,
// and it returns the object as it would be.
func (c *cluster) apply(ctx context.Context, o *object, content map[string]any, force, dry bool) (*unstructured.Unstructured, error) {
	at, err := c.of(ctx, o.key, o.version)
	if err != nil {
		return nil, err
	}
	options := metav1.ApplyOptions{FieldManager: manager, Force: force}
	if dry {
		options.DryRun = []string{metav1.DryRunAll}
	} else if err := fence.Check(ctx); err != nil {
		return nil, err
	}
	r, err := at.Apply(ctx, o.Name, &unstructured.Unstructured{Object: content}, options)
	if apierrors.IsNotFound(err) {
		c.forget(schema.GroupVersion{Group: o.Group, Version: o.version}) // its definition may have been deleted
	}
	return r, err
}

// remove requests the deletion of an object. It does nothing if another object of the
// same name has replaced it.
func (c *cluster) remove(ctx context.Context, k key, version string, r *unstructured.Unstructured, propagation metav1.DeletionPropagation) error {
	at, err := c.of(ctx, k, version)
	if err != nil {
		return err
	}
	if err := fence.Check(ctx); err != nil {
		return err
	}
	uid := r.GetUID()
	err = at.Delete(ctx, k.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &propagation})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (c *cluster) makeNamespace(ctx context.Context, name string) error {
	r := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
	}}
	_, err := c.dynamic.Resource(namespaces).Create(ctx, r, metav1.CreateOptions{FieldManager: manager})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// isUnreachable returns whether an error means that the cluster could not be reached
// or is not able to process requests, rather than that it rejected a request.
func isUnreachable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return isNetwork(err)
	}
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsTooManyRequests(err) || status.Status().Code >= http.StatusInternalServerError && status.Status().Code != http.StatusInternalServerError
}

package helm

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// A connection is how Helm's library reaches a cluster for one action: through
// somebody else's connections, and no longer than the action's context. It is
// the library's RESTClientGetter. What it learns of the cluster's kinds it
// keeps for that action only: definitions come and go.
type connection struct {
	config    *rest.Config
	namespace string
	wire      *wire

	once   sync.Once
	cached discovery.CachedDiscoveryInterface
	mapper meta.RESTMapper
	err    error
}

// newConnection makes one to the API server at a host, over a transport that
// knows the credentials.
func newConnection(ctx context.Context, host string, transport http.RoundTripper, timeout time.Duration, namespace string) *connection {
	w := &wire{ctx: ctx, inner: transport, timeout: timeout}
	return &connection{
		wire: w, namespace: namespace,
		config: &rest.Config{Host: host, Transport: w, QPS: -1, WarningHandler: rest.NoWarnings{}, UserAgent: "tko-meta-scheduler"},
	}
}

func (c *connection) prepare() error {
	c.once.Do(func() {
		client, err := discovery.NewDiscoveryClientForConfig(c.config)
		if err != nil {
			c.err = err
			return
		}
		c.cached = memory.NewMemCacheClient(client)
		c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(c.cached)
	})
	return c.err
}

// ToRESTConfig answers a copy: the library changes it.
func (c *connection) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(c.config), nil }

// ToDiscoveryClient answers the same one each time.
func (c *connection) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	err := c.prepare()
	return c.cached, err
}

// ToRESTMapper answers the same one each time.
func (c *connection) ToRESTMapper() (meta.RESTMapper, error) {
	err := c.prepare()
	return c.mapper, err
}

// ToRawKubeConfigLoader tells the library the namespace.
func (c *connection) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(*api.NewConfig(), &clientcmd.ConfigOverrides{Context: api.Context{Namespace: c.namespace}})
}

// A wire ends requests with a context that the library doesn't know, and keeps
// what was wrong with the way to the cluster: the library's errors don't always
// tell.
type wire struct {
	ctx   context.Context // the library's requests have none of the action
	inner http.RoundTripper

	timeout time.Duration // of a request that isn't a watch

	mu     sync.Mutex
	broken error
}

// RoundTrip makes a request, unless the action is over.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	unbind := context.AfterFunc(w.ctx, func() { cancel(context.Cause(w.ctx)) }) //nolint:contextcheck // the action's ends the request, too
	end := func() { unbind(); cancel(nil) }
	if w.timeout > 0 && r.URL.Query().Get("watch") == "" {
		late := time.AfterFunc(w.timeout, func() { cancel(context.DeadlineExceeded) })
		end = func() { late.Stop(); unbind(); cancel(nil) }
	}
	response, err := w.inner.RoundTrip(r.WithContext(ctx))
	if err != nil {
		end()
		if cause := context.Cause(ctx); errors.Is(cause, context.DeadlineExceeded) {
			err = cause
		}
		if r.Context().Err() == nil { // or the library gave up on it
			w.mu.Lock()
			w.broken = &url.Error{Op: r.Method, URL: r.URL.Redacted(), Err: err}
			w.mu.Unlock()
		}
		return nil, err
	}
	response.Body = &body{ReadCloser: response.Body, done: end}
	return response, nil
}

// problem is what was wrong with the way, if anything was.
func (w *wire) problem() error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken
}

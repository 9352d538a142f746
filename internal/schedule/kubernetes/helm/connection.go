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

// A connection connects Helm's library to a cluster for one operation: over the
// caller's transport, and no longer than the operation's context. It implements the
// library's RESTClientGetter. It caches the cluster's kinds for that operation only,
// because definitions come and go.
type connection struct {
	config    *rest.Config
	namespace string
	wire      *wire

	once   sync.Once
	cached discovery.CachedDiscoveryInterface
	mapper meta.RESTMapper
	err    error
}

// newConnection returns a connection to the API server at host. The transport adds
// the credentials.
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

// ToRESTConfig returns a copy, because the library changes it.
func (c *connection) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(c.config), nil }

// ToDiscoveryClient returns the same client each time.
func (c *connection) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	err := c.prepare()
	return c.cached, err
}

// ToRESTMapper returns the same mapper each time.
func (c *connection) ToRESTMapper() (meta.RESTMapper, error) {
	err := c.prepare()
	return c.mapper, err
}

// ToRawKubeConfigLoader returns the namespace to the library.
func (c *connection) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(*api.NewConfig(), &clientcmd.ConfigOverrides{Context: api.Context{Namespace: c.namespace}})
}

// forget drops the cached kinds, after definitions have changed.
func (c *connection) forget() {
	if c.cached != nil {
		c.cached.Invalidate()
	}
	if m, ok := c.mapper.(meta.ResettableRESTMapper); ok {
		m.Reset()
	}
}

// A wire ends requests with the operation's context, which the library doesn't pass
// on, and records errors of the connection, because the library's errors don't always
// contain them.
type wire struct {
	ctx   context.Context // the operation's context
	inner http.RoundTripper

	timeout time.Duration // limit of a request that isn't a watch

	mu     sync.Mutex
	broken error
}

// RoundTrip sends a request, unless the operation has ended.
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
		if r.Context().Err() == nil { // the library did not cancel the request itself
			w.mu.Lock()
			w.broken = &url.Error{Op: r.Method, URL: r.URL.Redacted(), Err: err}
			w.mu.Unlock()
		}
		return nil, err
	}
	response.Body = &body{ReadCloser: response.Body, done: end}
	return response, nil
}

// problem returns the recorded error of the connection, if any.
func (w *wire) problem() error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken
}

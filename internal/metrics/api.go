package metrics

import (
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// maxMethods bounds the methods of an API that have series of their own.
const maxMethods = 200

// An API has the metrics of one API of the server. It implements the observers of
// packages grpcapi, kubeapi and webapi.
type API struct {
	metrics *Metrics
	name    string
	methods atomic.Pointer[map[string]*method] // replaced, never changed: calls read it without a lock
	mutex   sync.Mutex

	watchers, slow prometheus.Gauge
	dropped        prometheus.Counter
}

// A method has the series of a method, so that calls don't look them up.
type method struct {
	label    string
	duration prometheus.Observer
	codes    [codes.Unauthenticated + 1]atomic.Pointer[prometheus.Counter]
}

// API returns the metrics of an API: grpc, http or kubernetes.
func (m *Metrics) API(name string, limits ...string) *API {
	a := &API{metrics: m, name: name}
	a.methods.Store(&map[string]*method{})
	for _, limit := range limits {
		m.refusals.WithLabelValues(name, limit)
	}
	if name != "http" { // which has no watches
		a.watchers, a.slow, a.dropped = m.watchers.WithLabelValues(name), m.slow.WithLabelValues(name), m.dropped.WithLabelValues(name)
	}
	return a
}

func (a *API) method(name string) *method {
	if known := (*a.methods.Load())[name]; known != nil {
		return known
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	all := maps.Clone(*a.methods.Load())
	if known := all[name]; known != nil {
		return known
	}
	label := strings.TrimPrefix(name, "/")
	if len(all) >= maxMethods {
		name, label = Other, Other
		if known := all[Other]; known != nil {
			return known
		}
	}
	one := &method{label: label}
	if !waits(label) {
		one.duration = a.metrics.durations.WithLabelValues(a.name, label)
	}
	all[name] = one
	a.methods.Store(&all)
	return one
}

// waits reports whether a method takes as long as its client likes, so that its
// duration says nothing.
func waits(label string) bool {
	return strings.HasSuffix(label, "/WatchChanges") || strings.HasSuffix(label, "/ClaimWork") || strings.HasPrefix(label, "watch ") ||
		strings.HasSuffix(label, ".Health/Watch") || strings.HasSuffix(label, "/ServerReflectionInfo")
}

// Called counts a gRPC call that has ended.
func (a *API) Called(name string, code codes.Code, took time.Duration) {
	one := a.method(name)
	if one.duration != nil {
		one.duration.Observe(took.Seconds())
	}
	if int(code) >= len(one.codes) {
		code = codes.Unknown
	}
	counter := one.codes[code].Load()
	if counter == nil {
		c := a.metrics.requests.WithLabelValues(a.name, one.label, code.String())
		counter = &c
		one.codes[code].Store(counter)
	}
	(*counter).Inc()
}

// Requested counts an HTTP request that has ended.
func (a *API) Requested(name string, status int, took time.Duration) {
	one := a.method(name)
	if one.duration != nil {
		one.duration.Observe(took.Seconds())
	}
	if status < 100 || status > 599 {
		status = 599
	}
	a.metrics.requests.WithLabelValues(a.name, one.label, strconv.Itoa(status)).Inc()
}

// Streaming counts the streams of a method that begin (1) and end (-1).
func (a *API) Streaming(name string, change int) {
	a.metrics.streams.WithLabelValues(a.name, a.method(name).label).Add(float64(change))
}

// Refused counts a request that exceeds a limit.
func (a *API) Refused(limit string) { a.metrics.refusals.WithLabelValues(a.name, limit).Inc() }

// Watching counts watches that begin (1) and end (-1).
func (a *API) Watching(change int) { a.watchers.Add(float64(change)) }

// Slow counts watches that begin (1) and end (-1) to wait for their clients.
func (a *API) Slow(change int) { a.slow.Add(float64(change)) }

// Dropped counts a watch that was closed because its client doesn't read.
func (a *API) Dropped() { a.dropped.Inc() }

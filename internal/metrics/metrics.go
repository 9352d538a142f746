package metrics

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// The bounds of the buckets of histograms, in seconds.
var (
	callBuckets   = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}
	storeBuckets  = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5, 30}
	actionBuckets = []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	groupBuckets  = []float64{1, 2, 4, 8, 16, 32, 64}
)

// maxPlugins is the number of plugins that have series of their own. Further ones
// share the name [Other].
const maxPlugins = 50

// kinds are the values of the label kind.
var kinds = []string{"", "template", "site", "deployment", "plugin", "login"}

// Other is the value of labels whose value is not in their closed set.
const Other = "other"

// Metrics are the metrics of one program. They may be used concurrently.
type Metrics struct {
	registry *prometheus.Registry

	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	streams   *prometheus.GaugeVec
	refusals  *prometheus.CounterVec
	watchers  *prometheus.GaugeVec
	slow      *prometheus.GaugeVec
	dropped   *prometheus.CounterVec

	denied *prometheus.CounterVec
	logs   *prometheus.CounterVec

	transactions *prometheus.HistogramVec
	commits      *prometheus.CounterVec
	groups       prometheus.Histogram
	conflicts    prometheus.Counter
	storeErrors  *prometheus.CounterVec

	work    *prometheus.HistogramVec
	retries *prometheus.CounterVec
	lost    *prometheus.CounterVec
	applies *prometheus.HistogramVec

	pluginRuns  *prometheus.CounterVec
	pluginTimes *prometheus.HistogramVec
	pluginMutex sync.Mutex
	pluginNames []string
}

// New returns the metrics of a program: of its process, and those of the packages
// that get one of its observers.
func New(program string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	own := prometheus.WrapRegistererWith(prometheus.Labels{"program": program}, m.registry)
	own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	m.requests = m.counter("tko_api_requests_total", "Requests that have ended, by API, method and status.", "api", "method", "code")
	m.durations = m.histogram("tko_api_request_duration_seconds", "Duration of requests, without watches and waits for work.", callBuckets, "api", "method")
	m.streams = m.gauge("tko_api_streams", "Watches, lists and waits for work under way, of the gRPC API.", "api", "method")
	m.refusals = m.counter("tko_api_limit_refusals_total", "Requests that were refused because of a limit on rates or streams.", "api", "limit")
	m.watchers = m.gauge("tko_watchers", "Clients that watch changes.", "api")
	m.slow = m.gauge("tko_watchers_slow", "Watching clients that have not read what was sent.", "api")
	m.dropped = m.counter("tko_watchers_dropped_total", "Watches that the server closed because the client did not read.", "api")

	m.denied = m.counter("tko_access_refusals_total", "Requests for which the caller has no right or no valid credentials.", "verb", "kind", "decision")
	m.logs = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tko_log_lines_total", Help: "Lines of the log, by level."}, []string{"level"})
	own.MustRegister(m.logs)
	m.work = m.histogram("tko_work_duration_seconds", "Duration of reconciliations, by queue and result.", actionBuckets, "queue", "result")
	m.retries = m.counter("tko_work_retries_total", "Reconciliations of items that had failed before.", "queue")
	m.lost = m.counter("tko_leases_lost_total", "Items of work whose lease expired while this process worked on them.", "queue")
	for _, level := range levels {
		m.logs.WithLabelValues(level)
	}
	return m
}

// Server adds the metrics of the server's own packages: the store, plugins and
// targets. The program tko-kubernetes has none of them.
func (m *Metrics) Server(version string, insecure bool) {
	open := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tko_insecure", Help: "Whether other machines are served without TLS or identities (--insecure)."})
	m.registry.MustRegister(open)
	if insecure {
		open.Set(1)
	}
	build := m.gauge("tko_build_info", "Version of the server; the value is 1.", "version", "go_version")
	build.WithLabelValues(version, runtime.Version()).Set(1)

	m.transactions = m.histogram("tko_store_transaction_duration_seconds", "Duration of transactions, from the wait for a connection to the end, and of single reads.", storeBuckets, "kind")
	m.commits = m.counter("tko_store_commits_total", "Transactions of changes that were committed: optimistic ones were decided from caches, locked ones from reads under the lock.", "kind")
	m.groups = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tko_store_commit_calls", Help: "Number of calls that share a transaction of changes.", Buckets: groupBuckets})
	m.conflicts = prometheus.NewCounter(prometheus.CounterOpts{Name: "tko_store_conflicts_total", Help: "Commits that were refused because a record had changed."})
	m.registry.MustRegister(m.groups, m.conflicts)
	m.storeErrors = m.counter("tko_store_errors_total", "Failed attempts of transactions and reads; transient ones were tried again.", "reason")
	for _, reason := range []string{"full", "transient", "unknown", Other} {
		m.storeErrors.WithLabelValues(reason)
	}

	m.applies = m.histogram("tko_target_apply_duration_seconds", "Duration of applying a site to a target, by kind of target and result.", actionBuckets, "target", "result")

	m.pluginRuns = m.counter("tko_plugin_runs_total", "Runs of plugins, by result.", "type", "plugin", "result")
	m.pluginTimes = m.histogram("tko_plugin_duration_seconds", "Duration of runs of plugins, with the wait for a free process.", actionBuckets, "type", "plugin")
}

func (m *Metrics) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(g)
	return g
}

func (m *Metrics) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.registry.MustRegister(h)
	return h
}

// Add adds a collector, such as a [Sampler].
func (m *Metrics) Add(c prometheus.Collector) { m.registry.MustRegister(c) }

// Denied counts a request that was refused, or would be.
func (m *Metrics) Denied(verb, kind, decision string) {
	if !slices.Contains(kinds, kind) {
		kind = Other
	}
	m.denied.WithLabelValues(verb, kind, decision).Inc()
}

// Transaction implements relational.Observer.
func (m *Metrics) Transaction(kind string, took time.Duration) {
	m.transactions.WithLabelValues(kind).Observe(took.Seconds())
}

// Committed implements relational.Observer.
func (m *Metrics) Committed(calls int, optimistic bool) {
	kind := "locked"
	if optimistic {
		kind = "optimistic"
	}
	m.commits.WithLabelValues(kind).Inc()
	m.groups.Observe(float64(calls))
}

// Conflicted implements relational.Observer.
func (m *Metrics) Conflicted() { m.conflicts.Inc() }

// Failed implements relational.Observer.
func (m *Metrics) Failed(reason string) { m.storeErrors.WithLabelValues(reason).Inc() }

// Worked implements work.Observer.
func (m *Metrics) Worked(queue, result string, again bool, took time.Duration) {
	m.work.WithLabelValues(queue, result).Observe(took.Seconds())
	if again {
		m.retries.WithLabelValues(queue).Inc()
	}
}

// Lost implements work.Observer.
func (m *Metrics) Lost(queue string) { m.lost.WithLabelValues(queue).Inc() }

// Queue makes the counters of a queue exist from the start, so that their first
// increase is seen.
func (m *Metrics) Queue(queue string) {
	m.retries.WithLabelValues(queue)
	m.lost.WithLabelValues(queue)
}

// Applied counts an attempt to apply a site to a target.
func (m *Metrics) Applied(target, result string, took time.Duration) {
	m.applies.WithLabelValues(target, result).Observe(took.Seconds())
}

// Ran counts a run of a plugin.
func (m *Metrics) Ran(typ, name, result string, took time.Duration) {
	name = m.plugin(name)
	m.pluginRuns.WithLabelValues(typ, name, result).Inc()
	m.pluginTimes.WithLabelValues(typ, name).Observe(took.Seconds())
}

// plugin returns the label of a plugin: its name, for the first ones.
func (m *Metrics) plugin(name string) string {
	m.pluginMutex.Lock()
	defer m.pluginMutex.Unlock()
	switch {
	case slices.Contains(m.pluginNames, name):
	case len(m.pluginNames) >= maxPlugins || len(name) > 100:
		return Other
	default:
		m.pluginNames = append(m.pluginNames, name)
	}
	return name
}

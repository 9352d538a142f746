package tkoserver

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/cmd/internal/wiring"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/metrics"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/internal/version"
	"github.com/tko-orchestrator/tko/internal/webapi"
)

// The intervals of sampling what costs the database something.
const (
	sampleQueues   = 15 * time.Second
	sampleDatabase = time.Minute
	sampleFiles    = time.Minute
)

// newMetrics returns the metrics of this process, except those of the data controller.
func newMetrics(c *config.Config) *metrics.Metrics {
	m := metrics.New("tko-server")
	m.Server(version.String(), c.Identity.Insecure)
	m.Add(metrics.Disks(folders(c)))
	for queue, role := range map[string]string{
		tko.QueuePrepare: config.RolePreparer, tko.QueueSchedule: config.RoleMetaScheduler, tko.QueueCompare: config.RoleMetaScheduler, tko.QueueRollout: config.RoleRollout,
	} {
		if c.Has(role) {
			m.Queue(queue)
		}
	}
	return m
}

// folders returns the folders that the server writes to, by their purpose.
func folders(c *config.Config) map[string]string {
	all := map[string]string{"temporary": os.TempDir()}
	if path, ok := strings.CutPrefix(string(c.Store), "sqlite:"); ok && path != ":memory:" && c.Has(config.RoleData) {
		all["database"] = filepath.Dir(path)
	}
	if c.Has(config.RoleMetaScheduler) && c.GitCache != "" {
		all["git-cache"] = c.GitCache
	}
	if c.Has(config.RoleGitOps) && c.GitOps.Dir != "" {
		all["gitops"] = c.GitOps.Dir
	}
	if dir := functionCache(c.KptCache); c.Has(config.RolePreparer) && dir != "" {
		all["functions"] = dir
	}
	return all
}

// observe adds the metrics of the data controller.
func (s *server) observe(store record.Store) {
	if m, ok := store.(measured); ok {
		m.Observe(s.metrics)
		s.metrics.Add(connectionSampler(m))
	}
	s.metrics.Add(storeSampler(store, &s.config.Access))
	s.metrics.Add(rolloutSampler(store))
	s.metrics.Add(databaseSampler(store))
	s.metrics.Add(metrics.NewSampler(time.Second, []metrics.Gauge{
		{Name: "tko_feed_lag_seconds", Help: "Age of the oldest change that this server has not read for its watchers."},
	}, func(ctx context.Context) ([]metrics.Value, error) {
		lag, err := s.service.FeedLag(ctx)
		if err != nil {
			return nil, err
		}
		return []metrics.Value{{Name: "tko_feed_lag_seconds", Value: lag.Seconds()}}, nil
	}))
}

// storeSampler samples the queues and the logs of the database.
func storeSampler(store record.Store, c *config.Access) *metrics.Sampler {
	return metrics.NewSampler(sampleQueues, []metrics.Gauge{
		{Name: "tko_store_up", Help: "Whether the database responds to the queries of these metrics."},
		{Name: "tko_store_disk_full", Help: "Whether the disk of the database is full."},
		{Name: "tko_work_items", Help: "Items in the queues, by state; counts stop at 100,000.", Labels: []string{"queue", "state"}},
		{Name: "tko_work_oldest_age_seconds", Help: "Time since the first of the ready items of a queue became due.", Labels: []string{"queue"}},
		{Name: "tko_feed_position", Help: "Position of the newest change.", Counter: true},
		{Name: "tko_audit_records_total", Help: "Records of the audit log, of all servers.", Counter: true},
		{Name: "tko_audit_sink_lag_records", Help: "Records that a sink of the audit log has not received.", Labels: []string{"sink"}},
	}, func(ctx context.Context) ([]metrics.Value, error) {
		values := []metrics.Value{}
		if m, ok := store.(measured); ok {
			full, _ := m.DiskFull(ctx)
			values = append(values, metrics.Value{Name: "tko_store_disk_full", Value: number(full)})
		}
		st, err := statisticsOf(ctx, store, []string{sinkName(c.AuditExport)}, tko.Queues())
		values = append(values, metrics.Value{Name: "tko_store_up", Value: number(err == nil)})
		if err != nil {
			return values, err
		}
		values = append(values, metrics.Value{Name: "tko_feed_position", Value: float64(st.Head)})
		if c.Audit {
			values = append(values, metrics.Value{Name: "tko_audit_records_total", Value: float64(st.Audited)})
		}
		if c.Audit && c.AuditExport != "" {
			behind := st.Audited // before it has received any
			if n, ok := st.Behind[sinkName(c.AuditExport)]; ok {
				behind = n
			}
			values = append(values, metrics.Value{Name: "tko_audit_sink_lag_records", Value: float64(behind), Labels: []string{sinkKind(c.AuditExport)}})
		}
		for _, q := range st.Queues {
			for state, n := range map[string]int{"ready": q.Ready, "running": q.Running, "retrying": q.Retrying, "waiting": q.Waiting} {
				values = append(values, metrics.Value{Name: "tko_work_items", Value: float64(n), Labels: []string{q.Queue, state}})
			}
			values = append(values, metrics.Value{Name: "tko_work_oldest_age_seconds", Value: q.Oldest.Seconds(), Labels: []string{q.Queue}})
		}
		return values, nil
	})
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// The states of sites.
const (
	siteOK          = "ok"          // scheduled, and not unhealthy
	siteUnhealthy   = "unhealthy"   // scheduled, and some objects have failed
	siteUnreachable = "unreachable" // its cluster or OSM does not respond, or its agent was not heard
	siteFailed      = "failed"      // not scheduled for another reason
	siteIdle        = "idle"        // nothing was ever scheduled
)

// databaseSampler samples what takes longer to read.
func databaseSampler(store record.Store) *metrics.Sampler {
	return metrics.NewSampler(sampleDatabase, []metrics.Gauge{
		{Name: "tko_store_size_bytes", Help: "Size of the database."},
		{Name: "tko_sites", Help: "Sites, by the state that their conditions report; counts stop at 100,000.", Labels: []string{"state"}},
		{Name: siteAgentsMetric, Help: "Sites whose agent has connected, by whether it was heard lately; counts stop at 100,000 sites.", Labels: []string{"state"}},
	}, func(ctx context.Context) ([]metrics.Value, error) {
		values := []metrics.Value{}
		if m, ok := store.(measured); ok {
			if size, err := m.Size(ctx); err == nil && size > 0 {
				values = append(values, metrics.Value{Name: "tko_store_size_bytes", Value: float64(size)})
			}
		}
		counts := map[string]int{siteOK: 0, siteUnhealthy: 0, siteUnreachable: 0, siteFailed: 0, siteIdle: 0}
		called, now := map[string]int{agentHeard: 0, agentSilent: 0, agentRevoked: 0, agentFenced: 0}, time.Now()
		if err := siteConditions(ctx, store, func(all []tko.Condition) {
			counts[siteState(all, now)]++
			if state := agentState(all, now); state != "" {
				called[state]++
			}
		}); err != nil {
			return values, err
		}
		for state, n := range called {
			values = append(values, metrics.Value{Name: siteAgentsMetric, Value: float64(n), Labels: []string{state}})
		}
		for state, n := range counts {
			values = append(values, metrics.Value{Name: "tko_sites", Value: float64(n), Labels: []string{state}})
		}
		return values, nil
	})
}

func siteState(conditions []tko.Condition, now time.Time) string {
	if agent := agentState(conditions, now); agent == agentSilent || agent == agentRevoked || agent == agentFenced {
		return siteUnreachable
	}
	state := siteIdle
	for _, c := range conditions {
		switch {
		case c.Reason == trigger.ReasonUnreachable:
			return siteUnreachable
		case c.Type == tko.ConditionScheduled && c.Status != tko.ConditionTrue:
			state = siteFailed
		case c.Type == tko.ConditionHealthy && c.Status == tko.ConditionFalse && state != siteFailed:
			state = siteUnhealthy
		case c.Type == tko.ConditionScheduled && state == siteIdle:
			state = siteOK
		}
	}
	return state
}

const siteAgentsMetric = "tko_site_agents"

// The states of the agents of sites.
const (
	agentHeard   = "heard"   // lately
	agentSilent  = "silent"  // not heard since --agents-silence
	agentRevoked = "revoked" // its certificate was revoked
	agentFenced  = "fenced"  // it refuses this store, because it has connected to one that was promoted
)

// agentState returns the state of the agent of a site; "" if it has none, or none has connected. An agent that must
// have been heard by now is silent, although no condition says so yet.
func agentState(conditions []tko.Condition, now time.Time) string {
	c := tko.FindCondition(conditions, tko.ConditionConnected)
	if c == nil || c.Reason == tko.ReasonNoAgent {
		return ""
	}
	if c.Reason == tko.ReasonRevoked {
		return agentRevoked
	}
	if c.Reason == tko.ReasonFenced {
		return agentFenced
	}
	if _, by, ok := tko.HeardAt(c); ok && now.Before(by) {
		return agentHeard
	}
	return agentSilent
}

func connectionSampler(store measured) *metrics.Sampler {
	const name = "tko_store_connections"
	return metrics.NewSampler(0, []metrics.Gauge{
		{Name: name, Help: "Connections to the database: used and idle ones, and their limit.", Labels: []string{"state"}},
	}, func(context.Context) ([]metrics.Value, error) {
		used, idle, limit := store.Connections()
		var values []metrics.Value
		for state, n := range map[string]int{"used": used, "idle": idle, "limit": limit} {
			values = append(values, metrics.Value{Name: name, Value: float64(n), Labels: []string{state}})
		}
		return values, nil
	})
}

// certificateSampler samples when the certificates of the settings expire.
func certificateSampler(c *config.Config, secure *security) *metrics.Sampler {
	const name = "tko_tls_certificate_expiry_timestamp_seconds"
	return metrics.NewSampler(sampleFiles, []metrics.Gauge{
		{Name: name, Help: "Time at which a certificate, or the revocation lists, expire.", Labels: []string{"use"}},
	}, func(context.Context) ([]metrics.Value, error) {
		values := []metrics.Value{}
		add := func(use string, at time.Time) {
			if !at.IsZero() {
				values = append(values, metrics.Value{Name: name, Value: float64(at.Unix()), Labels: []string{use}})
			}
		}
		if secure.certs != nil {
			add("server", secure.certs.Expires())
			add("revocations", secure.certs.RevocationsExpire())
		}
		if c.Kubernetes != "" && c.KubernetesCert != c.Identity.TLSCert {
			add("kubernetes", expiryOf(c.KubernetesCert))
		}
		add("data-client", expiryOf(c.Identity.DataTLSCert))
		return values, nil
	})
}

// expiryOf returns when the first certificate in a file expires; zero if that can't be
// read.
func expiryOf(path string) time.Time {
	if path == "" {
		return time.Time{}
	}
	data, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return time.Time{}
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return time.Time{}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return cert.NotAfter
}

// serveMetrics serves /metrics until the context ends.
func (s *server) serveMetrics(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics.Handler(s.log, func(ctx context.Context) ([]byte, error) { //nolint:contextcheck // the context of each request
		return wiring.Metrics(ctx, s.kubernetes)
	}))
	server := &http.Server{
		Handler: webapi.WithHosts(s.security.identified(mux, s.log), s.allowedHosts(s.config.ListenMetrics)), ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute, ConnContext: withConn,
	}
	return s.security.serveHTTP(ctx, server, l)
}

// minFree is the free space of a database's disk, in bytes, below which it counts as
// full.
const minFree = 1 << 20

// disks returns why changes fail, or "", and what will soon make them fail.
func (s *server) disks(ctx context.Context) (problem string, warnings []string) {
	if m, ok := s.store.(measured); ok {
		if full, since := m.DiskFull(ctx); full {
			problem = fmt.Sprintf("the disk of the database is full since %s, changes fail: free space on it, the server then continues by itself", since.UTC().Format(time.RFC3339))
		}
	}
	all := folders(s.config)
	for _, purpose := range slices.Sorted(maps.Keys(all)) {
		space, err := metrics.SpaceOf(all[purpose])
		if err != nil || space.Size == 0 {
			continue
		}
		percent := 100 * float64(space.Free) / float64(space.Size)
		switch {
		case purpose == "database" && space.Free < minFree && problem == "":
			problem = fmt.Sprintf("the disk of the database (%s) has %s free, changes fail: free space on it, the server then continues by itself", all[purpose], humanize.IBytes(space.Free))
		case percent < s.config.DiskLow:
			warnings = append(warnings, fmt.Sprintf("the disk of the folder %s (%s) has %s free, %.1f percent: free space on it before writes fail (--disk-low)", purpose, all[purpose], humanize.IBytes(space.Free), percent))
		}
	}
	return problem, warnings
}

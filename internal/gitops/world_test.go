package gitops_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/plan/plantest"
	"github.com/tko-orchestrator/tko/internal/grpcapi/grpctest"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// data starts a data controller in memory and returns its client.
func data(t testing.TB) *client.Client {
	t.Helper()
	return grpctest.Start(t, client.Options{Author: tko.Author{Who: "test"}})
}

// A repo is a git repository with an HTTP server.
type repo struct {
	t        testing.TB
	dir      string // work tree
	url      string
	requests atomic.Int64
	fetches  atomic.Int64 // requests for commits, trees and files
	away     atomic.Bool  // the server responds with an error to each request
}

var git = gittest.Run

func newRepo(t testing.TB) *repo {
	t.Helper()
	root := t.TempDir()
	r := &repo{t: t, dir: filepath.Join(root, "work")}
	git(t, root, "init", "-q", "-b", "main", "work")
	git(t, root, "clone", "-q", "--bare", "work", "fleet.git")
	git(t, r.dir, "remote", "add", "origin", filepath.Join(root, "fleet.git"))
	backend := gittest.Handler(t, root)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.requests.Add(1)
		if q.Method == http.MethodPost {
			r.fetches.Add(1)
		}
		if r.away.Load() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		backend.ServeHTTP(w, q)
	}))
	t.Cleanup(web.Close)
	r.url = web.URL + "/fleet.git"
	return r
}

// write writes files by name, and removes those whose content is "".
func (r *repo) write(files map[string]string) {
	r.t.Helper()
	gittest.Write(r.t, r.dir, files)
}

// push commits files, pushes the commit and returns its revision.
func (r *repo) push(files map[string]string) string {
	r.t.Helper()
	r.write(files)
	git(r.t, r.dir, "add", "-A")
	git(r.t, r.dir, "commit", "-q", "--allow-empty", "-m", "change")
	git(r.t, r.dir, "push", "-q", "-f", "origin", "main")
	return "main@sha1:" + git(r.t, r.dir, "rev-parse", "HEAD")
}

func template(id, value string) string {
	return fmt.Sprintf(`
apiVersion: tko.nephio.org/v1alpha1
kind: Template
metadata: {labels: {tier: edge}}
spec:
  templateId: %q
  package:
    resources:
    - {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {key: %q}}
`, id, value)
}

func site(id, template string) string {
	return fmt.Sprintf(`
apiVersion: tko.nephio.org/v1alpha1
kind: Site
spec:
  siteId: %q
  templateId: %q
`, id, template)
}

func deployment(name, template, site string) string {
	return fmt.Sprintf(`
apiVersion: tko.nephio.org/v1alpha1
kind: Deployment
metadata: {name: %q}
spec:
  templateId: %q
  siteId: %q
  package:
    resources:
    - {apiVersion: v1, kind: ConfigMap, metadata: {name: own}, data: {at: %q}}
`, name, template, site, site)
}

const plugin = `
apiVersion: tko.nephio.org/v1alpha1
kind: Plugin
spec: {type: schedule, pluginId: p, arguments: [x], triggers: [{group: g, version: v1, kind: K}]}
`

func all(documents ...string) string { return strings.Join(documents, "---") }

// A world is a data controller and a GitOps controller.
type world struct {
	testing.TB
	*client.Client
	controller *gitops.Controller
	log        eventually.Buffer
}

// spec returns the source of settings. Its interval is an hour by default, so that
// the controller reconciles it only when a test enqueues it.
func spec(t testing.TB, settings gitops.Settings) gitops.Spec {
	t.Helper()
	if settings.Interval == "" {
		settings.Interval = "1h"
	}
	s, err := settings.Spec(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func start(t testing.TB, c *client.Client, o gitops.Options) *world {
	t.Helper()
	w := &world{TB: t, Client: c}
	o.Log = slog.New(slog.NewTextHandler(&w.log, nil))
	w.controller = gitops.New(c, o)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.controller.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(w.log.String())
		}
	})
	return w
}

// until waits until holds returns true for a source, and returns the source.
func (w *world) until(name, what string, holds func(tko.Source) bool) tko.Source {
	w.Helper()
	var s tko.Source
	eventually.NoError(w.TB, fmt.Sprintf("source %q: %s", name, what), func() (err error) {
		if s, err = w.Source(w.Context(), name); err == nil && !holds(s) {
			err = fmt.Errorf("its status is %+v", s.Status)
		}
		return err
	})
	return s
}

// ready returns the condition Ready of a source; it is empty if there is none.
func ready(s tko.Source) tko.Condition {
	for _, c := range s.Status.Conditions {
		if c.Type == tko.ConditionReady {
			return c
		}
	}
	return tko.Condition{}
}

// sync enqueues a source and waits until it is reconciled, ready and at a revision.
func (w *world) sync(name, revision string) tko.Source {
	w.Helper()
	if err := w.controller.Enqueue(w.Context(), name); err != nil {
		w.Fatal(err)
	}
	return w.until(name, "at "+revision, func(s tko.Source) bool {
		c := ready(s)
		return s.Status.Applied == revision && c.Status == tko.ConditionTrue && !s.Enqueued
	})
}

// refused enqueues a source and waits until it isn't ready for this reason, with a
// message that contains all parts.
func (w *world) refused(name, reason string, parts ...string) tko.Source {
	w.Helper()
	if err := w.controller.Enqueue(w.Context(), name); err != nil {
		w.Fatal(err)
	}
	return w.until(name, "refused for "+reason, func(s tko.Source) bool {
		c := ready(s)
		for _, part := range parts {
			if !strings.Contains(c.Message, part) {
				return false
			}
		}
		return c.Status == tko.ConditionFalse && c.Reason == reason
	})
}

// entities returns a line for each entity: see [plantest.Entities].
func (w *world) entities() []string {
	w.Helper()
	return plantest.Entities(w, w.Client, func(d tko.Deployment) string { return string(d.Template) + "@" + string(d.Site) })
}

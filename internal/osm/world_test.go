package osm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/osm/bundle"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
	"github.com/tko-orchestrator/tko/internal/prune"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A world is an OSM and a source that is reconciled with it.
type world struct {
	t      *testing.T
	server *osmtest.Server
	client *nbi.Client
	policy osm.Policy

	mu    sync.Mutex
	state []byte // as last saved
	quick bool   // keep it in memory: in whole
	whole osm.State
	keeps int
	fail  func() error // of keeping
}

func newWorld(t *testing.T, o osmtest.Options) *world {
	t.Helper()
	w := &world{t: t, server: osmtest.Start(t, o), policy: osm.Policy{
		Prune: true, Budget: prune.Instances, Wait: time.Minute, Poll: 2 * time.Millisecond, Settle: 50 * time.Millisecond, Retry: time.Millisecond,
	}}
	w.client = osmtest.Client(t, w.server)
	return w
}

// saved returns the state as last saved.
func (w *world) saved() osm.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quick {
		return w.whole
	}
	var s osm.State
	if len(w.state) > 0 {
		if err := json.Unmarshal(w.state, &s); err != nil {
			w.t.Fatal(err)
		}
	}
	return s
}

func (w *world) reconciler() *osm.Reconciler {
	return &osm.Reconciler{Client: w.client, Keep: func(_ context.Context, s osm.State, _ []string) error {
		if w.quick {
			w.whole = s
			return nil
		}
		data, err := json.Marshal(s)
		if err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.fail != nil {
			if err := w.fail(); err != nil {
				return err
			}
		}
		w.state, w.keeps = data, w.keeps+1
		return nil
	}}
}

// try applies, with the saved state.
func (w *world) try(d osm.Desired) (osm.Report, error) {
	w.t.Helper()
	return w.reconciler().Apply(w.t.Context(), d, w.saved(), w.policy)
}

// apply applies without an error.
func (w *world) apply(d osm.Desired) osm.Report {
	w.t.Helper()
	r, err := w.try(d)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// settle applies, after which everything must be as desired.
func (w *world) settle(d osm.Desired) osm.Report {
	w.t.Helper()
	r := w.apply(d)
	if !r.Settled() {
		w.t.Fatalf("it isn't settled: %+v %+v %+v", r.Packages, r.Instances, r.Approval)
	}
	return r
}

// settles applies until everything is as desired. Errors before that must be of these
// kinds.
func (w *world) settles(d osm.Desired, kinds ...error) {
	w.t.Helper()
	eventually.NoError(w.t, "everything is as desired", func() error {
		r, err := w.try(d)
		switch {
		case err == nil && r.Settled():
			return nil
		case err == nil:
			err = fmt.Errorf("packages %+v, instances %+v", r.Packages, r.Instances)
		case !slices.ContainsFunc(kinds, func(k error) bool { return errors.Is(err, k) }):
			w.t.Fatal(err)
		}
		if all := duplicates(w.server); len(all) > 0 {
			w.t.Fatalf("there are duplicates: %v", all)
		}
		return err
	})
}

// instance returns the only instance of a name in OSM.
func (w *world) instance(name string) osmtest.Instance {
	w.t.Helper()
	i, ok := w.server.Instance(name)
	if !ok {
		w.t.Fatalf("there isn't one instance %q: %+v", name, w.server.Instances())
	}
	return i
}

func vnf(chart string) bundle.Package {
	const id = "upf_knf"
	return bundle.Package{Kind: nbi.KindVNF, ID: id, Source: "osm-pkgs/" + id, Files: fstest.MapFS{
		id + ".yaml":           {Data: fmt.Appendf(nil, "vnfd:\n  id: %s\n  product-name: p\n  kdu:\n  - name: upf\n    helm-chart: %s\n", id, chart)},
		"charts/values/a.yaml": {Data: []byte("a: 1\n")},
	}}
}

func ns(id string, members ...string) bundle.Package {
	var b strings.Builder
	fmt.Fprintf(&b, "nsd:\n  nsd:\n  - id: %s\n    name: n\n    vnfd-id: [upf_knf]\n    df:\n    - id: default\n      vnf-profile:\n", id)
	for _, m := range members {
		fmt.Fprintf(&b, "      - {id: %s, vnfd-id: upf_knf}\n", m)
	}
	return bundle.Package{Kind: nbi.KindNS, ID: id, Source: "osm-pkgs/" + id, Files: fstest.MapFS{id + ".yaml": {Data: []byte(b.String())}}}
}

func packages() []bundle.Package { return []bundle.Package{ns("upf_ns", "upf"), vnf("ops/upf")} }

func instance(name string, params map[string]any) osm.Instance {
	return osm.Instance{Name: name, NSD: "upf_ns", VIM: "vim", Source: name + ".osmops.yaml", VNFs: []osm.VNF{{Member: "upf", KDUs: []osm.KDU{{Name: "upf", Params: params}}}}}
}

func values(kv ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i].(string)] = kv[i+1]
	}
	return m
}

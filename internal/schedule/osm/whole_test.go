package osm_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/grpcapi/grpctest"
	"github.com/tko-orchestrator/tko/internal/osm/osmtest"
	"github.com/tko-orchestrator/tko/internal/schedule"
	"github.com/tko-orchestrator/tko/internal/schedule/osm"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// data returns a client of a data controller in memory.
func data(t *testing.T) *client.Client {
	t.Helper()
	return grpctest.Start(t, client.Options{})
}

// The test has the real data controller and work loop.
func TestDeploymentBecomesANetworkServiceWithTheDataController(t *testing.T) {
	t.Parallel()
	c, server := data(t), osmtest.Start(t, osmtest.Options{TLS: true, Delay: 10 * time.Millisecond})
	dir := t.TempDir()
	for name, content := range map[string][]byte{"password": []byte("admin"), "ca.pem": server.CA} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(text string) krm.Package {
		p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	site := read("apiVersion: osm.plugin.nephio.org/v1alpha1\nkind: OSM\nmetadata: {name: main}\nspec: {url: '" + server.URL +
		"', vimAccount: vim, caFile: ca.pem, credentials: {username: admin, passwordFile: password}}\n")
	if _, err := c.RegisterSite(t.Context(), tko.Site{ID: "lagos", Package: site}); err != nil {
		t.Fatal(err)
	}
	id, err := c.CreateDeployment(t.Context(), tko.NewDeployment{Site: "lagos", Prepared: true, Approved: true, Merge: read(packages + instance("upf", 1))})
	if err != nil {
		t.Fatal(err)
	}
	run := func(until func() bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			s := schedule.New(c, nil, schedule.Options{OSM: osm.Options{Secrets: dir, Poll: 5 * time.Millisecond, Settle: 20 * time.Millisecond}})
			ended <- s.Run(ctx)
		}()
		eventually.NoError(t, "the deployment or its removal is applied", func() error {
			if until() {
				return nil
			}
			d, err := c.Deployment(t.Context(), id, 0)
			if err != nil {
				return err
			}
			return fmt.Errorf("conditions %+v, instances %v", d.Stamp.Conditions, server.Instances())
		})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	is := func(condition, reason string) bool {
		d, err := c.Deployment(t.Context(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, have := range d.Stamp.Conditions {
			if have.Type == condition {
				return have.Reason == reason
			}
		}
		return false
	}
	run(func() bool { return len(server.Instances()) > 0 }) // it stops in the midst of it
	run(func() bool {
		return is(tko.ConditionScheduled, osm.ReasonApplied) && is(tko.ConditionHealthy, osm.ReasonHealthy)
	})
	if all := server.Instances(); len(all) != 1 || all[0].Name != "edge."+string(id) || all[0].State != "READY" {
		t.Errorf("there is %+v", all)
	}
	if _, err := c.DeleteDeployment(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	run(func() bool {
		_, there := server.Package("vnf", "upf_knf")
		return len(server.Instances()) == 0 && !there
	})
}

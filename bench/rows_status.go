package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

// rowsStatus are the rows of sites that Flux pulls from git, and whose status a hub has.
func rowsStatus(sites int) []string {
	what := thousands(sites) + " sites with the status of Flux"
	return []string{what + ": created to all healthy", what + ": commit to healthy seen", what + ", idle: processor time"}
}

const (
	aimStatusSeen    = 10 * time.Second // a change at a watched hub is read within some seconds
	maxStatusSamples = 20
	statusEvery      = 20 * time.Millisecond // between two looks at a deployment
	statusInventory  = "default_%s__ConfigMap"
	statusPackage    = "{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: default}, data: {mode: plain}}"
	statusRepository = `
apiVersion: git.plugin.nephio.org/v1alpha1
kind: Repository
metadata: {name: repository}
spec:
  url: %s
  status: {flux: {kubeconfig: {file: hub.yaml}}}
`
)

// The names of the templates, and of their objects: one of the fleet, and one that is created at
// some sites later.
const (
	statusFirst = "first"
	statusLater = "later"
)

// statuses measures a server of all roles whose sites are in one git repository, and whose
// status is in one cluster.
func (r *run) statuses(ctx context.Context) (err error) {
	if r.Fresh == nil {
		return &notMeasuredError{"the benchmark can't start another server: it measures a running one"}
	}
	folder, err := os.MkdirTemp("", "tko-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	own := r.scope("statuses")
	names := make([]string, r.Statuses)
	for i := range names {
		names[i] = nameOf(string(statusSite(own, i)))
	}
	repository := filepath.Join(folder, "sites.git")
	h, err := newHub(ctx, repository, names, []string{fmt.Sprintf(statusInventory, statusFirst), fmt.Sprintf(statusInventory, statusLater)})
	if err != nil {
		return err
	}
	var following sync.WaitGroup
	while, stopFollowing := context.WithCancel(ctx)
	following.Go(func() { h.follow(while) })
	defer func() {
		stopFollowing()
		following.Wait()
		h.CloseClientConnections()
		h.Close()
	}()
	kubeconfigs := filepath.Join(folder, "kubeconfigs")
	if err := os.Mkdir(kubeconfigs, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(kubeconfigs, "hub.yaml"), h.kubeconfig(), 0o600); err != nil {
		return err
	}
	return r.withFresh(ctx, true, func(fresh *run) error {
		own.run = fresh
		s := statusFleet{scope: own, hub: h}
		rows, err := s.measure(ctx, repository)
		r.add(rows...) // also those before an error
		return err
	}, "--target-git-local="+folder, "--kubeconfigs="+kubeconfigs)
}

// statusRegion is the number of sites of a region, which is a folder of the repository.
const statusRegion = 100

// statusSite returns the ID of a site of the rows.
func statusSite(s scope, i int) tko.SiteID {
	return tko.SiteID(fmt.Sprintf("%s/region-%03d/site-%06d", s.name, i/statusRegion, i))
}

// A statusFleet is the sites of the rows.
type statusFleet struct {
	scope

	hub *hub
}

func (s statusFleet) measure(ctx context.Context, repository string) (rows []Row, err error) {
	what := rowsStatus(s.Statuses)
	templates := map[string]tko.TemplateID{}
	for name, text := range map[string]string{"site": fmt.Sprintf(statusRepository, repository), statusFirst: fmt.Sprintf(statusPackage, statusFirst), statusLater: fmt.Sprintf(statusPackage, statusLater)} {
		pkg, err := decode(text)
		if err != nil {
			return nil, err
		}
		if templates[name], err = s.template(ctx, name, pkg, nil); err != nil {
			return nil, err
		}
	}
	if _, err := s.load(ctx, s.Clients, 0, s.Statuses, func(ctx context.Context, p peer, i int) error {
		_, err := p.RegisterSite(ctx, tko.Site{ID: statusSite(s.scope, i), Template: templates["site"]})
		return err
	}); err != nil {
		return nil, err
	}
	before, began := s.processor(), time.Now()
	if _, err := s.load(ctx, s.Clients, 0, s.Statuses, func(ctx context.Context, p peer, i int) error {
		_, err := p.CreateDeployment(ctx, tko.NewDeployment{Template: templates[statusFirst], Site: statusSite(s.scope, i)})
		return err
	}); err != nil {
		return nil, err
	}
	created := time.Since(began)
	if err := s.allHealthy(ctx); err != nil {
		return nil, err
	}
	rows = append(rows, duration(what[0], time.Since(began), 0, fmt.Sprintf("created in %s, one by one, in one git repository; processor time of the servers %s", short(created), short(s.processor()-before))))

	var whole stopwatch
	i := 0
	all, err := collect(min(s.Samples, maxStatusSamples, s.Statuses), func() (time.Duration, error) {
		site, begins := statusSite(s.scope, i), time.Now()
		i++
		id, err := s.client.CreateDeployment(ctx, tko.NewDeployment{Template: templates[statusLater], Site: site})
		if err != nil {
			return 0, err
		}
		if err := s.healthy(ctx, id); err != nil {
			return 0, err
		}
		whole.add(time.Since(begins))
		return time.Since(s.hub.seen(nameOf(string(site)))), nil
	})
	if err != nil {
		return rows, err
	}
	rows = append(rows, latency(what[1], all, aimStatusSeen).with("from the creation p50 "+short(quantile(whole.took, 50)), "a stand-in for Flux applies commits at once"))

	before, began = s.processor(), time.Now()
	if err := pause.For(ctx, s.Idle); err != nil {
		return rows, err
	}
	took := time.Since(began)
	return append(rows, Row{
		What: what[2], Value: 100 * (s.processor() - before).Seconds() / took.Seconds(), Unit: Percent,
		Note: fmt.Sprintf("over %s, all roles, with the programs that they start; each site is read the rarer the longer nothing changes", short(took)),
	}), nil
}

// processor returns the processor time of the server and of the programs that it starts.
func (s statusFleet) processor() time.Duration {
	return processorTimes(append(childrenOf(s.PID), s.PID))
}

// allHealthy waits until the deployments of all sites are healthy.
func (s statusFleet) allHealthy(ctx context.Context) error {
	for last, since := -1, time.Now(); ; {
		fleet, err := s.client.Fleet(ctx, tko.FleetSelect{})
		if err != nil {
			return err
		}
		n := fleet.Deployments.Healthy
		switch {
		case n == s.Statuses:
			return nil
		case s.hub.failed() != nil:
			return s.hub.failed()
		case n != last:
			last, since = n, time.Now()
		case time.Since(since) > statusLimit:
			return fmt.Errorf("%d of %d deployments are healthy, and no more for %s: %.500s", n, s.Statuses, statusLimit, fmt.Sprint(fleet.Failures))
		}
		if err := pause.For(ctx, 5*statusEvery); err != nil {
			return err
		}
	}
}

// statusLimit is the time without progress after which a row fails.
const statusLimit = 2 * time.Minute

// healthy waits until a deployment is healthy.
func (s statusFleet) healthy(ctx context.Context, id tko.DeploymentID) error {
	for began := time.Now(); ; {
		d, err := s.client.Deployment(ctx, id, 0)
		if err != nil {
			return err
		}
		c := tko.FindCondition(d.Stamp.Conditions, tko.ConditionHealthy)
		switch {
		case c != nil && c.Status == tko.ConditionTrue && c.ObservedRevision == d.Stamp.Revision:
			return nil
		case time.Since(began) > statusLimit:
			return fmt.Errorf("deployment %q is not healthy after %s: %.500s", id, statusLimit, fmt.Sprint(d.Stamp.Conditions))
		}
		if err := pause.For(ctx, statusEvery); err != nil {
			return err
		}
	}
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/pause"
)

// rowsNetwork are the rows of one topology that places templates on new sites, whose packages are
// delivered to git.
func rowsNetwork(sites, templates int) []string {
	what := fmt.Sprintf("a network of %s sites and %d templates: ", thousands(sites), templates)
	return []string{what + "sites registered", what + "all prepared", what + "all delivered", what + "commits", what + "memory of the server", what + "the same topology, unchanged", what + "one template upgraded at all sites by a rollout"}
}

const (
	networkSites = 100 // of a repository
	networkEvery = 250 * time.Millisecond
	networkLimit = 5 * time.Minute // without progress

	// The aims of a million deployments, on two cores.
	networkPrepared  = 12 * time.Minute
	networkDelivered = 20 * time.Minute
	networkCommits   = 2000
	networkMemory    = 512 << 20
	networkRegister  = time.Millisecond // for each site
)

const (
	networkSite = `
apiVersion: git.plugin.nephio.org/v1alpha1
kind: Repository
metadata: {name: repository}
spec: {url: %s}
`
	networkSelect = `
apiVersion: topology.nephio.org/v1alpha1
kind: Sites
metadata: {name: sites}
spec: {select: {metadata: {network: %q}}}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Placement
metadata: {name: placement}
spec: {update: Apply, budget: {delete: %d}, templates: [%s]}
`
	networkTemplate = `
---
apiVersion: topology.nephio.org/v1alpha1
kind: Template
metadata: {name: %s}
spec: {templateId: %q}
`
)

// network measures a server of all roles with a new database, from the first site until all is in
// git.
func (r *run) network(ctx context.Context) (err error) {
	if r.Fresh == nil {
		return &notMeasuredError{"the benchmark can't start another server: it measures a running one"}
	}
	folder, err := os.MkdirTemp("", "tko-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	return r.withFresh(ctx, true, func(fresh *run) error {
		own := r.scope("network")
		own.run = fresh
		rows, err := (&network{scope: own, folder: folder}).measure(ctx)
		r.add(rows...) // also those before an error
		return err
	}, "--target-git-local="+folder)
}

// A network is the topology of the rows.
type network struct {
	scope

	folder    string // of the repositories
	templates []tko.TemplateID
	topology  tko.DeploymentID
}

// deployments is the number of deployments at the sites.
func (n *network) deployments() int { return n.Network * n.NetworkTemplates }

// scaled returns the aim for a million deployments, in proportion.
func (n *network) scaled(aim time.Duration) time.Duration {
	return time.Duration(float64(aim) * float64(n.deployments()) / 1e6)
}

func (n *network) measure(ctx context.Context) (rows []Row, err error) {
	what := rowsNetwork(n.Network, n.NetworkTemplates)
	peak := sync.OnceValue(watchResident(n.PID))
	defer peak()
	took, err := n.register(ctx)
	if err != nil {
		return nil, err
	}
	rows = append(rows, duration(what[0], took, time.Duration(n.Network)*networkRegister, fmt.Sprintf("%d clients", n.Clients)))
	topology, err := decode(n.text())
	if err != nil {
		return rows, err
	}
	id, err := n.template(ctx, "topology", topology, nil)
	if err != nil {
		return rows, err
	}
	note := func(took, used time.Duration) string {
		return fmt.Sprintf("%.0f/s; processor time %s each", float64(n.deployments())/took.Seconds(), short(used/time.Duration(n.deployments())))
	}
	began, before := time.Now(), processorTime(n.PID)
	if err := n.create(ctx, id); err != nil {
		return rows, err
	}
	if err := n.until(ctx, "prepared", func(c tko.FleetCounts) int { return c.Prepared - 1 }, n.deployments()); err != nil { // not counting the topology
		return rows, err
	}
	rows = append(rows, duration(what[1], time.Since(began), n.scaled(networkPrepared), note(time.Since(began), processorTime(n.PID)-before)))
	if err := n.until(ctx, "delivered", func(c tko.FleetCounts) int { return c.Scheduled }, n.deployments()); err != nil {
		return rows, err
	}
	took, used := time.Since(began), processorTime(n.PID)-before
	files, commits, err := n.delivered(ctx)
	if err != nil {
		return rows, err
	}
	if files != n.deployments() {
		return rows, fmt.Errorf("the repositories have the resources of %d deployments, want %d", files, n.deployments())
	}
	rows = append(
		rows,
		duration(what[2], took, n.scaled(networkDelivered), note(took, used)),
		Row{What: what[3], Value: float64(commits), Unit: Count, Aim: max(networkCommits*float64(n.deployments())/1e6, float64(n.repositories())), Note: fmt.Sprintf("in %d repositories", n.repositories())},
		Row{What: what[4], Value: float64(peak()), Unit: Bytes, Aim: networkMemory, Note: "the most that was resident until then"},
	)
	took, err = n.again(ctx)
	if err != nil {
		return rows, err
	}
	_, now, err := n.delivered(ctx)
	if err == nil && now != commits {
		err = fmt.Errorf("an unchanged topology made %d commits", now-commits)
	}
	if err != nil {
		return rows, err
	}
	rows = append(rows, duration(what[5], took, 10*time.Second, "until the topology is placed again; no commit"))
	upgraded, err := n.function(ctx, "upgraded", 0)
	if err != nil {
		return rows, err
	}
	began, before = time.Now(), processorTime(n.PID)
	if err := n.upgrade(ctx, n.templates[0], upgraded); err != nil {
		return rows, err
	}
	if err := n.until(ctx, "delivered", func(c tko.FleetCounts) int { return min(c.Scheduled, c.Prepared-1) }, n.deployments()); err != nil {
		return rows, err
	}
	at, err := count(n.client.Deployments(ctx, tko.DeploymentSelect{Templates: []string{tko.LiteralPattern(string(upgraded))}}, tko.ListOptions{}))
	if err == nil && at != n.Network {
		err = fmt.Errorf("%d deployments are of the new version, want %d", at, n.Network)
	}
	if err != nil {
		return rows, err
	}
	took = time.Since(began)
	_, after, err := n.delivered(ctx)
	if err != nil {
		return rows, err
	}
	return append(rows, duration(what[6], took, 0, fmt.Sprintf("%.0f/s; processor time %s each; %d commits", float64(n.Network)/took.Seconds(), short((processorTime(n.PID)-before)/time.Duration(n.Network)), after-now))), nil
}

// create creates the topology, and consents to its deployments if they are so many that they wait
// for it.
func (n *network) create(ctx context.Context, template tko.TemplateID) (err error) {
	if n.topology, err = n.client.CreateDeployment(ctx, tko.NewDeployment{Template: template}); err != nil {
		return err
	}
	for {
		d, err := n.client.Deployment(ctx, n.topology, 0)
		switch {
		case err != nil:
			return err
		case tko.HasCondition(d.Stamp.Conditions, tko.ConditionPrepared, tko.ReasonWaitsForApproval):
			_, err := n.client.ApproveDeployment(tko.WithConfirmation(ctx, n.deployments()), n.topology)
			return err
		case d.Prepared:
			return nil
		}
		if err := pause.For(ctx, networkEvery); err != nil {
			return err
		}
	}
}

// repositories is the number of repositories.
func (n *network) repositories() int { return (n.Network + networkSites - 1) / networkSites }

// register registers the templates, and the sites with theirs, and returns the time that the sites
// took.
func (n *network) register(ctx context.Context) (time.Duration, error) {
	for i := range n.NetworkTemplates {
		id, err := n.function(ctx, "function-"+strconv.Itoa(i), i)
		if err != nil {
			return 0, err
		}
		n.templates = append(n.templates, id)
	}
	var at []tko.TemplateID
	for i := range n.repositories() {
		p, err := decode(fmt.Sprintf(networkSite, filepath.Join(n.folder, fmt.Sprintf("sites-%03d.git", i))))
		if err != nil {
			return 0, err
		}
		id, err := n.template(ctx, "repository-"+strconv.Itoa(i), p, map[string]string{"network": n.name})
		if err != nil {
			return 0, err
		}
		at = append(at, id)
	}
	m, err := n.load(ctx, n.Clients, 0, n.Network, func(ctx context.Context, p peer, i int) error {
		_, err := p.RegisterSite(ctx, tko.Site{ID: n.site(i), Template: at[i/networkSites]})
		return err
	})
	return m.took, err
}

// function registers the i-th template of a deployment.
func (n *network) function(ctx context.Context, name string, i int) (tko.TemplateID, error) {
	p, err := decode(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: function-%d, namespace: default}, data: {version: %s}}", i, name))
	if err != nil {
		return "", err
	}
	return n.template(ctx, name, p, nil)
}

// text returns the package of the topology.
func (n *network) text() string {
	var parts []string
	var all strings.Builder
	for i, id := range n.templates {
		parts = append(parts, fmt.Sprintf("{template: function-%d, sites: [sites]}", i))
		fmt.Fprintf(&all, networkTemplate, "function-"+strconv.Itoa(i), id)
	}
	return fmt.Sprintf(networkSelect, n.name, n.deployments(), strings.Join(parts, ", ")) + all.String()
}

// again writes the topology with the same templates, and returns the time until it is placed.
func (n *network) again(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	m, err := n.client.StartModification(ctx, n.topology)
	if err != nil {
		return 0, err
	}
	for _, r := range m.Package {
		if r.Text("kind") == "Placement" {
			r.SetAnnotation("written", "again")
		}
	}
	_, revision, err := n.client.EndModification(tko.WithConfirmation(ctx, n.deployments()), m.Token, m.Package)
	if err != nil {
		return 0, err
	}
	for {
		d, err := n.client.Deployment(ctx, n.topology, 0)
		if err != nil {
			return 0, err
		}
		placed := tko.FindCondition(d.Stamp.Conditions, tko.ConditionPlaced)
		switch {
		case placed != nil && placed.Status == tko.ConditionTrue && placed.ObservedRevision >= revision:
			return time.Since(began), nil
		case time.Since(began) > networkLimit:
			return 0, fmt.Errorf("the topology is not placed after %s: %.500s", networkLimit, fmt.Sprint(d.Stamp.Conditions))
		}
		if err := pause.For(ctx, networkEvery); err != nil {
			return 0, err
		}
	}
}

// upgrade carries out a rollout of all deployments of a template.
func (n *network) upgrade(ctx context.Context, from, to tko.TemplateID) error {
	id := tko.RolloutID(nameOf(n.name) + "-upgrade")
	pkg := plannedRollout(string(from), string(to))
	pkg[0].Set("Accept", "spec", "health", "none") // git reports no health
	if _, err := n.client.RegisterRollout(ctx, tko.Rollout{ID: id, Package: pkg}); err != nil {
		return err
	}
	for _, state := range []string{"Planned", "Done"} {
		for began := time.Now(); ; {
			status, err := n.client.RolloutStatus(ctx, id)
			switch {
			case err != nil:
				return err
			case status.State == "Paused" || status.State == "Cancelled" || status.State == "Draft" && status.Reason != "":
				return fmt.Errorf("rollout %q is %s: %s", id, status.State, status.Reason)
			case time.Since(began) > stepTime:
				return fmt.Errorf("rollout %q is %s after %s: %s", id, status.State, stepTime, status.Reason)
			}
			if status.State != state {
				if err := pause.For(ctx, networkEvery); err != nil {
					return err
				}
				continue
			}
			if state == "Planned" {
				if _, err := n.client.RolloutDo(ctx, tko.RolloutCommand{ID: id, Verb: "start", Plan: status.Plan}); err != nil {
					return err
				}
			}
			break
		}
	}
	return nil
}

// until waits until a number of deployments is counted, while there is progress.
func (n *network) until(ctx context.Context, what string, counted func(tko.FleetCounts) int, want int) error {
	for last, since := -1, time.Now(); ; {
		fleet, err := n.client.Fleet(ctx, tko.FleetSelect{})
		if err != nil {
			return err
		}
		have := counted(fleet.Deployments)
		switch {
		case have >= want && fleet.Deployments.Total == n.deployments()+1:
			return nil
		case have != last:
			last, since = have, time.Now()
		case time.Since(since) > networkLimit:
			return fmt.Errorf("%d of %d deployments are %s, and no more for %s: %.500s", have, want, what, networkLimit, fmt.Sprint(fleet.Failures))
		}
		if err := pause.For(ctx, networkEvery); err != nil {
			return err
		}
	}
}

// delivered returns the numbers of deployments of which a resource is in the repositories, and of
// commits there.
func (n *network) delivered(ctx context.Context) (files, commits int, err error) {
	for i := range n.repositories() {
		dir := filepath.Join(n.folder, fmt.Sprintf("sites-%03d.git", i))
		git := func(args ...string) (string, error) {
			out, err := exec.CommandContext(ctx, "git", append([]string{"--git-dir", dir}, args...)...).Output() //nolint:gosec // our own arguments
			return string(out), err
		}
		branch, err := git("for-each-ref", "--format=%(refname)", "refs/heads/")
		if err != nil {
			return 0, 0, err
		}
		head := strings.TrimSpace(branch)
		names, err := git("grep", "-l", "-e", "name: function-", head)
		if err != nil {
			return 0, 0, err
		}
		files += strings.Count(names, "\n")
		text, err := git("rev-list", "--count", head)
		if err != nil {
			return 0, 0, err
		}
		one, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return 0, 0, err
		}
		commits += one
	}
	return files, commits, nil
}

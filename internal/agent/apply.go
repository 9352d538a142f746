package agent

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/bundle"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/schedule"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/internal/work"
	"github.com/tko-orchestrator/tko/krm"
)

// A Place is where an agent applies bundles: the cluster of a kubeconfig, the cluster that it runs
// in, or a repository of git on this machine. One is given.
type Place struct {
	Kubeconfig string // path of a file
	InCluster  bool
	Repository string // path of a bare repository, which is made if there is none
	// Clusters makes the target for clusters, with the folder of kubeconfigs. It is required for
	// clusters.
	Clusters func(kubeconfigs string, inCluster bool) schedule.Clusters
}

// Check returns an error unless one place is given.
func (p Place) Check() error {
	given := 0
	for _, there := range []bool{p.Kubeconfig != "", p.InCluster, p.Repository != ""} {
		if there {
			given++
		}
	}
	if given != 1 {
		return tko.Errorf(tko.ErrInvalid, "name one place: --kubeconfig FILE, --in-cluster or --repository FOLDER")
	}
	return nil
}

// at returns the package of a site for this place: what the agent's Cluster triggers here is all
// that it has.
func (p Place) at(pkg krm.Package) (krm.Package, error) {
	r, err := trigger.OfAgent(pkg)
	if err != nil {
		return nil, err
	}
	if p.Repository == "" {
		return krm.Package{trigger.AtFile(r, p.file())}, nil
	}
	path, err := filepath.Abs(p.Repository)
	if err != nil {
		return nil, err
	}
	return krm.Package{{
		"apiVersion": place.Git.GVK.APIVersion(), "kind": place.Git.GVK.Kind, "metadata": map[string]any{"name": r.Identity().Name},
		"spec": map[string]any{"url": path, "status": map[string]any{"none": map[string]any{}}},
	}}, nil
}

func (p Place) file() string {
	if p.InCluster {
		return ""
	}
	return filepath.Base(p.Kubeconfig)
}

// target returns the option of the meta-scheduler for the place; nil for a repository.
func (p Place) target() func(func(...tko.SiteID)) schedule.Clusters {
	if p.Repository != "" {
		return nil
	}
	return func(func(...tko.SiteID)) schedule.Clusters {
		return p.Clusters(filepath.Dir(p.Kubeconfig), p.InCluster)
	}
}

// An Outcome is what became of the bundle that was accepted last.
type Outcome struct {
	Statement bundle.Statement
	States    []bundle.State // of the site and its deployments, as reports have them

	Deployments, Scheduled, Healthy int
	Kept                            int // that the site keeps as they are
}

// Whole reports whether the site has all of the bundle, and none of it is known to be unhealthy or
// on its way.
func (o Outcome) Whole() bool {
	for _, s := range o.States {
		for _, c := range s.Conditions {
			if c.Type == tko.ConditionScheduled && c.Status != tko.ConditionTrue || c.Type == tko.ConditionHealthy && c.Status == tko.ConditionFalse || c.Reason == trigger.ReasonInProgress {
				return false
			}
		}
	}
	return o.Scheduled == o.Deployments
}

// Apply applies the bundle that was accepted last, if one of the keys has signed it, and observes
// it until the site has all of it and it is healthy, at most for a time. It is idempotent, and
// corrects what others changed. The outcome is valid also if there is an error.
func (a *Agent) Apply(ctx context.Context, keys []ed25519.PublicKey, p Place, wait time.Duration) (Outcome, error) {
	if err := p.Check(); err != nil {
		return Outcome{}, err
	}
	was, err := a.accepted()
	if err == nil && was == nil {
		err = tko.Errorf(tko.ErrNotFound, "no bundle was applied yet: name one with tko-agent apply FILE")
	}
	if err != nil {
		return Outcome{}, err
	}
	b, done, err := a.verified(bundleFile, keys)
	if err != nil {
		return Outcome{}, fmt.Errorf("the bundle that was applied last, %s: %w", a.folder.file(bundleFile), err)
	}
	defer done()
	r, err := a.records(b)
	if err != nil {
		return Outcome{}, err
	}
	r.at = p.at
	if _, err := p.at(r.site.Package); err != nil {
		return Outcome{}, err
	}
	return a.reconcile(ctx, r, p, wait)
}

// reconcile reconciles the site until it is whole, or the time is over.
func (a *Agent) reconcile(ctx context.Context, r *records, p Place, wait time.Duration) (Outcome, error) {
	s := schedule.New(r, nil, schedule.Options{Kubernetes: p.target(), Log: a.log})
	defer s.Close()
	ctx = tko.WithClaim(ctx, tko.WorkItem{Queue: tko.QueueSchedule, Key: string(a.site)})
	until := time.Now().Add(wait)
	for {
		size, err := r.size()
		if err != nil {
			return Outcome{}, err
		}
		if err := a.folder.reserve(size); err != nil {
			return Outcome{}, err
		}
		a.folder.step("reconcile")
		result := s.Reconcile(ctx, a.site)
		if err := r.save(); err != nil {
			return r.outcome(), err
		}
		outcome := r.outcome()
		left := time.Until(until)
		if ctx.Err() != nil {
			return outcome, context.Cause(ctx)
		}
		if outcome.Whole() || isFinal(result) || left <= 0 {
			return outcome, result.Err
		}
		if err := pause.For(ctx, min(max(result.Retry, time.Second), left, 10*time.Second)); err != nil {
			return outcome, err
		}
	}
}

// isFinal reports whether only a change of the bundle can change the result.
func isFinal(r work.Result) bool {
	return r.Err == nil && (r.Outcome == tko.WorkDone || r.Outcome == "")
}

// outcome returns what the conditions say of the revisions of the bundle.
func (r *records) outcome() Outcome {
	o := Outcome{Statement: r.statement}
	o.States = append(o.States, r.stateOf(tko.KindSite, string(r.site.ID), r.site.Stamp.Revision))
	for _, d := range r.deployments {
		if !d.Prepared {
			o.Kept++
			continue
		}
		s := r.stateOf(tko.KindDeployment, string(d.ID), d.Stamp.Revision)
		o.States = append(o.States, s)
		o.Deployments++
		for _, c := range s.Conditions {
			switch {
			case c.Status != tko.ConditionTrue:
			case c.Type == tko.ConditionScheduled:
				o.Scheduled++
			case c.Type == tko.ConditionHealthy:
				o.Healthy++
			}
		}
	}
	slices.SortFunc(o.States, func(a, b bundle.State) int {
		return strings.Compare(entityKey(a.Kind, a.ID), entityKey(b.Kind, b.ID))
	})
	return o
}

// stateOf returns the conditions of an entity that are of its revision in the bundle.
func (r *records) stateOf(kind tko.Kind, id string, revision int64) bundle.State {
	s := bundle.State{Kind: kind, ID: id, Revision: revision, Conditions: []bundle.Condition{}}
	for _, c := range r.state.Conditions[entityKey(kind, id)] {
		if c.ObservedRevision == revision && slices.Contains(bundle.Reported, c.Type) {
			s.Conditions = append(s.Conditions, bundle.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
	}
	return s
}

// Report writes the signed report of an outcome.
func (a *Agent) Report(w io.Writer, o Outcome, at time.Time) error {
	made := o.Statement.Time
	_, err := bundle.Write(w, bundle.Statement{
		Site: a.site, Serial: o.Statement.Serial, Time: at, Missing: o.Statement.Missing, Bundle: o.Statement.Digest, Made: &made,
	}, bundle.Options{Type: bundle.TypeReport, Key: a.key}, rows(o.States))
	return err
}

func rows(states []bundle.State) iter.Seq2[bundle.Row, error] {
	return func(yield func(bundle.Row, error) bool) {
		for i := range states {
			if !yield(bundle.Row{State: &states[i]}, nil) {
				return
			}
		}
	}
}

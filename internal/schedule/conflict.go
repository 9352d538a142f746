package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/scope"
	"github.com/tko-orchestrator/tko/krm"
)

// ReasonConflict is the reason of deployments that have an object in common with
// another deployment at the site.
const ReasonConflict = "Conflict"

// An object identifies an object of a site, without the API version.
type object struct{ group, kind, namespace, name string }

func (o object) String() string {
	kind := o.kind
	if o.group != "" {
		kind += "." + o.group
	}
	if o.namespace == "" {
		return fmt.Sprintf("%s %q", kind, o.name)
	}
	return fmt.Sprintf("%s %q", kind, o.namespace+"/"+o.name)
}

// conflicts finds deployments that have an object in common, and returns a message
// for each. No target may apply such deployments: each would overwrite the
// object of the other. namespace is the namespace of namespaced resources that
// specify none. charts includes HelmCharts.
func conflicts(deployments []tko.Deployment, namespace string, charts bool) map[tko.DeploymentID]string {
	type owner struct {
		id     tko.DeploymentID
		digest [32]byte // only of shared objects
	}
	owners := map[object]owner{}
	found := map[tko.DeploymentID]string{}
	add := func(id tko.DeploymentID, o object, other tko.DeploymentID) {
		if found[id] == "" {
			found[id] = fmt.Sprintf("%s is in deployment %q of this site, too: nothing of the two is applied, and what they have there stays as it is; delete one of them, or give the object another name", o, other)
		}
	}
	for _, d := range deployments {
		cluster, namespaced := scope.Split(d.Package)
		for _, part := range []struct {
			resources krm.Package
			inside    bool
		}{{cluster, false}, {namespaced, true}} {
			for _, r := range part.resources {
				gvk := r.GVK()
				if r.IsLocal() && (!charts || gvk.Group != "workload.nephio.org" || gvk.Kind != "HelmChart") {
					continue
				}
				o := object{group: gvk.Group, kind: gvk.Kind, name: r.Text("metadata", "name")}
				if part.inside {
					o.namespace = cmp.Or(r.Text("metadata", "namespace"), namespace)
				}
				if o.name == "" {
					continue // the target reports it
				}
				mine := owner{id: d.ID}
				shared := scope.IsShared(o.group, o.kind)
				if shared {
					mine.digest = plainDigest(r)
				}
				first, there := owners[o]
				switch {
				case !there:
					owners[o] = mine
				case first.id == d.ID, shared && first.digest == mine.digest:
				default:
					add(d.ID, o, first.id)
					add(first.id, o, d.ID)
				}
			}
		}
	}
	return found
}

// plainDigest returns the digest of a resource without the annotations that only
// TKO reads.
func plainDigest(r krm.Resource) [32]byte {
	r = r.Clone()
	if metadata, ok := r["metadata"].(map[string]any); ok {
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			maps.DeleteFunc(annotations, func(key string, _ any) bool { return strings.HasPrefix(key, "nephio.org/") })
			if len(annotations) == 0 {
				delete(metadata, "annotations")
			}
		}
	}
	digest, _, err := krm.DigestOf(krm.Package{r})
	if err != nil {
		return [32]byte{}
	}
	return digest
}

// conflictsOf returns the conflicts that concern a step. The OSM target finds its
// own: it applies only resources of its own group.
func (s step) conflictsOf(deployments []tko.Deployment) map[tko.DeploymentID]string {
	switch t := s.target.(type) {
	case nil, gitTarget:
		return conflicts(deployments, "", false)
	case Clusters:
		return conflicts(deployments, t.Namespace(s.trigger), true)
	default:
		return nil
	}
}

// withhold separates the deployments to apply from those with conflicts, which the
// target leaves unchanged.
func withhold(deployments []tko.Deployment, found map[tko.DeploymentID]string) (apply []tko.Deployment, held []tko.DeploymentID) {
	if len(found) == 0 {
		return deployments, nil
	}
	for _, d := range deployments {
		if found[d.ID] == "" {
			apply = append(apply, d)
		} else {
			held = append(held, d.ID)
		}
	}
	return apply, held
}

// reportConflicts adds conflicts to the report of a step: each to its deployment,
// and a summary to the site. If the step didn't fail, deployments without a
// conflict are reported as scheduled.
func (r *result) reportConflicts(found map[tko.DeploymentID]string, deployments []tko.Deployment, by step) {
	if len(found) == 0 {
		return
	}
	states := maps.Clone(r.report.Deployments)
	if states == nil {
		states = map[tko.DeploymentID]report.State{}
	}
	for _, d := range deployments {
		state := states[d.ID]
		switch {
		case found[d.ID] != "":
			state.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonConflict, Message: found[d.ID]}
		case r.err == nil && state.Scheduled.Status == "":
			state.Scheduled = report.Outcome{Status: tko.ConditionTrue, Reason: ReasonScheduled, Message: "by " + by.String()}
		}
		states[d.ID] = state
	}
	r.report.Deployments = states
	if site := r.report.Site.Scheduled; r.err == nil && (site.Status == "" || site.Status == tko.ConditionTrue) {
		first := slices.Sorted(maps.Keys(found))[0]
		r.report.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonConflict, Message: fmt.Sprintf(
			"%d deployments have the same objects and are left as they are: deployment %q: %s", len(found), first, found[first])}
	}
}

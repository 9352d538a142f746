package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/scope"
	"github.com/tko-orchestrator/tko/krm"
)

// ReasonConflict is of deployments that have the same object at one site.
const ReasonConflict = "Conflict"

// An object is one that deployments bring to a site, in whatever version it is
// written.
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

// shareable says whether an object may be in several deployments, if all of them
// say the same: they need it, and it is none of theirs alone.
func (o object) shareable() bool {
	return o.group == "" && o.kind == "Namespace" || o.group == "apiextensions.k8s.io" && o.kind == "CustomResourceDefinition"
}

// conflicts finds the deployments that have an object in common with another one,
// and says for each what that is. No target applies one of them before that has
// ended: it would undo what the other one says. namespace is that of namespaced
// resources that name none.
func conflicts(deployments []tko.Deployment, namespace string, charts bool) map[tko.DeploymentID]string {
	type owner struct {
		id     tko.DeploymentID
		digest [32]byte // of objects that may be shared
	}
	owners := map[object]owner{}
	found := map[tko.DeploymentID]string{}
	say := func(id tko.DeploymentID, o object, other tko.DeploymentID) {
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
					continue // the target says what is wrong with it
				}
				mine := owner{id: d.ID}
				if o.shareable() {
					mine.digest = plainDigest(r)
				}
				first, there := owners[o]
				switch {
				case !there:
					owners[o] = mine
				case first.id == d.ID, o.shareable() && first.digest == mine.digest:
				default:
					say(d.ID, o, first.id)
					say(first.id, o, d.ID)
				}
			}
		}
	}
	return found
}

// plainDigest is of a resource without what only TKO reads.
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

// conflictsOf are the conflicts that concern a step. OSM takes nothing but its own
// resources, and knows itself what is twice in them.
func (s step) conflictsOf(deployments []tko.Deployment) map[tko.DeploymentID]string {
	switch t := s.target.(type) {
	case nil, gitTarget:
		return conflicts(deployments, "", false)
	case *kubernetes.Target:
		return conflicts(deployments, t.Namespace(s.trigger), true)
	default:
		return nil
	}
}

// withhold parts deployments into those that are applied and those that are left
// as they are, because of conflicts.
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

// say puts conflicts into what a step reports: each on its deployments, and all on
// the site. The others are there, unless something failed.
func (r *result) say(found map[tko.DeploymentID]string, deployments []tko.Deployment, by step) {
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
	if said := r.report.Site.Scheduled; r.err == nil && (said.Status == "" || said.Status == tko.ConditionTrue) {
		first := slices.Sorted(maps.Keys(found))[0]
		r.report.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonConflict, Message: fmt.Sprintf(
			"%d deployments have the same objects and are left as they are: deployment %q: %s", len(found), first, found[first])}
	}
}

package schedule

import (
	"cmp"
	"encoding/hex"
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

// A contest has the deployments of a site that a target must not apply now, because they
// have objects in common with others.
type contest struct {
	conflict map[tko.DeploymentID]string // objects that were never equal, by deployment: the message
	waits    map[tko.DeploymentID]string // other sharers want the former content, by deployment: the message
	shared   map[string]sharing          // objects whose content is the same in several deployments
	open     map[string]bool             // objects whose sharers differ now
}

// A sharing is an object that several deployments have with the same content, as it was
// applied last.
type sharing struct {
	Digest  string             `json:"digest"`
	Sharers []tko.DeploymentID `json:"sharers"` // sorted
}

// contestOf finds the objects that deployments have in common. Equal objects are shared. If
// a sharer wants another content, the object keeps the former one, which former has, until
// all of them want the same: the sharer waits as a whole. Objects that were never equal are
// a conflict: each deployment would overwrite that of the other. namespace is the namespace
// of namespaced resources that specify none. charts includes HelmCharts, which are never
// shared.
func contestOf(deployments []tko.Deployment, namespace string, charts bool, former map[string]sharing) contest {
	type holder struct {
		id       tko.DeploymentID
		resource krm.Resource
		digest   string
	}
	holders := map[object][]holder{}
	var order []object
	for _, d := range deployments {
		cluster, namespaced := scope.Split(d.Package)
		for _, part := range []struct {
			resources krm.Package
			inside    bool
		}{{cluster, false}, {namespaced, true}} {
			for _, r := range part.resources {
				gvk := r.GVK()
				isChart := gvk.Group == "workload.nephio.org" && gvk.Kind == "HelmChart"
				if r.IsLocal() && (!charts || !isChart) {
					continue
				}
				o := object{group: gvk.Group, kind: gvk.Kind, name: r.Text("metadata", "name")}
				if part.inside {
					o.namespace = cmp.Or(r.Text("metadata", "namespace"), namespace)
				}
				if o.name == "" {
					continue // the target reports it
				}
				there := holders[o]
				if len(there) == 0 {
					order = append(order, o)
				} else if there[len(there)-1].id == d.ID {
					continue
				}
				h := holder{id: d.ID, resource: r}
				if isChart {
					h.digest = string(d.ID) // unlike all others
				}
				holders[o] = append(there, h)
			}
		}
	}
	c := contest{conflict: map[tko.DeploymentID]string{}, waits: map[tko.DeploymentID]string{}, shared: map[string]sharing{}, open: map[string]bool{}}
	for _, o := range order {
		all := holders[o]
		if len(all) < 2 {
			continue
		}
		ids := make([]tko.DeploymentID, len(all))
		equal := true
		for i := range all {
			if all[i].digest == "" {
				all[i].digest = plainDigest(all[i].resource)
			}
			ids[i], equal = all[i].id, equal && all[i].digest == all[0].digest
		}
		if equal {
			slices.Sort(ids)
			c.shared[o.String()] = sharing{all[0].digest, ids}
			continue
		}
		was, known := former[o.String()]
		known = known && slices.ContainsFunc(ids, func(id tko.DeploymentID) bool { return slices.Contains(was.Sharers, id) })
		if known {
			c.open[o.String()] = true
		}
		for i, h := range all {
			other := slices.IndexFunc(all, func(o holder) bool { return o.digest != h.digest })
			switch {
			case known && h.digest == was.Digest: // as it is
			case known && slices.Contains(was.Sharers, h.id):
				if c.waits[h.id] == "" {
					c.waits[h.id] = fmt.Sprintf("%s is shared with deployment %q, which wants another content: nothing of this deployment is changed until all that share the object want the same; change the others as well, or give the object another name", o, all[other].id)
				}
			default:
				c.collide(h.id, o, all[other].id)
				c.collide(all[other].id, o, all[i].id)
			}
		}
	}
	return c
}

func (c contest) collide(id tko.DeploymentID, o object, other tko.DeploymentID) {
	if c.conflict[id] == "" {
		c.conflict[id] = fmt.Sprintf("%s is in deployment %q of this site, too, with another content: nothing of the two is applied, and what they have there stays as it is; delete one of them, or give the object another name", o, other)
	}
}

// outcome returns what keeps a deployment from being applied; empty if nothing does.
func (c contest) outcome(id tko.DeploymentID) report.Outcome {
	if text := c.conflict[id]; text != "" {
		return report.Outcome{Status: tko.ConditionFalse, Reason: ReasonConflict, Message: text}
	}
	if text := c.waits[id]; text != "" {
		return report.Outcome{Status: tko.ConditionFalse, Reason: tko.ReasonWaitsForSharers, Message: text}
	}
	return report.Outcome{}
}

// plainDigest returns the digest of a resource without the annotations that only
// TKO reads.
func plainDigest(r krm.Resource) string {
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
		return ""
	}
	return hex.EncodeToString(digest[:])
}

// contestOf returns the objects that deployments have in common, of those that a step
// applies. former are the objects that were shared when the step succeeded last. A plugin gets
// all deployments, and decides itself, as a target does that shares no objects.
func (s step) contestOf(deployments []tko.Deployment, former map[string]sharing) contest {
	if !s.place.Shares {
		return contest{}
	}
	namespace := ""
	if t, ok := s.target.(Clusters); ok {
		namespace = t.Namespace(s.trigger)
	}
	return contestOf(deployments, namespace, s.place.Charts, former)
}

// withhold separates the deployments to apply from those that the target leaves unchanged.
func (c contest) withhold(deployments []tko.Deployment) (apply []tko.Deployment, held []tko.DeploymentID) {
	if len(c.conflict)+len(c.waits) == 0 {
		return deployments, nil
	}
	for _, d := range deployments {
		if c.outcome(d.ID).Status == "" {
			apply = append(apply, d)
		} else {
			held = append(append(held, d.ID), d.Replaced...)
		}
	}
	return apply, held
}

// providers returns the deployments that are no longer at the site, or to be removed from it,
// and that have written an object in a repository which a held deployment shares and no
// applied one has: they stay until the held one is applied, and writes the object itself.
func (c contest) providers(former map[string]sharing, apply []tko.Deployment, held []tko.DeploymentID) (stay []tko.DeploymentID) {
	isHeld := func(id tko.DeploymentID) bool { return slices.Contains(held, id) }
	isApplied := func(id tko.DeploymentID) bool {
		return slices.ContainsFunc(apply, func(d tko.Deployment) bool { return d.ID == id })
	}
	for name, was := range former {
		if !slices.ContainsFunc(was.Sharers, isHeld) || slices.ContainsFunc(apply, func(d tko.Deployment) bool { return hasObject(d, name) }) {
			continue
		}
		c.open[name] = true // it is shared as before
		for _, id := range was.Sharers {
			if !isHeld(id) && !isApplied(id) && !slices.Contains(stay, id) {
				stay = append(stay, id)
			}
		}
	}
	slices.Sort(stay)
	return stay
}

// hasObject reports whether a deployment has an object, by its name in a repository.
func hasObject(d tko.Deployment, name string) bool {
	cluster, namespaced := scope.Split(d.Package)
	has := func(pkg krm.Package, inside bool) bool {
		return slices.ContainsFunc(pkg, func(r krm.Resource) bool {
			gvk := r.GVK()
			o := object{group: gvk.Group, kind: gvk.Kind, name: r.Text("metadata", "name")}
			if inside {
				o.namespace = r.Text("metadata", "namespace")
			}
			return o.String() == name
		})
	}
	return has(cluster, false) || has(namespaced, true)
}

// reportContest adds what was withheld to the report of a step: each to its deployment, and
// a summary to the site.
func (r *result) reportContest(c contest, deployments []tko.Deployment) {
	var held []tko.DeploymentID
	for _, d := range deployments {
		v := c.outcome(d.ID)
		if v.Status == "" {
			continue
		}
		if r.report.Deployments == nil {
			r.report.Deployments = map[tko.DeploymentID]report.State{}
		}
		state := r.report.Deployments[d.ID]
		state.Scheduled = v
		r.report.Deployments[d.ID] = state
		delete(r.report.Receipts, d.ID)
		held = append(held, d.ID)
	}
	r.withheld = held
	if site := r.report.Site.Scheduled; len(held) > 0 && r.err == nil && (site.Status == "" || site.Status == tko.ConditionTrue) {
		first := slices.Min(held)
		v := c.outcome(first)
		v.Message = fmt.Sprintf("%d deployments have objects in common and are left as they are: deployment %q: %s", len(held), first, v.Message)
		r.report.Site.Scheduled = v
	}
}

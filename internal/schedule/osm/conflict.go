package osm

import (
	"fmt"
	"reflect"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// conflicts finds the deployments of a site that give one name to two instances, or
// have a package with different contents, and says for each which other one does.
func conflicts(deployments []tko.Deployment) map[tko.DeploymentID]error {
	type owner struct {
		id       tko.DeploymentID
		resource krm.Resource
	}
	owners := map[string]owner{}
	found := map[tko.DeploymentID]error{}
	say := func(id tko.DeploymentID, what string, other tko.DeploymentID) {
		if found[id] == nil {
			found[id] = tko.Errorf(tko.ErrInvalid, "%s is in deployment %q of this site, too: nothing of the two is applied, and what they have in OSM stays as it is; delete one of them, or give it another name", what, other)
		}
	}
	for _, d := range deployments {
		for _, r := range d.Package {
			gvk := r.GVK()
			if gvk.Group != group {
				continue
			}
			var what string
			switch gvk.Kind {
			case kindInstance:
				if name := r.Text("spec", "name"); name != "" { // else it has the deployment's ID in it
					what = fmt.Sprintf("the instance %q", name)
				}
			case kindVNF, kindNS:
				if p, err := readPackage(r); err == nil { // else it is this deployment's fault alone
					what = fmt.Sprintf("another content of the %s %q", gvk.Kind, p.ID)
				}
			default:
			}
			if what == "" {
				continue
			}
			first, there := owners[what]
			switch {
			case !there:
				owners[what] = owner{d.ID, r}
			case first.id == d.ID, gvk.Kind != kindInstance && reflect.DeepEqual(first.resource["spec"], r["spec"]):
			default:
				say(d.ID, what, first.id)
				say(first.id, what, d.ID)
			}
		}
	}
	return found
}

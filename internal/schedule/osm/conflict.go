package osm

import (
	"fmt"
	"reflect"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/krm"
)

// conflicts finds deployments of a site that have instances of the same name, or
// packages of the same ID with different contents, and returns an ErrInvalid for
// each that names the other deployment.
func conflicts(deployments []tko.Deployment) map[tko.DeploymentID]error {
	type owner struct {
		id       tko.DeploymentID
		resource krm.Resource
	}
	owners := map[string]owner{}
	found := map[tko.DeploymentID]error{}
	report := func(id tko.DeploymentID, what string, other tko.DeploymentID) {
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
			case osm.InstanceKind:
				if name := r.Text("spec", "name"); name != "" { // a default name has the deployment's ID in it
					what = fmt.Sprintf("the instance %q", name)
				}
			case osm.VNFPackageKind, osm.NSPackageKind:
				if p, err := readPackage(r); err == nil { // readDeployment reports the error on this deployment alone
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
			case first.id == d.ID, gvk.Kind != osm.InstanceKind && reflect.DeepEqual(first.resource["spec"], r["spec"]):
			default:
				report(d.ID, what, first.id)
				report(first.id, what, d.ID)
			}
		}
	}
	return found
}

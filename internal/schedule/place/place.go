// Package place describes the kinds of places where the deployments of sites are applied by
// the targets that are built in.
package place

import (
	"slices"

	"github.com/tko-orchestrator/tko/krm"
)

// A Kind is what TKO knows of a kind of places. A new target is one more Kind and its
// implementation (schedule.New), and the schema and descriptions of its resources (kinds).
type Kind struct {
	GVK  krm.GVK // of the resources that name a place
	Name string  // in metrics
	// ReportsHealth reports whether the target can say that deployments are healthy. If it
	// can't, waves of rollouts are blind at sites without another target.
	ReportsHealth bool
	// Pulled reports whether other tools pull what the target writes. A resource of the kind
	// names in spec.status the tool that reports health; without one, waves are blind.
	Pulled bool
	// Shares reports whether all resources become objects, so that those that are the same in
	// several deployments are one object. Other targets find conflicts by themselves.
	Shares bool
	Charts bool // HelmCharts become objects, too
	// Files reports whether objects are files that stay as they are until another deployment
	// writes them.
	Files bool
	// Group is the only group whose resources the target takes; if it is empty, it takes all
	// resources that are for sites.
	Group string

	// What of the spec names credentials. Packages must not contain the credentials themselves.
	Secrets     string   // kind of the credentials in the target's folder of files, as in package leash
	Credentials []string // fields of spec.credentials that name such files, or refer to secrets elsewhere
	CA          bool     // spec.caFile names a file with certificates in that folder
	Kubeconfig  bool     // spec.kubeconfig or spec.inCluster names a cluster
}

// Tools are the tools that can pull what a target writes, as they are called in spec.status of
// resources of pulled kinds. Each has the fields kubeconfig and inCluster.
var Tools = []string{"flux", "argocd"}

// Of returns the kind of places that the resources of a kind name, in any version.
func Of(gvk krm.GVK) (k Kind, ok bool) {
	i := slices.IndexFunc(All, func(k Kind) bool { return k.GVK.Group == gvk.Group && k.GVK.Kind == gvk.Kind })
	if i < 0 {
		return Kind{}, false
	}
	return All[i], true
}

// Takes reports whether the target delivers a resource of a deployment's package.
func (k Kind) Takes(r krm.Resource) bool {
	gvk := r.GVK()
	switch {
	case k.Group != "":
		return gvk.Group == k.Group && r.Annotation(krm.AnnotationLocal) != "true"
	case k.Charts && gvk.Group == "workload.nephio.org" && gvk.Kind == "HelmChart":
		return r.Annotation(krm.AnnotationLocal) != "true"
	}
	return !r.IsLocal()
}

// Reports reports whether the target can say that deployments are healthy at the place that a
// resource of the kind names.
func (k Kind) Reports(r krm.Resource) bool {
	if k.ReportsHealth || !k.Pulled {
		return k.ReportsHealth
	}
	value, _ := r.Get("spec", "status")
	status, _ := value.(map[string]any)
	_, none := status["none"]
	return len(status) > 0 && !none
}

// ByAgent reports whether the agent of a site applies what a resource of the site's package
// names: a Cluster with spec.agent.
func ByAgent(r krm.Resource) bool {
	_, ok := r.Get("spec", "agent")
	return ok && r.GVK() == Kubernetes.GVK
}

// HindersStaging returns why images can't be pulled, before a change, at a site with this
// package, in words that continue "because"; "" if they can: at clusters that TKO reaches.
func HindersStaging(pkg krm.Package) string {
	why := "the packages of the sites name no Kubernetes cluster"
	for _, r := range pkg {
		k, ok := Of(r.GVK())
		switch {
		case ByAgent(r):
			why = "only the agents of the sites reach their clusters (spec.agent)"
		case ok && k.GVK == Kubernetes.GVK:
			return ""
		case ok:
			why = "TKO doesn't reach clusters behind the target " + k.Name
		}
	}
	return why
}

// The kinds of places.
var (
	Git = Kind{
		GVK: krm.GVK{Group: "git.plugin.nephio.org", Version: "v1alpha1", Kind: "Repository"}, Name: "git", Pulled: true, Shares: true, Files: true,
		Secrets: "git", Credentials: []string{"passwordFile", "tokenFile", "sshKeyFile"},
	}
	Kubernetes = Kind{
		GVK: krm.GVK{Group: "kubernetes.plugin.nephio.org", Version: "v1alpha1", Kind: "Cluster"}, Name: "kubernetes", ReportsHealth: true, Shares: true, Charts: true,
		Kubeconfig: true,
	}
	OCI = Kind{
		GVK: krm.GVK{Group: "oci.plugin.nephio.org", Version: "v1alpha1", Kind: "Artifact"}, Name: "oci", Pulled: true, Shares: true, Files: true,
		Secrets: "git", Credentials: []string{"passwordFile", "tokenFile", "signingKeyFile"}, CA: true,
	}
	OSM = Kind{
		GVK: krm.GVK{Group: "osm.plugin.nephio.org", Version: "v1alpha1", Kind: "OSM"}, Name: "osm", ReportsHealth: true, Group: "osm.nephio.org",
		Secrets: "osm", Credentials: []string{"passwordFile"}, CA: true,
	}
)

// All are all kinds of places.
var All = []Kind{Git, Kubernetes, OCI, OSM}

// IsGroup reports whether a group has a kind of places.
func IsGroup(group string) bool {
	return slices.ContainsFunc(All, func(k Kind) bool { return k.GVK.Group == group })
}

package trigger

import (
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/krm"
)

// ByAgent reports whether the agent of a site applies what a resource of the site's package
// triggers: a Cluster with spec.agent. The meta-scheduler doesn't connect to such a cluster.
func ByAgent(r krm.Resource) bool { return place.ByAgent(r) }

// OfAgent returns the Cluster with spec.agent of a site's package. ErrInvalid if there is none, or
// another target: two programs must not report the same deployments.
func OfAgent(pkg krm.Package) (krm.Resource, error) {
	i := slices.IndexFunc(pkg, ByAgent)
	if i < 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "the package of the site has no %s with spec.agent: the server connects to its targets itself", GVK)
	}
	for j, r := range pkg {
		if j != i && place.IsGroup(r.GVK().Group) {
			return nil, tko.Errorf(tko.ErrInvalid, "the package of the site has a %s with spec.agent, and another target, %s: keep one of them", GVK.Kind, r.Identity())
		}
	}
	return pkg[i], nil
}

// An Agent is what a server knows of the agent of a site. Either may be empty.
type Agent struct {
	Key       string // public key with which the agent signs its reports
	Recipient string // recipient of age for whom bundles are encrypted
}

// AgentOf returns the agent that a Cluster with spec.agent names.
func AgentOf(r krm.Resource) Agent {
	return Agent{Key: r.Text("spec", "agent", "key"), Recipient: r.Text("spec", "agent", "recipient")}
}

// AtFile returns a Cluster with spec.agent as one of the cluster of a kubeconfig's file, or of the
// cluster that this process runs in if the file is empty. The argument doesn't change.
func AtFile(r krm.Resource, file string) krm.Resource {
	r = r.Clone()
	if spec, ok := r["spec"].(map[string]any); ok {
		for _, field := range []string{"agent", "kubeconfig", "inCluster"} { // only the caller names the cluster
			delete(spec, field)
		}
	}
	if file == "" {
		r.Set(true, "spec", "inCluster")
		return r
	}
	r.Set(file, "spec", "kubeconfig", "file")
	return r
}

package spec

import (
	"regexp"
	"slices"
	"time"
)

// The limits and defaults of staging.
const (
	// MaxImages limits the images that one deployment needs and doesn't have yet.
	MaxImages = 100
	// MaxImage limits the bytes of the reference of an image.
	MaxImage = 500
	// MaxPullSecrets limits the Secrets of spec.stage.pullSecrets.
	MaxPullSecrets = 10

	DefaultPulls      = 50 // at once
	maxPulls          = 1000
	DefaultPullWithin = 30 * time.Minute
	minPullWithin     = 10 * time.Second
	maxPullWithin     = 24 * time.Hour
)

// A Stage pulls images at sites before their deployments are changed.
type Stage struct {
	// Before is the time before a window opens from which on pulls begin; 0: when it opens.
	Before time.Duration
	Within time.Duration // of one pull, from its begin
	// Concurrent is the number of deployments whose images are pulled at once, at most; Per is
	// the same, among sites with an equal value of metadata.
	Concurrent int
	Per        []Per
	// Namespace is that of the Jobs at the sites; "": that of the inventories of the Cluster.
	Namespace string
	// PullSecrets are the names of Secrets in the namespace, with credentials of registries.
	PullSecrets []string
	// EveryNode is true if each node of a site pulls, and false if any one does.
	EveryNode bool
	OnFailure StageFailure
}

// StageFailure says what happens to a deployment whose images could not be pulled.
type StageFailure string

// The values of StageFailure.
const (
	StageWait StageFailure = "Wait" // it isn't changed; the images are pulled again
	StageGo   StageFailure = "Go"   // it is changed nevertheless
)

// The values of stage.nodes.
const (
	nodesAll = "All"
	nodesAny = "Any"
)

// dnsLabel matches names of namespaces, dnsName those of Secrets.
var (
	dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	dnsName  = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)
)

// stage reads spec.stage. windows is true if the rollout has windows.
func (c *checker) stage(v any, windows bool) *Stage {
	const path = "spec.stage"
	m := c.object(v, path, "images", "before", "within", "concurrent", "per", "namespace", "pullSecrets", "nodes", "onFailure")
	if m == nil {
		return nil
	}
	out := &Stage{
		Before: c.duration(m, "before", path, span{}), Within: c.between(m, "within", path, span{DefaultPullWithin, minPullWithin, maxPullWithin}), Concurrent: DefaultPulls,
		EveryNode: c.enum(m, "nodes", path, nodesAll, nodesAll, nodesAny) == nodesAll,
		OnFailure: StageFailure(c.enum(m, "onFailure", path, string(StageWait), string(StageWait), string(StageGo))),
	}
	if images := c.boolean(m, "images", path); images == nil || !*images {
		c.add(path+".images", "must be true, because nothing else can be staged: set it, or remove spec.stage")
	}
	if has(m, "before") && !windows {
		c.add(path+".before", "is the time before a window opens, and the rollout has none: add spec.windows, or remove the field")
	}
	if has(m, "concurrent") {
		out.Concurrent = c.count(m["concurrent"], path+".concurrent", 1)
		if out.Concurrent > maxPulls {
			c.add(path+".concurrent", "must be at most %d, not %d", maxPulls, out.Concurrent)
		}
	}
	if has(m, "per") {
		out.Per = c.per(m["per"], path+".per")
	}
	if has(m, "namespace") {
		out.Namespace = c.text(m["namespace"], path+".namespace")
		if out.Namespace != "" && !dnsLabel.MatchString(out.Namespace) {
			c.add(path+".namespace", "%.80q is not the name of a namespace: use lower-case letters, digits and hyphens", out.Namespace)
		}
	}
	if has(m, "pullSecrets") {
		for i, one := range c.list(m["pullSecrets"], path+".pullSecrets", MaxPullSecrets) {
			name := c.text(one, element(path+".pullSecrets", i))
			switch {
			case name != "" && !dnsName.MatchString(name):
				c.add(element(path+".pullSecrets", i), "%.80q is not the name of a Secret: name a Secret of the type kubernetes.io/dockerconfigjson in the namespace", name)
			case slices.Contains(out.PullSecrets, name):
				c.add(element(path+".pullSecrets", i), "the Secret %q is there twice: remove one", name)
			}
			out.PullSecrets = append(out.PullSecrets, name)
		}
	}
	return out
}

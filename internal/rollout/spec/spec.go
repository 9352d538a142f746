package spec

import (
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/krm"
)

// GVK is the kind of the Rollout resource.
var GVK = krm.GVK{Group: "tko.nephio.org", Version: "v1alpha1", Kind: "Rollout"}

// Defaults of what a Rollout leaves out. They are cautious: a fleet is never changed
// at once, and the first failure pauses.
const (
	DefaultConcurrent = 50
	DefaultWithin     = 15 * time.Minute
)

// The limits of a spec.
const (
	MaxEdits    = 100
	MaxWaves    = 100
	MaxKeys     = 20 // of limits.per and of limits.apart
	MaxWindows  = 50
	MaxPatterns = 1000 // of one list or map of a select
	// MaxManifests limits the manifests of one edit.
	MaxManifests = 100_000
	MaxDuration  = 30 * 24 * time.Hour
)

// A Rollout is a checked spec, with its defaults filled in.
type Rollout struct {
	Undoes    string   // ID of the rollout that this one undoes, or ""; then it has no edits
	Restore   *Restore // in place of edits; nil: none
	Edits     []Edit
	Waves     []Wave // the last one takes the rest, and may be implicit
	Limits    Limits
	Health    Health
	Windows   Windows
	Stage     *Stage // nil: nothing is staged
	OnFailure OnFailure
	// Unreachable says what happens to deployments at sites whose agents are not heard.
	Unreachable Unreachable
	Conflicts   merge.Policy
}

// A Restore returns the deployments that it selects to what they were at a moment: those
// that it selected then, and those that it selects now.
type Restore struct {
	AsOf   tko.AsOf
	Select tko.DeploymentSelect
	// Deployments names the deployments in place of Select, sorted; nil: Select counts.
	Deployments []tko.DeploymentID
}

// An Edit changes the deployments that it selects. Exactly one of its actions is set.
type Edit struct {
	Select tko.DeploymentSelect // of a Package: zero
	// Deployments names the deployments in place of Select, sorted; nil: Select counts.
	Deployments []tko.DeploymentID

	Upgrade  *Upgrade
	Merge    krm.Package // resources of the rollout's package, merged by krm.Merge
	Function *Function
	Package  *Package
	Delete   bool
	// Place evaluates the placements of a deployment that follow its sites: their children
	// are created and deleted.
	Place bool
	// Manifests are what a source declares of deployments, each of its own.
	Manifests []Manifest
}

// A Manifest makes a deployment as a source declares it: from its template, with Package
// merged in. It replaces what others changed of the deployment, and creates one that is
// missing.
type Manifest struct {
	Name string // in the source
	// Origin identifies the deployment permanently, as that of [tko.Put] does.
	Origin string
	// Deployment is the ID of an existing one; "": the one with the origin, if it exists,
	// or a new one.
	Deployment tko.DeploymentID
	Absent     bool // the deployment and its descendants are deleted
	Parent     tko.DeploymentID
	Template   tko.TemplateID
	Site       tko.SiteID
	Metadata   map[string]string
	Package    krm.Package
	// Digest is the source's digest of the manifest, "" if Absent; Before is that of the
	// manifest that was applied before, "" if there was none.
	Digest, Before string
}

// An Upgrade makes a deployment one of another template.
type Upgrade struct{ To tko.TemplateID }

// A Function is a KRM function that changes packages.
type Function struct {
	Image  string
	Config map[string]any // fields of the function's ConfigMap; nil: none
}

// A Package replaces the package of one deployment.
type Package struct {
	Deployment tko.DeploymentID
	Resources  krm.Package
}

// A Wave is a part of the deployments.
type Wave struct {
	Name     string
	Count    int     // deployments, 0: not limited by count
	Percent  float64 // of all deployments that the rollout changes, 0: not limited by percent
	Spread   string  // key of site metadata among whose values the wave is spread; "": none
	Required bool    // sites without the key are invalid
	Approval bool    // the wave must be approved before it begins
	// External is the name of the ticket system that approves the wave, in place of a user;
	// "": a user does. Approval is true, too.
	External string
	Implicit bool // the spec doesn't name the wave: it takes what is left
}

// Rest reports whether the wave takes all deployments that are left.
func (w Wave) Rest() bool { return w.Count == 0 && w.Percent == 0 }

// Limits bound what a rollout changes at a time.
type Limits struct {
	Concurrent int // deployments that are changed and not yet healthy, at most
	Per        []Per
	Apart      []string // keys of site metadata: sites with equal values are never changed at once
	// Required are the keys of Apart without which a site is invalid.
	Required []string
	Failures Failures
}

// Keys returns the keys of site metadata that the limits name, without duplicates, in
// the order of the spec.
func (l Limits) Keys() []string {
	var keys []string
	seen := map[string]bool{}
	add := func(key string) {
		if !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	for _, p := range l.Per {
		add(p.Key)
	}
	for _, key := range l.Apart {
		add(key)
	}
	return keys
}

// Per limits the deployments that are changed and not yet healthy among sites with an
// equal value of metadata.
type Per struct {
	Key      string
	Max      int
	Required bool // sites without the key are invalid
}

// Failures is the number of failed deployments that a rollout tolerates. One that is
// nil has no limit; at least one is set.
type Failures struct {
	Count   *int
	Percent *float64 // of all deployments that the rollout changes
}

// Exceeded reports whether more deployments failed than the budget allows.
func (f Failures) Exceeded(failed, rows int) bool {
	return f.Count != nil && failed > *f.Count || f.Percent != nil && failed > Share(*f.Percent, rows)
}

// Share returns a percentage of n, rounded down. Percentages are decimal fractions: 32.3 %
// of 1,000 are 323, although the binary number that stands for 32.3 is a little less.
func Share(percent float64, n int) int {
	const more = 1e-6 // than the error of any product up to a billion
	return int(percent*float64(n)/100 + more)
}

// Health says when a changed deployment is healthy.
type Health struct {
	// Within is the time in which a deployment must become healthy, from its change.
	// After it a deployment that is or becomes unhealthy has failed; one that is healthy
	// may complete its Soak.
	Within time.Duration
	Soak   time.Duration // how long it must be healthy without interruption
	// AcceptNone takes deployments for healthy once they are scheduled, at sites that report
	// no health.
	AcceptNone bool
	// Metrics are measured while the rollout goes on; all must be good.
	Metrics []Metric
}

// A Key is a key of site metadata that a rollout depends on.
type Key struct {
	Name     string
	Path     string // the field that names it
	Effect   string // what doesn't hold at sites without the key
	Required bool
}

// Keys returns the keys of site metadata that the rollout depends on, in the order of the
// spec, each as often as it is named.
func (r Rollout) Keys() []Key {
	var keys []Key
	for i, w := range r.Waves {
		if w.Spread != "" {
			keys = append(keys, Key{w.Spread, fmt.Sprintf("spec.waves[%d].spread", i), "they are taken last, in no order", w.Required})
		}
	}
	for i, p := range r.Limits.Per {
		keys = append(keys, Key{p.Key, fmt.Sprintf("spec.limits.per[%d]", i), "the limit doesn't hold there", p.Required})
	}
	for i, key := range r.Limits.Apart {
		keys = append(keys, Key{key, fmt.Sprintf("spec.limits.apart[%d]", i), "nothing keeps them apart", slices.Contains(r.Limits.Required, key)})
	}
	for i, w := range r.Windows {
		if w.Key != "" {
			keys = append(keys, Key{w.Key, fmt.Sprintf("spec.windows[%d].zone", i), "the window is in the default zone, " + w.Zone.String(), w.Required})
		}
	}
	if r.Stage != nil {
		for i, p := range r.Stage.Per {
			keys = append(keys, Key{p.Key, fmt.Sprintf("spec.stage.per[%d]", i), "the limit of pulls doesn't hold there", p.Required})
		}
	}
	return append(keys, r.Health.metricKeys()...)
}

// OnFailure says what happens if more deployments fail than the budget allows.
type OnFailure string

// The values of OnFailure.
const (
	Pause    OnFailure = "Pause"
	Undo     OnFailure = "Undo"
	Continue OnFailure = "Continue"
)

// Unreachable says what happens to deployments at sites that call home and whose agents are not
// heard.
type Unreachable string

// The values of Unreachable.
const (
	UnreachableWait Unreachable = "Wait" // until the agent is heard
	UnreachableSkip Unreachable = "Skip" // they are left out, and don't count as failed
	UnreachableFail Unreachable = "Fail" // they are left out, and count as failed
)

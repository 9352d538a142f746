package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/internal/yaml12"
)

// A Reach is the settings of what one cause may change without consent.
type Reach struct {
	Removed         int // entities that a cause may remove
	RemovedPercent  int // in percent of all entities of a kind
	Created         int // deployments that a topology may create, and an author approve
	Sites           int // sites at which running deployments may be changed
	Original        int // entities that callers may remove or approve that can't confirm
	OriginalPercent int
	Window          time.Duration // in which the changes of one author are counted together
	Depth           int           // levels of nested topologies
	Policy          string        // YAML of the rollouts of larger changes
	OffReason       string        // why a limit is switched off
	Rules           string        // YAML of limits for authors, kinds and selections
}

// defaultPolicy is the rollout of changes at more sites than are free: one site, a tenth,
// and what is left, which is a last wave of any rollout. A user starts it.
const defaultPolicy = "{waves: [{name: first, count: 1}, {name: tenth, percent: 10}]}"

func (r *Reach) flags(flags *pflag.FlagSet) {
	flags.IntVar(&r.Removed, "confirm-above", tko.DefaultConfirmAbove, "limit of entities that one cause deletes, or leaves without template or site, without consent; 0 for none (--reach-off-reason)")
	flags.IntVar(&r.RemovedPercent, "confirm-above-percent", tko.DefaultConfirmPercent, "the same in percent of the entities of a kind, if they are more than 10")
	flags.IntVar(&r.Created, "reach-created", tko.DefaultReachCreated, "limit of deployments that a topology creates in a day, or an author approves, without consent; 0 for none (--reach-off-reason)")
	flags.IntVar(&r.Sites, "reach-sites", tko.DefaultReachSites, "limit of sites at which an author, a source or a placement changes running deployments without consent or a rollout, and of those that a stop or freeze releases at once; 0 for none (--reach-off-reason)")
	flags.DurationVar(&r.Window, "reach-window", tko.DefaultReachWindow, "time within which the changes of one author are counted together")
	flags.StringVar(&r.Policy, "reach-policy", defaultPolicy, "YAML of the rollouts that make the changes of placements and sources at more sites than --reach-sites, and of the waves of releases; spec.rollout of a placement, or rollout of a source, overrides it")
	flags.IntVar(&r.Original, "reach-original", tko.DefaultConfirmAbove, "limit of entities that clients of the original protocol, which can't consent, delete or approve, if they are also more of their kind than --reach-original-percent")
	flags.IntVar(&r.OriginalPercent, "reach-original-percent", tko.DefaultConfirmPercent, "see --reach-original")
	flags.StringVar(&r.OffReason, "reach-off-reason", "", "why a limit is switched off; tko status shows it")
	flags.StringVar(&r.Rules, "reach-limits", "", "YAML list of limits for an author, with its topologies and sources, and of further ones for kinds and selections, such as [{limit: sites, most: 50, author: 'cert:ci'}, {limit: removed, most: 5, kind: site, siteId: core/**}]")
	flags.IntVar(&r.Depth, "topology-depth", tko.DefaultTopologyDepth, "limit of levels of nested topologies")
}

func (r *Reach) validate(add func(format string, args ...any)) {
	for _, limit := range r.limits() {
		switch {
		case limit.value < 0:
			add("--%s is %d: use more than 0, or 0 for no limit", limit.flag, limit.value)
		case limit.value == 0 && r.OffReason == "":
			add("--%s is %d, which switches the limit off: give the reason with --reach-off-reason", limit.flag, limit.value)
		}
	}
	for name, percent := range map[string]int{"confirm-above-percent": r.RemovedPercent, "reach-original-percent": r.OriginalPercent} {
		if percent < 1 || percent > 100 {
			add("--%s is %d: use 1 to 100", name, percent)
		}
	}
	for name, n := range map[string]int{"reach-original": r.Original, "topology-depth": r.Depth} {
		if n <= 0 {
			add("--%s is %d: use more than 0", name, n)
		}
	}
	if r.Window < time.Second || r.Window > 24*time.Hour {
		add("--reach-window is %s: use 1s to 24h", r.Window)
	}
	if _, err := r.Rollout(); err != nil {
		add("--reach-policy: %s", err)
	}
	if _, err := r.Limits(); err != nil {
		add("--reach-limits: %s", err)
	}
}

type reachLimit struct {
	flag, what string
	value      int
}

// limits are the limits that can be switched off.
func (r *Reach) limits() []reachLimit {
	return []reachLimit{
		{"confirm-above", "removals", r.Removed},
		{"reach-created", "created and approved deployments", r.Created},
		{"reach-sites", "sites with changed deployments", r.Sites},
	}
}

// Off returns what isn't limited, with the reasons.
func (r *Reach) Off() []string {
	var off []string
	for _, limit := range r.limits() {
		if limit.value == 0 {
			off = append(off, fmt.Sprintf("no limit of %s (--reach-off-reason): %s", limit.what, r.OffReason))
		}
	}
	limits, _ := r.Limits() // checked by Validate
	for _, l := range limits {
		if l.Most == 0 && l.UpTo == 0 {
			off = append(off, fmt.Sprintf("no limit of %s for %s (--reach-limits): %s", l.Limit, l, l.Reason))
		}
	}
	return off
}

// Limits returns the limits for authors, kinds and selections.
func (r *Reach) Limits() ([]access.Limit, error) {
	if r.Rules == "" {
		return nil, nil
	}
	text, err := yaml12.ToJSON([]byte(r.Rules))
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "not YAML: %w", err)
	}
	var limits []access.Limit
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&limits); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "not a list of limits: %w", err)
	}
	for _, l := range limits {
		if err := l.Check(); err != nil {
			return nil, err
		}
	}
	return limits, nil
}

// Rollout returns the settings of the rollouts of larger changes.
func (r *Reach) Rollout() (map[string]any, error) {
	text, err := yaml12.ToJSON([]byte(r.Policy)) // its numbers are those that spec reads
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "not YAML: %w", err)
	}
	var settings map[string]any
	if err := json.Unmarshal(text, &settings); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "not JSON: %w", err)
	}
	return spec.Settings(settings)
}

package tko

import (
	"context"
	"fmt"
	"strings"
)

// KindSource is the kind of GitOps sources where an entity is named that a controller
// works for. Sources are no entities: see [SourceDefinition].
const KindSource Kind = "source"

// Acting names what a controller works for: a deployment, a rollout, or a GitOps source.
// The data controller serves its calls as the owner of that.
type Acting struct {
	Kind Kind
	ID   string
	// Claim is the claim of the work on it. A controller in another process changes nothing
	// for what it names without holding its work.
	Claim string
}

// Is reports whether a names the same as b, under any claim.
func (a Acting) Is(b Acting) bool { return a.Kind == b.Kind && a.ID == b.ID }

type actingKey struct{}

// WithActing returns a context whose calls are made for a deployment, a rollout or a
// source: as its owner. Only controllers may make such calls; for others, it has no effect.
func WithActing(ctx context.Context, a Acting) context.Context {
	return context.WithValue(ctx, actingKey{}, a)
}

// ActingOf returns what calls with the context are made for; ok is false if that isn't
// named.
func ActingOf(ctx context.Context) (a Acting, ok bool) {
	a, _ = ctx.Value(actingKey{}).(Acting)
	return a, a != (Acting{})
}

// OwnerUnowned is the owner of entities that have none, such as those of earlier versions:
// controllers derive from them with their own rights.
const OwnerUnowned = "tko:unowned"

// An Owner is the caller as whom controllers derive from an entity: who wrote the revision.
type Owner struct {
	Subject string   // "" if the owner is a group
	Groups  []string // of the subject when it wrote the revision, or the owner
}

// Owned are numbers of entities that are owned.
type Owned struct {
	Deployments int // without their descendants
	Sites       int // that wait for their template
	Rollouts    int
	Sources     int
}

// Count returns the number of all entities.
func (o Owned) Count() int { return o.Deployments + o.Sites + o.Rollouts + o.Sources }

// String names the numbers that aren't 0, such as "2 deployments, 1 source".
func (o Owned) String() string {
	var parts []string
	for _, of := range []struct {
		n    int
		kind Kind
	}{{o.Deployments, KindDeployment}, {o.Sites, KindSite}, {o.Rollouts, KindRollout}, {o.Sources, KindSource}} {
		if of.n == 1 {
			parts = append(parts, "1 "+string(of.kind))
		} else if of.n > 1 {
			parts = append(parts, fmt.Sprintf("%d %ss", of.n, of.kind))
		}
	}
	return strings.Join(parts, ", ")
}

// String returns the owner: the subject, or the group.
func (o Owner) String() string {
	switch {
	case o.Subject != "":
		return o.Subject
	case len(o.Groups) > 0:
		return "group " + o.Groups[0]
	}
	return OwnerUnowned
}

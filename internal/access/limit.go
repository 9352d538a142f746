package access

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// The changes that limits of reach are for.
const (
	LimitCreated  = "created"  // deployments that are derived
	LimitApproved = "approved" // deployments
	LimitSites    = "sites"    // sites at which running deployments change
	LimitRemoved  = "removed"  // entities that are deleted, or lose their template or site
)

// A Limit is an operator's limit of what one cause may change without consent. With an
// author only, it takes the place of the general one for what that author, or its topologies
// and sources, change. With a scope, it holds in addition to it.
type Limit struct {
	Limit string `json:"limit"`
	Most  int    `json:"most"` // 0: none, with a reason, unless UpTo is set
	// UpTo is the number up to which placements and sources of the author raise the limit of
	// created deployments by limits of their own; 0: they don't.
	UpTo   int    `json:"upTo,omitempty"`
	Author string `json:"author,omitempty"`
	Reason string `json:"reason,omitempty"`

	Kind       tko.Kind `json:"kind,omitempty"`
	SiteID     string   `json:"siteId,omitempty"`     // an ID, or the beginning of IDs with **
	TemplateID string   `json:"templateId,omitempty"` // likewise
}

// IsFurther reports whether the limit is for a part of the entities: it holds in addition to
// the general one.
func (l Limit) IsFurther() bool { return l.Kind != "" || l.SiteID != "" || l.TemplateID != "" }

// Check returns ErrInvalid for a limit that isn't complete.
func (l Limit) Check() error {
	known := []string{LimitCreated, LimitApproved, LimitSites, LimitRemoved}
	switch {
	case !slices.Contains(known, l.Limit):
		return tko.Errorf(tko.ErrInvalid, "the limit is of %.40q: use %s", l.Limit, strings.Join(known, ", "))
	case l.Author == "" && !l.IsFurther():
		return tko.Errorf(tko.ErrInvalid, "the limit of %s has no author, kind, siteId or templateId: the general ones are settings of their own", l.Limit)
	case l.Most < 0:
		return tko.Errorf(tko.ErrInvalid, "the limit of %s is %d: use more than 0, or 0 with a reason for none", l.Limit, l.Most)
	case l.Most == 0 && l.IsFurther():
		return tko.Errorf(tko.ErrInvalid, "the limit of %s is 0 for %s: leave it out, because a limit with a scope holds in addition to others", l.Limit, l)
	case l.UpTo != 0 && (l.Limit != LimitCreated || l.IsFurther()):
		return tko.Errorf(tko.ErrInvalid, "the limit of %s for %s has upTo: use it with created and an author only", l.Limit, l)
	case l.UpTo < 0, l.UpTo > 0 && l.UpTo < l.Most:
		return tko.Errorf(tko.ErrInvalid, "the limit of %s for %s has upTo: %d: use a number that isn't below most", l.Limit, l, l.UpTo)
	case l.Most == 0 && l.UpTo == 0 && l.Reason == "":
		return tko.Errorf(tko.ErrInvalid, "the limit of %s is switched off for %s: give the reason", l.Limit, l)
	case l.Kind != "" && l.Limit != LimitRemoved, l.TemplateID != "" && l.Limit == LimitSites:
		return tko.Errorf(tko.ErrInvalid, "the limit of %s has a kind or a template: use kind with removed only, and templateId not with sites", l.Limit)
	case l.Kind != "" && !slices.Contains(append(slices.Clone(entities), tko.KindPlugin), l.Kind):
		return tko.Errorf(tko.ErrInvalid, "the limit of %s has the unknown kind %.40q: use template, site, deployment or plugin", l.Limit, string(l.Kind))
	}
	return Scope{SiteID: l.SiteID, TemplateID: l.TemplateID}.Check()
}

// String says whom and what the limit is for.
func (l Limit) String() string {
	var parts []string
	for _, part := range [][2]string{{"author", l.Author}, {"kind", string(l.Kind)}, {"siteId", l.SiteID}, {"templateId", l.TemplateID}} {
		if part[1] != "" {
			parts = append(parts, part[0]+" "+strconv.Quote(part[1]))
		}
	}
	return strings.Join(parts, ", ")
}

// IsFor reports whether the limit is for an author: its subject, or the beginning of
// subjects with **.
func (l Limit) IsFor(author string) bool {
	begin, open := strings.CutSuffix(l.Author, "**")
	return l.Author == "" || l.Author == author || open && strings.HasPrefix(author, begin)
}

// Covers reports whether a change of an entity is in the scope of the limit. site is
// where the change has its effect, if it isn't that of the entity.
func (l Limit) Covers(a Attributes, site string) bool {
	in := func(pattern, id string) bool {
		begin, open := strings.CutSuffix(pattern, "**")
		return pattern == "" || id != "" && (pattern == id || open && strings.HasPrefix(id, begin))
	}
	switch a.Kind {
	case tko.KindSite:
		site = cmp.Or(site, a.ID)
	case tko.KindTemplate:
		a.Template = a.ID
	default:
	}
	return (l.Kind == "" || l.Kind == a.Kind) && in(l.SiteID, cmp.Or(site, a.Site)) && in(l.TemplateID, a.Template)
}

package filter

import (
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// Prefixes of the names of what groups entities.
const (
	ByMetadata     = "metadata."
	BySiteMetadata = "site-metadata."
)

// MaxGroups limits the groups that a request or an address names.
const MaxGroups = 8

// IsGrouping reports whether entities of a kind can be grouped by a name: state, reason,
// template, site, metadata.KEY, and for deployments site-metadata.KEY.
func IsGrouping(kind tko.Kind, name string) bool {
	if key, ok := strings.CutPrefix(name, BySiteMetadata); ok {
		return key != "" && kind == tko.KindDeployment
	}
	if key, ok := strings.CutPrefix(name, ByMetadata); ok {
		return key != ""
	}
	return slices.Contains([]string{"state", "reason", "template", "site"}, name)
}

// Groupings are the names that [IsGrouping] knows, for messages.
func Groupings(kind tko.Kind) string {
	if kind == tko.KindDeployment {
		return "state, reason, template, site, metadata.KEY or site-metadata.KEY"
	}
	return "state, reason, template, site or metadata.KEY"
}

// A Group is one of those that entities are in, by what groups them. An empty value is the group
// of those without one.
type Group struct{ Name, Value string }

// Groups parses the values of the parameter within, NAME=VALUE. The error is an ErrInvalid.
func Groups(kind tko.Kind, texts []string) ([]Group, error) {
	if len(texts) > MaxGroups {
		return nil, tko.Errorf(tko.ErrInvalid, "there are %d parameters within: use at most %d", len(texts), MaxGroups)
	}
	groups := make([]Group, 0, len(texts))
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok || !IsGrouping(kind, name) {
			return nil, tko.Errorf(tko.ErrInvalid, "within=%.80q is unknown: use within=NAME=VALUE, with %s as NAME", text, Groupings(kind))
		}
		groups = append(groups, Group{name, value})
	}
	return groups, nil
}

package filter

import (
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
)

// A Field describes one filter of the lists of a kind, for all who know it: flags of the tko
// command, words of the dashboards, parameters of the HTTP API, messages, selects of rollouts
// and the lists of the store. S is the select; one of the functions, or Column, says where
// the filter is in it.
type Field[S any] struct {
	Name string // flag and word; "" if there is none
	Wire string // field of the message and of the selects of rollouts; "" if it is none of a rollout's
	Help string // of the flag: what a pattern is compared with, or which entities are selected
	// Column is the column of records that a plain filter compares; "" if it is more than a
	// comparison with one column.
	Column string
	// Passing reports that a change may make a deployment no longer match, so that an edit of
	// a rollout can't select by it.
	Passing bool

	Patterns   func(*S) *[]string
	Metadata   func(*S) *map[string]string
	Text       func(*S) *string
	Flag       func(*S) **bool
	Since      func(*S) *time.Time // the column's least value
	Conditions func(*S) *[]tko.ConditionSelect
}

// Without returns the filters but the one with a name.
func Without[S any](fields []Field[S], name string) []Field[S] {
	return slices.DeleteFunc(slices.Clone(fields), func(f Field[S]) bool { return f.Name == name })
}

// IsSet reports whether the filter is in a select.
func (f *Field[S]) IsSet(s *S) bool {
	switch {
	case f.Patterns != nil:
		return len(*f.Patterns(s)) > 0
	case f.Metadata != nil:
		return len(*f.Metadata(s)) > 0
	case f.Text != nil:
		return *f.Text(s) != ""
	case f.Flag != nil:
		return *f.Flag(s) != nil
	case f.Since != nil:
		return !f.Since(s).IsZero()
	}
	return len(*f.Conditions(s)) > 0
}

// Templates are the filters of lists of templates.
var Templates = []Field[tko.TemplateSelect]{
	{Name: "id", Wire: "templateIdPatterns", Help: "the ID", Patterns: func(s *tko.TemplateSelect) *[]string { return &s.IDs }},
	{Name: "metadata", Wire: "metadataPatterns", Metadata: func(s *tko.TemplateSelect) *map[string]string { return &s.Metadata }},
	{Name: "updated-since", Wire: "updatedSince", Column: "updated", Help: "templates", Since: func(s *tko.TemplateSelect) *time.Time { return &s.UpdatedSince }},
}

// Sites are the filters of lists of sites.
var Sites = []Field[tko.SiteSelect]{
	{Name: "id", Wire: "siteIdPatterns", Help: "the ID", Patterns: func(s *tko.SiteSelect) *[]string { return &s.IDs }},
	{Name: "template-id", Wire: "templateIdPatterns", Help: "the template's ID", Patterns: func(s *tko.SiteSelect) *[]string { return &s.Templates }},
	{Name: "metadata", Wire: "metadataPatterns", Metadata: func(s *tko.SiteSelect) *map[string]string { return &s.Metadata }},
	{Name: "updated-since", Wire: "updatedSince", Column: "updated", Help: "sites", Since: func(s *tko.SiteSelect) *time.Time { return &s.UpdatedSince }},
	{Name: "condition", Wire: "conditions", Conditions: func(s *tko.SiteSelect) *[]tko.ConditionSelect { return &s.Conditions }},
}

// Deployments are the filters of lists of deployments.
var Deployments = []Field[tko.DeploymentSelect]{
	{Wire: "deploymentIdPatterns", Patterns: func(s *tko.DeploymentSelect) *[]string { return &s.IDs }},
	{Name: "parent", Wire: "parentDeploymentId", Help: "the parent", Text: func(s *tko.DeploymentSelect) *string { return (*string)(&s.Parent) }},
	{Name: "metadata", Wire: "metadataPatterns", Metadata: func(s *tko.DeploymentSelect) *map[string]string { return &s.Metadata }},
	{Name: "template-id", Wire: "templateIdPatterns", Help: "the template's ID", Patterns: func(s *tko.DeploymentSelect) *[]string { return &s.Templates }},
	{Name: "template-metadata", Wire: "templateMetadataPatterns", Help: " of the template", Metadata: func(s *tko.DeploymentSelect) *map[string]string { return &s.TemplateMetadata }},
	{Name: "site-id", Wire: "siteIdPatterns", Help: "the site's ID", Patterns: func(s *tko.DeploymentSelect) *[]string { return &s.Sites }},
	{Name: "site-metadata", Wire: "siteMetadataPatterns", Help: " of the site", Metadata: func(s *tko.DeploymentSelect) *map[string]string { return &s.SiteMetadata }},
	{Name: "prepared", Wire: "prepared", Column: "prepared", Passing: true, Help: "only prepared ones", Flag: func(s *tko.DeploymentSelect) **bool { return &s.Prepared }},
	{Name: "approved", Wire: "approved", Column: "approved", Passing: true, Help: "only approved ones", Flag: func(s *tko.DeploymentSelect) **bool { return &s.Approved }},
	{Name: "outdated", Wire: "outdated", Passing: true, Help: "only deployments made from an earlier revision of their template", Flag: func(s *tko.DeploymentSelect) **bool { return &s.Outdated }},
	{Name: "updated-since", Wire: "updatedSince", Column: "updated", Passing: true, Help: "deployments", Since: func(s *tko.DeploymentSelect) *time.Time { return &s.UpdatedSince }},
	{Name: "condition", Wire: "conditions", Passing: true, Conditions: func(s *tko.DeploymentSelect) *[]tko.ConditionSelect { return &s.Conditions }},
}

// Rollouts are the filters of lists of rollouts.
var Rollouts = []Field[tko.RolloutSelect]{
	{Name: "id", Wire: "rolloutIdPatterns", Help: "the ID", Patterns: func(s *tko.RolloutSelect) *[]string { return &s.IDs }},
	{Name: "metadata", Wire: "metadataPatterns", Metadata: func(s *tko.RolloutSelect) *map[string]string { return &s.Metadata }},
}

package tko

import "github.com/tko-orchestrator/tko/krm"

// Selects: every field that is set must match, and every pattern of a list
// too. See [ParsePattern] for what patterns are.

// TemplateSelect selects templates.
type TemplateSelect struct {
	IDs      []string          // patterns
	Metadata map[string]string // key: pattern
}

// SiteSelect selects sites.
type SiteSelect struct {
	IDs       []string
	Templates []string
	Metadata  map[string]string
}

// DeploymentSelect selects deployments.
type DeploymentSelect struct {
	Parent           DeploymentID // exactly; "" is no filter
	Metadata         map[string]string
	Templates        []string
	TemplateMetadata map[string]string
	Sites            []string
	SiteMetadata     map[string]string
	Prepared         *bool
	Approved         *bool
	Outdated         *bool // made from an earlier revision of its template than the current one
}

// PluginSelect selects plugins. A filter that is present and empty is none:
// existing clients always send the type and the executor.
type PluginSelect struct {
	Type     *string
	Names    []string
	Executor *string
	Trigger  *krm.GVK
}

// WithoutEmpty returns the selection without filters that are present and empty.
func (s PluginSelect) WithoutEmpty() PluginSelect {
	if s.Type != nil && *s.Type == "" {
		s.Type = nil
	}
	if s.Executor != nil && *s.Executor == "" {
		s.Executor = nil
	}
	if s.Trigger != nil && *s.Trigger == (krm.GVK{}) {
		s.Trigger = nil
	}
	return s
}

// A Window is a part of a list. The zero value is the whole list.
type Window struct {
	Offset uint32
	Max    *int   // nil or negative: no limit
	After  string // start after this ID ("type|name" for plugins)
}

// ListOptions say what a list answers beside what it must.
type ListOptions struct {
	Window      Window
	Packages    bool // with the packages
	Deployments bool // with the IDs of the deployments of templates and sites
	Counts      bool // with their numbers, which is cheaper
}

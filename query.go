package tko

import (
	"time"

	"github.com/tko-orchestrator/tko/krm"
)

// In a select, every field that is set must match, and every pattern of a list
// must match. [ParsePattern] defines the patterns.

// TemplateSelect selects templates.
type TemplateSelect struct {
	IDs          []string          // patterns
	Metadata     map[string]string // key: pattern
	UpdatedSince time.Time         // the newest revision is not earlier; zero: not filtered
}

// SiteSelect selects sites.
type SiteSelect struct {
	IDs       []string
	Templates []string
	Metadata  map[string]string

	Conditions   []ConditionSelect // all must match
	UpdatedSince time.Time         // the newest revision is not earlier; zero: not filtered
}

// DeploymentSelect selects deployments.
type DeploymentSelect struct {
	IDs              []string     // patterns; servers of earlier versions don't know them
	Parent           DeploymentID // the ID itself, no pattern; "": not filtered
	Metadata         map[string]string
	Templates        []string
	TemplateMetadata map[string]string
	Sites            []string
	SiteMetadata     map[string]string
	Prepared         *bool
	Approved         *bool
	Outdated         *bool             // made from an earlier revision of its template than the current one
	Conditions       []ConditionSelect // all must match
	UpdatedSince     time.Time         // the newest revision is not earlier; zero: not filtered
}

// PluginSelect selects plugins. A filter that is present and empty doesn't
// filter: existing clients always send the type and the executor.
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

// An Encoded entity has its package in the encoding in which it is sent, instead
// of a decoded one. Its parts are shared and must not be changed.
type Encoded[E any] struct {
	Entity  E      // without its package
	Package []byte // nil if packages were not requested
}

// ListOptions select the optional parts of the rows of a list.
type ListOptions struct {
	Window      Window
	Packages    bool // packages
	Deployments bool // IDs of the deployments of templates and sites
	Counts      bool // numbers of the deployments of templates and sites; cheaper than the IDs
}

package wire

import (
	"context"
	"math"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

// NewTemplateSelect writes a select of templates.
func NewTemplateSelect(s tko.TemplateSelect, dryRun bool) *tkopb.SelectTemplates {
	return &tkopb.SelectTemplates{TemplateIdPatterns: s.IDs, MetadataPatterns: s.Metadata, DryRun: dryRun}
}

// TemplateSelect reads a select of templates. nil selects all.
func TemplateSelect(m *tkopb.SelectTemplates) tko.TemplateSelect {
	return tko.TemplateSelect{IDs: m.GetTemplateIdPatterns(), Metadata: m.GetMetadataPatterns()}
}

// NewSiteSelect writes a select of sites.
func NewSiteSelect(s tko.SiteSelect, dryRun bool) *tkopb.SelectSites {
	return &tkopb.SelectSites{
		SiteIdPatterns:     s.IDs,
		TemplateIdPatterns: s.Templates,
		MetadataPatterns:   s.Metadata,
		Conditions:         newConditionSelects(s.Conditions),
		DryRun:             dryRun,
	}
}

// SiteSelect reads a select of sites. nil selects all.
func SiteSelect(m *tkopb.SelectSites) tko.SiteSelect {
	return tko.SiteSelect{
		IDs: m.GetSiteIdPatterns(), Templates: m.GetTemplateIdPatterns(), Metadata: m.GetMetadataPatterns(), Conditions: conditionSelects(m.GetConditions()),
	}
}

func newConditionSelects(selects []tko.ConditionSelect) []*tkopb.SelectCondition {
	return Each(selects, func(c tko.ConditionSelect) *tkopb.SelectCondition {
		return &tkopb.SelectCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Negate: c.Not}
	})
}

func conditionSelects(messages []*tkopb.SelectCondition) []tko.ConditionSelect {
	return Each(messages, func(m *tkopb.SelectCondition) tko.ConditionSelect {
		return tko.ConditionSelect{Type: m.GetType(), Status: m.GetStatus(), Reason: m.GetReason(), Not: m.GetNegate()}
	})
}

// NewDeploymentSelect writes a select of deployments.
func NewDeploymentSelect(s tko.DeploymentSelect, dryRun bool) *tkopb.SelectDeployments {
	m := &tkopb.SelectDeployments{
		MetadataPatterns:         s.Metadata,
		TemplateIdPatterns:       s.Templates,
		TemplateMetadataPatterns: s.TemplateMetadata,
		SiteIdPatterns:           s.Sites,
		SiteMetadataPatterns:     s.SiteMetadata,
		Prepared:                 s.Prepared,
		Approved:                 s.Approved,
		Outdated:                 s.Outdated,
		Conditions:               newConditionSelects(s.Conditions),
		DeploymentIdPatterns:     s.IDs,
		DryRun:                   dryRun,
	}
	if s.Parent != "" {
		parent := string(s.Parent)
		m.ParentDeploymentId = &parent
	}
	return m
}

// DeploymentSelect reads a select of deployments. nil selects all; a parent
// that is present but empty doesn't filter.
func DeploymentSelect(m *tkopb.SelectDeployments) tko.DeploymentSelect {
	if m == nil {
		return tko.DeploymentSelect{}
	}
	return tko.DeploymentSelect{
		Parent:           tko.DeploymentID(m.GetParentDeploymentId()),
		Metadata:         m.GetMetadataPatterns(),
		Templates:        m.GetTemplateIdPatterns(),
		TemplateMetadata: m.GetTemplateMetadataPatterns(),
		Sites:            m.GetSiteIdPatterns(),
		SiteMetadata:     m.GetSiteMetadataPatterns(),
		Prepared:         m.Prepared,
		Approved:         m.Approved,
		Outdated:         m.Outdated,
		IDs:              m.GetDeploymentIdPatterns(),
		Conditions:       conditionSelects(m.GetConditions()),
	}
}

// NewPluginSelect writes a select of plugins.
func NewPluginSelect(s tko.PluginSelect, dryRun bool) *tkopb.SelectPlugins {
	m := &tkopb.SelectPlugins{Type: s.Type, NamePatterns: s.Names, Executor: s.Executor, DryRun: dryRun}
	if s.Trigger != nil {
		m.Trigger = newGVK(*s.Trigger)
	}
	return m
}

// PluginSelect reads a select of plugins. nil selects all.
func PluginSelect(m *tkopb.SelectPlugins) tko.PluginSelect {
	if m == nil {
		return tko.PluginSelect{}
	}
	s := tko.PluginSelect{Type: m.Type, Names: m.GetNamePatterns(), Executor: m.Executor}
	if m.GetTrigger() != nil {
		trigger := gvk(m.GetTrigger())
		s.Trigger = &trigger
	}
	return s
}

// NewConfirm writes the count that a context confirms; 0 if it confirms none.
func NewConfirm(ctx context.Context) uint64 {
	count, _ := tko.ConfirmationOf(ctx)
	return uint64(max(count, 0))
}

// NewWindow writes a window. It writes one for the whole list, too: servers of the
// original TKO read an absent window as one of 0 rows.
func NewWindow(w tko.Window) *tkopb.Window {
	m := &tkopb.Window{Offset: w.Offset, MaxCount: -1, After: w.After}
	if w.Max != nil && *w.Max >= 0 {
		m.MaxCount = int32(min(*w.Max, math.MaxInt32))
	}
	return m
}

// Window reads a window; nil is the whole list. A count of 0 is an empty list,
// and a negative one no limit.
func Window(m *tkopb.Window) tko.Window {
	if m == nil {
		return tko.Window{}
	}
	w := tko.Window{Offset: m.GetOffset(), After: m.GetAfter()}
	if count := int(m.GetMaxCount()); count >= 0 {
		w.Max = &count
	}
	return w
}

package wire

import (
	"context"
	"math"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/filter"
)

// newSelect writes the filters of a select into the message that selects.
func newSelect[S any](m proto.Message, fields []filter.Field[S], s S) {
	to := m.ProtoReflect()
	for _, f := range fields {
		field := to.Descriptor().Fields().ByName(protoreflect.Name(f.Wire))
		switch {
		case f.Patterns != nil:
			for _, pattern := range *f.Patterns(&s) {
				to.Mutable(field).List().Append(protoreflect.ValueOfString(pattern))
			}
		case f.Metadata != nil:
			for key, pattern := range *f.Metadata(&s) {
				to.Mutable(field).Map().Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(pattern))
			}
		case f.Text != nil:
			if text := *f.Text(&s); text != "" {
				to.Set(field, protoreflect.ValueOfString(text))
			}
		case f.Flag != nil:
			if flag := *f.Flag(&s); flag != nil {
				to.Set(field, protoreflect.ValueOfBool(*flag))
			}
		case f.Since != nil:
			if since := *f.Since(&s); !since.IsZero() {
				to.Set(field, protoreflect.ValueOfMessage(timestamppb.New(since).ProtoReflect()))
			}
		case f.Conditions != nil:
			for _, c := range *f.Conditions(&s) {
				one := &tkopb.SelectCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Negate: c.Not}
				to.Mutable(field).List().Append(protoreflect.ValueOfMessage(one.ProtoReflect()))
			}
		}
	}
}

// readSelect reads the filters of a message. What is present and empty doesn't filter. nil
// selects all.
func readSelect[S any](m proto.Message, fields []filter.Field[S]) (s S) {
	from := m.ProtoReflect()
	for _, f := range fields {
		field := from.Descriptor().Fields().ByName(protoreflect.Name(f.Wire))
		if !from.Has(field) {
			continue
		}
		value := from.Get(field)
		switch {
		case f.Patterns != nil:
			*f.Patterns(&s) = itemsOf(value.List(), protoreflect.Value.String)
		case f.Metadata != nil:
			patterns := make(map[string]string, value.Map().Len())
			value.Map().Range(func(key protoreflect.MapKey, pattern protoreflect.Value) bool {
				patterns[key.String()] = pattern.String()
				return true
			})
			*f.Metadata(&s) = patterns
		case f.Text != nil:
			*f.Text(&s) = value.String()
		case f.Flag != nil:
			flag := value.Bool()
			*f.Flag(&s) = &flag
		case f.Since != nil:
			if since, ok := value.Message().Interface().(*timestamppb.Timestamp); ok {
				*f.Since(&s) = since.AsTime()
			}
		case f.Conditions != nil:
			*f.Conditions(&s) = itemsOf(value.List(), func(v protoreflect.Value) tko.ConditionSelect {
				c, _ := v.Message().Interface().(*tkopb.SelectCondition)
				return tko.ConditionSelect{Type: c.GetType(), Status: c.GetStatus(), Reason: c.GetReason(), Not: c.GetNegate()}
			})
		}
	}
	return s
}

func itemsOf[T any](list protoreflect.List, of func(protoreflect.Value) T) []T {
	all := make([]T, list.Len())
	for i := range all {
		all[i] = of(list.Get(i))
	}
	return all
}

// NewTemplateSelect writes a select of templates.
func NewTemplateSelect(s tko.TemplateSelect, dryRun bool) *tkopb.SelectTemplates {
	m := &tkopb.SelectTemplates{DryRun: dryRun}
	newSelect(m, filter.Templates, s)
	return m
}

// TemplateSelect reads a select of templates. nil selects all.
func TemplateSelect(m *tkopb.SelectTemplates) tko.TemplateSelect {
	return readSelect(m, filter.Templates)
}

// NewSiteSelect writes a select of sites.
func NewSiteSelect(s tko.SiteSelect, dryRun bool) *tkopb.SelectSites {
	m := &tkopb.SelectSites{DryRun: dryRun}
	newSelect(m, filter.Sites, s)
	return m
}

// SiteSelect reads a select of sites. nil selects all.
func SiteSelect(m *tkopb.SelectSites) tko.SiteSelect { return readSelect(m, filter.Sites) }

// NewDeploymentSelect writes a select of deployments.
func NewDeploymentSelect(s tko.DeploymentSelect, dryRun bool) *tkopb.SelectDeployments {
	m := &tkopb.SelectDeployments{DryRun: dryRun}
	newSelect(m, filter.Deployments, s)
	return m
}

// DeploymentSelect reads a select of deployments. nil selects all; a parent
// that is present but empty doesn't filter.
func DeploymentSelect(m *tkopb.SelectDeployments) tko.DeploymentSelect {
	return readSelect(m, filter.Deployments)
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

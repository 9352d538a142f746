package access

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// A Scope selects entities by ranges of IDs and by metadata. All its fields
// must match. A scope with a field covers only kinds that have the field: with
// SiteID, sites and deployments at sites; with TemplateID, templates, and sites
// and deployments that are made from one. The zero value covers everything.
type Scope struct {
	Kinds      []tko.Kind        `json:"kinds,omitempty"`
	SiteID     string            `json:"siteId,omitempty"`     // an ID, or a prefix followed by **
	TemplateID string            `json:"templateId,omitempty"` // likewise
	Metadata   map[string]string `json:"metadata,omitempty"`   // equal values
}

// String returns the scope as the flags of the tko command state it.
func (s Scope) String() string {
	var parts []string
	if len(s.Kinds) > 0 {
		names := make([]string, len(s.Kinds))
		for i, k := range s.Kinds {
			names[i] = string(k)
		}
		parts = append(parts, "kind="+strings.Join(names, "|"))
	}
	if s.SiteID != "" {
		parts = append(parts, "site-id="+s.SiteID)
	}
	if s.TemplateID != "" {
		parts = append(parts, "template-id="+s.TemplateID)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Metadata)) {
		parts = append(parts, key+"="+s.Metadata[key])
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ",")
}

// IsAll reports whether the scope covers everything.
func (s Scope) IsAll() bool {
	return len(s.Kinds) == 0 && s.SiteID == "" && s.TemplateID == "" && len(s.Metadata) == 0
}

// maxScopeMetadata is the maximum number of metadata keys of a scope.
const maxScopeMetadata = 8

// Check returns ErrInvalid for a scope that can't be compiled.
func (s Scope) Check() error {
	if len(s.Kinds) > len(viewKinds) {
		return tko.Errorf(tko.ErrInvalid, "the scope has %d kinds: use each at most once", len(s.Kinds))
	}
	for _, k := range s.Kinds {
		if !slices.Contains(viewKinds[:], k) {
			return tko.Errorf(tko.ErrInvalid, "the scope has the unknown kind %.40q: use template, site, deployment, plugin or rollout", string(k))
		}
	}
	for what, text := range map[string]string{"site-id": s.SiteID, "template-id": s.TemplateID} {
		if _, err := rangeOf(what, text); err != nil {
			return err
		}
	}
	if len(s.Metadata) > maxScopeMetadata {
		return tko.Errorf(tko.ErrInvalid, "the scope has %d metadata keys: use at most %d", len(s.Metadata), maxScopeMetadata)
	}
	for key, value := range s.Metadata {
		if key == "" || len(key)+len(value) > 1024 || strings.ContainsAny(key+value, "\x00*") || !isText(key+value) {
			return tko.Errorf(tko.ErrInvalid, "the scope has the metadata %.40q=%.40q: use a key and an equal value, without wildcards, of at most 1024 bytes", key, value)
		}
	}
	return nil
}

// rangeOf parses an ID, or a prefix followed by **; nil for an empty text.
func rangeOf(what, text string) (*tko.Pattern, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no condition
	}
	p, err := tko.ParsePattern(text)
	if err != nil {
		return nil, err
	}
	if !isText(text) || len(text) > 2*tko.MaxIDLength || !p.Exact() && p.Regexp() != "(?s)^"+regexp.QuoteMeta(p.Prefix())+".*$" {
		return nil, tko.Errorf(tko.ErrInvalid, "%s=%.80q: use an ID, or the beginning of IDs followed by **, such as emea/**", what, text)
	}
	return &p, nil
}

func isText(text string) bool {
	return strings.ToValidUTF8(text, "") == text && !strings.Contains(text, "\x00")
}

// Attributes are the properties of an entity that scopes select by.
type Attributes struct {
	Kind     tko.Kind
	ID       string
	Template string // sites, deployments
	Site     string // deployments
	Metadata map[string]string
}

// A Term is a conjunction of conditions on the entities of one kind. Nil
// patterns and empty Metadata match everything.
type Term struct {
	ID       *tko.Pattern
	Template *tko.Pattern
	Site     *tko.Pattern
	Metadata map[string]string
}

func (t Term) match(a Attributes) bool {
	if t.ID != nil && !inRange(t.ID, a.ID) || t.Template != nil && (a.Template == "" || !inRange(t.Template, a.Template)) ||
		t.Site != nil && (a.Site == "" || !inRange(t.Site, a.Site)) {
		return false
	}
	for key, value := range t.Metadata {
		if is, ok := a.Metadata[key]; !ok || is != value {
			return false
		}
	}
	return true
}

// inRange is Pattern.Match without a regular expression.
func inRange(p *tko.Pattern, id string) bool {
	if p.Exact() {
		return id == p.Prefix()
	}
	return strings.HasPrefix(id, p.Prefix())
}

func (t Term) isAll() bool {
	return t.ID == nil && t.Template == nil && t.Site == nil && len(t.Metadata) == 0
}

func (t Term) key() string {
	var b strings.Builder
	for _, p := range []*tko.Pattern{t.ID, t.Template, t.Site} {
		if p == nil {
			b.WriteString("- ")
		} else {
			fmt.Fprintf(&b, "%q ", p.String())
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.Metadata)) {
		fmt.Fprintf(&b, "%q=%q ", key, t.Metadata[key])
	}
	return b.String()
}

// term returns the term of a scope for a kind; ok is false if the scope doesn't
// cover the kind.
func (s Scope) term(kind tko.Kind) (t Term, ok bool) {
	if len(s.Kinds) > 0 && !slices.Contains(s.Kinds, kind) {
		return t, false
	}
	site, err := rangeOf("site-id", s.SiteID)
	if err != nil {
		return t, false // such a scope is never stored; if it is, it covers nothing
	}
	template, err := rangeOf("template-id", s.TemplateID)
	if err != nil {
		return t, false
	}
	if len(s.Metadata) > 0 {
		t.Metadata = maps.Clone(s.Metadata)
	}
	switch kind {
	case tko.KindTemplate:
		t.ID = template
		return t, site == nil
	case tko.KindSite:
		t.ID, t.Template = site, template
		return t, true
	case tko.KindDeployment:
		t.Site, t.Template = site, template
		return t, true
	case tko.KindRollout: // its deployments have the scopes
		return t, site == nil && template == nil
	case tko.KindPlugin:
		return t, site == nil && template == nil && len(s.Metadata) == 0
	case tko.KindSource, tko.KindSubscription: // no scope covers sources
	}
	return t, false
}

// A Predicate selects entities of one kind: those that match one of its terms.
// The zero value selects none.
type Predicate struct {
	all   bool
	terms []Term
	key   string
}

// Everything selects all entities.
var Everything = Predicate{all: true, key: "all"}

// IsAll reports whether the predicate selects all entities, Empty whether it
// selects none.
func (p Predicate) IsAll() bool { return p.all }

// Empty reports whether the predicate selects no entity.
func (p Predicate) Empty() bool { return !p.all && len(p.terms) == 0 }

// Terms returns the terms, unless the predicate selects all entities.
func (p Predicate) Terms() []Term { return p.terms }

// Key returns a text that is equal for predicates that select the same.
func (p Predicate) Key() string { return p.key }

// Match reports whether the predicate selects an entity.
func (p Predicate) Match(a Attributes) bool {
	if p.all {
		return true
	}
	for _, t := range p.terms {
		if t.match(a) {
			return true
		}
	}
	return false
}

// predicateOf returns the union of terms.
func predicateOf(terms []Term) Predicate {
	byKey := map[string]Term{}
	for _, t := range terms {
		if t.isAll() {
			return Everything
		}
		byKey[t.key()] = t
	}
	var p Predicate
	keys := slices.Sorted(maps.Keys(byKey))
	for _, key := range keys {
		p.terms = append(p.terms, byKey[key])
	}
	p.key = strings.Join(keys, "| ")
	return p
}

// A View is what a caller may read: a predicate for each kind. The zero value
// shows nothing.
type View struct{ of *[len(viewKinds)]Predicate }

var viewKinds = [...]tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindPlugin, tko.KindRollout}

// ScopeAll shows everything. It is for the server's own purposes and for tests.
var ScopeAll = View{&[len(viewKinds)]Predicate{Everything, Everything, Everything, Everything, Everything}}

// newView returns the view of the predicates that of returns.
func newView(of func(tko.Kind) Predicate) View {
	var all [len(viewKinds)]Predicate
	for i, kind := range viewKinds {
		all[i] = of(kind)
	}
	return View{&all}
}

// ViewOf returns a view that shows the entities that a scope covers.
func ViewOf(scopes ...Scope) View {
	return newView(func(kind tko.Kind) Predicate {
		var terms []Term
		for _, s := range scopes {
			if t, ok := s.term(kind); ok {
				terms = append(terms, t)
			}
		}
		return predicateOf(terms)
	})
}

// With returns a view with another predicate for a kind.
func (v View) With(kind tko.Kind, p Predicate) View {
	return newView(func(k tko.Kind) Predicate {
		if k == kind {
			return p
		}
		return v.Of(k)
	})
}

// Of returns the predicate for a kind.
func (v View) Of(kind tko.Kind) Predicate {
	if v.of == nil {
		return Predicate{}
	}
	if i := slices.Index(viewKinds[:], kind); i >= 0 {
		return v.of[i]
	}
	return Predicate{}
}

// IsAll reports whether the view shows everything.
func (v View) IsAll() bool {
	return !slices.ContainsFunc(viewKinds[:], func(k tko.Kind) bool { return !v.Of(k).IsAll() })
}

// Key returns a text that is equal for views that show the same.
func (v View) Key() string {
	keys := make([]string, len(viewKinds))
	for i, k := range viewKinds {
		keys[i] = v.Of(k).key
	}
	return strings.Join(keys, "\n")
}

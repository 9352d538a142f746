package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/content"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/krm"
)

// A Put with a manager is an overlay: what the manager names becomes as it says, what it named
// the last time and no longer names is removed, and what others set stays. What a manager named
// is stored with the metadata of the record.

// The limits of managers.
const (
	maxManagers = 20
	maxManager  = 100
)

func checkManager(name string, kind tko.Kind) error {
	switch {
	case name == "":
		return nil
	case kind == tko.KindDeployment:
		return tko.Errorf(tko.ErrInvalid, "manager %.40q: deployments have no managers: merge into their packages", name)
	case len(name) > maxManager || !record.Storable(name) || strings.TrimSpace(name) != name:
		return tko.Errorf(tko.ErrInvalid, "the manager %.40q has %d bytes: use plain text of at most %d", name, len(name), maxManager)
	}
	return nil
}

// overlaid returns a Put with what stays of the current record, and its manager's new set.
func (s *RecordWriter) overlaid(ctx context.Context, p Put, current record.Record) (Put, error) {
	if p.Manager == "" {
		p.applied = current.Applied()
		return p, nil
	}
	next := record.AppliedSet{Template: p.Template != "", Metadata: slices.Sorted(maps.Keys(p.Metadata))}
	named := map[string]krm.Resource{}
	for _, r := range p.Package {
		id := r.Identity().String()
		named[id] = r
		next.Resources = append(next.Resources, id)
	}
	slices.Sort(next.Resources)
	for _, f := range tko.DetailFields() {
		if *f.In(&p.Details) != "" {
			next.Details = append(next.Details, f.Name)
		}
	}
	p.applied = maps.Clone(current.Applied())
	if p.applied == nil {
		p.applied = map[string]record.AppliedSet{}
	}
	last := p.applied[p.Manager]
	next.Labels, next.Annotations = last.Labels, last.Annotations
	p.applied[p.Manager] = next
	if len(p.applied) > maxManagers {
		return p, tko.Errorf(tko.ErrInvalid, "%s %q has %d managers already: use the name of one of them (--manager)", p.Key.Kind, p.Key.ID, maxManagers)
	}
	if current.Revision == 0 || p.Key.Kind != tko.KindTemplate && p.Key.Kind != tko.KindSite && p.Key.Kind != tko.KindRollout {
		return p, nil
	}
	metadata := maps.Clone(p.Metadata)
	for key, value := range current.Passed() {
		if _, wanted := metadata[key]; !wanted && !slices.Contains(last.Metadata, key) {
			if metadata == nil {
				metadata = map[string]string{}
			}
			metadata[key] = value
		}
	}
	p.Metadata = metadata
	if p.Key.Kind == tko.KindRollout {
		return p, nil // its package is one resource
	}
	if p.Template == "" && !last.Template {
		p.Template = current.Template
	}
	for _, f := range tko.DetailFields() {
		if text := f.In(&p.Details); *text == "" && !slices.Contains(last.Details, f.Name) {
			*text = *f.In(&current.Details)
		}
	}
	given, err := s.givenBy(ctx, current)
	if err != nil {
		return p, err
	}
	pkg, err := record.PackageOf(current)
	if err != nil {
		return p, err
	}
	all := make(krm.Package, 0, len(pkg)+len(p.Package))
	for _, r := range pkg {
		id := r.Identity().String()
		if mine, ok := named[id]; ok {
			all = append(all, mine)
			delete(named, id)
			continue
		}
		if from, ok := given[id]; slices.Contains(last.Resources, id) || ok && !differ(from, r) {
			continue
		}
		all = append(all, r)
	}
	for _, r := range p.Package {
		if _, ok := named[r.Identity().String()]; ok {
			all = append(all, r)
		}
	}
	p.Package = all
	return p, nil
}

func differ(a, b krm.Resource) bool {
	for range krm.Differences(a, b) {
		return true
	}
	return false
}

// givenBy returns the resources that the template of a site gave it when the site was last
// written, by identity: others of the site's package are its own. If the template isn't
// retained as it was then, it is taken as it is.
func (s *RecordWriter) givenBy(ctx context.Context, current record.Record) (map[string]krm.Resource, error) {
	given := map[string]krm.Resource{}
	if current.Kind != tko.KindSite || current.Template == "" {
		return given, nil
	}
	key := record.Key{Kind: tko.KindTemplate, ID: current.Template}
	fields := record.Fields{Package: true}
	then, err := s.store.GetAt(ctx, current.Position, fields, key)
	if errors.Is(err, tko.ErrGone) || err == nil && then[0].Revision == 0 {
		then, err = s.store.Get(ctx, fields, key)
	}
	if err != nil || then[0].Revision == 0 {
		return given, err
	}
	base, err := record.PackageOf(then[0])
	if err == nil {
		base, err = content.StartFrom(current.Template, base, nil)
	}
	for _, r := range base {
		given[r.Identity().String()] = r
	}
	return given, err
}

// changesOf describes the differences between a record and its next state: what goes as well as
// what comes. Values of Secrets that the caller may not see are left out.
func (s *RecordWriter) changesOf(c *rights.Caller, before, after record.Record) (changes []string, err error) {
	if before.Revision == 0 {
		return nil, nil
	}
	if before.Template != after.Template {
		changes = append(changes, fmt.Sprintf("spec.templateId: %q → %q", before.Template, after.Template))
	}
	for _, f := range tko.DetailFields() {
		if was, will := *f.In(&before.Details), *f.In(&after.Details); was != will {
			changes = append(changes, fmt.Sprintf("spec.%s: %q → %q", f.Name, was, will))
		}
	}
	changes = append(changes, textChanges("labels", before.Effective(), after.Effective())...)
	was, err := marksOf(c, before)
	if err != nil {
		return nil, err
	}
	will, err := marksOf(c, after)
	if err != nil {
		return nil, err
	}
	changes = append(changes, textChanges("labels", was.Marks.Labels, will.Marks.Labels)...)
	changes = append(changes, textChanges("annotations", was.Marks.Annotations, will.Marks.Annotations)...)
	old, err := record.PackageOf(before)
	if err != nil {
		return nil, err
	}
	now, err := record.PackageOf(after)
	if err != nil {
		return nil, err
	}
	return slices.AppendSeq(changes, s.rights.Redact(c, before, old).Changes(s.rights.Redact(c, after, now))), nil
}

// textChanges describes the changes of a part of the metadata of a manifest.
func textChanges(part string, is, will map[string]string) (changes []string) {
	for _, key := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Keys(is)), slices.Collect(maps.Keys(will)))))) {
		was, had := is[key]
		next, has := will[key]
		switch {
		case had && !has:
			changes = append(changes, fmt.Sprintf("metadata.%s.%s: %q removed", part, key, was))
		case !had:
			changes = append(changes, fmt.Sprintf("metadata.%s.%s: %q added", part, key, next))
		case was != next:
			changes = append(changes, fmt.Sprintf("metadata.%s.%s: %q → %q", part, key, was, next))
		}
	}
	return changes
}

package catalog

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/content"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/kubename"
)

// maxAnnotations is the number of bytes of annotations, keys and values, that objects in
// Kubernetes may have.
const maxAnnotations = 256 << 10

// annotationsPart is the part of [record.Metadata.Attached] that has annotations.
const annotationsPart = "annotations"

// An attachedMarks is what an export reads of [record.Metadata.Attached].
type attachedMarks struct {
	Annotations     map[string]string `json:"annotations"`
	OwnerReferences []json.RawMessage `json:"ownerReferences"`
}

// Marks returns the marks of the entities of a kind that the caller may read, sorted by ID,
// without entities that have none. Values of Secrets in annotations are redacted, unless the
// caller may read them.
func (s *Entities) Marks(ctx context.Context, kind tko.Kind) iter.Seq2[tko.EntityMarks, error] {
	return record.Stream(func(yield func(tko.EntityMarks) bool) error {
		if !slices.Contains(record.EntityKinds, kind) {
			return tko.Errorf(tko.ErrInvalid, "there are no entities of the kind %.40q: use template, site, deployment, plugin or rollout", string(kind))
		}
		for m, err := range rights.List(ctx, s.rights, record.Query{Kind: kind, Limit: -1}, nil, marksOf) {
			if err != nil {
				return err
			}
			if (!m.Marks.IsZero() || m.OwnerReferences > 0) && !yield(m) {
				return nil
			}
		}
		return nil
	})
}

func marksOf(c *rights.Caller, r record.Record) (tko.EntityMarks, error) {
	m := tko.EntityMarks{ID: r.ID}
	m.Marks.Labels = maps.Clone(r.Labels())
	maps.DeleteFunc(m.Marks.Labels, func(label, _ string) bool { return !isLabelMark(r.Kind, label) })
	if r.Attached() == nil {
		return m, nil
	}
	var attached attachedMarks
	if err := json.Unmarshal(r.Attached(), &attached); err != nil {
		return m, err
	}
	m.OwnerReferences = len(attached.OwnerReferences)
	m.Marks.Annotations = attached.Annotations
	maps.DeleteFunc(m.Marks.Annotations, func(name, _ string) bool { return !tko.IsMark(name) })
	if krm.MayHoldSecrets(r.Attached()) && !c.Reveals(r) {
		for name, value := range m.Marks.Annotations {
			m.Marks.Annotations[name] = krm.RedactText(value)
		}
	}
	return m, nil
}

// isLabelMark reports whether a label is a mark, and not metadata.
func isLabelMark(kind tko.Kind, label string) bool {
	return kind == tko.KindPlugin || kubename.HasPrefix(label)
}

// checkMarks returns an ErrInvalid unless a transport can show marks as what they are.
func checkMarks(kind tko.Kind, m *tko.Marks) error {
	if m == nil {
		return nil
	}
	for label, value := range m.Labels {
		if !isLabelMark(kind, label) {
			return tko.Errorf(tko.ErrInvalid, "the label %.80q has no prefix: give it as metadata", label)
		}
		if err := kubename.CheckLabel(label, value); err != nil {
			return err
		}
	}
	if n := content.MetadataBytes(m.Annotations); n > maxAnnotations {
		return tko.Errorf(tko.ErrInvalid, "the annotations have %d bytes, keys and values together: use at most %d", n, maxAnnotations)
	}
	for name, value := range m.Annotations {
		if !tko.IsMark(name) {
			return tko.Errorf(tko.ErrInvalid, "the annotation %.80q has a meaning of its own: leave it out", name)
		}
		if err := kubename.CheckAnnotation(name); err != nil {
			return err
		}
		if !record.Storable(value) {
			return tko.Errorf(tko.ErrInvalid, "the annotation %q is no plain text", name)
		}
	}
	return nil
}

// mark sets the labels and the attached data of a Put that states marks, and what its manager
// named. Marks that it no longer names are removed, others stay.
func (p *Put) mark(current record.Record) error {
	if p.Marks == nil {
		return nil
	}
	last := current.Applied()[p.Manager]
	p.Labels = overlaidTexts(current.Labels(), p.Marks.Labels, last.Labels)
	var err error
	if p.Attached, err = annotated(current.Attached(), p.Marks.Annotations, last.Annotations); err != nil {
		return err
	}
	is, err := annotationsOf(current.Attached())
	if err != nil {
		return err
	}
	next := p.applied[p.Manager]
	next.Labels, next.Annotations = setBy(current.Labels(), p.Marks.Labels, last.Labels), setBy(is, p.Marks.Annotations, last.Annotations)
	applied := maps.Clone(p.applied)
	if applied == nil {
		applied = map[string]record.AppliedSet{}
	}
	applied[p.Manager] = next
	if next.Equal(record.AppliedSet{}) && p.Manager == "" {
		delete(applied, p.Manager)
	}
	p.applied = applied
	return nil
}

// setBy returns the sorted names of the given texts that a manifest sets, now or the last time.
// Those that were there before, with the same value, stay another client's.
func setBy(is, given map[string]string, last []string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if value, ok := is[name]; !ok || value != given[name] || slices.Contains(last, name) {
			names = append(names, name)
		}
	}
	return names
}

// overlaidTexts returns texts without those that were given the last time, and with those that
// are given now.
func overlaidTexts(texts, given map[string]string, last []string) map[string]string {
	all := maps.Clone(texts)
	for _, name := range last {
		delete(all, name)
	}
	if all == nil && len(given) > 0 {
		all = map[string]string{}
	}
	maps.Copy(all, given)
	return all
}

// annotationsOf returns the annotations in attached data.
func annotationsOf(attached []byte) (map[string]string, error) {
	var parts attachedMarks
	if attached == nil {
		return nil, nil
	}
	err := json.Unmarshal(attached, &parts)
	return parts.Annotations, err
}

// annotated returns attached data with annotations, byte by byte as they are if nothing changes.
func annotated(attached []byte, given map[string]string, last []string) ([]byte, error) {
	is, err := annotationsOf(attached)
	if err != nil {
		return nil, err
	}
	will := overlaidTexts(is, given, last)
	if maps.Equal(is, will) {
		return attached, nil
	}
	parts := map[string]json.RawMessage{}
	if attached != nil {
		if err := json.Unmarshal(attached, &parts); err != nil {
			return nil, err
		}
	}
	delete(parts, annotationsPart)
	if len(will) > 0 {
		if parts[annotationsPart], err = json.Marshal(will); err != nil {
			return nil, err
		}
	}
	if len(parts) == 0 {
		return nil, nil
	}
	return json.Marshal(parts)
}

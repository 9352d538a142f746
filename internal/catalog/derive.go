package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// The limits of stored packages and metadata. Decoding accepts everything within
// them.
const (
	maxMetadata      = 10_000
	maxMetadataKey   = 512
	maxMetadataValue = 64 << 10
	maxMetadataBytes = 1 << 20 // of all keys and values of one entity: rows of lists must fit into gRPC's usual 4 MiB
	maxAttached      = 2 << 20
	maxDetailBytes   = 1 << 10 // of each text of an entity's details
)

// A content is a package and its stored encoding.
type content struct {
	pkg     krm.Package
	encoded []byte
	digest  record.Digest
	warned  *[]tko.Finding // set by its validation; nil if the caller has no use for it
}

// maxWarnings is the maximum number of unknown properties that a condition names.
const maxWarnings = 20

// conditions returns the conditions of a valid package, in addition to current ones.
func (c content) conditions(current []tko.Condition) []tko.Condition {
	if c.warned == nil || len(*c.warned) == 0 {
		if tko.ConditionIs(current, tko.ConditionKnownProperties) != tko.ConditionFalse {
			return nil
		}
		return []tko.Condition{{Type: tko.ConditionKnownProperties, Status: tko.ConditionTrue, Reason: tko.ReasonAllKnown}}
	}
	var names []string
	for _, one := range (*c.warned)[:min(len(*c.warned), maxWarnings)] {
		names = append(names, one.String())
	}
	text := strings.Join(names, "; ")
	if more := len(*c.warned) - maxWarnings; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return []tko.Condition{{Type: tko.ConditionKnownProperties, Status: tko.ConditionFalse, Reason: tko.ReasonUnknownProperty, Message: text}}
}

// contentOf encodes a package.
func contentOf(pkg krm.Package) (content, error) {
	if len(pkg) > record.MaxResources {
		return content{}, tko.Errorf(tko.ErrInvalid, "the package has %d resources: use at most %d", len(pkg), record.MaxResources)
	}
	digest, encoded, err := krm.DigestOf(pkg)
	if err != nil {
		return content{}, tko.Errorf(tko.ErrInvalid, "the package can't be stored: %w", err)
	}
	if len(encoded) > record.MaxPackageBytes {
		return content{}, tko.Errorf(tko.ErrInvalid, "the package has %d MiB: use at most %d", len(encoded)>>20, record.MaxPackageBytes>>20)
	}
	if krm.MayBeRedacted(encoded) {
		if err := pkg.CheckSecrets(); err != nil {
			return content{}, tko.Errorf(tko.ErrInvalid, "invalid package: %w", err)
		}
	}
	return content{pkg: pkg, encoded: encoded, digest: digest, warned: new([]tko.Finding)}, nil
}

// checkPackage checks a package as a list of resources.
func checkPackage(pkg krm.Package) error {
	if err := pkg.Check(); err != nil {
		return tko.Errorf(tko.ErrInvalid, "invalid package: %w", err)
	}
	return nil
}

// merge merges resources into a package.
func merge(into, resources krm.Package) (krm.Package, error) {
	if err := checkPackage(resources); err != nil {
		return nil, err
	}
	merged, err := krm.Merge(into, resources)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "can't merge the package: %w", err)
	}
	if err := checkPackage(merged); err != nil {
		return nil, err
	}
	return merged, nil
}

// startFrom returns the package of an entity that is made from a template: the
// given resources merged into the template's. Without a template it returns the
// given package; its renames are applied where it is merged later.
func startFrom(template string, base, given krm.Package) (krm.Package, error) {
	if template == "" {
		return given, checkPackage(given)
	}
	return merge(base, given)
}

// deploymentState reads the state in the Deployment resource of a package;
// found is false if there is none.
func deploymentState(pkg krm.Package) (state krm.DeploymentState, found bool, err error) {
	resource, err := pkg.Deployment()
	if err == nil && resource != nil {
		state, err = krm.ReadDeployment(resource)
	}
	if err != nil {
		return krm.DeploymentState{}, false, tko.Errorf(tko.ErrInvalid, "invalid package: %w", err)
	}
	return state, resource != nil, nil
}

// metadataOf combines an entity's metadata: inherited, gathered from the
// package, and passed by the caller. Later values win.
func metadataOf(pkg krm.Package, inherited, passed map[string]string) (*record.Metadata, error) {
	return metadataAfter(nil, pkg, inherited, passed)
}

// metadataAfter is metadataOf for an entity that has metadata. If that exceeds
// the limit already, it may stay as large, but not grow.
func metadataAfter(before map[string]string, pkg krm.Package, inherited, passed map[string]string) (*record.Metadata, error) {
	effective := pkg.MetadataWith(inherited, passed)
	if len(effective) > maxMetadata {
		return nil, tko.Errorf(tko.ErrInvalid, "there are %d metadata keys: use at most %d", len(effective), maxMetadata)
	}
	for key, value := range effective {
		if err := checkMetadata(key, value); err != nil {
			return nil, err
		}
	}
	if n := metadataBytes(effective); n > max(maxMetadataBytes, metadataBytes(before)) {
		return nil, tko.Errorf(tko.ErrInvalid, "the metadata has %d bytes, keys and values together: use at most %d, and put what is larger into the package", n, maxMetadataBytes)
	}
	return &record.Metadata{Effective: effective, Inherited: maps.Clone(inherited), Passed: maps.Clone(passed)}, nil
}

func metadataBytes(metadata map[string]string) int {
	n := 0
	for key, value := range metadata {
		n += len(key) + len(value)
	}
	return n
}

// checkDetails checks the details of a template or a site.
func checkDetails(key record.Key, d tko.Details) error {
	for _, f := range tko.DetailFields() {
		switch text := *f.In(&d); {
		case len(text) > maxDetailBytes:
			return tko.Errorf(tko.ErrInvalid, "the %s of %s %q has %d bytes: use at most %d, and put what is longer into the package", f.Name, key.Kind, key.ID, len(text), maxDetailBytes)
		case !record.Storable(text):
			return tko.Errorf(tko.ErrInvalid, "the %s of %s %q is not plain text: use UTF-8 without NUL", f.Name, key.Kind, key.ID)
		}
	}
	return nil
}

func checkMetadata(key, value string) error {
	switch {
	case key == "":
		return tko.Errorf(tko.ErrInvalid, "the metadata key of the value %.40q is empty: name it", value)
	case len(key) > maxMetadataKey:
		return tko.Errorf(tko.ErrInvalid, "the metadata key %.40q… has %d bytes: use at most %d", key, len(key), maxMetadataKey)
	case len(value) > maxMetadataValue:
		return tko.Errorf(tko.ErrInvalid, "the value of the metadata key %.40q has %d bytes: use at most %d", key, len(value), maxMetadataValue)
	case !record.Storable(key):
		return tko.Errorf(tko.ErrInvalid, "the metadata key %q is not plain text: use UTF-8 without NUL", key)
	case !record.Storable(value):
		return tko.Errorf(tko.ErrInvalid, "the value of the metadata key %q is not plain text: use UTF-8 without NUL", key)
	}
	return nil
}

// attach stores a transport's opaque data with a record whose metadata isn't
// shared yet.
func attach(r *record.Record, attached []byte) error {
	if len(attached) > maxAttached {
		return tko.Errorf(tko.ErrInvalid, "the data attached to %s %q by its transport (such as annotations) has %d bytes: use at most %d",
			r.Kind, r.ID, len(attached), maxAttached)
	}
	if r.Metadata == nil {
		r.Metadata = new(record.Metadata)
	}
	r.Metadata.Attached = attached
	return nil
}

// retainAttached copies the attached data, the labels, and what managers named, of the current
// record: only the transport or the manager that wrote them changes them.
func retainAttached(r *record.Record, current record.Record) {
	if current.Attached() == nil && current.Awaited().IsZero() && len(current.Labels())+len(current.Applied()) == 0 {
		return
	}
	metadata := *r.Metadata.OrNone()
	metadata.Attached, metadata.Labels, metadata.Applied = current.Attached(), current.Labels(), current.Applied()
	metadata.Awaited = current.Metadata.OrNone().Awaited
	r.Metadata = &metadata
}

// setLabels stores labels as they were written, with a record whose metadata isn't
// shared yet.
func setLabels(r *record.Record, labels map[string]string) error {
	if len(labels) == 0 {
		return nil
	}
	if n := metadataBytes(labels); n > maxMetadataBytes {
		return tko.Errorf(tko.ErrInvalid, "the labels of %s %q have %d bytes, keys and values together: use at most %d", r.Kind, r.ID, n, maxMetadataBytes)
	}
	for key, value := range labels {
		if err := checkMetadata(key, value); err != nil {
			return err
		}
	}
	if r.Metadata == nil {
		r.Metadata = new(record.Metadata)
	}
	r.Metadata.Labels = labels
	return nil
}

// removeMetadata removes inherited and gathered metadata, not passed metadata. The
// record's metadata must not be shared yet.
func removeMetadata(r *record.Record, keys []string) {
	for _, key := range keys {
		_, passed := r.Passed()[key]
		if _, ok := r.Effective()[key]; !ok || passed {
			continue
		}
		delete(r.Metadata.Effective, key)
		r.Metadata.Removed = append(r.Metadata.Removed, key)
	}
	if r.Metadata != nil {
		slices.Sort(r.Metadata.Removed)
	}
}

// A draft is a deployment before it is stored: its references, its state, and
// its package, whose Deployment resource has the same references and state.
type draft struct {
	template string
	site     string
	prepared bool
	approved bool
	pkg      krm.Package
}

// withState returns the draft with a package whose Deployment resource has the
// references and state of the draft.
func (d draft) withState(pkg krm.Package) draft {
	d.pkg = pkg.WithDeployment(d.template, d.site, d.prepared, d.approved)
	return d
}

// newDraft derives a new deployment from its template's package and a request.
// The request overrides the Deployment resource of the merged package.
func newDraft(base krm.Package, request tko.NewDeployment) (draft, error) {
	pkg, err := startFrom(string(request.Template), base, request.Merge)
	if err != nil {
		return draft{}, err
	}
	state, _, err := deploymentState(pkg)
	if err != nil {
		return draft{}, err
	}
	d := draft{
		template: string(request.Template),
		site:     string(request.Site),
		prepared: request.Prepared || isTrue(state.Prepared),
		approved: request.Approved || isTrue(state.Approved),
	}
	if d.template == "" && state.Template != nil {
		d.template = *state.Template
	}
	if d.site == "" && state.Site != nil {
		d.site = *state.Site
	}
	return d.withState(pkg), nil
}

// changedDraft derives a deployment whose package is replaced. start is the
// deployment that the package was made from, and before returns its package; current is
// the deployment now. They differ if a template or site was deleted meanwhile.
// References that the package doesn't change relative to start stay as in
// current.
func changedDraft(start, current record.Record, before func() (krm.Package, error), pkg krm.Package) (draft, error) {
	if err := checkPackage(pkg); err != nil {
		return draft{}, err
	}
	state, found, err := deploymentState(pkg)
	if err != nil {
		return draft{}, err
	}
	d := draft{template: current.Template, site: current.Site}
	if !found {
		d.prepared, d.approved = current.Prepared, current.Approved
		old, err := before()
		if err != nil {
			return draft{}, err
		}
		resource, err := old.Deployment()
		if err != nil || resource == nil {
			return d.withState(pkg), err
		}
		restored := append(make(krm.Package, 0, len(pkg)+1), pkg...)
		return d.withState(append(restored, resource)), nil
	}
	if state.Template != nil && *state.Template != start.Template {
		d.template = *state.Template
	}
	if state.Site != nil && *state.Site != start.Site {
		d.site = *state.Site
	}
	d.prepared, d.approved = isTrue(state.Prepared), isTrue(state.Approved)
	return d.withState(pkg), nil
}

// withReferences changes the template or site of a draft from those of current.
// It is an ErrInvalid if the package sets a third one.
func (d draft) withReferences(current record.Record, template, site string) (draft, error) {
	for _, m := range []struct {
		what     string
		from, to string
		field    *string
	}{{"template", current.Template, template, &d.template}, {"site", current.Site, site, &d.site}} {
		if m.from == m.to {
			continue
		}
		if *m.field != m.from && *m.field != m.to {
			return draft{}, tko.Errorf(tko.ErrInvalid, "the request sets the deployment's %s to %q, but the Deployment resource of its package sets %q: set the same in both, or set it in one only",
				m.what, m.to, *m.field)
		}
		*m.field = m.to
	}
	return d.withState(d.pkg), nil
}

func isTrue(flag *bool) bool { return flag != nil && *flag }

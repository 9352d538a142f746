// Package content has the rules of what entities hold: how packages are encoded and limited,
// how metadata and labels come together, and what a new or changed deployment is before it is
// stored. It reads and writes nothing.
package content

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// The limits of stored packages and metadata. Decoding accepts everything within
// them.
const (
	MaxMetadata      = 10_000
	maxMetadataKey   = 512
	maxMetadataValue = 64 << 10
	maxMetadataBytes = 1 << 20 // of all keys and values of one entity: rows of lists must fit into gRPC's usual 4 MiB
	maxAttached      = 2 << 20
	maxDetailBytes   = 1 << 10 // of each text of an entity's details
)

// A Content is a package and its stored encoding.
type Content struct {
	Package krm.Package
	Encoded []byte
	Digest  record.Digest
	Warned  *[]tko.Finding // set by its validation; nil if the caller has no use for it
}

// maxWarnings is the maximum number of unknown properties that a condition names.
const maxWarnings = 20

// Conditions returns the conditions of a valid package, in addition to current ones.
func (c Content) Conditions(current []tko.Condition) []tko.Condition {
	if c.Warned == nil || len(*c.Warned) == 0 {
		if tko.ConditionIs(current, tko.ConditionKnownProperties) != tko.ConditionFalse {
			return nil
		}
		return []tko.Condition{{Type: tko.ConditionKnownProperties, Status: tko.ConditionTrue, Reason: tko.ReasonAllKnown}}
	}
	var names []string
	for _, one := range (*c.Warned)[:min(len(*c.Warned), maxWarnings)] {
		names = append(names, one.String())
	}
	text := strings.Join(names, "; ")
	if more := len(*c.Warned) - maxWarnings; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return []tko.Condition{{Type: tko.ConditionKnownProperties, Status: tko.ConditionFalse, Reason: tko.ReasonUnknownProperty, Message: text}}
}

// Of encodes a package.
func Of(pkg krm.Package) (Content, error) {
	if len(pkg) > record.MaxResources {
		return Content{}, tko.Errorf(tko.ErrInvalid, "the package has %d resources: use at most %d", len(pkg), record.MaxResources)
	}
	digest, encoded, err := krm.DigestOf(pkg)
	if err != nil {
		return Content{}, tko.Errorf(tko.ErrInvalid, "the package can't be stored: %w", err)
	}
	if len(encoded) > record.MaxPackageBytes {
		return Content{}, tko.Errorf(tko.ErrInvalid, "the package has %d MiB: use at most %d", len(encoded)>>20, record.MaxPackageBytes>>20)
	}
	if krm.MayBeRedacted(encoded) {
		if err := pkg.CheckSecrets(); err != nil {
			return Content{}, tko.Errorf(tko.ErrInvalid, "invalid package: %w", err)
		}
	}
	return Content{Package: pkg, Encoded: encoded, Digest: digest, Warned: new([]tko.Finding)}, nil
}

// CheckPackage checks a package as a list of resources.
func CheckPackage(pkg krm.Package) error {
	if err := pkg.Check(); err != nil {
		return tko.Errorf(tko.ErrInvalid, "invalid package: %w", err)
	}
	return nil
}

// Merge merges resources into a package.
func Merge(into, resources krm.Package) (krm.Package, error) {
	if err := CheckPackage(resources); err != nil {
		return nil, err
	}
	merged, err := krm.Merge(into, resources)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "can't merge the package: %w", err)
	}
	if err := CheckPackage(merged); err != nil {
		return nil, err
	}
	return merged, nil
}

// StartFrom returns the package of an entity that is made from a template: the
// given resources merged into the template's. Without a template it returns the
// given package; its renames are applied where it is merged later.
func StartFrom(template string, base, given krm.Package) (krm.Package, error) {
	if template == "" {
		return given, CheckPackage(given)
	}
	return Merge(base, given)
}

// StateOf reads the state in the Deployment resource of a package;
// found is false if there is none.
func StateOf(pkg krm.Package) (state krm.DeploymentState, found bool, err error) {
	resource, err := pkg.Deployment()
	if err == nil && resource != nil {
		state, err = krm.ReadDeployment(resource)
	}
	if err != nil {
		return krm.DeploymentState{}, false, tko.Errorf(tko.ErrInvalid, "invalid package: %w", err)
	}
	return state, resource != nil, nil
}

// MetadataOf combines an entity's metadata: inherited, gathered from the
// package, and passed by the caller. Later values win.
func MetadataOf(pkg krm.Package, inherited, passed map[string]string) (*record.Metadata, error) {
	return MetadataAfter(nil, pkg, inherited, passed)
}

// MetadataAfter is MetadataOf for an entity that has metadata. If that exceeds
// the limit already, it may stay as large, but not grow.
func MetadataAfter(before map[string]string, pkg krm.Package, inherited, passed map[string]string) (*record.Metadata, error) {
	effective := pkg.MetadataWith(inherited, passed)
	if len(effective) > MaxMetadata {
		return nil, tko.Errorf(tko.ErrInvalid, "there are %d metadata keys: use at most %d", len(effective), MaxMetadata)
	}
	for key, value := range effective {
		if err := CheckMetadata(key, value); err != nil {
			return nil, err
		}
	}
	if n := MetadataBytes(effective); n > max(maxMetadataBytes, MetadataBytes(before)) {
		return nil, tko.Errorf(tko.ErrInvalid, "the metadata has %d bytes, keys and values together: use at most %d, and put what is larger into the package", n, maxMetadataBytes)
	}
	return &record.Metadata{Effective: effective, Inherited: maps.Clone(inherited), Passed: maps.Clone(passed)}, nil
}

// MetadataBytes returns the number of bytes of all keys and values.
func MetadataBytes(metadata map[string]string) int {
	n := 0
	for key, value := range metadata {
		n += len(key) + len(value)
	}
	return n
}

// CheckDetails checks the details of a template or a site.
func CheckDetails(key record.Key, d tko.Details) error {
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

// CheckMetadata refuses a key or value that is too long or not plain text, as an ErrInvalid.
func CheckMetadata(key, value string) error {
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

// Attach stores a transport's opaque data with a record whose metadata isn't
// shared yet.
func Attach(r *record.Record, attached []byte) error {
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

// RetainAttached copies the attached data, the labels, and what managers named, of the current
// record: only the transport or the manager that wrote them changes them.
func RetainAttached(r *record.Record, current record.Record) {
	if current.Attached() == nil && current.Awaited().IsZero() && len(current.Labels())+len(current.Applied()) == 0 {
		return
	}
	metadata := *r.Metadata.OrNone()
	metadata.Attached, metadata.Labels, metadata.Applied = current.Attached(), current.Labels(), current.Applied()
	metadata.Awaited = current.Metadata.OrNone().Awaited
	r.Metadata = &metadata
}

// SetLabels stores labels as they were written, with a record whose metadata isn't
// shared yet.
func SetLabels(r *record.Record, labels map[string]string) error {
	if len(labels) == 0 {
		return nil
	}
	if n := MetadataBytes(labels); n > maxMetadataBytes {
		return tko.Errorf(tko.ErrInvalid, "the labels of %s %q have %d bytes, keys and values together: use at most %d", r.Kind, r.ID, n, maxMetadataBytes)
	}
	for key, value := range labels {
		if err := CheckMetadata(key, value); err != nil {
			return err
		}
	}
	if r.Metadata == nil {
		r.Metadata = new(record.Metadata)
	}
	r.Metadata.Labels = labels
	return nil
}

// RemoveMetadata removes inherited and gathered metadata, not passed metadata. The
// record's metadata must not be shared yet.
func RemoveMetadata(r *record.Record, keys []string) {
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

// A Draft is a deployment before it is stored: its references, its state, and
// its package, whose Deployment resource has the same references and state.
type Draft struct {
	Template string
	Site     string
	Prepared bool
	Approved bool
	Package  krm.Package
}

// WithState returns the draft with a package whose Deployment resource has the
// references and state of the draft.
func (d Draft) WithState(pkg krm.Package) Draft {
	d.Package = pkg.WithDeployment(d.Template, d.Site, d.Prepared, d.Approved)
	return d
}

// NewDraft derives a new deployment from its template's package and a request.
// The request overrides the Deployment resource of the merged package.
func NewDraft(base krm.Package, request tko.NewDeployment) (Draft, error) {
	pkg, err := StartFrom(string(request.Template), base, request.Merge)
	if err != nil {
		return Draft{}, err
	}
	state, _, err := StateOf(pkg)
	if err != nil {
		return Draft{}, err
	}
	d := Draft{
		Template: string(request.Template),
		Site:     string(request.Site),
		Prepared: request.Prepared || IsTrue(state.Prepared),
		Approved: request.Approved || IsTrue(state.Approved),
	}
	if d.Template == "" && state.Template != nil {
		d.Template = *state.Template
	}
	if d.Site == "" && state.Site != nil {
		d.Site = *state.Site
	}
	return d.WithState(pkg), nil
}

// ChangedDraft derives a deployment whose package is replaced. start is the
// deployment that the package was made from, and before returns its package; current is
// the deployment now. They differ if a template or site was deleted meanwhile.
// References that the package doesn't change relative to start stay as in
// current.
func ChangedDraft(start, current record.Record, before func() (krm.Package, error), pkg krm.Package) (Draft, error) {
	if err := CheckPackage(pkg); err != nil {
		return Draft{}, err
	}
	state, found, err := StateOf(pkg)
	if err != nil {
		return Draft{}, err
	}
	d := Draft{Template: current.Template, Site: current.Site}
	if !found {
		d.Prepared, d.Approved = current.Prepared, current.Approved
		old, err := before()
		if err != nil {
			return Draft{}, err
		}
		resource, err := old.Deployment()
		if err != nil || resource == nil {
			return d.WithState(pkg), err
		}
		restored := append(make(krm.Package, 0, len(pkg)+1), pkg...)
		return d.WithState(append(restored, resource)), nil
	}
	if state.Template != nil && *state.Template != start.Template {
		d.Template = *state.Template
	}
	if state.Site != nil && *state.Site != start.Site {
		d.Site = *state.Site
	}
	d.Prepared, d.Approved = IsTrue(state.Prepared), IsTrue(state.Approved)
	return d.WithState(pkg), nil
}

// WithReferences changes the template or site of a draft from those of current.
// It is an ErrInvalid if the package sets a third one.
func (d Draft) WithReferences(current record.Record, template, site string) (Draft, error) {
	for _, m := range []struct {
		what     string
		from, to string
		field    *string
	}{{"template", current.Template, template, &d.Template}, {"site", current.Site, site, &d.Site}} {
		if m.from == m.to {
			continue
		}
		if *m.field != m.from && *m.field != m.to {
			return Draft{}, tko.Errorf(tko.ErrInvalid, "the request sets the deployment's %s to %q, but the Deployment resource of its package sets %q: set the same in both, or set it in one only",
				m.what, m.to, *m.field)
		}
		*m.field = m.to
	}
	return d.WithState(d.Package), nil
}

// IsTrue reports whether a flag is set and true.
func IsTrue(flag *bool) bool { return flag != nil && *flag }

// MergeInto merges the package of a draft that waited for its template into the template's,
// and returns the resources that were merged. A Deployment resource that says nothing is left
// out: that of the template stays.
func (d *Draft) MergeInto(base krm.Package) (given krm.Package, err error) {
	given = d.Package.WithoutDeploymentState()
	bare := krm.Package(nil).WithDeployment("", "", false, false)
	given = slices.DeleteFunc(slices.Clone(given), func(r krm.Resource) bool {
		return r.GVK() == krm.DeploymentGVK && reflect.DeepEqual(r, bare[0])
	})
	whole, err := StartFrom(d.Template, base, given)
	if err == nil {
		*d = d.WithState(whole)
	}
	return given, err
}

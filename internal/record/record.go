package record

import (
	"cmp"
	"strings"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/krm"
)

// Resources returns the package of a record. The Deployment resource of a
// deployment's package has the state of the record.
func (r Record) Resources() (krm.Package, error) {
	if r.Kind == tko.KindDeployment && r.Package != nil {
		return DeploymentPackage(r)
	}
	return PackageOf(r)
}

// AsPlugin returns the plugin of a record.
func (r Record) AsPlugin() (tko.Plugin, error) { return PluginOf(r) }

// Storable reports whether every database accepts a text as a parameter.
func Storable(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// Stamp returns the stamp of the entity of a record. Its conditions are those of
// the record.
func (r Record) Stamp() tko.Stamp {
	return tko.Stamp{
		UID:        r.UID,
		Revision:   r.Revision,
		Position:   r.Position,
		Created:    r.Created.UTC(),
		Updated:    r.Updated.UTC(),
		Author:     r.Author,
		Conditions: r.Conditions,
		Steps:      r.Steps,
	}
}

// AttributesOf returns the properties of a record that scopes select by. A deployment that
// waits for its first template or site is in the scopes of these.
func AttributesOf(r Record) access.Attributes {
	a := access.Attributes{Kind: r.Kind, ID: r.ID, Template: r.Template, Site: r.Site, Metadata: r.Effective()}
	if waits := r.Awaited(); !waits.IsZero() {
		a.Template, a.Site = cmp.Or(a.Template, waits.Template), cmp.Or(a.Site, waits.Site)
	}
	return a
}

// PackageOf returns the stored package of a record; nil if it was not read.
func PackageOf(r Record) (krm.Package, error) {
	if r.Package == nil {
		return nil, nil
	}
	pkg, err := Decode(r)
	if err != nil {
		return nil, &UnreadableError{key: r.Key, err: err}
	}
	return pkg, nil
}

// An UnreadableError reports that a stored package can't be decoded. It is a
// fault of TKO, of whatever kind its cause is.
type UnreadableError struct {
	key Key
	err error
}

func (e *UnreadableError) Error() string {
	return "the stored package of " + string(e.key.Kind) + " " + e.key.ID + " can't be read: " + e.err.Error()
}

// ChildOrigin returns the name of a deployment among the children of its parent; "" if it has
// none, or one in the Kubernetes API, with which it would be a child of a placement.
func (r Record) ChildOrigin() string {
	if r.KubernetesName() != "" {
		return ""
	}
	return strings.TrimPrefix(r.Origin, OriginOf(r.Parent, ""))
}

// DeploymentPackage returns the package of a deployment's record.
func DeploymentPackage(r Record) (krm.Package, error) {
	pkg, err := PackageOf(r)
	if err != nil {
		return nil, err
	}
	return pkg.WithDeployment(r.Template, r.Site, r.Prepared, r.Approved), nil
}

// Limits of packages.
const (
	MaxPackageBytes = 64 << 20
	MaxPackageDepth = 20_000 // more than can be encoded
	MaxResources    = 100_000
)

// Decode decodes the stored package of a record.
func Decode(r Record) (krm.Package, error) {
	return krm.Decode(StoredFormat, r.Package, krm.Limits{Bytes: MaxPackageBytes, Depth: MaxPackageDepth, Resources: MaxResources})
}

// OrNone returns metadata that must not be changed: none if it is nil.
func (m *Metadata) OrNone() *Metadata {
	if m == nil {
		return &noMetadata
	}
	return m
}

var noMetadata Metadata

// Effective is the metadata that other entities inherit from the record.
func (r Record) Effective() map[string]string { return r.Metadata.OrNone().Effective }

// Passed is the metadata that the caller passed.
func (r Record) Passed() map[string]string { return r.Metadata.OrNone().Passed }

// Inherited is the metadata that came from the template.
func (r Record) Inherited() map[string]string { return r.Metadata.OrNone().Inherited }

// Attached returns the opaque data that a transport stores with the record. It
// is shared and must not be changed.
func (r Record) Attached() []byte { return r.Metadata.OrNone().Attached }

// Labels are the labels as they were written.
func (r Record) Labels() map[string]string { return r.Metadata.OrNone().Labels }

// Removed are the keys of metadata that a caller removed.
func (r Record) Removed() []string { return r.Metadata.OrNone().Removed }

package catalog

import (
	"bytes"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// The bounds of what is stored. What is within them can be read again.
const (
	maxPackageBytes  = 64 << 20
	maxPackageDepth  = 20_000 // more than can be encoded
	maxResources     = 100_000
	maxMetadata      = 10_000
	maxMetadataKey   = 512
	maxMetadataValue = 64 << 10
	maxMetadataBytes = 1 << 20 // of all keys and values of one entity: rows of lists must fit into gRPC's usual 4 MiB
	maxAttached      = 2 << 20
)

// A content is a package and how it is stored.
type content struct {
	pkg     krm.Package
	encoded []byte
	digest  Digest
}

// contentOf encodes a package.
func contentOf(pkg krm.Package) (content, error) {
	if len(pkg) > maxResources {
		return content{}, tko.Errorf(tko.ErrInvalid, "the package has %d resources: use at most %d", len(pkg), maxResources)
	}
	digest, encoded, err := krm.DigestOf(pkg)
	if err != nil {
		return content{}, tko.Errorf(tko.ErrInvalid, "the package can't be stored: %w", err)
	}
	if len(encoded) > maxPackageBytes {
		return content{}, tko.Errorf(tko.ErrInvalid, "the package has %d MiB: use at most %d", len(encoded)>>20, maxPackageBytes>>20)
	}
	if krm.MayBeRedacted(encoded) {
		if err := pkg.CheckSecrets(); err != nil {
			return content{}, tko.Errorf(tko.ErrInvalid, "invalid package: %w", err)
		}
	}
	return content{pkg: pkg, encoded: encoded, digest: digest}, nil
}

// decode reads a stored package.
func decode(r Record) (krm.Package, error) {
	return krm.Decode(StoredFormat, r.Package, krm.Limits{Bytes: maxPackageBytes, Depth: maxPackageDepth, Resources: maxResources})
}

// checkPackage says what is wrong with a package as a list of resources.
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

// startFrom is the package of an entity that is made from a template: the given
// resources merged into the template's. Without a template the given package is
// the package: its renames wait for where it is merged.
func startFrom(template string, base, given krm.Package) (krm.Package, error) {
	if template == "" {
		return given, checkPackage(given)
	}
	return merge(base, given)
}

// deploymentState reads what the Deployment resource of a package says; found
// is false if there is none.
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

// metadataOf puts an entity's metadata together: what it inherits, what its
// package says and what its caller passed, the later winning.
func metadataOf(pkg krm.Package, inherited, passed map[string]string) (*Metadata, error) {
	return metadataAfter(nil, pkg, inherited, passed)
}

// metadataAfter is metadataOf for an entity that has metadata: what is stored
// may be larger than what may be written now, and may stay so, but not grow.
func metadataAfter(before map[string]string, pkg krm.Package, inherited, passed map[string]string) (*Metadata, error) {
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
	return &Metadata{Effective: effective, Inherited: maps.Clone(inherited), Passed: maps.Clone(passed)}, nil
}

func metadataBytes(metadata map[string]string) int {
	n := 0
	for key, value := range metadata {
		n += len(key) + len(value)
	}
	return n
}

func checkMetadata(key, value string) error {
	switch {
	case key == "":
		return tko.Errorf(tko.ErrInvalid, "the metadata key of the value %.40q is empty: name it", value)
	case len(key) > maxMetadataKey:
		return tko.Errorf(tko.ErrInvalid, "the metadata key %.40q… has %d bytes: use at most %d", key, len(key), maxMetadataKey)
	case len(value) > maxMetadataValue:
		return tko.Errorf(tko.ErrInvalid, "the value of the metadata key %.40q has %d bytes: use at most %d", key, len(value), maxMetadataValue)
	case !storable(key):
		return tko.Errorf(tko.ErrInvalid, "the metadata key %q is not plain text: use UTF-8 without NUL", key)
	case !storable(value):
		return tko.Errorf(tko.ErrInvalid, "the value of the metadata key %q is not plain text: use UTF-8 without NUL", key)
	}
	return nil
}

// effective is the metadata that others inherit from a record.
func (r Record) effective() map[string]string {
	if r.Metadata == nil {
		return nil
	}
	return r.Metadata.Effective
}

// passed is the metadata that the caller passed.
func (r Record) passed() map[string]string {
	if r.Metadata == nil {
		return nil
	}
	return r.Metadata.Passed
}

// inherited is the metadata that came from the template.
func (r Record) inherited() map[string]string {
	if r.Metadata == nil {
		return nil
	}
	return r.Metadata.Inherited
}

// Attached is what a transport keeps with the record. It is shared and must not
// be changed.
func (r Record) Attached() []byte {
	if r.Metadata == nil {
		return nil
	}
	return r.Metadata.Attached
}

// attach makes a transport's own data that of a record, whose metadata isn't
// shared yet.
func (r *Record) attach(attached []byte) error {
	if len(attached) > maxAttached {
		return tko.Errorf(tko.ErrInvalid, "what comes with %s %q beside its metadata (annotations, managed fields) has %d bytes: use at most %d",
			r.Kind, r.ID, len(attached), maxAttached)
	}
	if r.Metadata == nil {
		r.Metadata = new(Metadata)
	}
	r.Metadata.Attached = attached
	return nil
}

// keepAttached takes over what a transport attached, and labels: other
// transports leave them alone.
func (r *Record) keepAttached(current Record) {
	if current.Attached() == nil && len(current.labels()) == 0 {
		return
	}
	metadata := Metadata{}
	if r.Metadata != nil {
		metadata = *r.Metadata
	}
	metadata.Attached, metadata.Labels = current.Attached(), current.labels()
	r.Metadata = &metadata
}

// labels are those that are kept as they were written.
func (r Record) labels() map[string]string {
	if r.Metadata == nil {
		return nil
	}
	return r.Metadata.Labels
}

// removed are the keys of metadata that a caller took away.
func (r Record) removed() []string {
	if r.Metadata == nil {
		return nil
	}
	return r.Metadata.Removed
}

// label gives a record labels as they were written. Its metadata isn't shared yet.
func (r *Record) label(labels map[string]string) error {
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
		r.Metadata = new(Metadata)
	}
	r.Metadata.Labels = labels
	return nil
}

// remove takes inherited and gathered metadata away. What was passed stays. The
// record's metadata isn't shared yet.
func (r *Record) remove(keys []string) {
	for _, key := range keys {
		_, passed := r.passed()[key]
		if _, ok := r.effective()[key]; !ok || passed {
			continue
		}
		delete(r.Metadata.Effective, key)
		r.Metadata.Removed = append(r.Metadata.Removed, key)
	}
	if r.Metadata != nil {
		slices.Sort(r.Metadata.Removed)
	}
}

// A draft is a deployment before it is stored: what it refers to, its state,
// and its package with the Deployment resource that says so.
type draft struct {
	template string
	site     string
	prepared bool
	approved bool
	pkg      krm.Package
}

// inStep answers the draft with the Deployment resource of its package saying
// what the draft says.
func (d draft) inStep(pkg krm.Package) draft {
	d.pkg = pkg.WithDeployment(d.template, d.site, d.prepared, d.approved)
	return d
}

// draftNew derives a new deployment from its template's package and what was
// asked for. What the request says wins; where it says nothing, the Deployment
// resource of the merged package does.
func draftNew(base krm.Package, request tko.NewDeployment) (draft, error) {
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
		prepared: request.Prepared || says(state.Prepared),
		approved: request.Approved || says(state.Approved),
	}
	if d.template == "" && state.Template != nil {
		d.template = *state.Template
	}
	if d.site == "" && state.Site != nil {
		d.site = *state.Site
	}
	return d.inStep(pkg), nil
}

// draftChanged derives what a deployment becomes when its package is replaced.
// start is the deployment that the package was made from, before its package,
// current what it is now: they differ where a template or site was deleted
// meanwhile. What the package leaves as it was at the start stays as it is now.
func draftChanged(start, current Record, before, pkg krm.Package) (draft, error) {
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
		resource, err := before.Deployment()
		if err != nil || resource == nil {
			return d.inStep(pkg), err
		}
		restored := append(make(krm.Package, 0, len(pkg)+1), pkg...)
		return d.inStep(append(restored, resource)), nil
	}
	if state.Template != nil && *state.Template != start.Template {
		d.template = *state.Template
	}
	if state.Site != nil && *state.Site != start.Site {
		d.site = *state.Site
	}
	d.prepared, d.approved = says(state.Prepared), says(state.Approved)
	return d.inStep(pkg), nil
}

// moved gives a draft another template or site than those of current, unless
// its package gives it yet another one.
func (d draft) moved(current Record, template, site string) (draft, error) {
	for _, m := range []struct {
		what       string
		from, to   string
		inTheDraft *string
	}{{"template", current.Template, template, &d.template}, {"site", current.Site, site, &d.site}} {
		if m.from == m.to {
			continue
		}
		if *m.inTheDraft != m.from && *m.inTheDraft != m.to {
			return draft{}, tko.Errorf(tko.ErrInvalid, "the deployment's %s shall become %q, but its package's Deployment resource says %q: say the same in both, or in one",
				m.what, m.to, *m.inTheDraft)
		}
		*m.inTheDraft = m.to
	}
	return d.inStep(d.pkg), nil
}

func says(flag *bool) bool { return flag != nil && *flag }

// sameContent says whether two records differ in nothing that a user wrote.
func sameContent(a, b Record) bool {
	return a.Template == b.Template && a.Site == b.Site && a.Parent == b.Parent &&
		a.Prepared == b.Prepared && a.Approved == b.Approved && a.Digest == b.Digest &&
		a.CRDs == b.CRDs && bytes.Equal(a.Plugin, b.Plugin) && sameMetadata(a, b)
}

func sameMetadata(a, b Record) bool {
	return bytes.Equal(a.Attached(), b.Attached()) && maps.Equal(a.labels(), b.labels()) && slices.Equal(a.removed(), b.removed()) && maps.Equal(a.effective(), b.effective()) && maps.Equal(a.inherited(), b.inherited()) && maps.Equal(a.passed(), b.passed())
}

package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/field"
	"github.com/tko-orchestrator/tko/internal/printable"
	rolloutspec "github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/kubename"
)

// The API version of manifests, and their annotations.
const (
	Group      = "tko.nephio.org"
	APIVersion = Group + "/v1alpha1"
	// AnnotationAdopt set to "true" lets a source take over an existing entity that
	// differs.
	AnnotationAdopt = "gitops.tko.nephio.org/adopt"
	// AnnotationPrune set to "disabled" keeps the entity when its manifest is
	// removed.
	AnnotationPrune = "gitops.tko.nephio.org/prune"
)

// MaxName is the most bytes of the name of a Deployment's manifest.
const MaxName = 120

const (
	maxFile  = 32 << 20 // bytes
	maxFiles = 100_000
)

// A Manifest is the desired state of an entity.
type Manifest struct {
	File string
	// Name is the ID of the entity, "type|name" of a plugin. For a deployment, it is
	// the name of the manifest.
	Name string
	// Put is the desired content. A deployment has no ID and no origin yet.
	Put    tko.Put
	Digest string // of Put
	Adopt  bool   // take over an existing entity
	Keep   bool   // don't delete the entity when the manifest is removed
	// Origins names the origins of the parts, if they are several.
	Origins tko.SourceOrigins
}

// String names the manifest in messages.
func (m Manifest) String() string { return fmt.Sprintf("%s: %s %q", m.File, m.Put.Kind, m.Name) }

// A Source is the manifest of a GitOps source, a subscription or a view, which are declared alike.
type Source struct {
	File string
	tko.SourceDefinition
}

// String names the manifest in messages.
func (s Source) String() string { return fmt.Sprintf("%s: %s %q", s.File, s.Kind, s.Name) }

// Read is [ReadAll] where GitOps sources can't be declared.
func Read(fsys fs.FS, folder string) ([]Manifest, error) {
	manifests, sources, err := ReadAll(fsys, folder)
	wrong := []error{err}
	for _, s := range sources {
		wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "%s: sources, subscriptions and views can't be declared here: register it with tko gitops source register, tko subscription register or tko view register, or set allowSources: true in the definition of a git source that is to declare it", s))
	}
	return manifests, printable.Problems(wrong)
}

// ReadAll reads the manifests below a folder, "." or "" for all, in the order in
// which they can be applied: plugins, templates, sites, deployments, each by name;
// and those of GitOps sources, by name. It skips resources of other groups. The error is
// an ErrInvalid that joins the problems, each with its file.
func ReadAll(fsys fs.FS, folder string) ([]Manifest, []Source, error) {
	folder = path.Clean(folder)
	folder = strings.TrimPrefix(folder, "/")
	if folder == "" {
		folder = "."
	}
	if !fs.ValidPath(folder) {
		return nil, nil, tko.Errorf(tko.ErrInvalid, "path %q leads out of the source", folder)
	}
	if info, err := fs.Stat(fsys, folder); err != nil || !info.IsDir() {
		return nil, nil, tko.Errorf(tko.ErrInvalid, "folder %q: not found in this revision", folder)
	}
	var manifests []Manifest
	var sources []Source
	var wrong []error
	files := 0
	err := fs.WalkDir(fsys, folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if d.IsDir() {
			if name != folder && strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		files++
		if files > maxFiles {
			return tko.Errorf(tko.ErrInvalid, "there are more than %d files: use a path with fewer", maxFiles)
		}
		if ext := path.Ext(name); !d.Type().IsRegular() || ext != ".yaml" && ext != ".yml" {
			return nil
		}
		found, declared, problems := readFile(fsys, name)
		wrong = append(wrong, problems...)
		manifests, sources = append(manifests, found...), append(sources, declared...)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	slices.SortStableFunc(manifests, compare)
	for i := 1; i < len(manifests); i++ {
		a, b := manifests[i-1], manifests[i]
		if a.Put.Kind == b.Put.Kind && a.Name == b.Name {
			wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "%s: %s %q is in %s, too: remove one", b.File, b.Put.Kind, b.Name, a.File))
		}
	}
	slices.SortStableFunc(sources, func(a, b Source) int { return strings.Compare(a.Name, b.Name) })
	for i := 1; i < len(sources); i++ {
		if a, b := sources[i-1], sources[i]; a.Name == b.Name && a.IsSubscription() == b.IsSubscription() && a.IsView() == b.IsView() {
			wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "%s: one of this name is in %s, too: remove one", b, a.File))
		}
	}
	return manifests, sources, printable.Problems(wrong)
}

// Order lists the kinds in the order in which they are applied.
var Order = []tko.Kind{tko.KindPlugin, tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindRollout}

func compare(a, b Manifest) int {
	if d := slices.Index(Order, a.Put.Kind) - slices.Index(Order, b.Put.Kind); d != 0 {
		return d
	}
	return strings.Compare(a.Name, b.Name)
}

// withoutName returns an error of a file system without the file's name, which the caller
// puts in front.
func withoutName(err error, name string) error {
	if of, ok := errors.AsType[*fs.PathError](err); ok && of.Path == name {
		return of.Err
	}
	return err
}

// readFile returns the manifests of a file, and what is wrong with others.
func readFile(fsys fs.FS, name string) (manifests []Manifest, sources []Source, wrong []error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, nil, []error{fmt.Errorf("%s: %w", name, withoutName(err, name))}
	}
	if info.Size() > maxFile {
		return nil, nil, []error{tko.Errorf(tko.ErrInvalid, "%s has %d bytes: use at most %d", name, info.Size(), maxFile)}
	}
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, nil, []error{fmt.Errorf("%s: %w", name, withoutName(err, name))}
	}
	if bytes.HasPrefix(data, []byte(pointer)) {
		return nil, nil, []error{tko.Errorf(tko.ErrInvalid, "%s: the revision holds only a Git LFS pointer: store manifests in git itself", name)}
	}
	if !bytes.Contains(data, []byte(Group)) {
		return nil, nil, nil
	}
	resources, err := krm.Decode(krm.YAML, data, krm.Limits{})
	if err != nil {
		if !ours(data) {
			return nil, nil, nil // for example a Helm template that mentions the group
		}
		return nil, nil, []error{tko.Errorf(tko.ErrInvalid, "%s: %w", name, err)}
	}
	if resources, err = unlisted(resources); err != nil {
		return nil, nil, []error{tko.Errorf(tko.ErrInvalid, "%s: %w", name, err)}
	}
	for _, r := range resources {
		gvk := r.GVK()
		if gvk.Group != Group {
			continue
		}
		if d, is, err := declared(r); err != nil {
			wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "%s: %w", name, err))
			continue
		} else if is {
			sources = append(sources, Source{name, d})
			continue
		}
		m, err := read(r)
		if err != nil {
			wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "%s: %s %q: %w", name, gvk.Kind, r.Name(), err))
			continue
		}
		if m == nil {
			continue
		}
		m.File = name
		manifests = append(manifests, *m)
	}
	return manifests, sources, wrong
}

// declared returns the definition of a source, a subscription or a view, if a resource is one.
func declared(r krm.Resource) (d tko.SourceDefinition, is bool, err error) {
	switch {
	case tko.IsSourceDefinition(r):
		d, err = tko.SourceDefinitionOf(r)
	case tko.IsSubscription(r):
		var s tko.Subscription
		s, err = tko.SubscriptionOf(r)
		d = s.Declared()
	case tko.IsView(r):
		var v tko.View
		if v, err = tko.ViewOf(r); err == nil {
			d, err = v.Declared()
		}
	default:
		return d, false, nil
	}
	return d, true, err
}

// pointer begins a file whose content is stored in Git LFS.
const pointer = "version https://git-lfs.github.com/spec/"

// ours reports whether a file that can't be parsed seems to hold a manifest of the
// group. Skipping it would delete its entity.
func ours(data []byte) bool { return apiVersion.Match(data) }

var apiVersion = regexp.MustCompile(`(^|[\s{,"'-])apiVersion["']?\s*:\s*["']?` + regexp.QuoteMeta(Group) + `/`)

// unlisted returns the resources with Kubernetes Lists, as kubectl prints them,
// replaced by their items.
func unlisted(resources []krm.Resource) (all []krm.Resource, err error) {
	for _, r := range resources {
		items, ok := r["items"].([]any)
		if gvk := r.GVK(); !ok || gvk.APIVersion() != "v1" || gvk.Kind != "List" {
			all = append(all, r)
			continue
		}
		for i, item := range items {
			of, ok := item.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("items[%d] of the List is not a map: write a resource, with apiVersion and kind", i)
			}
			all = append(all, krm.Resource(of))
		}
	}
	return all, nil
}

// read reads a manifest; nil for a GitOps object.
func read(r krm.Resource) (*Manifest, error) {
	gvk := r.GVK()
	if gvk.Kind == "GitOps" {
		return nil, nil // it configures a source: see package flux
	}
	if gvk.APIVersion() != APIVersion {
		return nil, fmt.Errorf("unknown version %q: use %s", gvk.Version, APIVersion)
	}
	m := &Manifest{}
	var err error
	switch gvk.Kind {
	case "Template":
		err = m.identified(tko.KindTemplate, r)
	case "Site":
		err = m.identified(tko.KindSite, r)
	case "Deployment":
		err = m.deployment(r)
	case "Plugin":
		err = m.plugin(r)
	case "Rollout":
		err = m.rollout(r)
	default:
		return nil, fmt.Errorf("unknown kind %q: use Template, Site, Deployment, Plugin or Rollout, and GitOpsSource, Inventory, Catalog, Subscription or View where sources can be declared", gvk.Kind)
	}
	if err != nil {
		return nil, err
	}
	if err := m.labels(r); err != nil {
		return nil, err
	}
	if m.Put.Kind == tko.KindPlugin && len(m.Put.Metadata) > 0 {
		return nil, errors.New("metadata.labels: plugins have no metadata, leave the labels out")
	}
	if err := m.Put.ReadManifestAnnotations(r.Annotation); err != nil {
		return nil, err
	}
	if err := m.Put.CheckWhole(); err != nil {
		return nil, err
	}
	if m.Adopt, err = flag(r, AnnotationAdopt, "true", "false"); err != nil {
		return nil, err
	}
	if m.Keep, err = flag(r, AnnotationPrune, "disabled", "enabled"); err != nil {
		return nil, err
	}
	m.Digest, err = digest(m.Put)
	return m, err
}

// Of returns the manifest of a template or site that wasn't read from a file. file names
// what it was made from in messages.
func Of(file string, put tko.Put) (Manifest, error) {
	m := Manifest{File: file, Name: put.ID, Put: put}
	var err error
	m.Digest, err = digest(put)
	return m, err
}

// digest returns the digest of what a manifest states, without its marks: entities are not
// written again, and deployments not prepared again, for what TKO doesn't act on. Marks are
// written with the next change.
func digest(p tko.Put) (string, error) {
	p.Marks = nil
	content, _, err := krm.DigestOf(p.Package)
	if err != nil {
		return "", err
	}
	p.Package = nil
	rest, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(rest, content[:]...))
	return hex.EncodeToString(sum[:16]), nil
}

func flag(r krm.Resource, name, yes, no string) (bool, error) {
	switch value := r.Annotation(name); value {
	case yes:
		return true, nil
	case "", no:
		return false, nil
	default:
		return false, fmt.Errorf("annotation %s is %q: use %q or %q", name, value, yes, no)
	}
}

// labels reads labels and annotations. Labels are metadata, escaped as in the Kubernetes API or
// plain; those with a prefix, and annotations, are marks.
func (m *Manifest) labels(r krm.Resource) error {
	labels, err := labelsIn(r)
	if err != nil {
		return err
	}
	value, _ := r.Get("metadata", "annotations")
	given, _ := value.(map[string]any)
	annotations := map[string]string{}
	for name, value := range given {
		if text, ok := value.(string); ok && tko.IsMark(name) { // others were never refused, and are none in Kubernetes
			annotations[name] = text
		}
	}
	m.Put.Marks = &tko.Marks{Labels: map[string]string{}, Annotations: annotations}
	if labels != nil { // the digest tells none from empty ones
		m.Put.Metadata = make(map[string]string, len(labels))
	}
	for key, text := range labels {
		if k, v, _ := kubename.Metadata(key, text); k != "" {
			m.Put.Metadata[k] = v
		} else {
			m.Put.Marks.Labels[key] = text
		}
	}
	return nil
}

// labelsIn returns the labels of a manifest; nil if they are absent.
func labelsIn(r krm.Resource) (map[string]string, error) {
	value, ok := r.Get("metadata", "labels")
	if !ok || value == nil {
		return nil, nil
	}
	pairs, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("metadata.labels is not a map: write keys and values below it")
	}
	labels := make(map[string]string, len(pairs))
	for key, value := range pairs {
		text, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("metadata.labels: %q is not a string: quote it", key)
		}
		labels[key] = text
	}
	return labels, nil
}

// identity returns the ID in a manifest: from a field of its spec, or from its
// name. If both are set, they must agree.
func identity(r krm.Resource, spec map[string]any, idField string) (string, error) {
	id, err := field.Text(spec, idField)
	if err != nil {
		return "", err
	}
	name := r.Name()
	if name == "" && id == "" {
		return "", fmt.Errorf("metadata.name and spec.%s are both empty: set one", idField)
	}
	if name == "" {
		return id, nil
	}
	named, err := kubename.Unescape(name)
	switch {
	case err == nil && (id == "" || id == named):
		return named, nil
	case id != "" && name == id:
		return id, nil
	case idField == "rolloutId":
		if named, err := kubename.UnescapeHyphens(name); err == nil && named == id {
			return id, nil
		}
	case id == "":
		return "", fmt.Errorf("metadata.name: %w", err)
	}
	escaped, err := kubename.Escape(id)
	if err != nil {
		return "", err
	}
	return "", fmt.Errorf("metadata.name and spec.%s differ: leave metadata.name out, or write %q", idField, escaped)
}

// identified reads the manifest of an entity whose name is its ID.
func (m *Manifest) identified(kind tko.Kind, r krm.Resource) error {
	spec, err := specOf(r, field.SpecNames(kind)...)
	if err != nil {
		return err
	}
	if m.Name, err = identity(r, spec, field.Identity(kind)); err != nil {
		return err
	}
	m.Put.Kind, m.Put.ID = kind, m.Name
	if err := field.ReadSpec(kind, spec, &m.Put); err != nil {
		return err
	}
	return tko.CheckID(string(kind)+" ID", m.Name)
}

// rollout reads a rollout, as the Kubernetes API has it: its spec is that of the package's
// Rollout resource, and spec.package has the resources that edits merge.
func (m *Manifest) rollout(r krm.Resource) error {
	spec, err := specOf(r, append(field.SpecNames(tko.KindRollout), rolloutspec.Fields...)...)
	if err != nil {
		return err
	}
	if _, ok := spec["rolloutId"]; !ok {
		spec = maps.Clone(spec)
		if spec["rolloutId"], err = kubename.UnescapeHyphens(r.Name()); err != nil { // as the Kubernetes API reads it
			return fmt.Errorf("metadata.name: %w", err)
		}
	}
	if m.Name, err = identity(r, spec, "rolloutId"); err != nil {
		return err
	}
	m.Put.Kind, m.Put.ID = tko.KindRollout, m.Name
	others, err := field.PackageIn(spec)
	if err != nil {
		return err
	}
	own := maps.Clone(spec)
	delete(own, "rolloutId")
	delete(own, "package")
	m.Put.Package = append(krm.Package{{
		"apiVersion": APIVersion, "kind": "Rollout", "metadata": map[string]any{"name": r.Name()}, "spec": own,
	}}, others...)
	return tko.CheckID("rollout ID", m.Name)
}

func (m *Manifest) deployment(r krm.Resource) error {
	const assigned = "deploymentId"
	spec, err := specOf(r, append([]string{assigned}, field.SpecNames(tko.KindDeployment)...)...)
	if err != nil {
		return err
	}
	m.Name = r.Name()
	if m.Name == "" || len(m.Name) > MaxName || strings.ContainsFunc(m.Name, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return fmt.Errorf("metadata.name identifies the deployment: use 1 to %d visible ASCII characters", MaxName)
	}
	id, err := field.Text(spec, assigned)
	if err != nil {
		return err
	}
	if id != "" {
		return errors.New("spec.deploymentId is assigned by TKO: leave it out, metadata.name identifies the deployment")
	}
	m.Put.Kind = tko.KindDeployment
	return field.ReadSpec(tko.KindDeployment, spec, &m.Put)
}

func (m *Manifest) plugin(r krm.Resource) error {
	spec, err := specOf(r, field.SpecNames(tko.KindPlugin)...)
	if err != nil {
		return err
	}
	if err := field.ReadSpec(tko.KindPlugin, spec, &m.Put); err != nil {
		return err
	}
	p := &m.Put.Plugin
	if p.Type == "" || p.Name == "" {
		named, err := kubename.Unescape(r.Name())
		typ, name, ok := tko.SplitPluginID(named)
		if err != nil || !ok || p.Type != "" && p.Type != typ || p.Name != "" && p.Name != name {
			return errors.New("the plugin has no type or name: set spec.type and spec.pluginId, and leave metadata.name out")
		}
		p.Type, p.Name = typ, name
	}
	m.Name = p.ID()
	m.Put.Kind, m.Put.ID = tko.KindPlugin, m.Name
	return p.Check()
}

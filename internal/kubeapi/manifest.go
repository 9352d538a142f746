package kubeapi

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// A deployment that keeps its name is managed by a manifest, which is applied
// many times. The manifest's resources are merged into the template's and
// prepared, so the package differs from the manifest. Applying an unchanged
// manifest changes nothing, and a changed manifest changes only what differs
// from the last one.

// A givenResource is a resource of the manifest that was applied last.
type givenResource struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name,omitempty"`
	// Digest is the digest of the resource, or "" if the resource was changed
	// since by other means than a manifest.
	Digest string `json:"digest,omitempty"`
}

func (g givenResource) identity() krm.Identity {
	return krm.Identity{GVK: krm.ParseGVK(g.APIVersion, g.Kind), Name: g.Name}
}

// givenOf returns the resources of a manifest.
func givenOf(pkg krm.Package) ([]givenResource, error) {
	var given []givenResource
	for _, r := range pkg {
		digest, err := resourceDigest(r)
		if err != nil {
			return nil, err
		}
		given = append(given, givenResource{APIVersion: r.Text("apiVersion"), Kind: r.Text("kind"), Name: r.Identity().Name, Digest: digest})
	}
	return given, nil
}

func resourceDigest(r krm.Resource) (string, error) {
	digest, _, err := krm.DigestOf(krm.Package{r})
	if err != nil {
		return "", tko.Errorf(tko.ErrInvalid, "%s can't be stored: %w", r.Identity(), err)
	}
	return hex.EncodeToString(digest[:]), nil
}

// manifest sets the package of a deployment that keeps its name from the
// written manifest, and returns the manifest's resources to store.
func (s *storage) manifest(ctx context.Context, put *catalog.Put, before record.Record) ([]givenResource, error) {
	if put.Name != "" {
		return givenOf(put.Package)
	}
	if before.KubernetesName() == "" {
		return nil, nil
	}
	was, err := attachedTo(before)
	if err != nil {
		return nil, err
	}
	current, err := before.Resources()
	if err != nil {
		return nil, fmt.Errorf("%w", err)
	}
	if own, err := put.Package.Deployment(); err != nil || own != nil {
		return edited(was.Given, current, put.Package), nil //nolint:nilerr // writing the package reports its errors
	}
	if err := put.Package.Check(); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "invalid package: %w", err)
	}
	given, err := givenOf(put.Package)
	if err != nil {
		return nil, err
	}
	put.Package, err = s.applied(ctx, was.Given, given, current, put.Package, put.Template)
	return given, err
}

// edited returns the manifest's resources to store after the package itself was
// written.
func edited(given []givenResource, current, written krm.Package) []givenResource {
	digests := func(pkg krm.Package) map[krm.Identity]string {
		all := make(map[krm.Identity]string, len(pkg))
		for _, r := range pkg {
			all[r.Identity()], _ = resourceDigest(r) // a resource that can't be stored is refused later
		}
		return all
	}
	is, was := digests(written), digests(current)
	given = slices.Clone(given)
	for i, g := range given {
		if id := g.identity(); is[id] != was[id] {
			given[i].Digest = ""
		}
	}
	return given
}

// applied returns the current package with the differences between two
// manifests applied. Resources that the new manifest lacks get the template's
// content.
func (s *storage) applied(ctx context.Context, was, given []givenResource, current, manifest krm.Package, template string) (krm.Package, error) {
	var changed krm.Package
	for i, g := range given {
		if !slices.Contains(was, g) {
			changed = append(changed, manifest[i])
		}
	}
	removed := map[krm.Identity]bool{}
	for _, g := range was {
		if id := g.identity(); !slices.ContainsFunc(given, func(g givenResource) bool { return g.identity() == id }) {
			removed[id] = true
		}
	}
	if len(changed)+len(removed) == 0 {
		return current, nil
	}
	if len(removed) > 0 && template != "" {
		r, err := s.catalog.Record(ctx, record.Fields{Package: true}, record.Key{Kind: tko.KindTemplate, ID: template})
		if errors.Is(err, tko.ErrNotFound) { // the deployment waits for it
			err = nil
		}
		if err != nil {
			return nil, err
		}
		base, err := r.Resources()
		if err != nil {
			return nil, fmt.Errorf("%w", err)
		}
		for _, r := range base {
			if removed[r.Identity()] {
				changed = append(changed, r)
			}
		}
	}
	remaining := slices.DeleteFunc(slices.Clone(current), func(r krm.Resource) bool { return removed[r.Identity()] })
	pkg, err := krm.Merge(remaining, changed)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "can't merge the package: %w", err)
	}
	own, err := pkg.Deployment()
	if err != nil || own == nil {
		return pkg, err
	}
	i := slices.IndexFunc(pkg, func(r krm.Resource) bool { return r.Identity() == own.Identity() })
	pkg[i] = own.Clone()
	pkg[i].SetAnnotation(krm.AnnotationPrepared, "false") // changed resources may need preparation
	return pkg, nil
}

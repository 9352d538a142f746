package osm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm/bundle"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
)

// OSM 19 refuses to replace a package that instances use if the file of its descriptor
// changed, except for a few parts: see inUse. It accepts changes of other files in
// the archive, and it merges any descriptor into its own. So if no part that instances
// rely on (a KDU, a member) is removed from the descriptor, it is merged. Otherwise the
// package stays unchanged.

// inUse reports whether OSM refused to replace a package because instances use it. OSM
// has no code for that, only texts; the last text is its own failure if the
// descriptors differ in keys only.
func inUse(err error) bool {
	if errors.Is(err, errStored) {
		return true
	}
	response, ok := errors.AsType[*nbi.Error](err)
	if !ok || response.Status != http.StatusUnprocessableEntity && response.Status != http.StatusBadRequest {
		return false
	}
	return slices.ContainsFunc([]string{"Error in validating new descriptor", "cannot be modified", "Descriptor could not be processed", "has no attribute 'keys'"},
		func(text string) bool { return strings.Contains(response.Detail, text) })
}

// predict returns the error with which OSM will refuse a change of a package; nil if
// no refusal is expected.
func (w *run) predict(s *packageStep) error {
	if s.Kind == nbi.KindVNF && s.there.Descriptor.SoftwareVersion != s.content.Descriptor.SoftwareVersion || !w.uses(s.Package, "") {
		return nil
	}
	return s.content.Breaks(s.Kind, s.there)
}

// retryPackages has packages sent again that were refused and that no instance
// uses any more when one of them has gone.
func (w *run) retryPackages(gone string) {
	for _, k := range w.ledger.refusedPackages() {
		kind, id, _ := strings.Cut(k, "/")
		if !w.uses(bundle.Package{Kind: nbi.Kind(kind), ID: id}, gone) {
			w.ledger.retryPackage(k)
			w.packagesLater = sooner(w.packagesLater, w.policy.Poll)
		}
	}
}

// uses reports whether a recorded instance other than except uses a package.
func (w *run) uses(p bundle.Package, except string) bool {
	for name, st := range w.ledger.state().Instances {
		if st.ID == "" || name == except {
			continue
		}
		if p.Kind == nbi.KindNS && st.NSD == p.ID {
			return true
		}
		if p.Kind == nbi.KindVNF && slices.Contains(w.local.contents[bundle.Key(nbi.KindNS, st.NSD)].Descriptor.References(), p.ID) {
			return true
		}
	}
	return false
}

// merge updates a package that instances use, and returns its new state. refused is
// the error of replacing it. The descriptor is merged first, because OSM checks it
// then. Changed files are sent with the descriptor's file of OSM, which OSM compares.
func (w *run) merge(ctx context.Context, s *packageStep, refused error) (*PackageState, error) {
	if problem := s.content.Breaks(s.Kind, s.there); problem != nil {
		return nil, fmt.Errorf("%w (%w)", problem, refused)
	}
	keys := s.content.Keys()
	next := &PackageState{ID: s.id, Digest: s.content.Digest, Keys: keys}
	old, unknown := w.stored(ctx, s)
	if unknown != nil && (fatal(unknown) || errors.Is(unknown, tko.ErrUnavailable)) {
		return nil, unknown
	}
	known := slices.Concat(w.ledger.pkg(s.Key()).Keys, old.Keys())
	gone := slices.DeleteFunc(known, func(k string) bool { return slices.Contains(keys, k) })
	if err := w.mergeDescriptor(ctx, s, gone); err != nil {
		return nil, fmt.Errorf("%w; nor does it merge the descriptor: %w", refused, err)
	}
	if unknown != nil {
		next.Note = fmt.Sprintf("instances use it, so its descriptor was merged into OSM's. It isn't known whether OSM has its other files: %s", unknown)
		return next, nil
	}
	a, changed, err := s.Refit(s.content, old)
	if err != nil {
		return nil, err
	}
	if !changed {
		return next, nil
	}
	if err := w.Client.UpdatePackage(ctx, s.Kind, s.id, a); err != nil {
		return nil, fmt.Errorf("replacing its files: %w", err)
	}
	if err := w.mergeDescriptor(ctx, s, gone); err != nil { // the archive has brought the old descriptor back
		return nil, fmt.Errorf("merging its descriptor: %w", err)
	}
	return next, nil
}

// mergeDescriptor merges the descriptor of a package into OSM's, and removes the keys
// gone, which are no longer desired.
func (w *run) mergeDescriptor(ctx context.Context, s *packageStep, gone []string) error {
	err := w.Client.MergeDescriptor(ctx, s.Kind, s.id, s.content.Tree(gone, false))
	if refusedAs(err, http.StatusUnprocessableEntity) && len(s.content.Charts) > 0 {
		err = w.Client.MergeDescriptor(ctx, s.Kind, s.id, s.content.Tree(gone, true))
	}
	return err
}

// stored returns the content of OSM's archive of a package.
func (w *run) stored(ctx context.Context, s *packageStep) (bundle.Content, error) {
	data, err := w.Client.PackageContent(ctx, s.Kind, s.id)
	if err != nil {
		return bundle.Content{}, err
	}
	return s.Unpack(data)
}

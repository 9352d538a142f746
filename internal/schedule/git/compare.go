package git

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/layout"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
)

const maxFiles = tko.MaxSiteChanges

// Compare returns what Schedule would change in the repository, and the orphans in the
// site's folder. It changes nothing there.
func (t *Target) Compare(ctx context.Context, trigger krm.Resource, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) (report.Differences, error) {
	s, r, err := t.read(ctx, trigger, site, deployments, held)
	if err != nil {
		return report.Differences{}, err
	}
	found, err := t.group(s).compare(ctx, r)
	if err != nil {
		err = fmt.Errorf("%s: repository %q: %w", trigger.Identity(), s.URL, err)
	}
	return found, err
}

// compare waits until no commit is being made, and returns the differences of the branch
// from what a request wants.
func (g *group) compare(ctx context.Context, r *request) (report.Differences, error) {
	a, err := g.target.readAuth(ctx, g.spec, r.site)
	if err != nil {
		return report.Differences{}, err
	}
	select {
	case <-ctx.Done():
		return report.Differences{}, context.Cause(ctx)
	case g.lock <- struct{}{}:
		defer func() { <-g.lock }()
	}
	repo, err := g.open(a, false)
	if err != nil {
		return report.Differences{}, err
	}
	defer repo.close()
	tip, err := repo.tip(ctx)
	if err != nil {
		return report.Differences{}, err
	}
	objects := newStaging(repo.objects())
	_, err = (&change{objects: objects, author: g.spec.Author}).build(tip, []*request{r})
	if err = errors.Join(err, r.err); err != nil {
		return report.Differences{}, err
	}
	root, _, err := openRoot(objects, tip)
	if err != nil {
		return report.Differences{}, err
	}
	f, err := root.at(r.path)
	if err != nil {
		return report.Differences{}, err
	}
	d := differ{ctx: ctx, objects: objects}
	for _, one := range r.wanted {
		d.of = tko.SiteChange{Deployment: one.id}
		d.why = "the meta-scheduler's clone doesn't have the files of its own commits, so what is in them isn't shown"
		if there := r.recorded[one.id]; there != 0 && there != one.revision {
			d.why = fmt.Sprintf("revision %d is there, and revision %d is to be: tko diff deployment %s --from r%d shows what differs; %s", there, one.revision, one.id, there, d.why)
		}
		was := f.entries[layout.DeploymentFolder(one.id)]
		now := object.TreeEntry{Mode: filemode.Dir, Hash: one.tree}
		if one.tree.IsZero() {
			now = object.TreeEntry{}
		}
		d.entry(r.path+"/"+layout.DeploymentFolder(one.id), was, now)
	}
	for _, id := range r.removed {
		d.all = append(d.all, tko.SiteChange{Verb: tko.SiteRemove, Object: r.path + "/" + layout.DeploymentFolder(id), Deployment: id})
	}
	o := orphans{ctx: ctx, objects: objects}
	o.inFolder(f, r)
	return report.Differences{Changes: d.all, Orphans: o.all, Unsearched: o.unsearched}, context.Cause(ctx)
}

// A differ compares the folder of a deployment with the one that is to be, file by file.
type differ struct {
	ctx     context.Context //nolint:containedctx // of the comparison
	objects *staging
	of      tko.SiteChange // with the deployment
	why     string         // why a folder or file can't be read: clones leave out the resources that TKO wrote

	all   []tko.SiteChange
	files int // whose contents were compared
}

func (d *differ) add(verb, name string, details ...string) {
	change := d.of
	change.Verb, change.Object, change.Details = verb, name, details
	d.all = append(d.all, change)
}

// entry compares an entry of a folder with the one that is to be. The hash of one that
// doesn't exist is zero. Equal folders are not read.
func (d *differ) entry(name string, was, now object.TreeEntry) {
	before, after := !was.Hash.IsZero(), !now.Hash.IsZero()
	switch {
	case d.ctx.Err() != nil || was.Hash == now.Hash:
	case before && after && was.Mode == filemode.Dir && now.Mode == filemode.Dir,
		!before && now.Mode == filemode.Dir, !after && was.Mode == filemode.Dir:
		d.folder(name, was, now)
	case !before:
		d.add(tko.SiteCreate, name)
	case !after:
		d.add(tko.SiteRemove, name)
	case was.Mode == filemode.Dir || now.Mode == filemode.Dir: // one of them is a file
		d.entry(name, was, object.TreeEntry{})
		d.entry(name, object.TreeEntry{}, now)
	default:
		d.add(tko.SiteUpdate, name, d.contents(was.Hash, now.Hash)...)
	}
}

func (d *differ) folder(name string, was, now object.TreeEntry) {
	before, beforeErr := openFolder(d.objects, was.Hash)
	after, afterErr := openFolder(d.objects, now.Hash)
	if beforeErr != nil || afterErr != nil {
		verb := tko.SiteUpdate
		if now.Hash.IsZero() {
			verb = tko.SiteRemove
		}
		d.add(verb, name, d.why)
		return
	}
	names := maps.Clone(before.entries)
	maps.Copy(names, after.entries)
	for _, one := range slices.Sorted(maps.Keys(names)) {
		d.entry(name+"/"+one, before.entries[one], after.entries[one])
	}
}

// contents returns the differences of two files with one resource each, or why they
// aren't shown.
func (d *differ) contents(before, after plumbing.Hash) []string {
	d.files++
	if d.files > maxFiles {
		return []string{fmt.Sprintf("the contents of the first %d files only were compared", maxFiles)}
	}
	var texts [2][]byte
	for i, hash := range []plumbing.Hash{before, after} {
		b, err := object.GetBlob(d.objects, hash)
		if err != nil {
			return []string{d.why}
		}
		if b.Size > maxInventory {
			return []string{fmt.Sprintf("a file of %d bytes isn't compared", b.Size)}
		}
		if texts[i], err = readAll(b); err != nil {
			return []string{d.why}
		}
	}
	return layout.Differences(texts[0], texts[1])
}

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
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/krm"
)

const (
	maxDetails = 20  // differences of one file
	maxDetail  = 300 // bytes of one difference
	maxFiles   = tko.MaxSiteChanges
)

// Compare returns what Schedule would change in the repository. It changes nothing
// there.
func (t *Target) Compare(ctx context.Context, trigger krm.Resource, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) ([]tko.SiteChange, error) {
	s, r, err := t.read(ctx, trigger, site, deployments, held)
	if err != nil {
		return nil, err
	}
	changes, err := t.group(s).compare(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("%s: repository %q: %w", trigger.Identity(), s.URL, err)
	}
	return changes, nil
}

// compare waits until no commit is being made, and returns the differences of the branch
// from what a request wants.
func (g *group) compare(ctx context.Context, r *request) ([]tko.SiteChange, error) {
	a, err := g.target.readAuth(ctx, g.spec)
	if err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case g.lock <- struct{}{}:
		defer func() { <-g.lock }()
	}
	repo, err := g.open(a)
	if err != nil {
		return nil, err
	}
	defer repo.close()
	tip, err := repo.tip(ctx)
	if err != nil {
		return nil, err
	}
	objects := newStaging(repo.objects())
	next, err := (&change{objects: objects, author: g.spec.Author}).build(tip, []*request{r})
	if err = errors.Join(err, r.err); err != nil || next == tip {
		return nil, err
	}
	var base plumbing.Hash
	if !tip.IsZero() {
		commit, err := object.GetCommit(objects, tip)
		if err != nil {
			return nil, fmt.Errorf("reading commit %s: %w", tip, err)
		}
		base = commit.TreeHash
	}
	root, err := openFolder(objects, base)
	if err != nil {
		return nil, err
	}
	f, err := root.at(r.path)
	if err != nil {
		return nil, err
	}
	var all []tko.SiteChange
	for _, d := range r.wanted {
		was := f.entries[deploymentFolder(d.id)]
		if was.Hash != d.tree {
			all = append(all, compareFolder(ctx, objects, tko.SiteChange{Object: r.path + "/" + deploymentFolder(d.id), Deployment: d.id}, was, d.tree)...)
		}
	}
	for _, id := range r.removed {
		all = append(all, tko.SiteChange{Verb: tko.SiteRemove, Object: r.path + "/" + deploymentFolder(id), Deployment: id})
	}
	return all, ctx.Err()
}

// compareFolder returns the changes of a deployment's folder, file by file. If the clone
// doesn't have the folder's former contents, it returns one change of the whole folder:
// clones leave out the resources that TKO wrote.
func compareFolder(ctx context.Context, objects *staging, folder tko.SiteChange, was object.TreeEntry, tree plumbing.Hash) []tko.SiteChange {
	before, after := map[string]plumbing.Hash{}, map[string]plumbing.Hash{}
	ok := was.Hash.IsZero() || was.Mode == filemode.Dir && files(objects, was.Hash, folder.Object, before)
	if !ok || !files(objects, tree, folder.Object, after) {
		folder.Verb, folder.Details = tko.SiteUpdate, []string{"the contents of the folder differ"}
		return []tko.SiteChange{folder}
	}
	names := maps.Clone(before)
	maps.Copy(names, after)
	var all []tko.SiteChange
	for _, name := range slices.Sorted(maps.Keys(names)) {
		change := folder
		change.Object = name
		switch {
		case ctx.Err() != nil:
			return all
		case before[name] == after[name]:
			continue
		case before[name].IsZero():
			change.Verb = tko.SiteCreate
		case after[name].IsZero():
			change.Verb = tko.SiteRemove
		default:
			change.Verb, change.Details = tko.SiteUpdate, compareFiles(objects, before[name], after[name])
		}
		all = append(all, change)
	}
	return all
}

// files adds the files of a folder and of all folders in it to into, by path. It returns
// false if they can't be read, or are too many.
func files(objects *staging, folder plumbing.Hash, at string, into map[string]plumbing.Hash) bool {
	if folder.IsZero() {
		return true
	}
	t, err := object.GetTree(objects, folder)
	if err != nil {
		return false
	}
	for _, e := range t.Entries {
		name := at + "/" + e.Name
		if e.Mode != filemode.Dir {
			into[name] = e.Hash
			if len(into) > maxFiles {
				return false
			}
		} else if !files(objects, e.Hash, name, into) {
			return false
		}
	}
	return true
}

// compareFiles returns the differences of two files with one resource each, as far as
// they can be read.
func compareFiles(objects *staging, before, after plumbing.Hash) []string {
	var resources [2]krm.Resource
	for i, hash := range []plumbing.Hash{before, after} {
		b, err := object.GetBlob(objects, hash)
		if err != nil || b.Size > maxInventory {
			return nil
		}
		data, err := readAll(b)
		if err != nil {
			return nil
		}
		pkg, err := krm.Decode(krm.YAML, data, krm.Limits{})
		if err != nil || len(pkg) != 1 {
			return nil
		}
		resources[i] = pkg[0]
	}
	var details []string
	for d := range krm.Differences(resources[0], resources[1]) {
		if details = append(details, printable.Short(d.String(), maxDetail)); len(details) == maxDetails {
			break
		}
	}
	return details
}

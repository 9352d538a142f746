package git

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient"
	"github.com/tko-orchestrator/tko/internal/schedule/layout"
	"github.com/tko-orchestrator/tko/internal/schedule/puller"
)

// A delivery is what the branch has of a site after Deliver.
type delivery struct {
	group   *group
	request *request // done
}

// in returns what revisions have of the delivery. Commits that the branch doesn't have are left
// out. It reads what Deliver left here, and asks no server.
func (d delivery) in(ctx context.Context, revisions []string) (puller.Contents, error) {
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case d.group.lock <- struct{}{}:
		defer func() { <-d.group.lock }()
	}
	repo, err := d.group.open(gitclient.Auth{}, false) // without credentials: nothing is fetched
	if err != nil {
		return nil, err
	}
	defer repo.close()
	objects, all := newStaging(repo.objects()), puller.Contents{}
	for _, revision := range revisions {
		hash := plumbing.NewHash(puller.CommitOf(revision))
		if hash.IsZero() || objects.HasEncodedObject(hash) != nil {
			continue
		}
		if all[revision], err = d.compare(objects, hash); err != nil {
			return nil, fmt.Errorf("comparing commit %s: %w", hash, err)
		}
	}
	return all, nil
}

// compare returns what a commit has of each deployment.
func (d delivery) compare(objects *staging, commit plumbing.Hash) (map[tko.DeploymentID]puller.Content, error) {
	root, _, err := openRoot(objects, commit)
	if err != nil {
		return nil, err
	}
	f, err := root.at(d.request.path)
	if errors.Is(err, errNotFolder) {
		f, err = openFolder(objects, plumbing.ZeroHash)
	}
	if err != nil {
		return nil, err
	}
	there := inventory{}
	data, err := f.file(inventoryFile, maxInventory)
	if err != nil {
		return nil, err
	}
	if data != nil && (json.Unmarshal(data, &there) != nil || there.Site != d.request.site) {
		there = inventory{} // of another site, or of nothing that TKO wrote
	}
	all := make(map[tko.DeploymentID]puller.Content, len(d.request.wanted))
	for _, one := range d.request.wanted {
		content := puller.Content{Presence: puller.Earlier, Revision: there.Deployments[one.id]}
		switch {
		case f.entries[layout.DeploymentFolder(one.id)].Hash == one.tree:
			content.Presence = puller.Same
		case content.Revision == d.request.listed[one.id]:
			content.Presence = puller.Other
		}
		all[one.id] = content
	}
	return all, nil
}

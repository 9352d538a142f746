package git

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/layout"
)

// maxFolders bounds the folders that are read to find orphans. The folder of a site may
// have those of many other sites in it.
const maxFolders = 50_000

// orphans finds what a site's folder has that belongs neither to a deployment nor to
// another site: files, and whole folders.
type orphans struct {
	ctx     context.Context //nolint:containedctx // of the comparison
	objects *staging
	known   map[plumbing.Hash]contents

	all        []tko.SiteChange
	unsearched []string
}

// contents are what a folder has, with all folders in it.
type contents struct {
	files int
	sites bool // it has the folder of a site
	whole bool // all of it was read
}

// inFolder finds the orphans in the folder of a request's site.
func (o *orphans) inFolder(f *folder, r *request) {
	o.known = map[plumbing.Hash]contents{}
	entries := maps.Clone(f.entries)
	delete(entries, inventoryFile)
	for _, d := range r.wanted {
		delete(entries, layout.DeploymentFolder(d.id))
	}
	for _, id := range slices.Concat(r.held, r.removed) {
		delete(entries, layout.DeploymentFolder(id))
	}
	o.entries(r.path, entries)
	if o.ctx.Err() == nil && len(o.known) >= maxFolders {
		o.unsearched = append(o.unsearched, fmt.Sprintf("not all folders below %q were read, as they are more than %d", r.path, maxFolders))
	}
}

func (o *orphans) entries(path string, entries map[string]object.TreeEntry) {
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		e, at := entries[name], path+"/"+name
		if e.Mode != filemode.Dir {
			o.add(at)
			continue
		}
		switch c := o.read(e.Hash); {
		case c.sites:
			if inner, err := openFolder(o.objects, e.Hash); err == nil && !inner.ofSite() {
				o.entries(at, inner.entries)
			}
		case !c.whole && len(o.known) >= maxFolders:
		case !c.whole:
			o.add(at+"/", "the meta-scheduler's clone doesn't have all of its files")
		case c.files == 1:
			o.add(at+"/", "1 file")
		default:
			o.add(at+"/", fmt.Sprintf("%d files", c.files))
		}
	}
}

func (o *orphans) add(name string, details ...string) {
	o.all = append(o.all, tko.SiteChange{Verb: tko.SiteOrphan, Object: name, Details: details})
}

// read reads a folder, and all folders in it, except those of sites.
func (o *orphans) read(hash plumbing.Hash) contents {
	if c, ok := o.known[hash]; ok {
		return c
	}
	if len(o.known) >= maxFolders || o.ctx.Err() != nil {
		return contents{}
	}
	o.known[hash] = contents{}
	f, err := openFolder(o.objects, hash)
	if err != nil {
		return contents{}
	}
	c := contents{whole: true, sites: f.ofSite()}
	if !c.sites {
		for _, e := range f.entries {
			if e.Mode != filemode.Dir {
				c.files++
				continue
			}
			inner := o.read(e.Hash)
			c.files, c.sites, c.whole = c.files+inner.files, c.sites || inner.sites, c.whole && inner.whole
		}
	}
	o.known[hash] = c
	return c
}

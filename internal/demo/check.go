package demo

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// Check compares the result with the expectations of the catalog: the numbers of
// deployments and sites, and the content of the sites' repository, where each site's
// folder must hold its deployments and nothing else. The error lists all differences.
func (c *Catalog) Check(p Progress, repository string) error {
	var missing []error
	miss := func(format string, args ...any) { missing = append(missing, fmt.Errorf(format, args...)) }
	if p.Deployments < c.Expect.Deployments {
		miss("%d deployments were expected, %d are there", c.Expect.Deployments, p.Deployments)
	}
	if len(p.Sites) < c.Expect.Sites {
		miss("%d sites were expected, %d are there", c.Expect.Sites, len(p.Sites))
	}
	files, err := committed(repository)
	if err != nil {
		return err
	}
	some := func(has func(name, part string) bool, part string) bool {
		return slices.ContainsFunc(files, func(f string) bool { return has(f, part) })
	}
	for _, s := range p.Sites {
		want := map[string]bool{}
		for _, d := range s.Deployments {
			want[string(d.ID)] = true
			if p.Parents[d.ID] {
				continue // a topology: it has nothing to schedule
			}
			if !some(strings.HasPrefix, string(s.ID)+"/"+string(d.ID)+"/") {
				miss("site %s has nothing of deployment %s in %s", s.ID, d.ID, repository)
			}
		}
		for _, f := range files {
			rest, ok := strings.CutPrefix(f, string(s.ID)+"/")
			if id, _, isDir := strings.Cut(rest, "/"); ok && isDir && len(id) == 27 && !want[id] {
				miss("site %s still has %s in %s", s.ID, f, repository)
			}
		}
	}
	for _, f := range c.Expect.Files {
		if !some(strings.HasSuffix, f) {
			miss("no file %s in %s", f, repository)
		}
	}
	return errors.Join(missing...)
}

// committed returns the paths of the files in the newest commit of branch main.
func committed(repository string) ([]string, error) {
	r, err := git.PlainOpen(repository)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", repository, err)
	}
	ref, err := r.Reference(plumbing.NewBranchReferenceName("main"), true)
	if err != nil {
		return nil, fmt.Errorf("branch main of %s: %w", repository, err)
	}
	commit, err := r.CommitObject(ref.Hash())
	if err != nil {
		return nil, err
	}
	tree, err := commit.Tree()
	if err != nil {
		return nil, err
	}
	var files []string
	err = tree.Files().ForEach(func(f *object.File) error {
		files = append(files, f.Name)
		return nil
	})
	return files, err
}

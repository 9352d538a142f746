package git

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/layout"
)

const (
	inventoryFile = ".tko"
	maxInventory  = 16 << 20
)

// An inventory is the content of the file that lists what TKO owns in a site's
// folder.
type inventory struct {
	Site        tko.SiteID                 `json:"site"`
	Deployments map[tko.DeploymentID]int64 `json:"deployments"` // the revision that last changed something
}

// A change builds one commit for a batch of sites.
type change struct {
	objects *staging
	author  author

	changed int // sites
	message strings.Builder
	only    string // summary of the last changed site; the subject if there is only one
}

// build returns the commit that follows the tip; the tip itself if nothing
// changes. A request with a conflict gets its error and changes nothing; an error
// that build returns is of the repository.
func (c *change) build(tip plumbing.Hash, batch []*request) (plumbing.Hash, error) {
	root, base, err := openRoot(c.objects, tip)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	for _, r := range batch {
		r.removed, r.err = nil, nil
		if err := c.site(root, r); err != nil {
			if !errors.Is(err, tko.ErrConflict) {
				return plumbing.ZeroHash, err
			}
			r.err = err
		}
	}
	if c.changed == 0 {
		return tip, nil
	}
	top, err := root.write()
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("writing trees: %w", err)
	}
	if top == base {
		return tip, nil
	}
	if top.IsZero() {
		o, err := tree(nil)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		c.objects.put(o, true)
		top = o.Hash()
	}
	return c.commit(tip, top)
}

func (c *change) commit(parent, top plumbing.Hash) (plumbing.Hash, error) {
	who := object.Signature{Name: c.author.Name, Email: c.author.Email, When: time.Now()}
	subject := c.only
	if c.changed > 1 {
		subject = fmt.Sprintf("Update %d sites", c.changed)
	}
	commit := &object.Commit{Author: who, Committer: who, TreeHash: top, Message: subject + "\n" + c.message.String()}
	if !parent.IsZero() {
		commit.ParentHashes = []plumbing.Hash{parent}
	}
	o := &plumbing.MemoryObject{}
	if err := commit.Encode(o); err != nil {
		return plumbing.ZeroHash, fmt.Errorf("writing the commit: %w", err)
	}
	c.objects.put(o, true)
	return o.Hash(), nil
}

// site changes the tree to the contents that a request wants. ErrConflict if the
// site's folder can't be written.
func (c *change) site(root *folder, r *request) error {
	f, err := root.at(r.path)
	if errors.Is(err, errNotFolder) {
		return tko.Errorf(tko.ErrConflict, "spec.path %q is below a file of the repository: choose another path", r.path)
	}
	if err != nil {
		return err
	}
	data, err := f.file(inventoryFile, maxInventory)
	if err != nil {
		return err
	}
	before := inventory{}
	if data != nil {
		if err := json.Unmarshal(data, &before); err != nil {
			return tko.Errorf(tko.ErrConflict, "the file %s/%s of the repository can't be read: put it back or remove it", r.path, inventoryFile)
		}
		if before.Site != r.site {
			return tko.Errorf(tko.ErrConflict, "spec.path %q belongs to site %q already: choose another path (or remove %[1]s/%s from the repository if that site no longer exists)",
				r.path, before.Site, inventoryFile)
		}
	}
	r.recorded = before.Deployments
	r.holdOthers(before)
	if len(r.held) > 0 {
		if err := r.renderWithHeld(f, before); err != nil {
			return err
		}
	}
	after := inventory{Site: r.site, Deployments: map[tko.DeploymentID]int64{}}
	var lines []string
	var added, updated int
	var changed []*rendered
	for i := range r.wanted {
		d := &r.wanted[i]
		was, exists := f.entries[layout.DeploymentFolder(d.id)]
		same := exists && was.Hash == d.tree || !exists && d.tree.IsZero()
		revision, listed := before.Deployments[d.id]
		if listed && same {
			after.Deployments[d.id] = revision
			continue
		}
		after.Deployments[d.id] = d.revision
		if listed {
			updated++
			lines = append(lines, d.line("updated"))
		} else {
			added++
			lines = append(lines, d.line("added"))
		}
		if same {
			continue
		}
		if err := checkNested(f, layout.DeploymentFolder(d.id), was.Mode); err != nil {
			return err
		}
		changed = append(changed, d)
	}
	for _, id := range r.held {
		if revision, ok := before.Deployments[id]; ok {
			after.Deployments[id] = revision
		}
	}
	r.listed = after.Deployments
	// there are no conflicts from here on
	for _, d := range changed {
		for _, o := range d.objects {
			c.objects.put(o, o.Hash() == d.tree)
		}
		f.set(layout.DeploymentFolder(d.id), filemode.Dir, d.tree)
	}
	for _, id := range slices.Sorted(maps.Keys(before.Deployments)) {
		if _, ok := after.Deployments[id]; !ok {
			lines = append(lines, fmt.Sprintf("removed %s (was at revision %d)", id, before.Deployments[id]))
			r.removed = append(r.removed, id)
			f.set(layout.DeploymentFolder(id), 0, plumbing.ZeroHash)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if err := c.record(f, after); err != nil {
		return err
	}
	c.changed++
	c.only = fmt.Sprintf("%s: %d added, %d updated, %d removed", r.site, added, updated, len(r.removed))
	fmt.Fprintf(&c.message, "\nsite %s\n", r.site)
	for _, line := range lines {
		fmt.Fprintf(&c.message, "  %s\n", line)
	}
	return nil
}

// holdOthers names the deployments of the repository that tko.OtherDeployments stands
// for.
func (r *request) holdOthers(before inventory) {
	if !slices.Contains(r.held, tko.OtherDeployments) {
		return
	}
	var others []tko.DeploymentID
	for id := range before.Deployments {
		if !slices.ContainsFunc(r.deployments, func(d tko.Deployment) bool { return d.ID == id }) && !slices.Contains(r.held, id) {
			others = append(others, id)
		}
	}
	slices.Sort(others)
	r.held = append(slices.Clone(r.held), others...)
}

// checkNested returns an ErrConflict if the folder has that of another site inside.
func checkNested(f *folder, name string, was filemode.FileMode) error {
	if was != filemode.Dir {
		return nil
	}
	inner, err := f.at(name)
	if err != nil {
		return err
	}
	if inner.ofSite() {
		return tko.Errorf(tko.ErrConflict, "the folder %q of the repository belongs to another site: choose another path", name)
	}
	return nil
}

// record writes the inventory, or removes it if there are no deployments.
func (c *change) record(f *folder, i inventory) error {
	if len(i.Deployments) == 0 {
		f.set(inventoryFile, 0, plumbing.ZeroHash)
		return nil
	}
	var data bytes.Buffer
	e := json.NewEncoder(&data)
	e.SetIndent("", "  ")
	if err := e.Encode(i); err != nil {
		return fmt.Errorf("writing %s: %w", inventoryFile, err)
	}
	o := blob(data.Bytes())
	c.objects.put(o, true)
	f.set(inventoryFile, filemode.Regular, o.Hash())
	return nil
}

func (r *rendered) line(verb string) string {
	s := fmt.Sprintf("%s %s revision %d", verb, r.id, r.revision)
	if r.template != "" {
		s += " of " + string(r.template)
	}
	return s
}

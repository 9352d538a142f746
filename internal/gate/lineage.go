package gate

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// A forebear is a deployment that another one descends from.
type forebear struct {
	id, parent, template, site string
	derivation                 record.Digest
}

// maxForebears is the maximum number of cached forebears, and forebearAge the time for
// which they are used.
const (
	maxForebears = 10_000
	forebearAge  = 5 * time.Second
)

type cachedForebear struct {
	forebear

	at time.Time
}

// forebears returns a deployment and those that it descends from, from it to the root, at
// most limit. Those that are gone end the list.
func (s *Gate) forebears(ctx context.Context, id string, limit int) ([]forebear, error) {
	var chain []forebear
	for id != "" && len(chain) < limit {
		if had, ok := s.lineage.Get(id); ok && time.Since(had.at) < forebearAge {
			chain = append(chain, had.forebear)
			id = had.parent
			continue
		}
		records, err := s.store.Get(ctx, record.Fields{}, record.DeploymentKey(tko.DeploymentID(id)))
		if err != nil {
			return nil, err
		}
		r := records[0]
		if r.Revision == 0 {
			break
		}
		f := forebear{r.ID, r.Parent, r.Template, r.Site, r.Derivation}
		s.lineage.Put(id, cachedForebear{f, time.Now()}, 1)
		chain = append(chain, f)
		id = r.Parent
	}
	return chain, nil
}

// maxLineage limits how far a deployment's root is searched. Deeper ones, which earlier
// versions permitted, are counted for the deployment at that distance.
const maxLineage = 1000

// TopologyGroup is the group whose statuses preparers write. Its resources
// never reach a site.
const TopologyGroup = "topology.nephio.org"

// RootOf returns the ID of the deployment without a parent from which a deployment
// descends; its own if it has none or doesn't exist.
func (s *Gate) RootOf(ctx context.Context, id string) (string, error) {
	chain, err := s.forebears(ctx, id, maxLineage)
	if err != nil || len(chain) == 0 {
		return id, err
	}
	last := chain[len(chain)-1]
	if last.parent != "" && len(chain) < maxLineage {
		return last.parent, nil // it was deleted, and is the cause nevertheless
	}
	return last.id, nil
}

// A Lineage is what a new child descends from.
type Lineage struct {
	chain []forebear
	Root  string
}

// LineageOf returns what a new child of a parent descends from. It is an ErrInvalid if
// deployments would be nested too deeply.
func (s *Gate) LineageOf(ctx context.Context, parent string) (Lineage, error) {
	depth := s.settings.TopologyDepth
	if depth < 0 {
		depth = maxLineage
	}
	chain, err := s.forebears(ctx, parent, maxLineage)
	if err != nil {
		return Lineage{}, err
	}
	root := parent
	if len(chain) > 0 {
		root = chain[len(chain)-1].id
	}
	if len(chain) >= depth {
		return Lineage{}, tko.Errorf(tko.ErrInvalid, "a child of deployment %q would be nested %d levels deep, below %q: at most %d are allowed (--topology-depth); change the topologies so that they don't contain each other",
			parent, len(chain)+1, root, depth)
	}
	return Lineage{chain, root}, nil
}

// CheckCycle returns an ErrInvalid if a new child is part of a topology, and has the
// template, the site and the merged resources of a deployment that it descends from: it
// would create itself, without an end. Below a deployment without a site, a child at a site
// is refused, too: it would place the same at the same sites, and each of them would do so.
// A child without resources of a topology creates
// none, so clients may create it from the template of its parent.
func (s *Gate) CheckCycle(ctx context.Context, l Lineage, child record.Record, merged krm.Package) error {
	template, site := child.Template, child.Site
	if template == "" || !bytes.Contains(child.Package, []byte(TopologyGroup)) {
		return nil
	}
	for i, f := range l.chain {
		if f.template != template || f.site != site && f.site != "" {
			continue
		}
		same, err := s.sameMerge(ctx, f, merged)
		if err != nil {
			return err
		}
		if !same {
			continue
		}
		var cycle []string
		for _, above := range slices.Backward(l.chain[:i+1]) {
			cycle = append(cycle, fmt.Sprintf("%s (deployment %s)", above.template, above.id))
		}
		at := ""
		if site != "" {
			at = fmt.Sprintf(" at site %q", site)
		}
		return tko.Errorf(tko.ErrInvalid, "a cycle of topologies: %s → %s again%s, with the same resources merged: it would have no end; change one of these templates",
			strings.Join(cycle, " → "), template, at)
	}
	return nil
}

// sameMerge reports whether a deployment was made from a template and the given resources
// merged. It isn't known of deployments of earlier versions, and of those whose package was
// made in another way.
func (s *Gate) sameMerge(ctx context.Context, f forebear, merged krm.Package) (bool, error) {
	if f.derivation == (record.Digest{}) {
		return false, nil
	}
	encoded, err := s.store.Derivation(ctx, f.derivation)
	if err != nil {
		return false, ctx.Err()
	}
	from, err := derivation.Decode(encoded)
	if err != nil || from.Whole != ([32]byte{}) {
		return false, nil //nolint:nilerr // it isn't known
	}
	was, _, err := krm.DigestOf(from.Merge)
	if err != nil {
		return false, err
	}
	is, _, err := krm.DigestOf(merged)
	return was == is, err
}

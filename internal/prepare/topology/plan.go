package topology

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A placed is an entry with the IDs of its template and sites.
type placed struct {
	entry
	id tko.TemplateID
	at []tko.SiteID // may hold duplicates
}

// sitesPerBlock is the least number of sites whose children are created one after the other: a site of a large
// placement gets all of its children at about the same time.
const sitesPerBlock = 100

// planChildren returns the children that a placement wants, in batches of one merge
// package each. All children of some sites come before those of the next ones. slots
// are the names of their Template resources, by origin.
func planChildren(d Deployment, placement krm.Identity, entries []placed) (batches []tko.NewChildren, slots map[string]string) {
	slots = map[string]string{}
	times := map[string]int{} // number of earlier children with the same key
	for _, block := range blocksOf(entries) {
		for i, sites := range block {
			e := entries[i]
			for few := range slices.Chunk(sites, childrenPerCall) {
				batch := tko.NewChildren{Parent: d.ID, Revision: d.Revision, Merge: e.merge}
				for _, site := range few {
					key := childKey(placement.Name, e.template.resource.Name, e.id, site)
					origin := childOrigin(placement, key, times[key])
					times[key]++
					slots[origin] = e.template.resource.Name
					batch.Children = append(batch.Children, tko.NewChild{Origin: origin, Template: e.id, Site: site})
				}
				batches = append(batches, batch)
			}
		}
	}
	return batches, slots
}

// blocksOf splits the sites of entries into blocks, in the order in which they are first named. A block has the sites of
// each entry, without duplicates.
func blocksOf(entries []placed) (blocks [][][]tko.SiteID) {
	if len(entries) == 0 {
		return nil
	}
	size := max(sitesPerBlock, childrenPerCall/len(entries))
	ranks := map[tko.SiteID]int{}
	for i, e := range entries {
		here := make(map[tko.SiteID]bool, len(e.at))
		for _, site := range e.at {
			if here[site] {
				continue
			}
			here[site] = true
			rank, known := ranks[site]
			if !known {
				rank = len(ranks)
				ranks[site] = rank
			}
			for len(blocks) <= rank/size {
				blocks = append(blocks, make([][]tko.SiteID, len(entries)))
			}
			blocks[rank/size][i] = append(blocks[rank/size][i], site)
		}
	}
	return blocks
}

// childKey identifies a child among all children of a deployment, but for equal
// entries.
func childKey(placement, template string, id tko.TemplateID, site tko.SiteID) string {
	return fmt.Sprintf("%q %q %q %q", placement, template, id, site)
}

// childOrigin returns the permanent name of a child: a digest of its placement, the
// name of the Template resource, the template and the site. Entries that are equal in
// all of these differ by ordinal, their order.
func childOrigin(placement krm.Identity, key string, ordinal int) string {
	if ordinal > 0 {
		key += " " + strconv.Itoa(ordinal)
	}
	return originPrefix(placement) + digest(key)[:32]
}

// originPrefix returns the prefix of the origins of a placement's children.
func originPrefix(placement krm.Identity) string {
	const long = 63
	name := placement.Name
	if len(name) > long || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == '/' || r > '~' }) {
		name = digest(name)[:32]
	}
	return "Placement/" + name + "/"
}

// SiteOrigin returns the permanent name of the site that a Site resource provisions.
func SiteOrigin(deployment tko.DeploymentID, name string) string {
	const maxOrigin = 200
	origin := string(deployment) + "/Site/" + name
	if len(origin) > maxOrigin {
		return string(deployment) + "/Site/" + digest(name)
	}
	return origin
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

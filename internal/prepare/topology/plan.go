package topology

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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

// planChildren returns the children that a placement wants, in batches of one merge
// package each. slots are the names of their Template resources, by origin.
func planChildren(d Deployment, placement krm.Identity, entries []placed) (batches []tko.NewChildren, slots map[string]string) {
	slots = map[string]string{}
	times := map[string]int{} // number of earlier children with the same key
	for _, e := range entries {
		here := map[tko.SiteID]bool{}
		batch := tko.NewChildren{Parent: d.ID, Revision: d.Revision, Merge: e.merge}
		for _, site := range e.at {
			if here[site] {
				continue
			}
			here[site] = true
			key := childKey(placement.Name, e.template.resource.Name, e.id, site)
			origin := childOrigin(placement, key, times[key])
			times[key]++
			slots[origin] = e.template.resource.Name
			batch.Children = append(batch.Children, tko.NewChild{Origin: origin, Template: e.id, Site: site})
			if len(batch.Children) == childrenPerCall {
				batches = append(batches, batch)
				batch.Children = nil
			}
		}
		if len(batch.Children) > 0 {
			batches = append(batches, batch)
		}
	}
	return batches, slots
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

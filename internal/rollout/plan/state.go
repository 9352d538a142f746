package plan

import (
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
)

// StateDigest returns the digest of a deployment whose package, without the state in its
// Deployment resource, has the digest content.
func StateDigest(content [sha256.Size]byte, d tko.Deployment) Digest {
	w := writer{h: sha256.New()}
	w.h.Write(content[:])
	w.texts([]string{string(d.Template), string(d.Site), string(d.Parent)})
	w.number(d.TemplateRevision)
	for _, flag := range []bool{d.Prepared, d.Approved} {
		n := int64(0)
		if flag {
			n = 1
		}
		w.number(n)
	}
	for _, key := range slices.Sorted(maps.Keys(d.Metadata)) {
		w.texts([]string{key, d.Metadata[key]})
	}
	return Digest(w.h.Sum(nil))
}

package record

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// OriginOf returns the stored form of an origin within a scope, such as a
// parent. Short plain origins can be read from it.
func OriginOf(within, origin string) string {
	const long = 120
	if len(origin) > long || !Storable(origin) {
		sum := sha256.Sum256([]byte(origin))
		origin = "sha256:" + hex.EncodeToString(sum[:])
	}
	return within + "/" + origin
}

// NamedOrigin is the prefix of the origins of deployments that were created
// with a name. Other origins don't have it (see [OriginOf]). It is stored.
const NamedOrigin = "kept/"

// KubernetesName returns the name that a deployment was created with, and that
// it has in Kubernetes; "" if its name there is its ID.
func (r Record) KubernetesName() string {
	name, ok := strings.CutPrefix(r.Origin, NamedOrigin)
	if !ok {
		return ""
	}
	return name
}

// NameOrigin returns the origin of the deployment with a name, for queries.
func NameOrigin(name string) string { return NamedOrigin + name }

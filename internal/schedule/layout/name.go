package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// The folders of a deployment's resources, below its own.
const (
	ClusterFolder    = "00-cluster"
	NamespacedFolder = "10-namespaced" // has a folder for each namespace
)

const (
	unsetNamespace = "_unset"
	maxName        = 200 // bytes of a file's name; file systems allow 255
)

// fileName returns the name of a resource's file in its folder. No two identities
// share one: _ occurs only between kind and name, ~ only before a digest. Only
// kinds have upper-case letters, because they are easier to read so.
func fileName(id krm.Identity) string {
	kind := escape(id.Kind, isLowerOrUpper) + "." + escape(id.Version, isLower)
	if id.Group != "" {
		kind += "." + escape(id.Group, isLowerOrDot)
	}
	return short(kind+"_"+escape(id.Name, isLowerOrDot)) + ".yaml"
}

// namespaceFolder returns the name of a namespace's folder.
func namespaceFolder(namespace string) string {
	if namespace == "" {
		return unsetNamespace
	}
	name := escape(namespace, isLowerOrDot)
	if name[0] == '.' {
		name = "%2e" + name[1:]
	}
	return short(name)
}

// DeploymentFolder returns the name of a deployment's folder. IDs have only letters
// and digits, but those read from an inventory may have other characters.
func DeploymentFolder(id tko.DeploymentID) string { return short(escape(string(id), isLowerOrUpper)) }

// SitePath returns the default path of a site. No two sites share one.
func SitePath(site tko.SiteID) string {
	segments := strings.Split(string(site), "/")
	for i, s := range segments {
		name := escape(s, func(c byte) bool { return isLowerOrUpper(c) || c == '.' || c == '_' })
		switch {
		case name == "":
			name = "%"
		case name[0] == '.':
			name = "%2e" + name[1:]
		}
		segments[i] = short(name)
	}
	return strings.Join(segments, "/")
}

func isLower(c byte) bool        { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' }
func isLowerOrDot(c byte) bool   { return isLower(c) || c == '.' }
func isLowerOrUpper(c byte) bool { return isLower(c) || 'A' <= c && c <= 'Z' }

func escape(s string, plain func(byte) bool) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	return b.String()
}

func short(name string) string {
	if len(name) <= maxName {
		return name
	}
	digest := sha256.Sum256([]byte(name))
	return name[:maxName-64] + "~" + hex.EncodeToString(digest[:16])
}

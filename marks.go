package tko

import "strings"

// Marks are labels with a prefix ("example.com/team") and annotations of an entity: clients of
// the Kubernetes API and manifests set them for tools of their own. TKO keeps them, and doesn't
// act on them. Plugins have no metadata, so all their labels are marks.
type Marks struct {
	Labels      map[string]string
	Annotations map[string]string
}

// IsZero reports whether there are no marks.
func (m Marks) IsZero() bool { return len(m.Labels)+len(m.Annotations) == 0 }

// EntityMarks are the marks of an entity.
type EntityMarks struct {
	ID              string
	Marks           Marks // without annotations that [IsMark] excludes
	OwnerReferences int   // objects that own it in the Kubernetes API of its server, where alone they have a meaning
}

// IsMark reports whether an annotation is a mark: it is none of those that kubectl keeps for
// itself, or that TKO reads.
func IsMark(annotation string) bool {
	prefix, _, _ := strings.Cut(annotation, "/")
	return annotation != "kubectl.kubernetes.io/last-applied-configuration" && prefix != "tko.nephio.org" && !strings.HasSuffix(prefix, ".tko.nephio.org")
}

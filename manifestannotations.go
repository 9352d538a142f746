package tko

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko/krm"
)

// Annotations of the manifests of sites and deployments: what export must say in addition
// to the fields of their specs, so that the same entity is made elsewhere. All readers of
// manifests know them.
const (
	// AnnotationWhole set to "true" makes the package the whole one: it isn't merged into
	// the template's.
	AnnotationWhole = "tko.nephio.org/whole-package"
	// AnnotationMadeFrom is [Put.MadeFrom] of a deployment.
	AnnotationMadeFrom = "tko.nephio.org/made-from"
	// AnnotationRemovedMetadata is the JSON list of the keys that the template or the
	// package gives and that the entity shall not have.
	AnnotationRemovedMetadata = "tko.nephio.org/removed-metadata"
)

// ManifestAnnotations returns the annotations of a manifest for the parts of a Put that its
// other fields can't state; nil if there are none.
func (p Put) ManifestAnnotations() (map[string]string, error) {
	annotations := map[string]string{}
	if p.Whole {
		annotations[AnnotationWhole] = "true"
	}
	if p.MadeFrom != "" {
		annotations[AnnotationMadeFrom] = p.MadeFrom
	}
	if len(p.RemoveMetadata) > 0 {
		text, err := json.Marshal(slices.Sorted(slices.Values(p.RemoveMetadata)))
		if err != nil {
			return nil, err
		}
		annotations[AnnotationRemovedMetadata] = string(text)
	}
	if len(annotations) == 0 {
		return nil, nil
	}
	return maps.Clone(annotations), nil
}

// ReadManifestAnnotations sets what the annotations of a manifest state. value returns that of
// an annotation, or "".
func (p *Put) ReadManifestAnnotations(value func(name string) string) error {
	switch text := value(AnnotationWhole); text {
	case "", "false":
	case "true":
		p.Whole = true
	default:
		return Errorf(ErrInvalid, "the annotation %s is %.40q: use \"true\", or leave it out", AnnotationWhole, text)
	}
	p.MadeFrom = value(AnnotationMadeFrom)
	if p.MadeFrom != "" {
		if err := checkMadeFrom(p.MadeFrom); err != nil {
			return Errorf(ErrInvalid, "the annotation %s: %w", AnnotationMadeFrom, err)
		}
	}
	text := value(AnnotationRemovedMetadata)
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &p.RemoveMetadata); err != nil {
		return Errorf(ErrInvalid, "the annotation %s is %.40q: use a JSON list of keys, such as '[\"tier\"]'", AnnotationRemovedMetadata, text)
	}
	for _, key := range p.RemoveMetadata {
		if _, wanted := p.Metadata[key]; wanted {
			return Errorf(ErrInvalid, "the annotation %s has the key %.40q, which is a label, too: remove one", AnnotationRemovedMetadata, key)
		}
	}
	return nil
}

// RevisionDigest returns the digest of a revision of a template, for [Put.MadeFrom]: of its
// package and its metadata, on every server.
func RevisionDigest(pkg krm.Package, metadata map[string]string) (string, error) {
	content, _, err := krm.DigestOf(pkg)
	if err != nil {
		return "", err
	}
	return RevisionDigestOf(content, metadata)
}

// RevisionDigestOf is [RevisionDigest] for the digest of the package.
func RevisionDigestOf(content [32]byte, metadata map[string]string) (string, error) {
	if metadata == nil {
		metadata = map[string]string{}
	}
	text, err := json.Marshal(metadata) // sorted by key
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(content[:], text...))
	return hex.EncodeToString(sum[:]), nil
}

func checkMadeFrom(digest string) error {
	if b, err := hex.DecodeString(digest); err != nil || len(b) != 32 {
		return Errorf(ErrInvalid, "%.80q is not the digest of a revision of a template: use 64 hexadecimal digits", digest)
	}
	return nil
}

// CheckWhole returns an ErrInvalid if the parts of a Put about its package and template don't
// fit its kind.
func (p Put) CheckWhole() error {
	switch {
	case p.Whole && p.Kind != KindSite && p.Kind != KindDeployment:
		return Errorf(ErrInvalid, "the package of a %s is always the whole one: leave whole out", p.Kind)
	case p.MadeFrom == "":
		return nil
	case p.Kind != KindDeployment || p.Template == "":
		return Errorf(ErrInvalid, "only a deployment with a template is made from a revision of it: leave madeFrom out")
	}
	return checkMadeFrom(p.MadeFrom)
}

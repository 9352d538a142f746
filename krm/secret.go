package krm

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
)

// Redacted replaces a value of a Secret that the reader may not see: as it is
// in stringData, in base64 in data.
const Redacted = "[redacted by TKO]"

var redactedData = base64.StdEncoding.EncodeToString([]byte(Redacted))

// lastApplied is the annotation in which kubectl stores the whole applied
// object, including values of Secrets.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// secretMarkers are what each text with a Secret contains: the word, or its
// base64 at each alignment.
var secretMarkers = []string{"Secret", "U2VjcmV0", "NlY3Jld", "TZWNyZX"}

// MayHoldSecrets is a fast test of an encoded package or other text: false
// means that it has no Secret.
func MayHoldSecrets(encoded []byte) bool {
	return slices.ContainsFunc(secretMarkers, func(marker string) bool { return bytes.Contains(encoded, []byte(marker)) })
}

// MayBeRedacted is a fast test of an encoded package: false means that none of
// its values is redacted.
func MayBeRedacted(encoded []byte) bool {
	return bytes.Contains(encoded, []byte(Redacted)) || bytes.Contains(encoded, []byte(redactedData))
}

// WithoutSecrets returns the package with each value of its Secrets redacted,
// wherever in a resource a Secret is (a List, a manifest in a field, text with a
// manifest: see [RedactText]). It
// doesn't change the package; the result shares resources without Secrets with
// it.
func (p Package) WithoutSecrets() Package {
	redacted := make(Package, len(p))
	for i, r := range p {
		redacted[i] = r
		if tree, changed := redactTree(map[string]any(r), 0); changed {
			redacted[i], _ = tree.(map[string]any)
		}
	}
	return redacted
}

// HasSecrets reports whether WithoutSecrets redacts something of the package.
func (p Package) HasSecrets() bool {
	return slices.ContainsFunc(p, func(r Resource) bool {
		_, changed := redactTree(map[string]any(r), 0)
		return changed
	})
}

// WithSecretsOf returns the package with its redacted values replaced by those
// of the same Secrets in another package, and reports whether there were any. A
// redacted value that the other package doesn't have stays: see
// [Package.CheckSecrets].
func (p Package) WithSecretsOf(before Package) (restored Package, found bool) {
	byIdentity := make(map[Identity]Resource, len(before))
	for _, r := range before {
		byIdentity[r.Identity()] = r
	}
	restored = make(Package, len(p))
	for i, r := range p {
		restored[i] = r
		if old, ok := byIdentity[r.Identity()]; ok {
			if tree, changed := restoreTree(map[string]any(r), map[string]any(old), false); changed {
				restored[i], _ = tree.(map[string]any)
				found = true
			}
		}
	}
	return restored, found
}

// CheckSecrets returns an ErrInvalid if a resource has a redacted value, in a Secret or
// elsewhere: stored, it would replace the real value, which would be lost.
func (p Package) CheckSecrets() error {
	for i, r := range p {
		if where := findRedacted(map[string]any(r), ""); where != "" {
			return Errors{&Error{Index: i + 1, Resource: r.Identity(), Path: where, Reason: "the value was redacted for a reader without the right to see it: " +
				"write the value itself, or leave it redacted in the Secret that it was read from"}}
		}
	}
	return nil
}

// secretFields maps the fields of a Secret that have values to the form of a
// redacted value in them.
var secretFields = map[string]string{"data": redactedData, "stringData": Redacted}

// redactTree returns a value with its Secrets redacted, and reports whether
// there are any. It doesn't change the value, which is inside of so many texts.
func redactTree(value any, nested int) (redacted any, changed bool) {
	switch value := value.(type) {
	case string:
		text := redactText(value, nested)
		return text, text != value
	case map[string]any:
		if isSecret(value) {
			return redactSecret(value, nested), true
		}
		var copied map[string]any
		for key, child := range value {
			inner, changed := redactTree(child, nested)
			if !changed {
				continue
			}
			if copied == nil {
				copied = maps.Clone(value)
			}
			copied[key] = inner
		}
		if copied != nil {
			return copied, true
		}
	case []any:
		var copied []any
		for i, child := range value {
			inner, changed := redactTree(child, nested)
			if !changed {
				continue
			}
			if copied == nil {
				copied = append(copied, value...)
			}
			copied[i] = inner
		}
		if copied != nil {
			return copied, true
		}
	}
	return value, false
}

func redactSecret(secret map[string]any, nested int) map[string]any {
	redacted := maps.Clone(secret)
	for field, marker := range secretFields {
		switch values := secret[field].(type) {
		case nil:
		case map[string]any:
			hidden := make(map[string]any, len(values))
			for key := range values {
				hidden[key] = marker
			}
			redacted[field] = hidden
		default:
			redacted[field] = marker
		}
	}
	metadata, _ := secret["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	hidden := maps.Clone(annotations)
	for key, value := range annotations {
		if text, ok := value.(string); ok {
			hidden[key] = redactText(text, nested)
		}
		if key == lastApplied {
			hidden[key] = Redacted
		}
	}
	if len(hidden) > 0 {
		metadata = maps.Clone(metadata)
		metadata["annotations"] = hidden
		redacted["metadata"] = metadata
	}
	return redacted
}

// restoreTree returns a value with its redacted values replaced by those at the
// same places of the earlier value, and reports whether there were any.
func restoreTree(value, before any, inSecret bool) (restored any, changed bool) {
	switch value := value.(type) {
	case map[string]any:
		old, ok := before.(map[string]any)
		if !ok || isSecret(value) != isSecret(old) || isSecret(value) && nameOf(value) != nameOf(old) {
			return value, false
		}
		inSecret = inSecret || isSecret(value)
		var copied map[string]any
		for key, child := range value {
			was, ok := old[key]
			if !ok {
				continue
			}
			inner, changed := restoreTree(child, was, inSecret)
			if !changed {
				continue
			}
			if copied == nil {
				copied = maps.Clone(value)
			}
			copied[key] = inner
		}
		if copied != nil {
			return copied, true
		}
	case []any:
		old, ok := before.([]any)
		if !ok {
			return value, false
		}
		var copied []any
		for i, child := range value {
			if i == len(old) {
				break
			}
			inner, changed := restoreTree(child, old[i], inSecret)
			if !changed {
				continue
			}
			if copied == nil {
				copied = append(copied, value...)
			}
			copied[i] = inner
		}
		if copied != nil {
			return copied, true
		}
	case string:
		if inSecret && isRedacted(value) && before != any(value) {
			return before, true
		}
		if old, ok := before.(string); ok && old != value && RedactText(old) == value {
			return old, true
		}
	}
	return value, false
}

func isRedacted(text string) bool { return text == Redacted || text == redactedData }

func nameOf(m map[string]any) string {
	metadata, _ := m["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	namespace, _ := metadata["namespace"].(string)
	return namespace + "/" + name
}

// findRedacted returns the path of a redacted value of a Secret, or "".
func findRedacted(value any, path string) string {
	switch value := value.(type) {
	case map[string]any:
		if isSecret(value) {
			if where := redactedIn(value, path); where != "" {
				return where
			}
		}
		for key, child := range value {
			if where := findRedacted(child, under(path, key)); where != "" {
				return where
			}
		}
	case string:
		if MayBeRedacted([]byte(value)) { // moved or copied out of a Secret, or a text of which a part was redacted
			return path
		}
	case []any:
		for i, child := range value {
			if where := findRedacted(child, fmt.Sprintf("%s[%d]", path, i)); where != "" {
				return where
			}
		}
	}
	return ""
}

func redactedIn(secret map[string]any, path string) string {
	for field := range secretFields {
		switch values := secret[field].(type) {
		case string:
			if isRedacted(values) {
				return under(path, field)
			}
		case map[string]any:
			for key, value := range values {
				if text, ok := value.(string); ok && isRedacted(text) {
					return under(under(path, field), key)
				}
			}
		}
	}
	return ""
}

func under(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

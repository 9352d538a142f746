package form

import (
	"crypto/sha256"
	"maps"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Very many deployments have the metadata of their template and nothing else.
// Such metadata has a negative number and is indexed once, by itself: the records
// that have it are found by its number. Other metadata is indexed by record,
// because it may be different for each record.

// IsShared reports whether a record's metadata is indexed by itself.
func IsShared(kind tko.Kind, m *record.Metadata) bool {
	return kind == tko.KindDeployment && len(m.Passed) == 0 && len(m.Labels) == 0 && len(m.Inherited) > 0 && maps.Equal(m.Effective, m.Inherited)
}

// DigestOfMetadata returns the digest of encoded metadata. Shared and unshared metadata have
// different digests, even if they are equal.
func DigestOfMetadata(text []byte, shared bool) record.Digest {
	if shared {
		text = append([]byte("shared "), text...)
	}
	return sha256.Sum256(text)
}

// The bits of what a change took from its record.
const (
	DepartedRecord = 1 << iota
	DepartedSite
	DepartedTemplate
	DepartedParent
	DepartedMetadata
	// DepartedUnknown stands for changes of which it isn't known.
	DepartedUnknown = 1<<iota - 1
)

// LosesMetadata reports whether a value of metadata or labels before isn't there after.
func LosesMetadata(before, after *record.Metadata) bool {
	for _, pair := range [][2]map[string]string{{before.Effective, after.Effective}, {before.Labels, after.Labels}} {
		for key, value := range pair[0] {
			if now, ok := pair[1][key]; !ok || now != value {
				return true
			}
		}
	}
	return false
}

// Departed returns the bits of references that a new revision took from its record.
func Departed(before, after *record.Record) (bits int64) {
	for _, column := range []struct {
		before, after string
		bit           int64
	}{
		{before.Site, after.Site, DepartedSite},
		{before.Template, after.Template, DepartedTemplate},
		{before.Parent, after.Parent, DepartedParent},
	} {
		if column.before != "" && column.before != column.after {
			bits |= column.bit
		}
	}
	return bits
}

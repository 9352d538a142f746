package record

import (
	"bytes"
	"maps"
	"slices"
)

// SameContent reports whether two records are equal in everything that a user
// wrote.
func SameContent(a, b Record) bool {
	return a.Template == b.Template && a.Site == b.Site && a.Parent == b.Parent &&
		a.Prepared == b.Prepared && a.Approved == b.Approved && a.Digest == b.Digest &&
		a.CRDs == b.CRDs && a.Details == b.Details && bytes.Equal(a.Plugin, b.Plugin) && sameMetadata(a, b)
}

func sameMetadata(a, b Record) bool {
	return bytes.Equal(a.Attached(), b.Attached()) && sameAwaited(a, b) && sameApplied(a, b) && maps.Equal(a.Labels(), b.Labels()) && slices.Equal(a.Removed(), b.Removed()) && maps.Equal(a.Effective(), b.Effective()) && maps.Equal(a.Inherited(), b.Inherited()) && maps.Equal(a.Passed(), b.Passed())
}

func sameApplied(a, b Record) bool {
	return maps.EqualFunc(a.Applied(), b.Applied(), AppliedSet.Equal)
}

// sameAwaited reports whether two records wait for the same.
func sameAwaited(a, b Record) bool { return a.Awaited() == b.Awaited() }

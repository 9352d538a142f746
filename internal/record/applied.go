package record

import (
	"slices"
)

// An AppliedSet is what a manager named the last time.
type AppliedSet struct {
	Template  bool     `json:"t,omitempty"`
	Metadata  []string `json:"k,omitempty"` // keys, sorted
	Resources []string `json:"r,omitempty"` // identities, sorted
	Details   []string `json:"d,omitempty"` // names, in the order of their fields
	// Labels and Annotations are keys of marks, sorted. Those of manifests without a manager are
	// in the set of the manager "", which has nothing else.
	Labels      []string `json:"l,omitempty"`
	Annotations []string `json:"a,omitempty"`
}

// Equal reports whether two sets have the same.
func (s AppliedSet) Equal(o AppliedSet) bool {
	return s.Template == o.Template && slices.Equal(s.Metadata, o.Metadata) && slices.Equal(s.Resources, o.Resources) && slices.Equal(s.Details, o.Details) &&
		slices.Equal(s.Labels, o.Labels) && slices.Equal(s.Annotations, o.Annotations)
}

// Applied is what managers named the last time.
func (r Record) Applied() map[string]AppliedSet { return r.Metadata.OrNone().Applied }

// SetApplied sets what managers named. The record's metadata must not be shared yet.
func (r *Record) SetApplied(sets map[string]AppliedSet) {
	if len(sets) == 0 && r.Metadata == nil {
		return
	}
	if r.Metadata == nil {
		r.Metadata = new(Metadata)
	}
	r.Metadata.Applied = sets
}

package spanner

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A doc is the part of a record that no statement compares.
type doc struct {
	UID string
	tko.Author
	tko.Details
	Parent     string                `json:",omitempty"`
	Template   string                `json:",omitempty"`
	Site       string                `json:",omitempty"`
	Origin     string                `json:",omitempty"`
	Replaces   []string              `json:",omitempty"` // not of revisions, like the next one
	Replaced   []string              `json:",omitempty"`
	Base       int64                 `json:",omitempty"`
	Prepared   bool                  `json:",omitempty"`
	Approved   bool                  `json:",omitempty"`
	CRDs       bool                  `json:",omitempty"`
	Metadata   *record.Metadata      `json:",omitempty"` // without Attached
	Attached   []byte                `json:",omitempty"` // as it was written, which JSON in JSON isn't
	Digest     []byte                `json:",omitempty"`
	Derivation []byte                `json:",omitempty"`
	Owner      []byte                `json:",omitempty"`
	Plugin     []byte                `json:",omitempty"`
	Conditions []tko.Condition       `json:",omitempty"` // not of revisions
	Steps      []tko.PreparationStep `json:",omitempty"` // of revisions only, like the next one
	Departed   *int64                `json:",omitempty"` // what a restored revision took from its record: see [form.DepartedRecord]
}

func encode(r *record.Record) ([]byte, error) {
	d := docOf(r)
	return encodeDoc(r, &d)
}

func docOf(r *record.Record) doc {
	return doc{
		UID: r.UID, Author: r.Author, Details: r.Details, Parent: r.Parent, Template: r.Template, Site: r.Site, Origin: r.Origin,
		Replaces: r.Replaces, Replaced: r.Replaced, Base: r.Base, Prepared: r.Prepared, Approved: r.Approved, CRDs: r.CRDs,
		Digest: bytesOf(r.Digest), Derivation: bytesOf(r.Derivation), Owner: bytesOf(r.Owner), Plugin: r.Plugin,
		Conditions: r.Conditions, Steps: r.Steps,
	}
}

// encodeRevision is encode of a restored revision.
func encodeRevision(r *record.Record, departed *int64) ([]byte, error) {
	revision := *r
	revision.Conditions, revision.Replaces, revision.Replaced = nil, nil, nil
	d := docOf(&revision)
	d.Departed = departed
	return encodeDoc(r, &d)
}

func encodeDoc(r *record.Record, d *doc) ([]byte, error) {
	if r.Metadata != nil {
		m := *r.Metadata
		d.Attached, m.Attached = m.Attached, nil
		d.Metadata = &m
	}
	encoded, err := json.Marshal(d)
	return encoded, fault(fmt.Sprintf("encode %s %q", r.Kind, r.ID), err)
}

func bytesOf(d record.Digest) []byte {
	if d == (record.Digest{}) {
		return nil
	}
	return d[:]
}

// rowColumns are the columns that scanRow reads at first, of the tables entity and revision.
var rowColumns = []string{"kind", "id", "revision", "committed", "slot", "n", "created", "updated", "doc"}

func scanRow(row *spanner.Row, more ...any) (*record.Record, error) {
	var r record.Record
	var kind string
	var at place
	var encoded []byte
	if err := row.Columns(append([]any{&kind, &r.ID, &r.Revision, &at.At, &at.Slot, &at.N, &r.Created, &r.Updated, &encoded}, more...)...); err != nil {
		return nil, err
	}
	r.Kind, r.Position = tko.Kind(kind), at.position()
	r.Created, r.Updated = r.Created.UTC(), r.Updated.UTC()
	var d doc
	if err := json.Unmarshal(encoded, &d); err != nil {
		return nil, fmt.Errorf("the stored %s %q can't be read: %w", r.Kind, r.ID, err)
	}
	r.UID, r.Author, r.Details, r.Prepared, r.Approved, r.CRDs = d.UID, d.Author, d.Details, d.Prepared, d.Approved, d.CRDs
	r.Parent, r.Template, r.Site, r.Origin = d.Parent, d.Template, d.Site, d.Origin
	r.Replaces, r.Replaced, r.Base = d.Replaces, d.Replaced, d.Base
	r.Plugin, r.Conditions, r.Steps = d.Plugin, d.Conditions, d.Steps
	copy(r.Digest[:], d.Digest)
	copy(r.Derivation[:], d.Derivation)
	copy(r.Owner[:], d.Owner)
	r.Metadata = d.Metadata
	if r.Metadata == nil {
		r.Metadata = new(record.Metadata)
	}
	r.Metadata.Attached = d.Attached
	for i := range r.Conditions {
		c := &r.Conditions[i]
		c.LastTransition, c.NextTry = inUTC(c.LastTransition), inUTC(c.NextTry)
	}
	return &r, nil
}

func inUTC(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// clone copies the parts of a record that belong to the caller.
func clone(r *record.Record) record.Record {
	c := *r
	c.Plugin, c.Conditions = slices.Clone(r.Plugin), slices.Clone(r.Conditions)
	c.Replaces, c.Replaced = slices.Clone(r.Replaces), slices.Clone(r.Replaced)
	return c
}

package relational

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// A row is a record as the tables have it: its metadata by number.
type row struct {
	catalog.Record
	metaset int64
}

// stateColumns are what the tables entity and change both have.
var stateColumns = []Column{
	{"kind", Text},
	{"id", Text},
	{"uid", Text},
	{"revision", Int},
	{"position", Int},
	{"created", Int},
	{"updated", Int},
	{"parent", Text},
	{"template", Text},
	{"site", Text},
	{"prepared", Bool},
	{"approved", Bool},
	{"origin", Text},
	{"digest", Bytes},
	{"metaset", Int},
	{"plugin", Bytes},
	{"crds", Bool},
	{"who", Text},
	{"why", Text},
}

var (
	entityColumns = append(slices.Clip(stateColumns), Column{"conditions", Text})
	changeColumns = append(slices.Clip(stateColumns), Column{"op", Text})
)

// names lists columns, each with a prefix.
func names(columns []Column, prefix string) string {
	var list []byte
	for i, c := range columns {
		if i > 0 {
			list = append(list, ", "...)
		}
		list = append(append(list, prefix...), c.Name...)
	}
	return string(list)
}

// values are the row's, in the order of stateColumns.
func (r *row) values() []any {
	return []any{
		string(r.Kind), r.ID, r.UID, r.Revision, r.Position, micros(r.Created), micros(r.Updated),
		r.Parent, r.Template, r.Site, r.Prepared, r.Approved, orNull(r.Origin),
		digestValue(r.Digest), r.metaset, r.Plugin, r.CRDs, r.Author.Who, r.Author.Why,
	}
}

// scanState reads stateColumns, and what comes after them.
func (r *row) scan(from Row, more ...any) error {
	var kind string
	var created, updated int64
	var origin sql.NullString
	var digest []byte
	dest := []any{
		&kind, &r.ID, &r.UID, &r.Revision, &r.Position, &created, &updated,
		&r.Parent, &r.Template, &r.Site, &r.Prepared, &r.Approved, &origin,
		&digest, &r.metaset, &r.Plugin, &r.CRDs, &r.Author.Who, &r.Author.Why,
	}
	if err := from.Scan(append(dest, more...)...); err != nil {
		return err
	}
	r.Kind, r.Origin = tko.Kind(kind), origin.String
	r.Created, r.Updated = moment(created), moment(updated)
	copy(r.Digest[:], digest)
	return nil
}

// scanEntity reads entityColumns.
func (r *row) scanEntity(from Row) error {
	var conditions sql.NullString
	if err := r.scan(from, &conditions); err != nil {
		return err
	}
	return r.readConditions(conditions)
}

func (r *row) readConditions(conditions sql.NullString) error {
	if conditions.String == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(conditions.String), &r.Conditions); err != nil {
		return fmt.Errorf("conditions of %s %q: %w", r.Kind, r.ID, err)
	}
	return nil
}

func conditionsValue(conditions []tko.Condition) (any, error) {
	if len(conditions) == 0 {
		return nil, nil //nolint:nilnil // NULL is the value
	}
	doc, err := json.Marshal(conditions)
	if err != nil {
		return nil, fmt.Errorf("encode conditions: %w", err)
	}
	return string(doc), nil
}

func micros(t time.Time) int64 { return t.UnixMicro() }
func moment(m int64) time.Time { return time.UnixMicro(m).UTC() }
func digestValue(d catalog.Digest) any {
	if d == (catalog.Digest{}) {
		return nil
	}
	return d[:]
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// cloneRecord copies what belongs to the caller.
func cloneRecord(r catalog.Record) catalog.Record {
	r.Plugin = slices.Clone(r.Plugin)
	r.Conditions = slices.Clone(r.Conditions)
	r.Deployments = slices.Clone(r.Deployments)
	return r
}

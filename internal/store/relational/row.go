package relational

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// A row is a record as the tables have it, with its metadata by number.
type row struct {
	catalog.Record
	metaset int64
}

// stateColumns are the columns that the tables entity and change share.
var stateColumns = []Column{
	Text.As("kind"),
	Text.As("id"),
	Text.As("uid"),
	Int.As("revision"),
	Int.As("position"),
	Int.As("created"),
	Int.As("updated"),
	Text.As("parent"),
	Text.As("template"),
	Text.As("site"),
	Bool.As("prepared"),
	Bool.As("approved"),
	Text.As("origin"),
	Bytes.As("digest"),
	Int.As("metaset"),
	Bytes.As("plugin"),
	Bool.As("crds"),
	Text.As("who"),
	Text.As("why"),
	Bytes.As("derivation"),
	Bytes.As("owner"),
}

var (
	entityColumns = append(slices.Clip(stateColumns), Text.As("conditions"), Text.As("replaces"), Int.As("base"), Text.As("replaced"))
	changeColumns = append(slices.Clip(stateColumns), Text.As("op"), Text.As("steps"), Int.As("departed"), Int.As("base"))
)

// selectedEntity are the columns that an entity scanner reads.
var selectedEntity = sqldb.Names(entityColumns, "e.")

// values returns the row's values, in the order of stateColumns.
func (r *row) values() []any {
	return []any{
		string(r.Kind), r.ID, r.UID, r.Revision, r.Position, micros(r.Created), micros(r.Updated),
		r.Parent, r.Template, r.Site, r.Prepared, r.Approved, orNull(r.Origin),
		digestValue(r.Digest), r.metaset, r.Plugin, r.CRDs, r.Author.Who, r.Author.Why,
		derivationValue(r.Derivation, r.Revision), digestValue(r.Owner),
	}
}

// A text is a text column of a row. If it equals the text of the row before, both
// share memory.
type text string

// ScanBytes is called by pgx.
func (t *text) ScanBytes(value []byte) error {
	if string(value) != string(*t) {
		*t = text(value)
	}
	return nil
}

// Scan is called by database/sql.
func (t *text) Scan(value any) error {
	switch value := value.(type) {
	case nil:
		*t = ""
	case string:
		*t = text(value)
	case []byte:
		return t.ScanBytes(value)
	default:
		return fmt.Errorf("%T where a text should be", value)
	}
	return nil
}

// A digest is a digest column of a row; zero for NULL.
type digest catalog.Digest

// ScanBytes is called by pgx.
func (d *digest) ScanBytes(value []byte) error {
	*d = digest{}
	copy(d[:], value)
	return nil
}

// Scan is called by database/sql.
func (d *digest) Scan(value any) error {
	bytes, ok := value.([]byte)
	if !ok && value != nil {
		return fmt.Errorf("%T where a digest should be", value)
	}
	return d.ScanBytes(bytes)
}

// A derivation is the column of that name: a digest, followed by the revision that it is
// of. Programs of older schemas write revisions without it and leave the column as it
// is: then it isn't known what the new revision was made from.
type derivation struct {
	digest   digest
	revision int64
}

func derivationValue(d catalog.Digest, revision int64) any {
	if d == (catalog.Digest{}) {
		return nil
	}
	return binary.BigEndian.AppendUint64(slices.Clone(d[:]), uint64(revision)) //nolint:gosec // revisions are positive
}

// of returns the derivation of a revision; zero if it isn't known.
func (d *derivation) of(revision int64) catalog.Digest {
	if d.revision != revision {
		return catalog.Digest{}
	}
	return catalog.Digest(d.digest)
}

// ScanBytes is called by pgx.
func (d *derivation) ScanBytes(value []byte) error {
	*d = derivation{}
	if len(value) == len(d.digest)+8 {
		d.revision = int64(binary.BigEndian.Uint64(value[len(d.digest):])) //nolint:gosec // written as such
		return d.digest.ScanBytes(value)
	}
	return nil
}

// Scan is called by database/sql.
func (d *derivation) Scan(value any) error {
	bytes, ok := value.([]byte)
	if !ok && value != nil {
		return fmt.Errorf("%T where a derivation should be", value)
	}
	return d.ScanBytes(bytes)
}

// A scanner reads the rows of a result.
type scanner struct {
	kind, id, uid, parent, template, site, origin, who, why text

	conditions       text
	replaces         text
	replaced         text
	created, updated int64
	digest           digest
	derivation       derivation
	owner            digest
	plugin           []byte

	row  row
	dest []any
}

// newScanner returns a scanner of stateColumns, and of more columns after them.
func newScanner(more ...any) *scanner {
	s := new(scanner)
	r := &s.row
	s.dest = append([]any{
		&s.kind, &s.id, &s.uid, &r.Revision, &r.Position, &s.created, &s.updated,
		&s.parent, &s.template, &s.site, &r.Prepared, &r.Approved, &s.origin,
		&s.digest, &r.metaset, &s.plugin, &r.CRDs, &s.who, &s.why, &s.derivation, &s.owner,
	}, more...)
	return s
}

// newEntityScanner returns a scanner of entityColumns.
func newEntityScanner() *scanner {
	s := newScanner()
	s.dest = append(s.dest, &s.conditions, &s.replaces, &s.row.Base, &s.replaced)
	return s
}

// scan reads a row.
func (s *scanner) scan(from Row) (row, error) {
	s.plugin = nil // the last row owns it
	if err := from.Scan(s.dest...); err != nil {
		return row{}, err
	}
	r := s.row
	r.Kind, r.ID, r.UID, r.Origin = tko.Kind(s.kind), string(s.id), string(s.uid), string(s.origin)
	r.Parent, r.Template, r.Site = string(s.parent), string(s.template), string(s.site)
	r.Author = tko.Author{Who: string(s.who), Why: string(s.why)}
	r.Created, r.Updated, r.Plugin = moment(s.created), moment(s.updated), s.plugin
	r.Digest, r.Derivation, r.Owner = catalog.Digest(s.digest), s.derivation.of(r.Revision), catalog.Digest(s.owner)
	if s.replaces != "" {
		r.Replaces = strings.Split(string(s.replaces), " ") // IDs have no spaces
	}
	if s.replaced != "" {
		r.Replaced = strings.Split(string(s.replaced), " ")
	}
	err := r.readConditions(string(s.conditions))
	return r, err
}

// scan reads stateColumns, and more columns after them.
func (r *row) scan(from Row, more ...any) (err error) {
	*r, err = newScanner(more...).scan(from)
	return err
}

// scanEntity reads entityColumns.
func (r *row) scanEntity(from Row) (err error) {
	*r, err = newEntityScanner().scan(from)
	return err
}

func (r *row) readConditions(conditions string) (err error) {
	if r.Conditions, err = parseConditions(conditions); err != nil {
		return fmt.Errorf("conditions of %s %q: %w", r.Kind, r.ID, err)
	}
	return nil
}

// entityValues returns the row's values, in the order of entityColumns.
func (r *row) entityValues() ([]any, error) {
	conditions, err := conditionsValue(r.Conditions)
	return append(r.values(), conditions, orNull(strings.Join(r.Replaces, " ")), r.Base, orNull(strings.Join(r.Replaced, " "))), err
}

func conditionsValue(conditions []tko.Condition) (any, error) {
	text, err := formatConditions(conditions)
	return orNull(text), err
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

// cloneRecord copies the parts of a record that belong to the caller.
func cloneRecord(r catalog.Record) catalog.Record {
	r.Plugin = slices.Clone(r.Plugin)
	r.Conditions = slices.Clone(r.Conditions)
	r.Deployments = slices.Clone(r.Deployments)
	r.Replaces = slices.Clone(r.Replaces)
	r.Replaced = slices.Clone(r.Replaced)
	return r
}

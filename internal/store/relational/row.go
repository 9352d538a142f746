package relational

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/form"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// A row is a record as the tables have it, with its metadata by number.
type row struct {
	record.Record
	metaset    int64
	conditions any // as they are stored, while the row is written
}

// A stored is a column of records: how it is written and read. Statements, rows and
// scanners follow the lists of them; those of backups are in package backup.
type stored struct {
	Column

	value func(r *row) any     // that is written
	into  func(s *scanner) any // where it is read to
}

// stateOfRecords are the columns that the tables entity and change share: those of details are the
// last ones.
var stateOfRecords = append([]stored{
	{Text.As("kind"), func(r *row) any { return string(r.Kind) }, func(s *scanner) any { return &s.kind }},
	{Text.As("id"), func(r *row) any { return r.ID }, func(s *scanner) any { return &s.id }},
	{Text.As("uid"), func(r *row) any { return r.UID }, func(s *scanner) any { return &s.uid }},
	{Int.As("revision"), func(r *row) any { return r.Revision }, func(s *scanner) any { return &s.row.Revision }},
	{Int.As("position"), func(r *row) any { return r.Position }, func(s *scanner) any { return &s.row.Position }},
	{Int.As("created"), func(r *row) any { return micros(r.Created) }, func(s *scanner) any { return &s.created }},
	{Int.As("updated"), func(r *row) any { return micros(r.Updated) }, func(s *scanner) any { return &s.updated }},
	{Text.As("parent"), func(r *row) any { return r.Parent }, func(s *scanner) any { return &s.parent }},
	{Text.As("template"), func(r *row) any { return r.Template }, func(s *scanner) any { return &s.template }},
	{Text.As("site"), func(r *row) any { return r.Site }, func(s *scanner) any { return &s.site }},
	{Bool.As("prepared"), func(r *row) any { return r.Prepared }, func(s *scanner) any { return &s.row.Prepared }},
	{Bool.As("approved"), func(r *row) any { return r.Approved }, func(s *scanner) any { return &s.row.Approved }},
	{Text.As("origin"), func(r *row) any { return orNull(r.Origin) }, func(s *scanner) any { return &s.origin }},
	{Bytes.As("digest"), func(r *row) any { return digestValue(r.Digest) }, func(s *scanner) any { return &s.digest }},
	{Int.As("metaset"), func(r *row) any { return r.metaset }, func(s *scanner) any { return &s.row.metaset }},
	{Bytes.As("plugin"), func(r *row) any { return r.Plugin }, func(s *scanner) any { return &s.plugin }},
	{Bool.As("crds"), func(r *row) any { return r.CRDs }, func(s *scanner) any { return &s.row.CRDs }},
	{Text.As("who"), func(r *row) any { return r.Author.Who }, func(s *scanner) any { return &s.who }},
	{Text.As("why"), func(r *row) any { return r.Author.Why }, func(s *scanner) any { return &s.why }},
	{Bytes.As("derivation"), func(r *row) any { return derivationValue(r.Derivation, r.Revision) }, func(s *scanner) any { return &s.derivation }},
	{Bytes.As("owner"), func(r *row) any { return digestValue(r.Owner) }, func(s *scanner) any { return &s.owner }},
}, detailColumns()...)

// detailColumns returns a column for each field of [tko.Details].
func detailColumns() (columns []stored) {
	for _, f := range tko.DetailFields() {
		columns = append(columns, stored{
			Text.As(f.Name),
			func(r *row) any { return orNull(*f.In(&r.Details)) }, func(s *scanner) any { return (*text)(f.In(&s.row.Details)) },
		})
	}
	return columns
}

// entityOnly are the columns of the table entity after those of the state.
var entityOnly = []stored{
	{Text.As("conditions"), func(r *row) any { return r.conditions }, func(s *scanner) any { return &s.conditions }},
	{Text.As("replaces"), func(r *row) any { return orNull(strings.Join(r.Replaces, " ")) }, func(s *scanner) any { return &s.replaces }},
	{Int.As("base"), func(r *row) any { return r.Base }, func(s *scanner) any { return &s.row.Base }},
	{Text.As("replaced"), func(r *row) any { return orNull(strings.Join(r.Replaced, " ")) }, func(s *scanner) any { return &s.replaced }},
}

// changeOnly are the columns of the table change after those of the state. Changes have the
// values; their readers read the ones that they need.
var changeOnly = []stored{
	{Column: Text.As("op")},
	{Column: Text.As("steps")},
	{Column: Int.As("departed")},
	{Column: Int.As("base")},
}

var (
	stateColumns  = columnsOf(stateOfRecords)
	entityColumns = append(slices.Clip(stateColumns), columnsOf(entityOnly)...)
	changeColumns = append(slices.Clip(stateColumns), columnsOf(changeOnly)...)
)

func columnsOf(list []stored) []Column {
	columns := make([]Column, len(list))
	for i, c := range list {
		columns[i] = c.Column
	}
	return columns
}

// selectedEntity are the columns that an entity scanner reads.
var selectedEntity = sqldb.Names(entityColumns, "e.")

// values returns the row's values, in the order of stateColumns.
func (r *row) values() []any { return r.valuesOf(make([]any, 0, len(entityColumns)), stateOfRecords) }

// valuesOf appends the row's values of a list of columns.
func (r *row) valuesOf(values []any, list []stored) []any {
	for i := range list {
		values = append(values, list[i].value(r))
	}
	return values
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
type digest record.Digest

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

func derivationValue(d record.Digest, revision int64) any {
	if d == (record.Digest{}) {
		return nil
	}
	return form.DerivationOf(d, revision)
}

// of returns the derivation of a revision; zero if it isn't known.
func (d *derivation) of(revision int64) record.Digest {
	if d.revision != revision {
		return record.Digest{}
	}
	return record.Digest(d.digest)
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
	s.read(stateOfRecords)
	s.dest = append(s.dest, more...)
	return s
}

// read adds the destinations of a list of columns.
func (s *scanner) read(list []stored) {
	for _, c := range list {
		s.dest = append(s.dest, c.into(s))
	}
}

// newEntityScanner returns a scanner of entityColumns.
func newEntityScanner() *scanner {
	s := newScanner()
	s.read(entityOnly)
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
	r.Digest, r.Derivation, r.Owner = record.Digest(s.digest), s.derivation.of(r.Revision), record.Digest(s.owner)
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
	if r.Conditions, err = form.ParseConditions(conditions); err != nil {
		return fmt.Errorf("conditions of %s %q: %w", r.Kind, r.ID, err)
	}
	return nil
}

// entityValues returns the row's values, in the order of entityColumns.
func (r *row) entityValues() (values []any, err error) {
	r.conditions, err = conditionsValue(r.Conditions)
	return r.valuesOf(r.values(), entityOnly), err
}

func conditionsValue(conditions []tko.Condition) (any, error) {
	text, err := form.FormatConditions(conditions)
	return orNull(text), err
}

func micros(t time.Time) int64 { return t.UnixMicro() }
func moment(m int64) time.Time { return time.UnixMicro(m).UTC() }
func digestValue(d record.Digest) any {
	if d == (record.Digest{}) {
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
func cloneRecord(r record.Record) record.Record {
	r.Plugin = slices.Clone(r.Plugin)
	r.Conditions = slices.Clone(r.Conditions)
	r.Deployments = slices.Clone(r.Deployments)
	r.Replaces = slices.Clone(r.Replaces)
	r.Replaced = slices.Clone(r.Replaced)
	return r
}

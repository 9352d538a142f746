package archive

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/tko-orchestrator/tko"
)

// Format is the version of the format.
const Format = 1

// magic begins every archive of this format.
const magic = "tko-backup 1\n"

// A Manifest describes an archive.
type Manifest struct {
	Schema  int64     `json:"schema"`  // of the store
	Program string    `json:"program"` // version of TKO that wrote it
	Backend string    `json:"backend"` // kind and version of the database
	Created time.Time `json:"created"`

	Position  int64  `json:"position"` // of the newest change
	Epoch     int64  `json:"epoch"`
	Number    int64  `json:"number"`
	Collected int64  `json:"collected"`
	Access    int64  `json:"access"` // version of the rules of access
	Audited   int64  `json:"audited"`
	Chain     []byte `json:"chain"`           // hash of the newest audit record
	Fence     int64  `json:"fence,omitempty"` // fencing epoch for agents; absent: the store was never promoted

	Sealed bool `json:"sealed"` // packages are encrypted, with keys that are themselves encrypted
}

// A Type is the type of a column.
type Type string

// The types of columns. Values are string, int64, []byte and bool; nil is NULL.
const (
	Text  Type = "text"
	Int   Type = "int"
	Bytes Type = "bytes"
	Bool  Type = "bool"
)

// A Column is a column of a table.
type Column struct {
	Name string `json:"name"`
	Type Type   `json:"type"`
	Null bool   `json:"null,omitempty"`
}

// A Table is the header of a table.
type Table struct {
	Name    string   `json:"name"`
	Columns []Column `json:"columns"`
}

// A Summary describes a complete archive.
type Summary struct {
	Manifest Manifest         `json:"manifest"`
	Rows     map[string]int64 `json:"rows"` // by table
	Digest   string           `json:"sha256"`
}

// Total returns the number of rows.
func (s Summary) Total() (n int64) {
	for rows := range maps.Values(s.Rows) {
		n += rows
	}
	return n
}

// The kinds of frames.
const (
	frameManifest = 'M'
	frameTable    = 'T'
	frameRows     = 'R'
	frameEnd      = 'E'
)

// maxRows and maxFrame limit a frame of rows: it ends when it has as many, or when it
// is as large. One row may be larger.
const (
	maxRows  = 2000
	maxFrame = 1 << 20
)

// maxRead is the maximum size of a frame that is read: far more than a frame with the
// largest package has.
const maxRead = 1 << 28

// A Writer writes an archive. It uses little memory, whatever the size.
type Writer struct {
	out     *zstd.Encoder
	digest  hash.Hash
	summary Summary
	table   Table
	rows    []byte
	pending int
}

// NewWriter begins an archive. The caller must call Close.
func NewWriter(w io.Writer, m Manifest) (*Writer, error) {
	if _, err := io.WriteString(w, magic); err != nil {
		return nil, err
	}
	out, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil, err
	}
	a := &Writer{out: out, digest: sha256.New(), summary: Summary{Manifest: m, Rows: map[string]int64{}}}
	return a, a.document(frameManifest, m)
}

func (w *Writer) document(kind byte, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.frame(kind, text)
}

func (w *Writer) frame(kind byte, payload []byte) error {
	head := binary.AppendUvarint([]byte{kind}, uint64(len(payload)))
	for _, part := range [][]byte{head, payload} {
		_, _ = w.digest.Write(part) // never fails
		if _, err := w.out.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// Table begins a table. Each table is written once.
func (w *Writer) Table(t Table) error {
	if err := w.flush(); err != nil {
		return err
	}
	w.table = t
	w.summary.Rows[t.Name] = 0
	return w.document(frameTable, t)
}

// Row writes a row of the table, with a value for each column.
func (w *Writer) Row(values []any) error {
	for i, v := range values {
		var err error
		if w.rows, err = appendValue(w.rows, v); err != nil {
			return fmt.Errorf("%s.%s: %w", w.table.Name, w.table.Columns[i].Name, err)
		}
	}
	w.summary.Rows[w.table.Name]++
	w.pending++
	if w.pending == maxRows || len(w.rows) >= maxFrame {
		return w.flush()
	}
	return nil
}

func (w *Writer) flush() error {
	if w.pending == 0 {
		return nil
	}
	err := w.frame(frameRows, w.rows)
	w.rows, w.pending = w.rows[:0], 0
	return err
}

// Close ends the archive and describes it. Without it, the archive is incomplete, and
// readers refuse it.
func (w *Writer) Close() (Summary, error) {
	if err := w.flush(); err != nil {
		return Summary{}, err
	}
	w.summary.Digest = hex.EncodeToString(w.digest.Sum(nil))
	if err := w.document(frameEnd, w.summary); err != nil {
		return Summary{}, err
	}
	return w.summary, w.out.Close()
}

// Abort releases the memory of a writer that isn't closed.
func (w *Writer) Abort() { w.out.Reset(io.Discard); _ = w.out.Close() }

// The tags of values.
const (
	tagNull = iota
	tagFalse
	tagTrue
	tagInt
	tagText
	tagBytes
)

func appendValue(to []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(to, tagNull), nil
	case bool:
		if v {
			return append(to, tagTrue), nil
		}
		return append(to, tagFalse), nil
	case int64:
		return binary.AppendVarint(append(to, tagInt), v), nil
	case string:
		return append(binary.AppendUvarint(append(to, tagText), uint64(len(v))), v...), nil
	case []byte:
		return append(binary.AppendUvarint(append(to, tagBytes), uint64(len(v))), v...), nil
	default:
		return nil, fmt.Errorf("a value is a %T, which has no encoding", v)
	}
}

// Handlers receive the contents of an archive. Each may be nil.
type Handlers struct {
	Manifest func(Manifest) error
	Table    func(Table) error
	// Rows receives the next rows of a table. They are the handler's.
	Rows func(t Table, rows [][]any) error
}

// damaged returns an error about an archive that can't be used.
func damaged(format string, args ...any) error {
	return tko.Errorf(tko.ErrInvalid, "the archive can't be used: "+format, args...)
}

// Read reads an archive and describes it. The error is an ErrInvalid if the archive is
// truncated, was changed, or is of a newer format: handlers may have received a part of
// it by then. With no handlers, Read verifies the archive.
func Read(r io.Reader, h Handlers) (Summary, error) {
	buffered := bufio.NewReader(r)
	line, err := buffered.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return Summary{}, err
	}
	if line != magic {
		if len(line) > 11 && line[:11] == magic[:11] {
			return Summary{}, damaged("its format is %.20q, and this program knows version %d: use the TKO that wrote it, or a newer one", line[11:], Format)
		}
		return Summary{}, damaged("it is not a backup of TKO, which begins with %q", magic[:10])
	}
	in, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
	if err != nil {
		return Summary{}, err
	}
	defer in.Close()
	a := &reader{in: bufio.NewReaderSize(in, 64<<10), digest: sha256.New(), handlers: h, rows: map[string]int64{}}
	for !a.ended {
		if err := a.next(); err != nil {
			return Summary{}, err
		}
	}
	if _, err := a.in.ReadByte(); !errors.Is(err, io.EOF) {
		return Summary{}, damaged("there is more after its end")
	}
	return a.end, nil
}

type reader struct {
	in       *bufio.Reader
	digest   hash.Hash
	handlers Handlers
	manifest *Manifest
	table    *Table
	rows     map[string]int64
	end      Summary
	ended    bool
}

// cut describes an error of reading.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged("it is truncated")
	}
	return damaged("%w", err)
}

// next reads a frame.
func (r *reader) next() error {
	kind, err := r.in.ReadByte()
	if err != nil {
		return cut(err)
	}
	length, err := binary.ReadUvarint(r.in)
	if err != nil {
		return cut(err)
	}
	if length > maxRead {
		return damaged("a frame has %d bytes, more than %d", length, maxRead)
	}
	var payload bytes.Buffer
	if _, err := io.CopyN(&payload, r.in, int64(length)); err != nil {
		return cut(err)
	}
	before := hex.EncodeToString(r.digest.Sum(nil))
	_, _ = r.digest.Write(binary.AppendUvarint([]byte{kind}, length))
	_, _ = r.digest.Write(payload.Bytes())
	if (kind == frameManifest) != (r.manifest == nil) {
		return damaged("its frames are out of order")
	}
	switch kind {
	case frameManifest:
		return r.readManifest(payload.Bytes())
	case frameTable:
		return r.readTable(payload.Bytes())
	case frameRows:
		return r.readRows(payload.Bytes())
	case frameEnd:
		return r.readEnd(payload.Bytes(), before)
	}
	return damaged("it has a frame of the unknown kind %q", kind)
}

func (r *reader) readManifest(text []byte) error {
	r.manifest = new(Manifest)
	if err := json.Unmarshal(text, r.manifest); err != nil {
		return damaged("its manifest: %w", err)
	}
	if r.handlers.Manifest == nil {
		return nil
	}
	return r.handlers.Manifest(*r.manifest)
}

func (r *reader) readTable(text []byte) error {
	t := new(Table)
	if err := json.Unmarshal(text, t); err != nil {
		return damaged("the header of a table: %w", err)
	}
	if _, ok := r.rows[t.Name]; ok || len(t.Columns) == 0 {
		return damaged("the table %.40q is there twice, or has no columns", t.Name)
	}
	r.table, r.rows[t.Name] = t, 0
	if r.handlers.Table == nil {
		return nil
	}
	return r.handlers.Table(*t)
}

func (r *reader) readRows(data []byte) error {
	if r.table == nil {
		return damaged("its frames are out of order")
	}
	var rows [][]any
	for len(data) > 0 {
		row := make([]any, len(r.table.Columns))
		for i, c := range r.table.Columns {
			var err error
			if row[i], data, err = value(data, c); err != nil {
				return damaged("a row of %s: %w", r.table.Name, err)
			}
		}
		rows = append(rows, row)
	}
	r.rows[r.table.Name] += int64(len(rows))
	if r.handlers.Rows == nil {
		return nil
	}
	return r.handlers.Rows(*r.table, rows)
}

func (r *reader) readEnd(text []byte, digest string) error {
	if err := json.Unmarshal(text, &r.end); err != nil {
		return damaged("its end: %w", err)
	}
	if r.end.Digest != digest {
		return damaged("its checksum is %.64s, and its contents have %s: it was changed after it was written", r.end.Digest, digest)
	}
	if !maps.Equal(r.end.Rows, r.rows) {
		return damaged("it has other numbers of rows than it states")
	}
	r.ended = true
	return nil
}

var errValue = errors.New("a value is incomplete, or of another type than its column")

// value reads a value of a column.
func value(data []byte, c Column) (v any, rest []byte, err error) {
	if len(data) == 0 {
		return nil, nil, errValue
	}
	tag, data := data[0], data[1:]
	switch {
	case tag == tagNull && c.Null:
		return nil, data, nil
	case c.Type == Bool && (tag == tagFalse || tag == tagTrue):
		return tag == tagTrue, data, nil
	case c.Type == Int && tag == tagInt:
		n, size := binary.Varint(data)
		if size <= 0 {
			return nil, nil, errValue
		}
		return n, data[size:], nil
	case c.Type == Text && tag == tagText, c.Type == Bytes && tag == tagBytes:
		length, size := binary.Uvarint(data)
		if size <= 0 || length > uint64(len(data[size:])) {
			return nil, nil, errValue
		}
		content, rest := data[size:size+int(length)], data[size+int(length):] //nolint:gosec // checked above
		if tag == tagText {
			return string(content), rest, nil
		}
		return bytes.Clone(append([]byte{}, content...)), rest, nil
	}
	return nil, nil, errValue
}

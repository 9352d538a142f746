package plan

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"slices"

	"github.com/tko-orchestrator/tko"
)

// encodingMagic begins an encoded plan, with the version of the encoding.
const encodingMagic = "TKOplan\x01"

// Encode returns a compact encoding of a plan: digests, which many rows share, are
// written once. The rows must be sorted. Equal plans have equal encodings.
func (p *Plan) Encode() ([]byte, error) {
	groups, err := json.Marshal(p.Groups)
	if err != nil {
		return nil, err
	}
	e := encoder{digests: map[Digest]uint64{}}
	for i := range p.Rows {
		r := &p.Rows[i]
		e.text(string(r.Deployment))
		e.text(r.UID)
		e.signed(r.Revision)
		e.body = append(e.body, byte(r.Kind))
		e.signed(int64(r.Wave))
		e.signed(int64(r.Rank))
		e.digest(r.Before)
		e.digest(r.After)
		e.signed(int64(r.Group))
		e.texts(r.Findings)
		e.texts(r.Unknown)
		e.text(string(r.Edits))
		e.text(string(r.Root))
	}
	out := make([]byte, 0, len(encodingMagic)+len(e.body)+len(e.table)*len(Digest{})+len(groups)+64)
	out = append(out, encodingMagic...)
	out = append(out, p.Rollout[:]...)
	out = binary.AppendVarint(out, int64(p.Algorithm))
	out = binary.AppendUvarint(out, uint64(len(e.table)))
	for _, d := range e.table {
		out = append(out, d[:]...)
	}
	out = binary.AppendUvarint(out, uint64(len(groups)))
	out = append(out, groups...)
	out = binary.AppendUvarint(out, uint64(len(p.Rows)))
	return append(out, e.body...), nil
}

type encoder struct {
	body    []byte
	digests map[Digest]uint64
	table   []Digest
}

func (e *encoder) text(s string) {
	e.body = binary.AppendUvarint(e.body, uint64(len(s)))
	e.body = append(e.body, s...)
}

func (e *encoder) texts(list []string) {
	e.body = binary.AppendUvarint(e.body, uint64(len(list)))
	for _, s := range list {
		e.text(s)
	}
}

func (e *encoder) signed(n int64) { e.body = binary.AppendVarint(e.body, n) }

func (e *encoder) digest(d Digest) {
	i, ok := e.digests[d]
	if !ok {
		i = uint64(len(e.table))
		e.digests[d] = i
		e.table = append(e.table, d)
	}
	e.body = binary.AppendUvarint(e.body, i)
}

// Decode reads what Encode returned. Other data is an [tko.ErrInvalid].
func Decode(data []byte) (*Plan, error) {
	rest, ok := bytes.CutPrefix(data, []byte(encodingMagic))
	if !ok {
		return nil, errEncoding
	}
	d := decoder{data: rest}
	p := &Plan{Rollout: d.rawDigest(), Algorithm: int(d.signed())}
	table := make([]Digest, d.length(len(Digest{})))
	for i := range table {
		table[i] = d.rawDigest()
	}
	if groups := d.bytes(d.length(1)); !d.failed {
		if err := json.Unmarshal(groups, &p.Groups); err != nil {
			return nil, errEncoding
		}
	}
	if n := d.length(10); n > 0 {
		p.Rows = make([]Row, n)
	}
	for i := range p.Rows {
		r := &p.Rows[i]
		r.Deployment, r.UID = tko.DeploymentID(d.text()), d.text()
		r.Revision = d.signed()
		if kind := d.bytes(1); len(kind) == 1 {
			r.Kind = Kind(kind[0])
		}
		r.Wave, r.Rank = int(d.signed()), int(d.signed())
		r.Before, r.After = d.digest(table), d.digest(table)
		r.Group = int(d.signed())
		r.Findings, r.Unknown = d.texts(), d.texts()
		r.Edits = slices.Clone(d.bytes(d.length(1)))
		if len(r.Edits) == 0 {
			r.Edits = nil
		}
		r.Root = tko.DeploymentID(d.text())
		if d.failed {
			break
		}
	}
	if d.failed || len(d.data) > 0 {
		return nil, errEncoding
	}
	return p, nil
}

var errEncoding = tko.Errorf(tko.ErrInvalid, "the stored plan is damaged, or was written by another version: plan again")

// A decoder reads from data. After the first error all it returns is zero.
type decoder struct {
	data   []byte
	failed bool
}

func (d *decoder) bytes(n int) []byte {
	if d.failed || n < 0 || n > len(d.data) {
		d.failed = true
		return nil
	}
	out := d.data[:n]
	d.data = d.data[n:]
	return out
}

func (d *decoder) signed() int64 {
	n, size := binary.Varint(d.data)
	if size <= 0 || d.failed {
		d.failed = true
		return 0
	}
	d.data = d.data[size:]
	return n
}

// length reads the number of things of a least size, which must fit into the data.
func (d *decoder) length(least int) int {
	n, size := binary.Uvarint(d.data)
	if size <= 0 || d.failed || n > uint64(len(d.data)/least) { //nolint:gosec // not negative
		d.failed = true
		return 0
	}
	d.data = d.data[size:]
	return int(n) //nolint:gosec // at most the size of the data
}

func (d *decoder) text() string { return string(d.bytes(d.length(1))) }

func (d *decoder) texts() []string {
	n := d.length(1)
	if n == 0 {
		return nil
	}
	out := make([]string, n)
	for i := range out {
		out[i] = d.text()
	}
	return out
}

func (d *decoder) rawDigest() (out Digest) {
	copy(out[:], d.bytes(len(out)))
	return out
}

func (d *decoder) digest(table []Digest) Digest {
	n, size := binary.Uvarint(d.data)
	if size <= 0 || d.failed || n >= uint64(len(table)) {
		d.failed = true
		return Digest{}
	}
	d.data = d.data[size:]
	return table[n]
}

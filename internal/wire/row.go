package wire

import (
	"errors"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that Codec extends
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tko-orchestrator/tko"
)

// A Codec is gRPC's protobuf codec that also reads a message tko.ListedDeployment into a
// [*DeploymentRow], and sends a [*Message]. The encoding is the same.
type Codec struct{ encoding.CodecV2 }

// NewCodec makes a codec.
func NewCodec() Codec { return Codec{encoding.GetCodecV2("proto")} }

// Marshal writes a message.
func (c Codec) Marshal(message any) (mem.BufferSlice, error) {
	if encoded, ok := message.(*Encoded); ok {
		return encoded.slices(), nil
	}
	if written, ok := message.(*Message); ok {
		return written.slices(), nil
	}
	return c.CodecV2.Marshal(message)
}

// Unmarshal reads a message.
func (c Codec) Unmarshal(data mem.BufferSlice, message any) error {
	if bounded, ok := message.(*Bounded); ok {
		return bounded.read(data)
	}
	row, ok := message.(*DeploymentRow)
	if !ok {
		return c.CodecV2.Unmarshal(data, message)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	return row.read(buffer.ReadOnlyData())
}

// A DeploymentRow is a row of a list of deployments. Lists have very many rows,
// so they are read without intermediate messages. One goroutine reuses a
// DeploymentRow for many rows; it caches texts that rows have in common.
type DeploymentRow struct {
	// Deployment is the row that was read, without its package.
	Deployment tko.Deployment

	words         map[string]string
	packageFormat string
	packageData   []byte
}

// maxWords is the maximum number of cached texts.
const maxWords = 1000

// Entity returns the deployment that was read, with its package.
func (r *DeploymentRow) Entity() (tko.Deployment, error) {
	d := r.Deployment
	var err error
	d.Package, err = Package(r.packageFormat, r.packageData)
	return d, err
}

// The numbers of fields in tko.proto.
const (
	rowID = iota + 1
	rowParent
	rowTemplate
	rowSite
	rowMetadata
	rowCreated
	rowUpdated
	rowPrepared
	rowApproved

	rowStamp         = 100
	rowPackageFormat = 101
	rowPackage       = 102
	rowOrigin        = 103
	rowReplaces      = 200
	rowBase          = 201
	rowAwaitedBase   = 571
	siteAwaitedBase  = 625 // of a site
	rowAwaitedSite   = 572
	rowReplaced      = 620
)

const (
	stampUID = iota + 1
	stampRevision
	stampPosition
	stampCreated
	stampUpdated
	stampWho
	stampWhy
	stampConditions

	stampLeftOut = 280
	stampSteps   = 300
)

const (
	conditionType = iota + 1
	conditionStatus
	conditionReason
	conditionMessage
	conditionLastTransition
	conditionObserved

	conditionAttempt = 300
	conditionNextTry = 301
)

// appendDeployment writes the encoding of a [tkopb.ListedDeployment] for a deployment
// without its package.
func appendDeployment(b []byte, d *tko.Deployment, origin protowire.Number) []byte {
	b = appendText(b, rowID, string(d.ID))
	b = appendText(b, rowParent, string(d.Parent))
	b = appendText(b, rowTemplate, string(d.Template))
	b = appendText(b, rowSite, string(d.Site))
	b = appendMetadata(b, rowMetadata, d.Metadata)
	b = appendTime(b, rowCreated, d.Stamp.Created)
	b = appendTime(b, rowUpdated, d.Stamp.Updated)
	b = appendNumber(b, rowPrepared, protowire.EncodeBool(d.Prepared))
	b = appendNumber(b, rowApproved, protowire.EncodeBool(d.Approved))
	b = appendStamp(b, &d.Stamp)
	b = appendText(b, origin, d.Origin)
	for _, id := range d.Replaces {
		b = appendEach(b, rowReplaces, string(id))
	}
	b = appendNumber(b, rowBase, uint64(d.TemplateRevision)) //nolint:gosec // as protobuf writes what is negative
	b = appendText(b, rowAwaitedBase, string(d.AwaitedTemplate))
	b = appendText(b, rowAwaitedSite, string(d.AwaitedSite))
	for _, id := range d.Replaced {
		b = appendEach(b, rowReplaced, string(id))
	}
	return b
}

func appendStamp(b []byte, s *tko.Stamp) []byte {
	if s.UID == "" && s.Revision == 0 {
		return b
	}
	b, stamp := begin(b, rowStamp)
	b = appendText(b, stampUID, s.UID)
	b = appendNumber(b, stampRevision, uint64(s.Revision)) //nolint:gosec // as protobuf writes what is negative
	b = appendNumber(b, stampPosition, uint64(s.Position)) //nolint:gosec // the same
	b = appendTime(b, stampCreated, s.Created)
	b = appendTime(b, stampUpdated, s.Updated)
	b = appendText(b, stampWho, s.Who)
	b = appendText(b, stampWhy, s.Why)
	for i := range s.Conditions {
		c := &s.Conditions[i]
		var condition int
		b, condition = begin(b, stampConditions)
		b = appendText(b, conditionType, c.Type)
		b = appendText(b, conditionStatus, c.Status)
		b = appendText(b, conditionReason, c.Reason)
		b = appendText(b, conditionMessage, c.Message)
		b = appendTime(b, conditionLastTransition, c.LastTransition)
		b = appendNumber(b, conditionObserved, uint64(c.ObservedRevision)) //nolint:gosec // the same
		b = appendNumber(b, conditionAttempt, uint64(newCount(c.Attempt)))
		b = appendTime(b, conditionNextTry, c.NextTry)
		b = end(b, condition)
	}
	for _, what := range s.LeftOut {
		b = appendEach(b, stampLeftOut, what)
	}
	for i := range s.Steps {
		b = appendStep(b, &s.Steps[i])
	}
	return end(b, stamp)
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

func appendTime(b []byte, field protowire.Number, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	b, at := begin(b, field)
	b = appendNumber(b, 1, uint64(t.Unix()))       //nolint:gosec // as protobuf writes what is negative
	b = appendNumber(b, 2, uint64(t.Nanosecond())) //nolint:gosec // is never negative
	return end(b, at)
}

// begin begins a nested message, and returns its position.
func begin(b []byte, field protowire.Number) (with []byte, at int) {
	b = append(protowire.AppendTag(b, field, protowire.BytesType), 0)
	return b, len(b)
}

// end ends a nested message and sets its length, for which begin reserved one
// byte.
func end(b []byte, at int) []byte {
	size := len(b) - at
	more := protowire.SizeVarint(uint64(size)) - 1 //nolint:gosec // is never negative
	if more > 0 {
		b = append(b, make([]byte, more)...)
		copy(b[at+more:], b[at:at+size])
	}
	protowire.AppendVarint(b[:at-1], uint64(size)) //nolint:gosec // the same
	return b
}

var (
	errRow  = errors.New("the message is not a row of a list")
	errUTF8 = errors.New("a text is not UTF-8")
)

// A value is the value of a field: a number, or bytes that are valid until the
// row is read.
type value struct {
	number uint64
	bytes  []byte
}

// fields calls fn for each field of a message that is a number or bytes. It
// skips others, which only newer servers send.
func fields(data []byte, fn func(field int, v value) error) error {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errRow
		}
		data = data[n:]
		var v value
		switch kind {
		case protowire.VarintType:
			v.number, n = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			v.bytes, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(field, kind, data)
			if n >= 0 {
				data = data[n:]
				continue
			}
		}
		if n < 0 {
			return errRow
		}
		data = data[n:]
		if err := fn(int(field), v); err != nil {
			return err
		}
	}
	return nil
}

// reuse reads a text, and reuses the previous one if it is the same.
func reuse(text *string, v value) error {
	if *text == string(v.bytes) {
		return nil
	}
	if !utf8.Valid(v.bytes) {
		return errUTF8
	}
	*text = string(v.bytes)
	return nil
}

// word reads a text that many rows have, and caches it.
func (r *DeploymentRow) word(text *string, v value) error {
	if known, ok := r.words[string(v.bytes)]; ok {
		*text = known
		return nil
	}
	if err := reuse(text, v); err != nil {
		return err
	}
	if r.words == nil || len(r.words) >= maxWords {
		r.words = map[string]string{}
	}
	r.words[*text] = *text
	return nil
}

// read reads a row that appendDeployment wrote.
func (r *DeploymentRow) read(data []byte) error {
	before, now := &r.Deployment, tko.Deployment{}
	var created, updated time.Time
	stamped := false
	r.packageFormat, r.packageData = "", nil
	parent, template, site := string(before.Parent), string(before.Template), string(before.Site)
	id, origin := "", ""
	has := [rowSite + 1]bool{}
	err := fields(data, func(field int, v value) error {
		switch field {
		case rowID:
			return reuse(&id, v)
		case rowParent:
			has[rowParent] = true
			return reuse(&parent, v)
		case rowTemplate:
			has[rowTemplate] = true
			return reuse(&template, v)
		case rowSite:
			has[rowSite] = true
			return reuse(&site, v)
		case rowMetadata:
			return r.entry(&now, v)
		case rowCreated:
			return readTime(&created, v)
		case rowUpdated:
			return readTime(&updated, v)
		case rowPrepared:
			now.Prepared = v.number != 0
		case rowApproved:
			now.Approved = v.number != 0
		case rowStamp:
			stamped = true
			return r.stamp(&now.Stamp, v)
		case rowPackageFormat:
			return r.word(&r.packageFormat, v)
		case rowPackage:
			r.packageData = append([]byte(nil), v.bytes...)
		case rowOrigin:
			return reuse(&origin, v)
		case rowReplaces:
			var replaced string
			if err := reuse(&replaced, v); err != nil {
				return err
			}
			now.Replaces = append(now.Replaces, tko.DeploymentID(replaced))
		case rowReplaced:
			now.Replaced = append(now.Replaced, tko.DeploymentID(v.bytes))
		case rowBase:
			now.TemplateRevision = int64(v.number) //nolint:gosec // as protobuf writes what is negative
		case rowAwaitedBase:
			now.AwaitedTemplate = tko.TemplateID(v.bytes)
		case rowAwaitedSite:
			now.AwaitedSite = tko.SiteID(v.bytes)
		}
		return nil
	})
	now.ID, now.Origin = tko.DeploymentID(id), origin
	if has[rowParent] {
		now.Parent = tko.DeploymentID(parent)
	}
	if has[rowTemplate] {
		now.Template = tko.TemplateID(template)
	}
	if has[rowSite] {
		now.Site = tko.SiteID(site)
	}
	if !stamped { // a server without stamps sends only the times
		now.Stamp.Created, now.Stamp.Updated = created, updated
	}
	r.Deployment = now
	return err
}

// entry reads an entry of the metadata.
func (r *DeploymentRow) entry(d *tko.Deployment, v value) error {
	var key, text string
	err := fields(v.bytes, func(field int, v value) error {
		switch field {
		case 1:
			return r.word(&key, v)
		case 2:
			return r.word(&text, v)
		}
		return nil
	})
	if d.Metadata == nil {
		d.Metadata = map[string]string{}
	}
	d.Metadata[key] = text
	return err
}

func (r *DeploymentRow) stamp(s *tko.Stamp, v value) error {
	return fields(v.bytes, func(field int, v value) error {
		switch field {
		case stampUID:
			return reuse(&s.UID, v)
		case stampRevision:
			s.Revision = int64(v.number) //nolint:gosec // as protobuf writes what is negative
		case stampPosition:
			s.Position = int64(v.number) //nolint:gosec // the same
		case stampCreated:
			return readTime(&s.Created, v)
		case stampUpdated:
			return readTime(&s.Updated, v)
		case stampWho:
			return r.word(&s.Who, v)
		case stampWhy:
			return r.word(&s.Why, v)
		case stampConditions:
			if s.Conditions == nil {
				s.Conditions = make([]tko.Condition, 0, 2) // most have two
			}
			s.Conditions = append(s.Conditions, tko.Condition{})
			return r.condition(&s.Conditions[len(s.Conditions)-1], v)
		case stampLeftOut:
			var what string
			if err := r.word(&what, v); err != nil {
				return err
			}
			s.LeftOut = append(s.LeftOut, what)
		}
		return nil
	})
}

func (r *DeploymentRow) condition(c *tko.Condition, v value) error {
	return fields(v.bytes, func(field int, v value) error {
		switch field {
		case conditionType:
			return r.word(&c.Type, v)
		case conditionStatus:
			return r.word(&c.Status, v)
		case conditionReason:
			return r.word(&c.Reason, v)
		case conditionMessage:
			return reuse(&c.Message, v)
		case conditionLastTransition:
			return readTime(&c.LastTransition, v)
		case conditionObserved:
			c.ObservedRevision = int64(v.number) //nolint:gosec // as protobuf writes what is negative
		case conditionAttempt:
			c.Attempt = count(uint32(v.number)) //nolint:gosec // as protobuf reads what is too large
		case conditionNextTry:
			return readTime(&c.NextTry, v)
		}
		return nil
	})
}

func readTime(t *time.Time, v value) error {
	var seconds, nanos int64
	err := fields(v.bytes, func(field int, v value) error {
		switch field {
		case 1:
			seconds = int64(v.number) //nolint:gosec // as protobuf writes what is negative
		case 2:
			nanos = int64(v.number) //nolint:gosec // the same
		}
		return nil
	})
	*t = time.Unix(seconds, nanos).UTC()
	return err
}

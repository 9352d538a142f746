package wire

import (
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A Message is an entity, by itself or as a row of a list, that the [Codec]
// writes without an intermediate protobuf message. Its encoding is that of the
// messages that NewTemplate and the like return. One
// goroutine reuses a Message for many rows. A package is sent from where it is:
// it must not be changed afterwards.
type Message struct {
	data []byte // all fields, apart from the value of the last one, pkg
	pkg  []byte
	once bool // the message is sent once, and then reused for another call
}

var messages = sync.Pool{New: func() any { return new(Message) }}

// NewMessage makes a message that is sent at most once.
func NewMessage() *Message {
	m, _ := messages.Get().(*Message)
	m.once = true
	return m
}

// maxReused is the capacity, in bytes, up to which memory is reused.
const maxReused = 64 << 10

// maxCopied is the size of packages, in bytes, up to which a copy costs less
// than a buffer of its own.
const maxCopied = 4 << 10

func (m *Message) slices() mem.BufferSlice {
	slices := mem.BufferSlice{mem.Copy(m.data, mem.DefaultBufferPool())}
	if len(m.pkg) > 0 {
		slices = append(slices, mem.SliceBuffer(m.pkg))
	}
	if m.once {
		m.pkg, m.once = nil, false
		if cap(m.data) <= maxReused {
			messages.Put(m)
		}
	}
	return slices
}

// The numbers of fields in tko.proto that differ from those of a row.
const (
	templateUpdated       = 3
	templateFormat        = 4
	templatePackage       = 5
	templateDeployments   = 6
	listedTemplateMembers = 4

	siteMetadata      = 3
	siteUpdated       = 4
	siteFormat        = 5
	sitePackage       = 6
	siteDeployments   = 7
	listedSiteMembers = 5

	deploymentFormat  = 10
	deploymentPackage = 11
	deploymentOrigin  = 101

	rowCount = 103 // of deployments, of templates and sites

	rowDetails = 640 // of templates and sites
)

// Template writes a tko.Template.
func (m *Message) Template(t tko.Encoded[tko.Template], format krm.Format) *Message {
	m.template(&t.Entity)
	m.members(templateDeployments, t.Entity.Deployments)
	return m.setPackage(templateFormat, templatePackage, format, t.Package)
}

// ListedTemplate writes a tko.ListedTemplate, with its package unless the format
// is empty.
func (m *Message) ListedTemplate(t tko.Encoded[tko.Template], format krm.Format) *Message {
	m.template(&t.Entity)
	m.members(listedTemplateMembers, t.Entity.Deployments)
	m.count(t.Entity.DeploymentCount)
	return m.setPackage(rowPackageFormat, rowPackage, format, t.Package)
}

func (m *Message) template(t *tko.Template) {
	b := appendText(m.data[:0], 1, string(t.ID))
	b = appendMetadata(b, 2, t.Metadata)
	b = appendTime(b, templateUpdated, t.Stamp.Updated)
	b = appendDetails(b, &t.Details)
	m.data = appendStamp(b, &t.Stamp)
}

// Site writes a tko.Site.
func (m *Message) Site(s tko.Encoded[tko.Site], format krm.Format) *Message {
	m.site(&s.Entity)
	m.members(siteDeployments, s.Entity.Deployments)
	return m.setPackage(siteFormat, sitePackage, format, s.Package)
}

// ListedSite writes a tko.ListedSite, with its package unless the format is
// empty.
func (m *Message) ListedSite(s tko.Encoded[tko.Site], format krm.Format) *Message {
	m.site(&s.Entity)
	m.members(listedSiteMembers, s.Entity.Deployments)
	m.count(s.Entity.DeploymentCount)
	return m.setPackage(rowPackageFormat, rowPackage, format, s.Package)
}

func (m *Message) site(s *tko.Site) {
	b := appendText(m.data[:0], 1, string(s.ID))
	b = appendText(b, 2, string(s.Template))
	b = appendMetadata(b, siteMetadata, s.Metadata)
	b = appendTime(b, siteUpdated, s.Stamp.Updated)
	b = appendText(b, siteAwaitedBase, string(s.AwaitedTemplate))
	b = appendDetails(b, &s.Details)
	m.data = appendStamp(b, &s.Stamp)
}

// Deployment writes a tko.Deployment.
func (m *Message) Deployment(d tko.Encoded[tko.Deployment], format krm.Format) *Message {
	m.data = appendDeployment(m.data[:0], &d.Entity, deploymentOrigin)
	return m.setPackage(deploymentFormat, deploymentPackage, format, d.Package)
}

// ListedDeployment writes a tko.ListedDeployment, with its package unless the
// format is empty.
func (m *Message) ListedDeployment(d tko.Encoded[tko.Deployment], format krm.Format) *Message {
	m.data = appendDeployment(m.data[:0], &d.Entity, rowOrigin)
	return m.setPackage(rowPackageFormat, rowPackage, format, d.Package)
}

func (m *Message) members(field protowire.Number, ids []tko.DeploymentID) {
	for _, id := range ids {
		m.data = appendEach(m.data, field, string(id))
	}
}

func (m *Message) count(n int) {
	m.data = appendNumber(m.data, rowCount, uint64(max(n, 0)))
}

// setPackage writes the package, as the last field.
func (m *Message) setPackage(formatField, field protowire.Number, format krm.Format, pkg []byte) *Message {
	m.pkg = nil
	if format == "" {
		return m
	}
	m.data = appendText(m.data, formatField, string(format))
	if len(pkg) == 0 {
		return m
	}
	m.data = protowire.AppendTag(m.data, field, protowire.BytesType)
	m.data = protowire.AppendVarint(m.data, uint64(len(pkg)))
	if len(pkg) <= maxCopied {
		m.data = append(m.data, pkg...)
		return m
	}
	m.pkg = pkg
	return m
}

func appendMetadata(b []byte, field protowire.Number, metadata map[string]string) []byte {
	for key, value := range metadata {
		var at int
		b, at = begin(b, field)
		b = appendText(b, 1, key)
		b = appendText(b, 2, value)
		b = end(b, at)
	}
	return b
}

// appendDetails writes details, if there are any: most entities have none, and need no message.
func appendDetails(b []byte, d *tko.Details) []byte {
	if *d == (tko.Details{}) {
		return b
	}
	b, at := begin(b, rowDetails)
	b, _ = proto.MarshalOptions{}.MarshalAppend(b, entityDetails.Write(*d)) // texts that the catalog has checked
	return end(b, at)
}

// appendEach writes an item of a repeated field, which may be empty.
func appendEach(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

// The numbers of fields of PreparationStep and of a Duration.
const (
	stepResource = iota + 1
	stepPlugin
	stepIteration
	stepTook
	stepNotes
	stepNotesLeftOut
)

func appendStep(b []byte, s *tko.PreparationStep) []byte {
	b, step := begin(b, stampSteps)
	b = appendText(b, stepResource, s.Resource)
	b = appendText(b, stepPlugin, s.Plugin)
	b = appendNumber(b, stepIteration, uint64(newCount(s.Iteration)))
	if took := newDuration(s.Took); took != nil {
		var at int
		b, at = begin(b, stepTook)
		b = appendNumber(b, 1, uint64(took.GetSeconds()))      //nolint:gosec // as protobuf writes what is negative
		b = appendNumber(b, 2, uint64(int64(took.GetNanos()))) //nolint:gosec // the same
		b = end(b, at)
	}
	for _, note := range s.Notes {
		b = appendEach(b, stepNotes, note)
	}
	b = appendNumber(b, stepNotesLeftOut, uint64(newCount(s.NotesLeftOut)))
	return end(b, step)
}

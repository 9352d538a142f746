package wire

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/entitytest"
	"github.com/tko-orchestrator/tko/krm"
)

// Each field of each entity is read from its message and from its row of a list as it was
// written, or there is a reason.
func TestMessagesHaveEachFieldOfTheirEntity(t *testing.T) {
	t.Parallel()
	messages := entitytest.NewForm(t, "the message", entitytest.Exceptions{Reasons: map[string]string{
		"Template.DeploymentCount":  "it has the IDs",
		"Site.DeploymentCount":      "it has the IDs",
		"Stamp.Conditions.Attached": "only the transport that wrote it reads it",
	}, Most: 3})
	entitytest.Compare(messages, through(t, in(krm.CBOR, NewTemplate), Template))
	entitytest.Compare(messages, through(t, in(krm.CBOR, NewSite), Site))
	entitytest.Compare(messages, through(t, in(krm.CBOR, NewDeployment), Deployment))
	entitytest.Compare(messages, through(t, infallible(NewPlugin), infallible(Plugin)))
	entitytest.Compare(messages, through(t, in(krm.CBOR, NewRollout), Rollout))

	direct := entitytest.NewForm(t, "the message that is written without an intermediate one", entitytest.Exceptions{Reasons: map[string]string{
		"Template.DeploymentCount":  "it has the IDs",
		"Site.DeploymentCount":      "it has the IDs",
		"Stamp.Conditions.Attached": "only the transport that wrote it reads it",
	}, Most: 3})
	entitytest.Compare(direct, row(t, (*Message).Template, new(tkopb.Template), func(e tko.Template) (tko.Encoded[tko.Template], error) { return encoded(e, e.Package) }, Template))
	entitytest.Compare(direct, row(t, (*Message).Site, new(tkopb.Site), func(e tko.Site) (tko.Encoded[tko.Site], error) { return encoded(e, e.Package) }, Site))
	entitytest.Compare(direct, row(t, (*Message).Deployment, new(tkopb.Deployment), func(e tko.Deployment) (tko.Encoded[tko.Deployment], error) { return encoded(e, e.Package) }, Deployment))

	rows := entitytest.NewForm(t, "the row of a list", entitytest.Exceptions{Reasons: map[string]string{
		"Stamp.Steps":               "only reads of one revision return them",
		"Stamp.Conditions.Attached": "only the transport that wrote it reads it",
	}, Most: 2})
	entitytest.Compare(rows, row(t, (*Message).ListedTemplate, new(tkopb.ListedTemplate), func(e tko.Template) (tko.Encoded[tko.Template], error) { return encoded(e, e.Package) }, Template))
	entitytest.Compare(rows, row(t, (*Message).ListedSite, new(tkopb.ListedSite), func(e tko.Site) (tko.Encoded[tko.Site], error) { return encoded(e, e.Package) }, Site))
	entitytest.Compare(rows, row(t, (*Message).ListedDeployment, new(DeploymentRow), func(e tko.Deployment) (tko.Encoded[tko.Deployment], error) { return encoded(e, e.Package) }, (*DeploymentRow).Entity))
}

// through returns the function that writes an entity as a message and reads it.
func through[T any, M proto.Message](t *testing.T, write func(T) (M, error), read func(M) (T, error)) func(T) T {
	t.Helper()
	return func(e T) T {
		m, err := write(e)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(sent(t, m))
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
}

// encoded returns an entity with its package as lists send it.
func encoded[E any](e E, p krm.Package) (tko.Encoded[E], error) {
	data, err := krm.Encode(krm.CBOR, p)
	return tko.Encoded[E]{Entity: e, Package: data}, err
}

// row returns the function that writes an entity as the row of a list and reads it.
func row[T, M any](t *testing.T, write func(*Message, tko.Encoded[T], krm.Format) *Message, into M, encode func(T) (tko.Encoded[T], error), read func(M) (T, error)) func(T) T {
	t.Helper()
	return func(e T) T {
		with, err := encode(e)
		if err != nil {
			t.Fatal(err)
		}
		data, err := NewCodec().Marshal(write(new(Message), with, krm.CBOR))
		if err != nil {
			t.Fatal(err)
		}
		defer data.Free()
		if err := NewCodec().Unmarshal(data, into); err != nil {
			t.Fatal(err)
		}
		got, err := read(into)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
}

package grpcapi

import (
	"context"
	"iter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/wire"
	"github.com/tko-orchestrator/tko/krm"
)

// This file serves reads of templates, sites and deployments. Their responses are
// written without intermediate messages, and with packages that the backend has
// encoded.

// An Encoder is a backend that returns entities with encoded packages, which it
// need not decode. If a backend isn't one, packages are encoded here.
type Encoder interface { //nolint:interfacebloat // a method for each of the service
	EncodedTemplate(ctx context.Context, id tko.TemplateID, revision int64, format krm.Format) (tko.Encoded[tko.Template], error)
	EncodedSite(ctx context.Context, id tko.SiteID, revision int64, format krm.Format) (tko.Encoded[tko.Site], error)
	EncodedDeployment(ctx context.Context, id tko.DeploymentID, revision int64, format krm.Format) (tko.Encoded[tko.Deployment], error)

	EncodedTemplates(ctx context.Context, s tko.TemplateSelect, o tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Template], error]
	EncodedSites(ctx context.Context, s tko.SiteSelect, o tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Site], error]
	EncodedDeployments(ctx context.Context, s tko.DeploymentSelect, o tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Deployment], error]

	StartEncodedModification(ctx context.Context, id tko.DeploymentID, format krm.Format) (tko.Encoded[tko.Modification], error)
}

// encoderOf returns the encoder of a backend.
func encoderOf(b Backend) Encoder {
	if e, ok := b.(Encoder); ok {
		return e
	}
	return packageEncoder{b}
}

// A packageEncoder encodes the packages of a backend.
type packageEncoder struct{ backend Backend }

func (e packageEncoder) StartEncodedModification(ctx context.Context, id tko.DeploymentID, format krm.Format) (tko.Encoded[tko.Modification], error) {
	return encoded(func(m *tko.Modification) *krm.Package { return &m.Package }, format)(e.backend.StartModification(ctx, id))
}

func (e packageEncoder) EncodedTemplate(ctx context.Context, id tko.TemplateID, revision int64, format krm.Format) (tko.Encoded[tko.Template], error) {
	return encoded(func(t *tko.Template) *krm.Package { return &t.Package }, format)(e.backend.Template(ctx, id, revision))
}

func (e packageEncoder) EncodedSite(ctx context.Context, id tko.SiteID, revision int64, format krm.Format) (tko.Encoded[tko.Site], error) {
	return encoded(func(s *tko.Site) *krm.Package { return &s.Package }, format)(e.backend.Site(ctx, id, revision))
}

func (e packageEncoder) EncodedDeployment(ctx context.Context, id tko.DeploymentID, revision int64, format krm.Format) (tko.Encoded[tko.Deployment], error) {
	return encoded(func(d *tko.Deployment) *krm.Package { return &d.Package }, format)(e.backend.Deployment(ctx, id, revision))
}

func (e packageEncoder) EncodedTemplates(ctx context.Context, s tko.TemplateSelect, o tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Template], error] {
	return encodedList(e.backend.Templates(ctx, s, o), func(t *tko.Template) *krm.Package { return &t.Package }, o, format)
}

func (e packageEncoder) EncodedSites(ctx context.Context, s tko.SiteSelect, o tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Site], error] {
	return encodedList(e.backend.Sites(ctx, s, o), func(s *tko.Site) *krm.Package { return &s.Package }, o, format)
}

func (e packageEncoder) EncodedDeployments(ctx context.Context, s tko.DeploymentSelect, o tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[tko.Deployment], error] {
	return encodedList(e.backend.Deployments(ctx, s, o), func(d *tko.Deployment) *krm.Package { return &d.Package }, o, format)
}

func encodedList[E any](list iter.Seq2[E, error], of func(*E) *krm.Package, o tko.ListOptions, format krm.Format) iter.Seq2[tko.Encoded[E], error] {
	if !o.Packages {
		format = ""
	}
	return func(yield func(tko.Encoded[E], error) bool) {
		for entity, err := range list {
			with, err := encoded(of, format)(entity, err)
			if !yield(with, err) || err != nil {
				return
			}
		}
	}
}

// encoded returns a function that encodes the package of an entity that was read; an empty
// format is none.
func encoded[E any](of func(*E) *krm.Package, format krm.Format) func(E, error) (tko.Encoded[E], error) {
	return func(entity E, err error) (tko.Encoded[E], error) {
		with := tko.Encoded[E]{Entity: entity}
		if err != nil || format == "" {
			return with, err
		}
		if with.Package, err = krm.Encode(format, *of(&entity)); err != nil {
			return with, tko.Errorf(tko.ErrInvalid, "package: %w", err)
		}
		return with, nil
	}
}

// past returns the context of a read as of the moment of its request, and responds with
// the moment.
func past(ctx context.Context, m interface{ GetAsOf() string }) (context.Context, error) {
	if m.GetAsOf() == "" {
		return ctx, nil
	}
	asOf, err := tko.ParseAsOf(m.GetAsOf(), time.Now().UTC())
	if err != nil {
		return ctx, err
	}
	if err := grpc.SetHeader(ctx, metadata.Pairs(wire.AsOfKey, asOf.String())); err != nil {
		return ctx, err
	}
	return tko.WithAsOf(ctx, asOf), nil
}

// withReads returns a service whose methods that read one entity have handlers
// that return a [wire.Message].
func withReads(service grpc.ServiceDesc) grpc.ServiceDesc {
	handlers := map[string]grpc.MethodHandler{
		"getTemplate":   readHandler(tkopb.Data_GetTemplate_FullMethodName, (*data).getTemplate),
		"getSite":       readHandler(tkopb.Data_GetSite_FullMethodName, (*data).getSite),
		"getDeployment": readHandler(tkopb.Data_GetDeployment_FullMethodName, (*data).getDeployment),
	}
	methods := make([]grpc.MethodDesc, len(service.Methods))
	for i, m := range service.Methods {
		if handle, ok := handlers[m.MethodName]; ok {
			m.Handler = handle
		}
		methods[i] = m
	}
	service.Methods = methods
	return service
}

// readHandler is what protoc-gen-go-grpc generates, for another type of response.
func readHandler[Request any](method string, read func(*data, context.Context, *Request) (*wire.Message, error)) grpc.MethodHandler {
	return func(server any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		m := new(Request)
		if err := decode(m); err != nil {
			return nil, err
		}
		d, _ := server.(*data)
		return intercept(ctx, m, &grpc.UnaryServerInfo{Server: server, FullMethod: method}, func(ctx context.Context, _ any) (any, error) {
			return read(d, ctx, m)
		})
	}
}

func (d *data) getTemplate(ctx context.Context, m *tkopb.GetTemplate) (*wire.Message, error) {
	ctx, format, err := d.readOptions(ctx, m)
	if err != nil {
		return nil, err
	}
	t, err := d.encoder.EncodedTemplate(ctx, tko.TemplateID(m.GetTemplateId()), m.GetRevision(), format)
	if err != nil {
		return nil, err
	}
	wire.FitTemplate(&t.Entity).FitDeployments(rowSize(ctx))
	return wire.NewMessage().Template(t, format), nil
}

func (d *data) getSite(ctx context.Context, m *tkopb.GetSite) (*wire.Message, error) {
	ctx, format, err := d.readOptions(ctx, m)
	if err != nil {
		return nil, err
	}
	site, err := d.encoder.EncodedSite(ctx, tko.SiteID(m.GetSiteId()), m.GetRevision(), format)
	if err != nil {
		return nil, err
	}
	wire.FitSite(&site.Entity).FitDeployments(rowSize(ctx))
	return wire.NewMessage().Site(site, format), nil
}

func (d *data) getDeployment(ctx context.Context, m *tkopb.GetDeployment) (*wire.Message, error) {
	ctx, format, err := d.readOptions(ctx, m)
	if err != nil {
		return nil, err
	}
	dep, err := d.encoder.EncodedDeployment(ctx, tko.DeploymentID(m.GetDeploymentId()), m.GetRevision(), format)
	if err != nil {
		return nil, err
	}
	return wire.NewMessage().Deployment(dep, format), nil
}

func (d *data) ListTemplates(m *tkopb.ListTemplates, s grpc.ServerStreamingServer[tkopb.ListedTemplate]) error {
	ctx, options, format, err := d.listOptions(s.Context(), m)
	if err != nil {
		return err
	}
	options.Deployments, options.Counts = !m.GetWithoutDeploymentIds(), m.GetWithDeploymentCounts()
	size := rowSize(ctx)
	return send(s, d.encoder.EncodedTemplates(ctx, wire.TemplateSelect(m.GetSelect()), options, format),
		func(row *wire.Message, t *tko.Encoded[tko.Template]) *wire.Message {
			wire.FitTemplate(&t.Entity).Fit(size)
			return row.ListedTemplate(*t, format)
		})
}

func (d *data) ListSites(m *tkopb.ListSites, s grpc.ServerStreamingServer[tkopb.ListedSite]) error {
	ctx, options, format, err := d.listOptions(s.Context(), m)
	if err != nil {
		return err
	}
	options.Deployments, options.Counts = !m.GetWithoutDeploymentIds(), m.GetWithDeploymentCounts()
	size := rowSize(ctx)
	return send(s, d.encoder.EncodedSites(ctx, wire.SiteSelect(m.GetSelect()), options, format),
		func(row *wire.Message, site *tko.Encoded[tko.Site]) *wire.Message {
			wire.FitSite(&site.Entity).Fit(size)
			return row.ListedSite(*site, format)
		})
}

func (d *data) ListDeployments(m *tkopb.ListDeployments, s grpc.ServerStreamingServer[tkopb.ListedDeployment]) error {
	ctx, options, format, err := d.listOptions(s.Context(), m)
	if err != nil {
		return err
	}
	size := rowSize(ctx)
	return send(s, d.encoder.EncodedDeployments(ctx, wire.DeploymentSelect(m.GetSelect()), options, format),
		func(row *wire.Message, dep *tko.Encoded[tko.Deployment]) *wire.Message {
			wire.FitDeployment(&dep.Entity).Fit(size)
			return row.ListedDeployment(*dep, format)
		})
}

// A readRequest is a request for entities, or one of them, as of a moment.
type readRequest interface {
	GetAsOf() string
	GetPreferredPackageFormat() string
}

// A listRequest is a request for a list of entities.
type listRequest interface {
	readRequest
	GetWindow() *tkopb.Window
	GetWithPackages() bool
}

// readOptions returns the context of a read, and the format of packages in its response.
func (d *data) readOptions(ctx context.Context, m readRequest) (context.Context, krm.Format, error) {
	ctx, err := past(ctx, m)
	if err != nil {
		return ctx, "", err
	}
	format, err := wire.Format(m.GetPreferredPackageFormat(), d.format)
	return ctx, format, err
}

// listOptions is readOptions for a list. The format is empty if the list has no
// packages. An unknown format is refused in any case.
func (d *data) listOptions(ctx context.Context, m listRequest) (context.Context, tko.ListOptions, krm.Format, error) {
	ctx, format, err := d.readOptions(ctx, m)
	if !m.GetWithPackages() {
		format = ""
	}
	return ctx, tko.ListOptions{Window: wire.Window(m.GetWindow()), Packages: m.GetWithPackages()}, format, err
}

// send sends the rows of a list.
func send[E any](s grpc.ServerStream, entities iter.Seq2[tko.Encoded[E], error], write func(*wire.Message, *tko.Encoded[E]) *wire.Message) error {
	row := new(wire.Message)
	for entity, err := range entities {
		if err != nil {
			return err
		}
		if err := s.SendMsg(write(row, &entity)); err != nil {
			return err
		}
	}
	return nil
}

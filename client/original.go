package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/krm"
)

// A server of the original TKO has the methods and fields of its own interface only: it
// ignores all fields from 100. Some of them limit what a request does: a dry run would
// be none, and a filter would select everything. So a request with such a field isn't
// sent before it is known that the server is none of these.

// A lineage is what a client knows about its server.
type lineage struct {
	known atomic.Int32
}

const (
	lineageUnknown int32 = iota
	lineageOurs
	lineageOriginal
)

// note learns from the header of a response.
func (l *lineage) note(header metadata.MD) {
	if len(header.Get(trail.RequestKey)) > 0 {
		l.known.Store(lineageOurs)
	}
}

// isOriginal reports whether the server is one of the original TKO: whoAmI is unknown there.
// Unless it is known already, that costs a request.
func (c *Client) isOriginal(ctx context.Context) (bool, error) {
	if known := c.lineage.known.Load(); known != lineageUnknown {
		return known == lineageOriginal, nil
	}
	if _, ok := ctx.Deadline(); !ok && c.options.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.options.Timeout)
		defer cancel()
	}
	_, err := c.data.WhoAmI(c.outgoing(ctx), &emptypb.Empty{}, c.calls...)
	switch status.Code(err) {
	case codes.Unimplemented:
		c.lineage.known.Store(lineageOriginal)
		return true, nil
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return false, c.failed(err)
	default: // the server knows the method
	}
	c.lineage.known.Store(lineageOurs)
	return false, nil
}

// originalRequests are the requests of the original interface that have fields from 100.
var originalRequests = func() map[protoreflect.FullName]bool {
	names := map[protoreflect.FullName]bool{}
	for _, m := range []proto.Message{
		&tkopb.Template{}, &tkopb.TemplateID{}, &tkopb.GetTemplate{}, &tkopb.ListTemplates{}, &tkopb.SelectTemplates{},
		&tkopb.Site{}, &tkopb.SiteID{}, &tkopb.GetSite{}, &tkopb.ListSites{}, &tkopb.SelectSites{},
		&tkopb.DeploymentID{}, &tkopb.GetDeployment{}, &tkopb.ListDeployments{}, &tkopb.SelectDeployments{},
		&tkopb.StartDeploymentModification{}, &tkopb.Plugin{}, &tkopb.PluginID{}, &tkopb.ListPlugins{}, &tkopb.SelectPlugins{},
	} {
		names[m.ProtoReflect().Descriptor().FullName()] = true
	}
	return names
}()

// harmless are the fields from 100 that a server may ignore, with the reason.
var harmless = map[protoreflect.Name]string{
	"confirm":                "the original has no limits; purges compare the count themselves",
	"stamp":                  "ignored on writes",
	"asOf":                   "the header of the response shows whether it was respected",
	"withPackages":           "rows without packages are read one by one",
	"preferredPackageFormat": "of packages in rows",
	"withoutDeploymentIds":   "a server may send more",
	"withDeploymentCounts":   "counts are for display",
	"validity":               "documented as a wish",
}

// checkFields returns an error if a request has a field that limits it, and the server
// would ignore that field.
func (c *Client) checkFields(ctx context.Context, request any) error {
	m, ok := request.(proto.Message)
	if !ok || c.lineage.known.Load() == lineageOurs || !originalRequests[m.ProtoReflect().Descriptor().FullName()] {
		return nil
	}
	field := limiting(m.ProtoReflect())
	if field == "" {
		return nil
	}
	original, err := c.isOriginal(ctx)
	if err == nil && original {
		err = tko.Errorf(tko.ErrInvalid, "the server is one of the original TKO, which ignores %q of a request: leave it out, or upgrade the server", field)
	}
	return err
}

// limiting returns the name of the first field from 100 that is set and not harmless;
// "" if there is none.
func limiting(m protoreflect.Message) (name string) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Number() >= 100 && harmless[f.Name()] == "":
			name = string(f.Name())
		case f.Number() < 100 && f.Kind() == protoreflect.MessageKind && !f.IsList() && !f.IsMap():
			name = limiting(v.Message())
		}
		return name == ""
	})
	return name
}

// keepPackage reports whether a registration asks the server to refuse to replace a
// package by an empty one. A server of the original TKO can't: there the package that old
// returns is checked first.
func (c *Client) keepPackage(ctx context.Context, p krm.Package, old func() (krm.Package, error)) (bool, error) {
	if !tko.PackageRequired(ctx) || len(p) > 0 {
		return false, nil
	}
	if original, err := c.isOriginal(ctx); err != nil || !original {
		return err == nil, err
	}
	switch before, err := old(); {
	case errors.Is(err, tko.ErrNotFound):
	case err != nil:
		return false, err
	case len(before) > 0:
		return false, tko.Errorf(tko.ErrInvalid, "it has a package of %d resources, and this registration has none: nothing was changed; give the package (--url, --stdin), or confirm an empty one (--empty)", len(before))
	}
	return false, nil
}

// purge deletes the entities of a list by one request, or counts them. A server of the
// original TKO neither counts nor compares a confirmed count, so the list is counted here.
func purge[T any](ctx context.Context, c *Client, dryRun bool, list iter.Seq2[T, error], request func() (*tkopb.DeleteResponse, error)) (tko.Deleted, error) {
	original, err := c.isOriginal(ctx)
	if err != nil {
		return tko.Deleted{}, err
	}
	if !original {
		return deleted(request())
	}
	n, err := counted(ctx, list, "deleted")
	if err != nil || dryRun {
		return tko.Deleted{Count: n}, err
	}
	d, err := deleted(request())
	d.Count = n
	return d, err
}

// counted counts a list, and compares the count with the confirmed one.
func counted[T any](ctx context.Context, list iter.Seq2[T, error], done string) (n int, err error) {
	for _, err := range list {
		if err != nil {
			return 0, err
		}
		n++
	}
	if confirmed, ok := tko.ConfirmationOf(ctx); ok && confirmed != n {
		return 0, tko.Errorf(tko.ErrInvalid, "%d entities would be %s, and %d are confirmed: confirm %d, or select others", n, done, confirmed, n)
	}
	return n, nil
}

// approveByModification approves a deployment at a server without a method for that. It
// returns 0 if the deployment was approved already.
func (c *Client) approveByModification(ctx context.Context, id tko.DeploymentID) (approved int, err error) {
	m, err := c.StartModification(ctx, id)
	if err != nil {
		return 0, err
	}
	resource, err := m.Package.Deployment()
	var state krm.DeploymentState
	if err == nil && resource != nil {
		state, err = krm.ReadDeployment(resource)
	}
	switch {
	case err != nil:
	case state.Prepared == nil || !*state.Prepared:
		err = tko.Errorf(tko.ErrInvalid, "deployment %q isn't prepared: approve it when it is", id)
	case state.Approved == nil || !*state.Approved:
		approvedPackage := m.Package.Clone()
		approvedPackage.Find(resource.Identity()).SetAnnotation(krm.AnnotationApproved, "true")
		if _, _, err = c.EndModification(ctx, m.Token, approvedPackage); err == nil {
			return 1, nil
		}
	}
	// A token that isn't given up delays other clients. It runs out by itself.
	_ = c.CancelModification(context.WithoutCancel(ctx), m.Token)
	return 0, err
}

// approveEachByModification is approveByModification for the prepared deployments of a
// selection.
func (c *Client) approveEachByModification(ctx context.Context, s tko.DeploymentSelect, dryRun bool) (approved int, err error) {
	if s.Prepared != nil && !*s.Prepared || s.Approved != nil && *s.Approved {
		return 0, nil
	}
	yes, no := true, false
	s.Prepared, s.Approved = &yes, &no
	var ids []tko.DeploymentID
	list := func(yield func(tko.Deployment, error) bool) {
		for d, err := range c.Deployments(ctx, s, tko.ListOptions{}) {
			ids = append(ids, d.ID)
			if !yield(d, err) {
				return
			}
		}
	}
	if n, err := counted(ctx, list, "approved"); err != nil || dryRun {
		return n, err
	}
	for _, id := range ids {
		n, err := c.approveByModification(ctx, id)
		approved += n
		if err != nil {
			return approved, fmt.Errorf("%d of %d deployments were approved, then: %w", approved, len(ids), err)
		}
	}
	return approved, nil
}

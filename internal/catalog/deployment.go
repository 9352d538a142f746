package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/condition"
	"github.com/tko-orchestrator/tko/internal/content"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/hold"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/krm"
)

// A DeploymentWriter creates deployments, and commits changes of their packages.
type DeploymentWriter struct {
	rights     *rights.Authorizer // callers enter and commit through it
	store      record.Store
	reader     record.Lookup
	gate       *gate.Gate
	holds      *hold.Holds
	validation *validation
	references *references
	approvals  *approvals
	replacer   *replacer
	ids        *idSource
	options    Options

	registry *Registry
	statuses *Statuses
}

// CreateDeployment creates a deployment from its template's package, merged
// with the given one, and returns its ID. IDs that one Service makes sort in
// the order of creation. A prepared deployment is validated completely, others
// partially. An unknown template, site or parent is an ErrInvalid.
func (s *DeploymentWriter) CreateDeployment(ctx context.Context, request tko.NewDeployment) (id tko.DeploymentID, err error) {
	ctx, _, err = s.rights.Enter(rights.ActFor(ctx, request.Parent), tko.KindDeployment, access.Create)
	if err != nil {
		return "", err
	}
	if request.Parent != "" && !record.IsDeploymentID(request.Parent) {
		return "", record.Explain(&record.MissingError{Key: record.Key{Kind: tko.KindDeployment, ID: string(request.Parent)}})
	}
	err = tryOptimistic(ctx, func(reads *readSet) error {
		id, err = s.createFrom(ctx, reads, request)
		return err
	})
	return id, err
}

func (s *DeploymentWriter) createFrom(ctx context.Context, reads *readSet, request tko.NewDeployment) (tko.DeploymentID, error) {
	base, err := s.registry.base(ctx, reads, string(request.Template))
	if err != nil {
		return "", err
	}
	n, err := s.newRecord(ctx, reads, base, request)
	if err != nil {
		return "", err
	}
	if err := s.rights.PermitWrite(ctx, record.Record{}, n.record); err != nil {
		return "", err
	}
	if err := s.approvals.permitApproval(ctx, record.Record{}, &n.record); err != nil {
		return "", err
	}
	ids, err := s.ids.next(1)
	if err != nil {
		return "", err
	}
	if request.Parent != "" {
		n.requires = append(n.requires, record.DeploymentKey(request.Parent))
		if err := s.checkNesting(ctx, request.Parent, n.record, request.Merge); err != nil {
			return "", err
		}
	}
	outcomes, err := s.rights.Commit(ctx, reads.write(n.write(ctx, ids[0])))
	if err != nil {
		return "", err
	}
	return tko.DeploymentID(outcomes[0].Key.ID), nil
}

// checkNesting returns an ErrInvalid if a new child would be nested too deeply, or would
// create itself.
func (s *DeploymentWriter) checkNesting(ctx context.Context, parent tko.DeploymentID, child record.Record, merged krm.Package) error {
	l, err := s.gate.LineageOf(ctx, string(parent))
	if err != nil {
		return err
	}
	return s.gate.CheckCycle(ctx, l, child, merged)
}

// A newRecord is a derived and validated deployment without an ID.
type newRecord struct {
	record   record.Record
	requires []record.Key
}

// newRecord derives and validates a new deployment.
func (s *DeploymentWriter) newRecord(ctx context.Context, reads *readSet, base base, request tko.NewDeployment) (newRecord, error) {
	d, err := content.NewDraft(base.pkg, request)
	if err != nil {
		return newRecord{}, err
	}
	inherited, revision := base.metadata, base.revision
	if d.Template != string(request.Template) {
		other, err := s.registry.base(ctx, reads, d.Template)
		if err != nil {
			return newRecord{}, err
		}
		inherited, revision = other.metadata, other.revision
	}
	if d.Site != "" && tko.CheckID("site ID", d.Site) != nil {
		return newRecord{}, record.Explain(&record.MissingError{Key: record.Key{Kind: tko.KindSite, ID: d.Site}})
	}
	metadata, err := content.MetadataOf(d.Package, inherited, request.Metadata)
	if err != nil {
		return newRecord{}, err
	}
	c, err := s.validDraft(ctx, reads, d, request.Parent)
	if err != nil {
		return newRecord{}, err
	}
	n := newRecord{
		record: record.Record{
			Key:      record.Key{Kind: tko.KindDeployment},
			Parent:   string(request.Parent),
			Template: d.Template,
			Base:     revision,
			Site:     d.Site,
			Prepared: d.Prepared,
			Approved: d.Approved,
			Metadata: metadata,
			Digest:   c.Digest,
			Package:  c.Encoded,
		},
		requires: record.References(d.Template, d.Site),
	}
	if d.Template != "" && d.Template == string(request.Template) {
		setDerivation(&n.record, derivation.Record{Template: request.Template, Revision: revision, Merge: request.Merge})
	}
	n.record.Conditions = condition.Merge(nil, append(condition.OfFlags(nil, d.Prepared, d.Approved), c.Conditions(nil)...), 1, time.Now())
	return n, nil
}

// write returns the write that creates the deployment.
func (n newRecord) write(ctx context.Context, id string) record.Write {
	r := n.record
	r.ID, r.UID, r.Author = id, record.NewUID(), rights.Author(ctx)
	return record.Write{Op: tko.OpWritten, Record: r, Expect: record.Absent, Requires: n.requires}
}

// validDraft validates and encodes a draft.
func (s *DeploymentWriter) validDraft(ctx context.Context, reads *readSet, d content.Draft, parent tko.DeploymentID) (content.Content, error) {
	c, err := content.Of(d.Package.WithoutDeploymentState())
	if err != nil {
		return content.Content{}, err
	}
	c.Package = d.Package
	return c, s.validateDraft(ctx, reads, d, c, s.validation.acceptedOf(record.DeploymentKey(parent), false, d.Template))
}

// MaxChildren is the maximum number of children that one call of CreateChildren
// may create.
const MaxChildren = 10_000

// CreateChildren creates children of a deployment, all or none (except for those that a stop
// holds: see [tko.Stop]), each exactly once: if the parent has a child of the same origin, the ID of that child is
// returned, and the child doesn't change. A new child replaces other
// deployments in the transaction that makes it prepared and approved. The IDs
// are in the order of the children; those of new children ascend. If a revision
// is given, a parent that doesn't exist or has another revision is an
// ErrConflict. Unknown templates and sites, and an unknown parent if no
// revision is given, are an ErrInvalid.
func (s *DeploymentWriter) CreateChildren(ctx context.Context, request tko.NewChildren) (ids []tko.DeploymentID, created int, err error) {
	ctx, _, err = s.rights.Enter(rights.ActFor(ctx, request.Parent), tko.KindDeployment, access.Create)
	if err != nil {
		return nil, 0, err
	}
	if err := checkChildren(request); err != nil {
		return nil, 0, err
	}
	if len(request.Children) == 0 {
		if request.Create == 0 && request.Remove == 0 && request.Sites == 0 {
			return nil, 0, nil
		}
		return nil, 0, s.gate.CheckReach(ctx, request)
	}
	above, err := s.gate.LineageOf(ctx, string(request.Parent))
	if err != nil {
		return nil, 0, err
	}
	ctx = gate.WithRoot(ctx, above.Root)
	derived := map[tko.TemplateID]newRecord{}
	fresh, err := s.ids.next(len(request.Children))
	if err != nil {
		return nil, 0, err
	}
	writes := make([]record.Write, len(request.Children))
	for i, child := range request.Children {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		n, ok := derived[child.Template]
		if !ok {
			if n, err = s.firstChild(ctx, request, child.Template); err != nil {
				return nil, 0, fmt.Errorf("child %q: %w", child.Origin, err)
			}
			derived[child.Template] = n
		}
		n.record.Origin = record.OriginOf(string(request.Parent), child.Origin)
		if child.Site != "" {
			n.record.Site = string(child.Site)
			n.requires = record.References(n.record.Template, n.record.Site)
			if tko.CheckID("site ID", n.record.Site) != nil {
				return nil, 0, record.Explain(&record.MissingError{Key: record.Key{Kind: tko.KindSite, ID: n.record.Site}})
			}
		}
		if err := s.gate.CheckCycle(ctx, above, n.record, request.Merge); err != nil {
			return nil, 0, fmt.Errorf("child %q: %w", child.Origin, err)
		}
		if n.record.Replaces, err = replacesOf(child); err != nil {
			return nil, 0, err
		}
		if n := &n.record; len(n.Replaces) > 0 && (n.Prepared || n.Approved) {
			// If a child of this origin exists, this write is skipped, and nothing
			// may be replaced.
			n.Prepared, n.Approved = false, false
			n.Conditions = condition.Merge(n.Conditions, condition.OfFlags(n.Conditions, false, false), 1, time.Now())
		}
		if err := s.rights.PermitWrite(ctx, record.Record{}, n.record); err != nil {
			return nil, 0, fmt.Errorf("child %q: %w", child.Origin, err)
		}
		if err := s.approvals.permitApproval(ctx, record.Record{}, &n.record); err != nil {
			return nil, 0, fmt.Errorf("child %q: %w", child.Origin, err)
		}
		writes[i] = n.write(ctx, fresh[i])
		writes[i].ParentRevision = request.Revision
		if request.Revision == 0 {
			writes[i].Requires = append(slices.Clone(writes[i].Requires), record.DeploymentKey(request.Parent))
		}
	}
	outcomes, err := s.rights.Commit(ctx, writes...)
	if errors.Is(err, tko.ErrStopped) {
		return nil, 0, s.createFree(ctx, writes, err)
	}
	if err != nil {
		return nil, 0, err
	}
	ids = make([]tko.DeploymentID, len(outcomes))
	for i, o := range outcomes {
		ids[i] = tko.DeploymentID(o.Key.ID)
		if !o.Existed {
			created++
		}
	}
	return ids, created, nil
}

// createFree creates those children that no stop holds, and returns an error for the others.
func (s *DeploymentWriter) createFree(ctx context.Context, writes []record.Write, stopped error) error {
	free, err := s.holds.FreeOf(ctx, writes)
	if err != nil || len(free) == 0 || len(free) == len(writes) {
		return cmp.Or(err, stopped)
	}
	if _, err := s.rights.Commit(ctx, free...); err != nil {
		return err
	}
	return tko.Errorf(tko.ErrStopped, "%d of %d children wait: %w", len(writes)-len(free), len(writes), stopped)
}

// firstChild derives and validates the part that all children of one template
// share: everything except the site.
func (s *DeploymentWriter) firstChild(ctx context.Context, request tko.NewChildren, template tko.TemplateID) (newRecord, error) {
	base, err := s.registry.base(ctx, nil, string(template))
	if err != nil {
		return newRecord{}, err
	}
	return s.newRecord(ctx, nil, base, tko.NewDeployment{Parent: request.Parent, Template: template, Merge: request.Merge})
}

func checkChildren(request tko.NewChildren) error {
	parent := string(request.Parent)
	switch {
	case !record.IsDeploymentID(parent):
		return record.Explain(&record.MissingError{Key: record.Key{Kind: tko.KindDeployment, ID: parent}})
	case request.Create < 0 || request.Remove < 0 || request.Sites < 0:
		return tko.Errorf(tko.ErrInvalid, "the numbers of children to create and to remove, and of sites, %d, %d and %d, are negative", request.Create, request.Remove, request.Sites)
	case request.Revision < 0:
		return tko.Errorf(tko.ErrInvalid, "the revision %d of the parent %q is negative: use 0 for any", request.Revision, parent)
	case len(request.Children) > MaxChildren:
		return tko.Errorf(tko.ErrInvalid, "there are %d children: create at most %d at a time", len(request.Children), MaxChildren)
	}
	seen := make(map[string]bool, len(request.Children))
	for _, child := range request.Children {
		if err := checkOrigin(child.Origin); err != nil {
			return err
		}
		if seen[child.Origin] {
			return tko.Errorf(tko.ErrInvalid, "two children have the origin %q: give each its own", child.Origin)
		}
		seen[child.Origin] = true
	}
	return nil
}

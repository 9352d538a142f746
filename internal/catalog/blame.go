package catalog

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/blame"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/service"
	"github.com/tko-orchestrator/tko/krm"
)

// Blame returns where the values of an entity's package come from.
func (s *Explainer) Blame(ctx context.Context, request tko.BlameRequest) (tko.Blame, error) {
	if request.Kind != tko.KindTemplate && request.Kind != tko.KindSite && request.Kind != tko.KindDeployment {
		return tko.Blame{}, tko.Errorf(tko.ErrInvalid, "the kind is %q: name template, site or deployment", request.Kind)
	}
	if request.History && request.Field == "" {
		return tko.Blame{}, tko.Errorf(tko.ErrInvalid, "the history is of one field: name the field")
	}
	h, newest, err := s.historyOf(ctx, record.Key{Kind: request.Kind, ID: request.ID}, request.Revision)
	if err != nil {
		return tko.Blame{}, err
	}
	rules, err := s.validation.rulesFor(ctx, new(readSet))
	if err != nil {
		return tko.Blame{}, err
	}
	return blame.Report(ctx, h, newest, rules.types(), request)
}

func isNone(err error) bool { return errors.Is(err, tko.ErrNotFound) }

// An entityHistory reads the revisions of one entity, as its caller may see them.
type entityHistory struct {
	service   *Explainer
	caller    *rights.Caller
	key       record.Key
	templates map[string]record.Record // the newest revision that was compared, by ID
}

// historyOf returns the history of an entity, and the revision to begin with; 0 is the
// current one.
func (s *Explainer) historyOf(ctx context.Context, key record.Key, revision int64) (*entityHistory, blame.Revision, error) {
	r, c, err := s.rights.At(ctx, key, revision)
	if err != nil {
		return nil, blame.Revision{}, err
	}
	h := &entityHistory{service: s, caller: c, key: key, templates: map[string]record.Record{}}
	if revision == 0 { // only reads of revisions have steps
		again, err := h.Revision(ctx, r.Revision)
		if err == nil || !isNone(err) {
			return h, again, err
		}
	}
	newest, err := h.revisionOf(ctx, r)
	return h, newest, err
}

// Revision returns a revision.
func (h *entityHistory) Revision(ctx context.Context, number int64) (blame.Revision, error) {
	r, err := h.service.rights.AtOf(ctx, h.caller, h.key, number)
	if err != nil {
		return blame.Revision{}, err
	}
	return h.revisionOf(ctx, r)
}

// Template returns the package of a template, whether or not the caller may read it: it
// is only compared.
func (h *entityHistory) Template(ctx context.Context, id tko.TemplateID, revision int64) (krm.Package, error) {
	r, err := h.service.store.Revision(ctx, record.Key{Kind: tko.KindTemplate, ID: string(id)}, revision)
	if err != nil {
		return nil, err
	}
	return record.PackageOf(r)
}

// Upstream returns the history of a template; nil if the caller may not read it.
func (h *entityHistory) Upstream(ctx context.Context, id tko.TemplateID, revision int64) (blame.History, blame.Revision, error) {
	up, newest, err := h.service.historyOf(ctx, record.Key{Kind: tko.KindTemplate, ID: string(id)}, revision)
	switch {
	case isNone(err), errors.Is(err, tko.ErrDenied):
		return nil, blame.Revision{}, nil
	case err != nil:
		return nil, blame.Revision{}, err
	}
	return up, newest, nil
}

func (h *entityHistory) revisionOf(ctx context.Context, r record.Record) (blame.Revision, error) {
	out := blame.Revision{Number: r.Revision, UID: r.UID, Time: r.Updated.UTC(), Author: r.Author, Steps: r.Steps, Content: r.Digest}
	var err error
	if h.key.Kind != tko.KindDeployment {
		if out.Package, err = record.PackageOf(r); err == nil && h.key.Kind == tko.KindSite && r.Template != "" {
			err = h.siteBase(ctx, r, &out)
		}
		return out, err
	}
	if out.Package, err = record.DeploymentPackage(r); err != nil {
		return out, err
	}
	out.Content = service.PlanDigestOf(r)
	if r.Derivation != (record.Digest{}) {
		encoded, err := h.service.store.Derivation(ctx, r.Derivation)
		if err != nil && !isNone(err) {
			return out, err
		}
		if made, decodeErr := derivation.Decode(encoded); err == nil && decodeErr == nil {
			out.Made, out.MadeKey = &made, r.Derivation
		}
	}
	out.Rollout, out.Restores, err = h.rolloutOf(ctx, r)
	return out, err
}

// siteBase sets what a revision of a site was made from: its template as it was then.
func (h *entityHistory) siteBase(ctx context.Context, r record.Record, out *blame.Revision) error {
	t, ok := h.templates[r.Template]
	if !ok {
		var err error
		if t, err = h.service.reader.One(ctx, record.Fields{}, record.Key{Kind: tko.KindTemplate, ID: r.Template}); err != nil {
			return err
		}
	}
	for n := 0; t.Revision > 1 && t.Position > r.Position && n < blame.MaxRevisions; n++ {
		before, err := h.service.store.Revision(ctx, t.Key, t.Revision-1)
		if isNone(err) {
			t = record.Record{}
			break
		}
		if err != nil {
			return err
		}
		t = before
	}
	h.templates[r.Template] = t
	if t.Revision != 0 && t.Position < r.Position {
		out.Made, out.Anew = &derivation.Record{Template: tko.TemplateID(t.ID), Revision: t.Revision, Whole: record.Digest{1}}, true
	}
	return nil
}

// rolloutOf returns the rollout that wrote a revision, and the revision that it
// restored. The reason of the revision names the rollout, and the rollout's row confirms
// it: anyone can write such a reason.
func (h *entityHistory) rolloutOf(ctx context.Context, r record.Record) (id tko.RolloutID, restores int64, err error) {
	rest, ok := strings.CutPrefix(r.Author.Why, service.Reason)
	if !ok {
		return "", 0, nil
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return "", 0, nil //nolint:nilerr // a reason of another form
	}
	name, err := strconv.Unquote(quoted)
	if err != nil {
		return "", 0, nil //nolint:nilerr // as above
	}
	states, _, _, err := h.service.store.RolloutStates(ctx, name)
	if err != nil || len(states) == 0 {
		return "", 0, err
	}
	after := r.ID[:len(r.ID)-1] // the IDs that begin with it are few
	for number := states[0].Plan; number > 0 && number > states[0].Plan-maxOldPlans; number-- {
		rows, err := h.service.store.RolloutRows(ctx, name, number, after, idAlphabet+1)
		if err != nil {
			return "", 0, err
		}
		for _, row := range rows {
			if string(row.Deployment) == r.ID && row.Applied == r.Revision {
				return tko.RolloutID(name), row.Target, nil
			}
		}
	}
	return "", 0, nil
}

const (
	idAlphabet  = 62 // characters of which IDs of deployments are made
	maxOldPlans = 5
)

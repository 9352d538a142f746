package gitops

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/forge"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/sops"
	"github.com/tko-orchestrator/tko/internal/osm/osmops"
)

// savedPlan is the plan of a pull request, as it was reported.
type savedPlan struct {
	Head     string    `json:"head"`
	Basis    string    `json:"basis"`    // what the plan was compared with
	Position int64     `json:"position"` // of TKO's log, when it was planned
	Planned  time.Time `json:"planned"`
	Comment  int64     `json:"comment,omitempty"` // its ID; 0 if there is none, or it isn't known
	Text     string    `json:"text,omitempty"`    // digest of the comment
	State    string    `json:"state,omitempty"`   // the reported status, with its description
}

// reportPlans reports the plans of open pull requests.
func (l *reconciliation) reportPlans(ctx context.Context, session *forge.Session) error {
	plans, forks := l.spec.Forge.Plans()
	branch := branchOf(l.status.Attempted)
	if !plans || branch == "" || !l.enqueued && time.Since(l.source.polled) < l.spec.Interval*9/10 {
		return nil
	}
	open, complete, err := session.PullRequests(ctx, branch)
	if err != nil {
		return err
	}
	about, err := l.controller.client.About(ctx)
	if err != nil {
		return err
	}
	l.source.polled = time.Now()
	r := l.state.Reports
	wanted := map[string]bool{}
	planned := 0
	var failed error
	for _, pull := range open[:min(len(open), maxPlansStored)] {
		key := strconv.FormatInt(pull.Number, 10)
		wanted[key] = true
		if pull.Fork && !forks || planned >= maxPlansOnce {
			continue
		}
		if !l.outdated(r.Plans[key], pull, about.Position) {
			continue
		}
		planned++
		err = l.reportPlan(ctx, session, pull, about.Position)
		if limited := (*forge.LimitedError)(nil); errors.As(err, &limited) || errors.Is(err, errClaim) || ctx.Err() != nil {
			return errors.Join(failed, err)
		}
		failed = errors.Join(failed, err)
	}
	if complete {
		maps.DeleteFunc(r.Plans, func(key string, _ savedPlan) bool { return !wanted[key] })
	}
	return failed
}

// basis is what plans are compared with, apart from TKO itself.
func (l *reconciliation) basis() string { return l.status.Applied + " " + l.spec.Generation }

// outdated reports whether a pull request has to be planned again.
func (l *reconciliation) outdated(p savedPlan, pull forge.PullRequest, position int64) bool {
	return p.Head != pull.Head || p.Basis != l.basis() || p.Position != position && time.Since(p.Planned) >= l.spec.Resync
}

// reportPlan plans a pull request, and reports the plan as a status and a comment. Each step
// that was taken is saved.
func (l *reconciliation) reportPlan(ctx context.Context, session *forge.Session, pull forge.PullRequest, position int64) error {
	result, err := l.planPull(ctx, pull)
	if err != nil {
		return err
	}
	r, f := l.state.Reports, l.spec.Forge
	if r.Plans == nil {
		r.Plans = map[string]savedPlan{}
	}
	key := strconv.FormatInt(pull.Number, 10)
	saved := r.Plans[key]
	status := forge.Status{Context: f.Context(l.spec.Name) + planContext, State: result.state(), Description: result.line(), Target: f.Target()}
	if now := pull.Head + " " + status.State + " " + status.Description; saved.State != now {
		if err := session.SetStatus(ctx, pull.Head, status); err != nil && !errors.Is(err, tko.ErrInvalid) {
			return err
		}
		saved.State = now
	}
	text := result.markdown(l.spec.Name, pull.Head)
	if digest := digestOf(text); saved.Text != digest {
		saved.Comment, err = session.Comment(ctx, pull.Number, saved.Comment, session.Marker(l.spec.Name, pull.Number), text, result.worthAComment())
		if err != nil {
			r.Plans[key] = saved
			return err
		}
		saved.Text = digest
	}
	saved.Head, saved.Basis, saved.Position, saved.Planned = pull.Head, l.basis(), position, time.Now().UTC().Truncate(time.Second)
	r.Plans[key] = saved
	return l.save(ctx)
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// planPull plans the files of a pull request. What its author wrote is only read: an OSM is
// asked only if the connection is the source's own. The error is one that may pass.
func (l *reconciliation) planPull(ctx context.Context, pull forge.PullRequest) (pullPlan, error) {
	files, err := l.spec.Heads.FetchHead(ctx, pull.Head, l.spec.Forge.HeadRef(pull.Number))
	if errors.Is(err, tko.ErrInvalid) {
		return pullPlan{invalid: err}, nil
	}
	if err != nil {
		return pullPlan{}, err
	}
	defer func() { _ = files.Close() }()
	plain := pull.Fork
	p, err := l.preview(ctx, files, pull)
	if opener, ok := l.spec.From.(Opener); ok && errors.Is(err, sops.ErrNoKey) && !pull.Fork {
		plain = true // what was encrypted must not be shown
		var decrypted fs.FS
		if decrypted, err = opener.Open(ctx, files, pull.Head); err == nil {
			p, err = l.preview(ctx, decrypted, pull)
		}
	}
	switch {
	case err == nil:
		return pullPlan{preview: p, plain: plain}, nil
	case errors.Is(err, tko.ErrInvalid), errors.Is(err, sops.ErrNoKey):
		return pullPlan{invalid: err, plain: plain}, nil
	}
	return pullPlan{}, err
}

// preview plans files as the next revision of the source.
func (l *reconciliation) preview(ctx context.Context, files fs.FS, pull forge.PullRequest) (*Preview, error) {
	policy := l.osmPolicy()
	return PreviewFiles(ctx, previewer{l.controller.client}, files, PreviewOptions{
		Name: l.spec.Name, Path: l.spec.Path, Prune: l.spec.Prune, Adopt: l.spec.Adopt, Budget: &l.spec.Budget, editable: l.spec.Editable,
		rollout: l.spec.Rollout != nil, refuse: func(m []manifest.Manifest, f fs.FS) error { return l.spec.forbidden(m, f) }, osmPolicy: &policy,
		connect: func(r *osmops.Repository) func(context.Context) (osmops.Connection, error) {
			return l.ownConnection(r, pull)
		},
	})
}

// ownConnection returns the connection of the source itself; nil if a pull request may choose
// it.
func (l *reconciliation) ownConnection(r *osmops.Repository, pull forge.PullRequest) func(context.Context) (osmops.Connection, error) {
	switch {
	case pull.Fork || l.state.OSM == nil:
		return nil
	case l.spec.OSM.Connection != nil:
		return l.spec.OSM.Connection
	case !filepath.IsAbs(l.state.OSM.Connection), r != nil && r.ConnectionFile != l.state.OSM.Connection:
		return nil
	}
	return l.secretConnection(l.state.OSM.Connection)
}

// previewer is the client of previews.
type previewer struct{ Client }

// Source implements [PreviewClient].
func (p previewer) Source(ctx context.Context, name string) (tko.Source, error) {
	return p.SourceUnless(ctx, name, 0)
}

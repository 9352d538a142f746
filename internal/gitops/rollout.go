package gitops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	rolloutspec "github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// A source with [Spec.Rollout] changes deployments by rollouts: one for each revision that
// changes deployments, which a user starts. So does any source, by the operator's policy, whose
// revision changes what runs at more sites than are free. The name of the rollout is saved before it is
// made, so a controller that is killed in between makes the same one.

// Rollouts are the rollouts that sources make.
type Rollouts interface {
	// Rollout returns a rollout with its package, as of a revision; 0 is the current one.
	Rollout(ctx context.Context, id tko.RolloutID, revision int64) (tko.Rollout, error)
	RolloutStatus(ctx context.Context, id tko.RolloutID) (tko.RolloutStatus, error)
	RolloutDo(ctx context.Context, cmd tko.RolloutCommand) (tko.RolloutStatus, error)
	RolloutRows(ctx context.Context, s tko.RolloutRows) iter.Seq2[tko.RolloutRow, error]
}

// savedRollout is the newest rollout of a source.
type savedRollout struct {
	ID       tko.RolloutID `json:"id"`
	Revision string        `json:"revision"`
	Settled  string        `json:"settled,omitempty"` // final state of which the inventory has the result
	// Policy reports that the operator's policy made it, because the revision changes what
	// runs at more sites than are free. Then no other way makes the changes of the revision.
	Policy bool `json:"policy,omitempty"`
}

// policyRollout returns the settings of the rollouts that the operator's policy makes.
func (l *reconciliation) policyRollout() (map[string]any, error) {
	var settings map[string]any
	if err := json.Unmarshal([]byte(l.reach.Policy), &settings); err != nil || settings == nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the server states no policy of rollouts: set --reach-policy there")
	}
	return rolloutspec.Settings(settings)
}

// governed has the operator's policy make the changes of a revision by a rollout, if it has
// begun to.
func (l *reconciliation) governed(revision string) (err error) {
	saved := l.state.Rollout
	if saved != nil && saved.Policy && saved.Revision == revision && l.spec.Rollout == nil && !l.spec.Forget {
		l.byPolicy = true
		l.spec.Rollout, err = l.policyRollout()
	}
	return err
}

// govern has the operator's policy make the changes of a plan by a rollout, if they are at
// more sites than are free. It reports whether the plan is to be made again.
func (l *reconciliation) govern(p *plan.Plan) (again bool, err error) {
	if l.spec.Rollout != nil || !p.NeedsRollout() {
		return false, nil
	}
	l.byPolicy = true
	l.spec.Rollout, err = l.policyRollout()
	return true, err
}

// reachText says why the operator's policy makes a rollout of a plan.
func reachText(p *plan.Plan, id string) string {
	return fmt.Sprintf("becomes rollout %s over %d sites: it changes what runs there, and %d more sites are free now (--reach-sites)", id, p.Sites(), p.FreeSites())
}

// The states of rollouts that are decided on here.
const (
	rolloutDraft     = "Draft"
	rolloutPlanning  = "Planning"
	rolloutPlanned   = "Planned"
	rolloutPaused    = "Paused"
	rolloutRunning   = "Running"
	rolloutUndoing   = "Undoing"
	rolloutDone      = "Done"
	rolloutUndone    = "Undone"
	rolloutCancelled = "Cancelled"
)

// The annotations of the rollouts of sources.
const (
	annotationSource   = "gitops.tko.nephio.org/source"
	annotationRevision = "gitops.tko.nephio.org/revision"
)

// rolloutInterval is the time between two checks of a rollout that goes on by itself.
const rolloutInterval = 5 * time.Second

// maxRollouts limits the rollouts of one revision.
const maxRollouts = 1000

// byAuthor returns the context of writes for a revision.
func (l *reconciliation) byAuthor(ctx context.Context, why string) context.Context {
	return tko.WithAuthor(ctx, tko.Author{Who: plan.AuthorOf(l.spec.Name), Why: why})
}

// held reports whether the source waits for its newest rollout, and changes nothing
// meanwhile. Otherwise the inventory has the result of that rollout, if it has one.
func (l *reconciliation) held(ctx context.Context, revision string, manifests []manifest.Manifest) (held bool, again time.Duration, err error) {
	saved := l.state.Rollout
	if saved == nil {
		return false, 0, nil
	}
	s, err := l.controller.client.RolloutStatus(ctx, saved.ID)
	if errors.Is(err, tko.ErrNotFound) { // a user deleted it, or it wasn't made yet
		l.state.Rollout = nil
		return false, 0, nil
	}
	if err != nil {
		return false, 0, err
	}
	if err := l.governed(revision); err != nil {
		return false, 0, err
	}
	same := saved.Revision == revision && l.spec.Rollout != nil
	switch s.State {
	case rolloutDraft, rolloutPlanning, rolloutPlanned:
		if same && !l.enqueued && time.Since(l.source.checked) < l.spec.Resync {
			return l.wait(ctx, s, revision)
		}
		if same {
			return false, 0, nil // what it is made from may have changed
		}
		why := fmt.Sprintf("revision %s takes its place", revision)
		_, err = l.controller.client.RolloutDo(l.byAuthor(ctx, why), tko.RolloutCommand{ID: saved.ID, Verb: "cancel", Unstarted: true})
		if errors.Is(err, tko.ErrConflict) {
			return true, time.Second, nil // it was started meanwhile
		}
		if err == nil {
			l.state.Rollout = nil
		}
		return false, 0, err
	case rolloutRunning, rolloutPaused:
		return l.heldByRunning(ctx, s, revision, manifests)
	case rolloutUndoing:
		return l.wait(ctx, s, revision)
	}
	if saved.Settled != s.State {
		if err := l.settle(ctx, s); err != nil {
			return false, 0, err
		}
		l.state.Rollout.Settled = s.State
		if err := l.save(ctx); err != nil {
			return false, 0, err
		}
	}
	if same && s.State != rolloutDone {
		return l.wait(ctx, s, revision)
	}
	return false, 0, nil
}

// heldByRunning waits for a rollout that is started, and undoes it if the revision is the
// one before it again.
func (l *reconciliation) heldByRunning(ctx context.Context, s tko.RolloutStatus, revision string, manifests []manifest.Manifest) (held bool, again time.Duration, err error) {
	if l.state.Rollout.Revision == revision {
		return l.wait(ctx, s, revision)
	}
	entries, err := l.entries(ctx, s.ID)
	if err != nil {
		return false, 0, err
	}
	if !l.undoes(entries, manifests) || l.overBudget(entries) {
		return l.wait(ctx, s, revision)
	}
	if s, err = l.undo(ctx, s.ID, revision); err != nil {
		return false, 0, err
	}
	return l.wait(ctx, s, revision)
}

// undo undoes a rollout, because a revision reverts its one.
func (l *reconciliation) undo(ctx context.Context, id tko.RolloutID, revision string) (tko.RolloutStatus, error) {
	l.log.InfoContext(ctx, "undoing", "rollout", id, "revision", revision)
	return l.controller.client.RolloutDo(l.byAuthor(ctx, "revision "+revision+" reverts it"), tko.RolloutCommand{ID: id, Verb: "undo"})
}

// undoes reports whether an undo of a rollout with these manifests gives what the source
// has now, and deletes nothing that the source would not.
func (l *reconciliation) undoes(entries []rolloutspec.Manifest, manifests []manifest.Manifest) bool {
	created := slices.ContainsFunc(entries, func(e rolloutspec.Manifest) bool { return e.Before == "" })
	byRollout := l.spec.Rollout != nil || l.state.Rollout != nil && l.state.Rollout.Policy && !l.spec.Forget
	return byRollout && (l.spec.Prune || !created) && reverts(entries, manifests, l.status.Items)
}

// overBudget reports whether an undo removes more of what a rollout creates than the
// source may remove without an approval.
func (l *reconciliation) overBudget(entries []rolloutspec.Manifest) bool {
	created := 0
	for _, e := range entries {
		if e.Before == "" {
			created++
		}
	}
	return l.spec.Budget.Over(created, created+len(l.status.Items))
}

// wait reports the state of a rollout that the source waits for.
func (l *reconciliation) wait(ctx context.Context, s tko.RolloutStatus, revision string) (held bool, again time.Duration, err error) {
	l.status.Attempted = revision
	reason, message := describeRollout(s)
	if made := l.state.Rollout.Revision; made != revision {
		message = fmt.Sprintf("revision %s waits for the one of revision %s: %s", revision, made, message)
	}
	l.setReady(tko.ConditionFalse, reason, message)
	check := min(rolloutInterval, l.spec.Interval)
	switch s.State {
	case rolloutDraft, rolloutPlanning, rolloutRunning, rolloutUndoing, rolloutDone:
	case rolloutPlanned, rolloutPaused:
		l.source.waits = waiting{rollout: s.ID, generation: l.spec.Generation, as: waitsAs(s), until: time.Now().Add(spread(l.spec.Interval))}
	default:
		check = spread(l.spec.Interval)
	}
	return true, check, l.save(ctx)
}

// waiting is for a rollout that goes on only when a user says so, which may take days, or a
// second: until then only the rollout is read, and not the source.
type waiting struct {
	rollout    tko.RolloutID
	generation string    // of the spec
	as         string    // what is known of the rollout
	until      time.Time // when the source is read again
}

// waitsAs returns what a source shows of the rollout that it waits for.
func waitsAs(s tko.RolloutStatus) string { return s.State + " " + s.Plan + " " + s.Reason }

// stillWaits returns when to check again, if the rollout that the source waits for is as
// it was; 0 if the source is to be reconciled.
func (l *reconciliation) stillWaits(ctx context.Context) (again time.Duration, err error) {
	w := l.source.waits
	l.source.waits = waiting{}
	left := time.Until(w.until)
	if saved := l.state.Rollout; l.enqueued || left <= 0 || saved == nil || saved.ID != w.rollout || w.generation != l.spec.Generation {
		return 0, nil
	}
	s, err := l.controller.client.RolloutStatus(ctx, w.rollout)
	if errors.Is(err, tko.ErrNotFound) {
		return 0, nil
	}
	if err != nil || waitsAs(s) != w.as {
		return 0, err
	}
	l.source.waits = w
	return min(rolloutInterval, l.spec.Interval, left), nil
}

// describeRollout returns the reason and the message of the condition Ready of a source
// that waits for a rollout.
func describeRollout(s tko.RolloutStatus) (reason, message string) {
	message = fmt.Sprintf("rollout %q is %s", s.ID, s.State)
	if s.Reason != "" {
		message += ": " + s.Reason
	}
	reason = tko.SourceReasonRollout
	switch s.State {
	case rolloutDraft:
		if s.Reason != "" {
			return tko.SourceReasonStopped, message
		}
	case rolloutPlanned:
		kinds := make([]string, 0, len(s.Kinds))
		for _, kind := range slices.Sorted(maps.Keys(s.Kinds)) {
			if s.Kinds[kind] > 0 {
				kinds = append(kinds, fmt.Sprintf("%d %s", s.Kinds[kind], kind))
			}
		}
		message = fmt.Sprintf("rollout %q is planned: %s. Review it with tko rollout plan %s, then tko rollout start %s --plan %.12s", s.ID, strings.Join(kinds, ", "), s.ID, s.ID, s.Plan)
	case rolloutPaused:
		reason = tko.SourceReasonStopped
	case rolloutCancelled, rolloutUndone:
		reason = tko.SourceReasonStopped
		message += "; delete it to have the revision planned again, or push another revision"
	}
	return reason, message
}

// entries returns the manifests of a rollout.
func (l *reconciliation) entries(ctx context.Context, id tko.RolloutID) ([]rolloutspec.Manifest, error) {
	r, err := l.controller.client.Rollout(ctx, id, 0)
	if err != nil {
		return nil, err
	}
	parsed, err := rolloutspec.Parse(r.Package)
	if err != nil {
		return nil, fmt.Errorf("read rollout %q: %w", id, err)
	}
	var all []rolloutspec.Manifest
	for _, e := range parsed.Edits {
		all = append(all, e.Manifests...)
	}
	return all, nil
}

// reverts reports whether manifests are what the source had before a rollout.
func reverts(entries []rolloutspec.Manifest, manifests []manifest.Manifest, items []tko.SourceItem) bool {
	want, before := map[string]string{}, map[string]string{}
	for _, m := range manifests {
		if m.Put.Kind == tko.KindDeployment {
			want[m.Name] = m.Digest
		}
	}
	keeps := map[string]bool{}
	for _, item := range items {
		if tko.Kind(item.Kind) != tko.KindDeployment {
			continue
		}
		keeps[item.Name] = plan.Keeps(item)
		if _, wanted := want[item.Name]; wanted || !keeps[item.Name] {
			before[item.Name] = item.Digest
		}
	}
	for _, e := range entries {
		if e.Before == "" && keeps[e.Name] { // it stays although its manifest is removed
			return false
		}
		before[e.Name] = e.Before
		if e.Before == "" {
			delete(before, e.Name)
		}
	}
	return len(entries) > 0 && maps.Equal(want, before)
}

// applied reports whether a rollout has applied a row, or had nothing to change.
func applied(row tko.RolloutRow) bool {
	switch row.Progress {
	case "Waiting", "Stale", "Skipped":
		return row.Kind == "Same"
	}
	return true
}

// settle gives the inventory the result of a rollout that has ended.
func (l *reconciliation) settle(ctx context.Context, s tko.RolloutStatus) error {
	entries, err := l.entries(ctx, s.ID)
	if err != nil {
		return err
	}
	done, err := l.rows(ctx, s.ID)
	if err != nil {
		return err
	}
	undone := map[tko.DeploymentID]tko.RolloutRow{}
	if s.State == rolloutUndone && s.UndoneBy != "" {
		if undone, err = l.rows(ctx, s.UndoneBy); err != nil {
			return err
		}
	}
	items := map[string]tko.SourceItem{}
	others := slices.DeleteFunc(slices.Clone(l.status.Items), func(item tko.SourceItem) bool {
		deployment := tko.Kind(item.Kind) == tko.KindDeployment
		if deployment {
			items[item.Name] = item
		}
		return deployment
	})
	set := func(name string, id tko.DeploymentID, digest string, revision int64) {
		if digest == "" {
			delete(items, name)
			return
		}
		item := items[name]
		item.Kind, item.Name, item.ID, item.Revision, item.Pending, item.Rollout = string(tko.KindDeployment), name, string(id), revision, false, ""
		item.Digest = digest
		if digest == plan.Unknown {
			item.Digest = ""
		}
		items[name] = item
	}
	for _, e := range entries {
		id := e.Deployment
		if id == "" {
			if id, err = l.identify(ctx, e.Origin); err != nil {
				return err
			}
		}
		if row, ok := done[id]; ok {
			set(e.Name, id, e.Digest, row.Applied)
		}
		if row, ok := undone[id]; ok || e.Before == "" && id == "" { // its creation was undone
			set(e.Name, id, e.Before, row.Applied)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(items)) {
		others = append(others, items[name])
	}
	l.status.Items = others
	return nil
}

// identify returns the ID of the deployment with an origin; "" if there is none.
func (l *reconciliation) identify(ctx context.Context, origin string) (tko.DeploymentID, error) {
	result, err := l.controller.client.PutEntity(ctx, tko.Put{Kind: tko.KindDeployment, Origin: origin, DryRun: true})
	if err != nil || result.Created {
		return "", err
	}
	return tko.DeploymentID(result.ID), nil
}

// rows returns the rows that a rollout has applied.
func (l *reconciliation) rows(ctx context.Context, id tko.RolloutID) (map[tko.DeploymentID]tko.RolloutRow, error) {
	rows := map[tko.DeploymentID]tko.RolloutRow{}
	for row, err := range l.controller.client.RolloutRows(ctx, tko.RolloutRows{ID: id}) {
		if err != nil {
			return nil, fmt.Errorf("read the rows of rollout %q: %w", id, err)
		}
		if applied(row) {
			rows[row.Deployment] = row
		}
	}
	return rows, nil
}

// propose has a rollout make the actions that change deployments, or undoes the newest one
// if that is the same, and waits for it.
func (l *reconciliation) propose(ctx context.Context, revision string, p *plan.Plan, actions []plan.Action, manifests []manifest.Manifest) (tko.RolloutStatus, error) {
	client := l.controller.client
	if saved := l.state.Rollout; saved != nil && saved.Settled == rolloutDone && saved.Revision != revision && p.Asks == "" {
		entries, err := l.entries(ctx, saved.ID)
		if err == nil && l.undoes(entries, manifests) {
			return l.undo(ctx, saved.ID, revision)
		}
		if err != nil && !errors.Is(err, tko.ErrNotFound) {
			return tko.RolloutStatus{}, err
		}
	}
	id, err := l.rolloutID(ctx, revision)
	if err != nil {
		return tko.RolloutStatus{}, err
	}
	// The state is read after the ID: a rollout that is started in between would get a successor.
	if saved := l.state.Rollout; saved != nil && saved.Settled == "" && saved.Revision == revision {
		switch s, err := client.RolloutStatus(ctx, saved.ID); {
		case errors.Is(err, tko.ErrNotFound):
		case err != nil:
			return tko.RolloutStatus{}, err
		case s.State != rolloutDraft && s.State != rolloutPlanning && s.State != rolloutPlanned:
			return s, nil // it was started after the plan was begun: the inventory has its result first
		}
	}
	if saved := l.state.Rollout; saved == nil || saved.ID != id {
		l.state.Rollout = &savedRollout{ID: id, Revision: revision, Policy: l.byPolicy}
		if err := l.save(ctx); err != nil {
			return tko.RolloutStatus{}, err
		}
	}
	edits, err := p.Manifests(actions)
	if err != nil {
		return tko.RolloutStatus{}, err
	}
	spec := maps.Clone(l.spec.Rollout)
	spec["edits"] = []any{map[string]any{"manifests": edits}}
	put := tko.Put{Kind: tko.KindRollout, ID: string(id), Package: krm.Package{{
		"apiVersion": manifest.APIVersion, "kind": "Rollout",
		"metadata": map[string]any{
			"name": strings.NewReplacer("/", "-", ":", "-").Replace(string(id)), "annotations": map[string]any{annotationSource: l.spec.Name, annotationRevision: revision},
		},
		"spec": spec,
	}}}
	if _, err := client.PutEntity(l.byAuthor(ctx, revision), put); err != nil {
		return tko.RolloutStatus{}, fmt.Errorf("register rollout %q: %w", id, err)
	}
	return client.RolloutStatus(ctx, id)
}

// rolloutID returns the ID of the rollout that makes the changes of a revision: the one
// that isn't started, or a new one.
func (l *reconciliation) rolloutID(ctx context.Context, revision string) (tko.RolloutID, error) {
	base := rolloutBase(l.spec.Name, revision)
	for n := 1; n <= maxRollouts; n++ {
		id := tko.RolloutID(base)
		if n > 1 {
			id = tko.RolloutID(fmt.Sprintf("%s-%d", base, n))
		}
		r, err := l.controller.client.Rollout(ctx, id, 0)
		if errors.Is(err, tko.ErrNotFound) {
			return id, nil
		}
		if err != nil {
			return "", err
		}
		own := len(r.Package) > 0 && r.Package[0].Annotation(annotationSource) == l.spec.Name && r.Package[0].Annotation(annotationRevision) == revision
		if own && (r.State == rolloutDraft || r.State == rolloutPlanning || r.State == rolloutPlanned) {
			return id, nil
		}
	}
	return "", tko.Errorf(tko.ErrInvalid, "there are %d rollouts %s-…: delete those that are done", maxRollouts, base)
}

// rolloutBase returns the ID of the first rollout of a revision.
func rolloutBase(source, revision string) string {
	const most, commit = 200, 12
	clean := func(text string) string {
		text = strings.Map(func(c rune) rune {
			if tko.CheckID("", string(c)) != nil {
				return '-'
			}
			return c
		}, text)
		return text[:min(len(text), most)]
	}
	if at := strings.LastIndexByte(revision, ':'); at >= 0 && at+1+commit <= len(revision) {
		revision = revision[at+1 : at+1+commit]
	}
	return "gitops/" + clean(source) + "/" + clean(revision)
}

// applyByRollout has a rollout change deployments, after the other changes of a revision.
func (l *reconciliation) applyByRollout(ctx context.Context, revision string, p *plan.Plan, actions []plan.Action, r reading, messages []string) (again time.Duration, err error) {
	s, err := l.propose(ctx, revision, p, actions, r.manifests)
	if errors.Is(err, tko.ErrInvalid) {
		return 0, l.invalid(err)
	}
	if err != nil {
		return 0, err
	}
	l.status.PendingRemoval = p.Asks
	operations, _, err := l.applyOSM(ctx, r.osm, revision)
	if err != nil {
		return 0, err
	}
	again, err = l.pending(ctx, s, revision, actions, messages)
	if operations > 0 {
		again = min(again, operations)
	}
	return again, err
}

// pending waits for the rollout of a revision whose other changes are applied.
func (l *reconciliation) pending(ctx context.Context, s tko.RolloutStatus, revision string, actions []plan.Action, messages []string) (again time.Duration, err error) {
	changing := map[string]bool{}
	for _, a := range actions {
		changing[a.Name] = true
	}
	for i := range l.status.Items {
		if item := &l.status.Items[i]; tko.Kind(item.Kind) == tko.KindDeployment && changing[item.Name] {
			item.Rollout = s.ID
		}
	}
	l.status.Messages = slices.Clone(messages)
	l.source.checked = time.Now()
	_, again, err = l.wait(ctx, s, revision)
	return again, err
}

// endRollouts cancels the newest rollout of a source that is removed, and reports whether
// the source must wait for it.
func (l *reconciliation) endRollouts(ctx context.Context) (wait bool, again time.Duration, err error) {
	l.spec.Rollout = nil
	return l.held(ctx, "the end of the source", nil)
}

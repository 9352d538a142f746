package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/krm"
)

// This file is the gate: it decides how each commit is counted, and what a cause may
// change without consent. Stores count and compare in the transaction of the commit.

// derivedWindow is the window of causes that changes are derived from. A topology that
// follows its sites changes a few deployments each day, for years.
const derivedWindow = 24 * time.Hour

// unlimited is a limit that nothing exceeds.
const unlimited = math.MaxInt32

// ReachLimits are the limits of what a cause may change without consent. Those that are
// zero have their defaults, and negative ones limit nothing.
type ReachLimits struct {
	// Created is the limit of deployments that a topology creates in a day, and of those
	// that an author approves within Window.
	Created int
	// Sites is the limit of sites at which an author changes running deployments within
	// Window.
	Sites int
	// Window is the time within which the changes of one author are counted together.
	Window time.Duration
	// Original and OriginalPercent limit what callers remove or approve that can't
	// confirm numbers: to the larger of the two.
	Original, OriginalPercent int
	// Policy is the spec, without edits, of the rollouts that make the changes of sources at
	// more than Sites sites. If nil, it is one site, a tenth of them, and what is left.
	Policy map[string]any
	// Rules are limits for authors, and further ones for kinds and selections. Of those of
	// an author that limit the same, the first one holds.
	Rules []access.Limit

	approved int // limit of approvals; see Created
}

// defaultPolicy is the default of ReachLimits.Policy. What no wave takes is a last one.
var defaultPolicy = map[string]any{"waves": []any{
	map[string]any{"name": "first", "count": int64(1)}, map[string]any{"name": "tenth", "percent": int64(10)},
}}

func (l *ReachLimits) setDefaults() {
	setDefault(&l.Created, tko.DefaultReachCreated)
	setDefault(&l.Sites, tko.DefaultReachSites)
	setDefault(&l.Window, tko.DefaultReachWindow)
	setDefault(&l.Original, tko.DefaultConfirmAbove)
	setDefault(&l.OriginalPercent, tko.DefaultConfirmPercent)
	if l.Policy == nil {
		l.Policy = defaultPolicy
	}
}

// reachOf returns how a commit is counted, without the limits.
func (s *Gate) reachOf(ctx context.Context, writes []record.Write) (record.Reach, cause, error) {
	counted := false
	for i := range writes {
		w := &writes[i]
		if w.Rollout != nil { // its plan is the consent, and limits of its own hold
			return record.Reach{}, cause{}, nil
		}
		switch w.Op {
		case tko.OpDeleted:
			counted = counted || !w.SingleStep
		case tko.OpWritten: // a new deployment counts only if it is derived
			counted = counted || w.Record.Kind == tko.KindSite && w.Expect != record.Absent && !record.Suspended(w.Record) // it may have been suspended
			counted = counted || w.Record.Kind == tko.KindDeployment && (w.Expect != record.Absent || ctx.Value(rootKey{}) != nil || derivesFromSource(ctx))
		case tko.OpStatus:
		}
	}
	grant, granted := ctx.Value(grantKey{}).(map[record.Count]int)
	reruns, err := s.rerunsOf(ctx, writes)
	if err != nil {
		return record.Reach{}, cause{}, err
	}
	retargeted, err := s.retargeted(ctx, writes)
	if err != nil {
		return record.Reach{}, cause{}, err
	}
	counted = counted || reruns > 0 || len(retargeted) > 0
	if !counted && !granted {
		return record.Reach{}, cause{}, nil
	}
	of, err := s.causeOf(ctx, writes[0].Record.Key)
	if err != nil {
		return record.Reach{}, of, err
	}
	if of.sites != 0 && rights.IsPreparer(ctx) && areTopologies(writes) {
		of.sites = 0
	}
	removals := strings.HasPrefix(of.name, causeDeployment) && !granted && removesOrReplaces(writes)
	if removals {
		of.sites = s.settings.Reach.Window
	}
	if of.derived && of.sites == 0 && !granted && reruns == 0 && !slices.ContainsFunc(writes, func(w record.Write) bool { return w.Op == tko.OpDeleted || w.Expect == record.Absent }) {
		return record.Reach{}, of, nil // a preparer's changes of existing deployments are not counted
	}
	reach := record.Reach{Cause: of.name, Window: of.window, Derived: of.derived, SitesWindow: of.sites, RemovedSites: removals, Grant: grant, Sites: retargeted}
	if reruns > 0 {
		reach.Adds = map[record.Count]int{record.CountSites: reruns}
	}
	if confirmed, ok := tko.ConfirmationOf(ctx); ok && !granted {
		reach.Consent = confirmed
	}
	reach.Further, err = s.furtherLimits(ctx, of)
	return reach, of, err
}

// rerunsOf returns the number of sites at which writes have schedule plugins run again: those
// of existing plugins that change. It is at least that number, because only a plugin knows what
// it does.
func (s *Gate) rerunsOf(ctx context.Context, writes []record.Write) (int, error) {
	triggers := map[krm.GVK]bool{}
	for i := range writes {
		w := &writes[i]
		if typ, _, _ := tko.SplitPluginID(w.Record.ID); w.Op != tko.OpWritten || w.Record.Kind != tko.KindPlugin || w.Expect == record.Absent || typ != tko.PluginSchedule {
			continue
		}
		for _, r := range []record.Record{{Key: w.Record.Key}, w.Record} {
			if r.Plugin == nil { // as it is
				was, err := s.reader.One(ctx, record.Fields{Package: true}, r.Key)
				if err != nil || was.Revision == 0 {
					return 0, err
				}
				r = was
			}
			p, err := record.PluginOf(r)
			if err != nil {
				return 0, err
			}
			for _, gvk := range p.Triggers {
				triggers[gvk] = true
			}
		}
	}
	if len(triggers) == 0 {
		return 0, nil
	}
	sites := map[string]bool{}
	var running []record.Key
	count := func() error {
		records, err := s.store.Get(ctx, record.Fields{Package: true}, running...)
		if err != nil {
			return err
		}
		running = running[:0]
		for _, r := range records {
			pkg, err := record.PackageOf(r)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(pkg, func(resource krm.Resource) bool { return triggers[resource.GVK()] }) {
				sites[r.Site] = true
			}
		}
		return nil
	}
	for r, err := range s.store.List(ctx, record.Query{Kind: tko.KindDeployment, Scope: access.ScopeAll, Limit: -1}) {
		if err != nil {
			return 0, err
		}
		if record.Placed(r) == "" || sites[r.Site] {
			continue
		}
		running = append(running, r.Key)
		if len(running) == record.SelectedPage {
			if err := count(); err != nil {
				return 0, err
			}
		}
	}
	if len(running) > 0 {
		if err := count(); err != nil {
			return 0, err
		}
	}
	return len(sites), nil
}

// isProvenPreparer reports whether the caller of a preparer's commits is one of the server's own,
// or is bound to its role. Another one only says that it is a preparer: what it changes that
// runs already is counted, for the topology that it changes. A preparer has no reason to change
// it: it prepares what doesn't run yet.
func isProvenPreparer(ctx context.Context) bool {
	c, ok := rights.CallerOf(ctx)
	return ok && c.IsProvenPreparer()
}

// removesOrReplaces reports whether writes remove deployments, or create ones that replace others.
func removesOrReplaces(writes []record.Write) bool {
	return slices.ContainsFunc(writes, func(w record.Write) bool {
		return w.Record.Kind == tko.KindDeployment &&
			(w.Op == tko.OpDeleted && !w.SingleStep || w.Op == tko.OpWritten && w.Expect == record.Absent && len(w.Record.Replaces) > 0)
	})
}

// areTopologies reports whether writes change topologies only: preparers state in them, as they
// run, what their placements have created.
func areTopologies(writes []record.Write) bool {
	return !slices.ContainsFunc(writes, func(w record.Write) bool {
		return w.Op != tko.OpWritten || !bytes.Contains(w.Record.Package, []byte(TopologyGroup))
	})
}

// isPlugin reports whether the run of a plugin makes the commits.
func isPlugin(ctx context.Context) bool {
	c, ok := rights.CallerOf(ctx)
	return ok && c.Identity.Plugin != nil
}

type grantKey struct{}

// WithGrant returns a context whose commits grant consent to later commits of a root
// deployment.
func WithGrant(ctx context.Context, root string, grant map[record.Count]int) context.Context {
	return context.WithValue(WithRoot(ctx, root), grantKey{}, grant)
}

// A shares has limits that are a part of all entities of a kind, by count. They are read
// only when a commit exceeds the few that each cause may remove.
type shares struct {
	most  map[record.Count]int
	fresh map[record.Count]bool // read for this request
}

// maxSharesAge limits how long shares are used without reading the entities again: a
// loop of deletions doesn't list the kind at each.
const maxSharesAge = 5 * time.Second

// A cachedShares is shares as of a time.
type cachedShares struct {
	most map[record.Count]int
	at   time.Time
}

// knownShares returns the shares that were read for a cause shortly before.
func (s *Gate) knownShares(of cause) shares {
	known := shares{most: map[record.Count]int{}, fresh: map[record.Count]bool{}}
	if had, ok := s.shares.Get(of.name); ok && time.Since(had.at) < maxSharesAge {
		maps.Copy(known.most, had.most)
	}
	return known
}

// reachAuthor returns the author for whose changes the operator may have set limits: the
// owner of the topology or source that a cause is, or the caller.
func (s *Gate) reachAuthor(ctx context.Context, of cause) (string, error) {
	if root, ok := strings.CutPrefix(of.name, causeDeployment); ok {
		o, err := s.rights.OwnerFor(ctx, tko.Acting{Kind: tko.KindDeployment, ID: root})
		return o.String(), err
	}
	if source, ok := strings.CutPrefix(of.name, causeSource); ok {
		o, err := s.rights.OwnerFor(ctx, tko.Acting{Kind: tko.KindSource, ID: source})
		return o.String(), err
	}
	return rights.Author(ctx).Who, nil
}

// limitsOf returns the operator's limits for the author of a cause.
func (s *Gate) limitsOf(ctx context.Context, of cause) ([]access.Limit, error) {
	if len(s.settings.Reach.Rules) == 0 {
		return nil, nil
	}
	who, err := s.reachAuthor(ctx, of)
	return slices.DeleteFunc(slices.Clone(s.settings.Reach.Rules), func(l access.Limit) bool { return !l.IsFor(who) }), err
}

// furtherLimits returns the limits of a cause for kinds and selections.
func (s *Gate) furtherLimits(ctx context.Context, of cause) ([]access.Limit, error) {
	limits, err := s.limitsOf(ctx, of)
	return slices.DeleteFunc(limits, func(l access.Limit) bool { return !l.IsFurther() }), err
}

// settingsOf returns the limits of a cause, as the operator has set them for its author.
func (s *Gate) settingsOf(ctx context.Context, of cause) (ReachLimits, int, error) {
	o, removed := s.settings.Reach, s.settings.ConfirmAbove
	approved := o.Created
	limits, err := s.limitsOf(ctx, of)
	upTo := 0
	for _, l := range slices.Backward(limits) { // the first one holds
		most := l.Most
		if most == 0 {
			most = -1
		}
		switch {
		case l.IsFurther():
		case l.UpTo > 0:
			upTo = l.UpTo
			if l.Most > 0 {
				o.Created = l.Most
			}
		case l.Limit == access.LimitCreated:
			o.Created, upTo = most, 0
		case l.Limit == access.LimitApproved:
			approved = most
		case l.Limit == access.LimitSites:
			o.Sites = most
		case l.Limit == access.LimitRemoved:
			removed = most
		}
	}
	o.approved = approved
	if err == nil && upTo > 0 && o.Created >= 0 {
		var own int
		own, err = s.ownLimit(ctx, of)
		o.Created = max(o.Created, min(own, upTo))
	}
	return o, removed, err
}

// ownLimit returns the number of deployments that the placements of a topology, or a registered
// source, want to create without consent; 0 if they don't say.
func (s *Gate) ownLimit(ctx context.Context, of cause) (int, error) {
	if name, ok := strings.CutPrefix(of.name, causeSource); ok {
		book, err := s.rights.RulesOf(ctx, rights.Age)
		if err != nil {
			return 0, err
		}
		d, _ := book.Definition(name)
		var spec struct {
			Reach struct {
				Created int `json:"created"`
			} `json:"reach"`
		}
		_ = json.Unmarshal(d.Spec, &spec) // what isn't valid raises nothing
		return spec.Reach.Created, nil
	}
	root, ok := strings.CutPrefix(of.name, causeDeployment)
	if !ok {
		return 0, nil
	}
	r, err := s.reader.One(ctx, record.Fields{Package: true}, record.DeploymentKey(tko.DeploymentID(root)))
	if err != nil || r.Revision == 0 {
		return 0, err
	}
	pkg, err := record.PackageOf(r)
	if err != nil {
		return 0, err
	}
	own := 0
	for _, resource := range pkg {
		if gvk := resource.GVK(); gvk.Group == TopologyGroup && gvk.Kind == "Placement" {
			own += min(NumberAt(resource, "spec", "budget", "create"), unlimited-own)
		}
	}
	return own, nil
}

// NumberAt returns the number of a field; 0 if there is none.
func NumberAt(resource krm.Resource, path ...string) int {
	switch n, _ := resource.Get(path...); n := n.(type) {
	case int64:
		return int(max(0, min(n, unlimited)))
	case uint64:
		return int(min(n, unlimited))
	case float64:
		return int(max(0, min(n, unlimited)))
	default:
		return 0
	}
}

// reachLimits returns the limits of a caller.
func (s *Gate) reachLimits(ctx context.Context, of cause, known shares) ([]record.ReachLimit, error) {
	o, removed, err := s.settingsOf(ctx, of)
	if err != nil {
		return nil, err
	}
	limits := []record.ReachLimit{
		{Of: []record.Count{record.CountCreated}, Most: limit(o.Created)},
		{Of: []record.Count{record.CountSites}, Most: limit(o.Sites)},
	}
	if !tko.CanConsent(ctx) {
		limits[1].Most = unlimited // as before
		for _, count := range append(record.Removals(), record.CountApproved) {
			limits = append(limits, record.ReachLimit{Of: []record.Count{count}, Most: max(limit(o.Original), known.most[count])})
		}
		return limits, nil
	}
	limits = append(limits,
		record.ReachLimit{Of: []record.Count{record.CountApproved}, Most: limit(o.approved)},
		record.ReachLimit{Of: append(record.Removals(), record.Orphans()...), Most: limit(removed)})
	if s.settings.ConfirmPercent >= 0 && s.settings.ConfirmPercent < 100 {
		for _, count := range record.Removals() {
			limits = append(limits, record.ReachLimit{Of: []record.Count{count, record.OrphanOf(kindOf(count))}, Most: max(tko.ReachFew, known.most[count])})
		}
	}
	further, err := s.furtherLimits(ctx, of)
	for _, l := range further {
		limits = append(limits, record.ReachLimit{Of: []record.Count{record.FurtherCount(l)}, Most: limit(l.Most)})
	}
	return limits, err
}

// kindOf returns the kind of the entities of a count.
func kindOf(count record.Count) tko.Kind {
	_, kind, ok := strings.Cut(string(count), "/")
	if !ok {
		return tko.KindDeployment
	}
	return tko.Kind(kind)
}

// isShare reports whether a limit is a share of the entities of a kind.
func isShare(l record.ReachLimit) bool {
	return slices.Contains(record.Removals(), l.Of[0]) && !slices.ContainsFunc(l.Of, func(c record.Count) bool { return kindOf(c) != kindOf(l.Of[0]) })
}

func limit(n int) int {
	if n < 0 {
		return unlimited
	}
	return n
}

// learnShare reads how many entities of a kind the caller sees, if the limit that was
// exceeded depends on it, and adds the share of them to what is known. It reports whether
// the limit may be another one then.
func (s *Gate) learnShare(ctx context.Context, of cause, known shares, e *record.ReachError) (bool, error) {
	count, percent := e.Limit.Of[0], s.settings.ConfirmPercent
	original := !tko.CanConsent(ctx)
	if !isShare(e.Limit) && (count != record.CountApproved || !original) {
		return false, nil
	}
	if original {
		percent = s.settings.Reach.OriginalPercent
	}
	if known.fresh[count] || percent <= 0 {
		return false, nil
	}
	c, ok := rights.CallerOf(ctx)
	if !ok {
		return false, rights.ErrNotEntered
	}
	// Twice as many as matter now, so that a loop doesn't list them each time.
	enough, total := 2*(e.Had+e.Adds)*100/percent+2, 0
	if count != record.CountApproved { // those that were approved still exist
		total = e.Had
	}
	for _, err := range s.store.List(ctx, record.Query{Kind: kindOf(count), Scope: c.View(), Limit: max(0, enough-total)}) {
		if err != nil {
			return false, err
		}
		total++
	}
	known.most[count], known.fresh[count] = total*percent/100, true
	s.shares.Put(of.name, cachedShares{maps.Clone(known.most), time.Now()}, 1)
	return true, nil
}

// CommitGated commits writes through the gate.
func (s *Gate) CommitGated(ctx context.Context, writes []record.Write) ([]record.Outcome, error) {
	reach, of, err := s.reachOf(ctx, writes)
	if err != nil {
		return nil, err
	}
	var known shares
	if reach.Cause != "" {
		known = s.knownShares(of)
	}
	for {
		if reach.Cause != "" {
			if reach.Limits, err = s.reachLimits(ctx, of, known); err != nil {
				return nil, err
			}
		}
		outcomes, err := s.store.Commit(ctx, record.Gate(reach, writes))
		exceeded, ok := errors.AsType[*record.ReachError](err)
		if !ok {
			return outcomes, err
		}
		more, err := s.learnShare(ctx, of, known, exceeded)
		if err != nil {
			return nil, err
		}
		if !more {
			what := ""
			if n := reach.Adds[record.CountSites]; n > 0 { // only the plugin knows what it does
				what = "run a schedule plugin again for at least " + entities(n, tko.KindSite)
			}
			return nil, s.explainReach(ctx, of, exceeded, what, exceeded.Adds)
		}
	}
}

// explainReach converts the error of a store to one for users. what is the change that is
// refused, such as "delete 3 sites"; "" for that of one commit.
func (s *Gate) explainReach(ctx context.Context, of cause, e *record.ReachError, what string, n int) error {
	had := ""
	if e.Had > 0 {
		had = fmt.Sprintf(", after %d without consent %s", e.Had, of.text(e.Limit.Of[0]))
	}
	source, isSource := strings.CutPrefix(of.name, causeSource)
	consent := fmt.Sprintf("confirm %d to proceed (--confirm=%d)", n, n)
	limit, remedy := strconv.Itoa(e.Limit.Most), "check the selection, and "+consent
	if !tko.CanConsent(ctx) {
		consent = "use the command tko"
		remedy = "change fewer, or confirm the number with the command tko: this client can't"
	}
	outcome := "nothing was changed"
	switch count := e.Limit.Of[0]; count {
	case record.CountCreated:
		what, limit = orElse(what, "create "+entities(n, tko.KindDeployment)), limit+" deployments"
		remedy = fmt.Sprintf("%s: check the topology, then run tko deployment approve ID --confirm=%d", tko.Waiting{Create: n}, n)
		if isSource {
			remedy = "the source asks for an approval with its next reconciliation: tko gitops status " + source
		}
	case record.CountApproved:
		what, limit = orElse(what, "approve "+entities(n, tko.KindDeployment)), limit+" deployments"
	case record.CountSites:
		what, limit = orElse(what, "change running deployments at "+entities(n, tko.KindSite)), limit+" sites"
		remedy = "use a rollout (tko rollout create), or " + consent
		if strings.HasPrefix(of.name, causeDeployment) {
			remedy = tko.RolloutText // to a preparer, which makes it
		}
		if isSource {
			remedy = "with its next reconciliation, the source makes a rollout of what is left, or asks for an approval: tko gitops status " + source
		}
	case record.CountTemplates, record.CountSitesGone, record.CountDeployments, record.CountPlugins, record.CountOrphanSites, record.CountOrphanDeployments:
		what, limit = orElse(what, removalText(n)), limit+" entities"
		if isShare(e.Limit) {
			percent := s.settings.ConfirmPercent
			if !tko.CanConsent(ctx) {
				percent = s.settings.Reach.OriginalPercent
			}
			limit = fmt.Sprintf("%d %ss, and more than %d %% of them,", e.Limit.Most, kindOf(count), percent)
		}
		if strings.HasPrefix(of.name, causeDeployment) {
			remedy = fmt.Sprintf("%s: check it, and %s", tko.Waiting{Remove: n}, consent)
		}
	default: // of a kind or selection
		base, scope, _ := strings.Cut(string(count), "@")
		what, limit = orElse(what, fmt.Sprintf("exceed the limit of %s for %s, with %d more", base, scope, n)), limit+" there"
		outcome = "nothing more was changed" // it is found in a commit of the request, and perhaps not in its first one
	}
	if isPlugin(ctx) {
		whose := "the owner of the deployment"
		if who, ok := strings.CutPrefix(of.name, causeAuthor); ok { // of a site, which has none
			whose = strconv.Quote(who)
		}
		remedy = "a plugin can't consent: make this change as a user, with the command tko or a rollout, or have an operator raise the limit for " + whose + " (--reach-limits)"
	}
	return tko.Errorf(tko.ErrInvalid, "this would %s%s: more than %s need consent: %s; %s", what, had, limit, outcome, remedy)
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// AllowReach returns an error if a request, whose caller may have confirmed a number,
// would change more than it may. It is judged before the first change; each commit is
// counted nevertheless. most is the number of changes that the request may make.
func (s *Gate) AllowReach(ctx context.Context, doing string, kind tko.Kind, first record.Key, adds map[record.Count]int) (most int, err error) {
	total := 0
	for _, n := range adds {
		total += n
	}
	if confirmed, ok := tko.ConfirmationOf(ctx); ok {
		if !tko.Consents(confirmed, total) {
			return 0, tko.Errorf(tko.ErrInvalid, "this would %s %s, but %d were confirmed: nothing was changed; check the selection, and confirm %d to proceed (--confirm=%d)",
				doing, ReachText(kind, adds), confirmed, total, total)
		}
		return confirmed, nil
	}
	of, err := s.causeOf(ctx, first)
	if err != nil {
		return 0, err
	}
	exceeded, err := s.judge(ctx, of, adds)
	if err != nil {
		return 0, err
	}
	if exceeded != nil {
		return 0, s.explainReach(ctx, of, exceeded, doing+" "+ReachText(kind, adds), total)
	}
	return unlimited, nil
}

// judge returns the first limit that changes of a cause would exceed, or nil.
func (s *Gate) judge(ctx context.Context, of cause, adds map[record.Count]int) (*record.ReachError, error) {
	had, err := s.hadReached(ctx, of, of.window)
	if err == nil && of.sites != 0 && adds[record.CountSites] > 0 {
		var sites map[record.Count]int
		sites, err = s.hadReached(ctx, of, of.sites)
		had[record.CountSites] = sites[record.CountSites]
	}
	if err != nil {
		return nil, err
	}
	for known := s.knownShares(of); ; {
		limits, err := s.reachLimits(ctx, of, known)
		if err != nil {
			return nil, err
		}
		exceeded := exceeds(limits, had, adds)
		if exceeded == nil {
			return nil, nil //nolint:nilnil // no limit is exceeded
		}
		more, err := s.learnShare(ctx, of, known, exceeded)
		if err != nil || !more {
			return exceeded, err
		}
	}
}

// hadReached returns what a cause has changed without consent within a window. It is
// negative if it may change more with consent.
func (s *Gate) hadReached(ctx context.Context, of cause, window time.Duration) (map[record.Count]int, error) {
	reached, err := s.store.Reached(ctx, of.name, window, maxReached)
	had := map[record.Count]int{}
	for _, r := range reached {
		had[r.Count] = r.N - r.Consent
	}
	return had, err
}

// SourceReach returns what a source may change now without consent.
func (s *Gate) SourceReach(ctx context.Context, name string) (tko.SourceReach, error) {
	of, had := s.sourceCause(name), map[record.Count]int{}
	for _, count := range []record.Count{record.CountSites, record.CountCreated} {
		within, err := s.hadReached(ctx, of, of.windowOf(count))
		if err != nil {
			return tko.SourceReach{}, err
		}
		had[count] = within[count]
	}
	return s.SourceReachAfter(ctx, name, had)
}

// SourceReachAfter returns what a source may change without consent that has changed
// something already.
func (s *Gate) SourceReachAfter(ctx context.Context, name string, had map[record.Count]int) (tko.SourceReach, error) {
	left := func(count record.Count, most int) int {
		if most < 0 {
			return -1
		}
		return max(0, most-had[count])
	}
	o, _, err := s.settingsOf(ctx, s.sourceCause(name))
	if err != nil {
		return tko.SourceReach{}, err
	}
	policy, err := json.Marshal(o.Policy)
	return tko.SourceReach{Known: true, Sites: left(record.CountSites, o.Sites), Created: left(record.CountCreated, o.Created), Policy: string(policy)}, err
}

// maxReached is the maximum number of counts of a cause.
const maxReached = 100

// exceeds returns the first limit that changes would exceed, or nil, as stores decide.
func exceeds(limits []record.ReachLimit, had, adds map[record.Count]int) *record.ReachError {
	for _, l := range limits {
		now, more := 0, 0
		for _, count := range l.Of {
			now, more = now+max(0, had[count]+adds[count]), more+adds[count]
		}
		if more > 0 && now > l.Most {
			return &record.ReachError{Limit: l, Had: max(0, now-more), Adds: more}
		}
	}
	return nil
}

// ReachText describes counts of removals, or a number of entities of a kind.
func ReachText(kind tko.Kind, adds map[record.Count]int) string {
	total, of := 0, 0
	for count, n := range adds {
		total += n
		if !slices.Contains(record.Orphans(), count) {
			of += n
		}
	}
	text := entities(of, kind)
	if other := total - of; other > 0 {
		text += fmt.Sprintf(", and leave %d entities without template or site", other)
	}
	return text
}

// CheckReach returns an error if the deployments that a parent is about to create and
// remove need consent.
func (s *Gate) CheckReach(ctx context.Context, request tko.NewChildren) error {
	parent, create, remove := string(request.Parent), request.Create, request.Remove
	root, err := s.RootOf(ctx, parent)
	if err != nil {
		return err
	}
	of := rootCause(root)
	if err := s.checkSites(ctx, of, request.Sites); err != nil {
		return err
	}
	what := tko.Waiting{Create: create, Remove: remove}
	all, err := s.removesAll(ctx, of, parent, remove)
	if err != nil {
		return err
	}
	if all {
		return tko.Errorf(tko.ErrInvalid, "%s: it would remove all that the topology has, whatever its budget; nothing was changed; check the topology and its sites, then run tko deployment approve %s --confirm=%d",
			what, parent, what.Count())
	}
	exceeded, err := s.judge(ctx, of, map[record.Count]int{record.CountCreated: create, record.CountDeployments: remove})
	if err != nil || exceeded == nil {
		return err
	}
	return tko.Errorf(tko.ErrInvalid, "%s: more than %d %s need it; nothing was changed; check the topology, then run tko deployment approve %s --confirm=%d",
		what, exceeded.Limit.Most, of, parent, what.Count())
}

// checkSites returns an error if changes of running deployments at so many sites need a rollout,
// even if the cause has changed nothing yet: what it has changed counts in each commit.
func (s *Gate) checkSites(ctx context.Context, of cause, sites int) error {
	limits, _, err := s.settingsOf(ctx, of)
	if err != nil || sites <= limit(limits.Sites) {
		return err
	}
	of.sites = s.settings.Reach.Window
	return s.explainReach(ctx, of, &record.ReachError{Cause: of.name, Limit: record.ReachLimit{Of: []record.Count{record.CountSites}, Most: limit(limits.Sites)}, Adds: sites}, "", sites)
}

// removesAll reports whether the removal of so many children of a deployment would leave none of
// more than a few, without consent to it: a wrong selector must not take down a whole topology.
func (s *Gate) removesAll(ctx context.Context, of cause, parent string, remove int) (bool, error) {
	if remove <= tko.ReachFew || s.settings.ConfirmAbove < 0 {
		return false, nil
	}
	had, err := s.hadReached(ctx, of, of.window)
	if err != nil || had[record.CountDeployments]+remove <= 0 { // users have consented to it
		return false, err
	}
	children := 0
	for _, err := range s.store.List(ctx, record.Query{Kind: tko.KindDeployment, Parent: parent, Scope: access.ScopeAll, Limit: remove + 1}) {
		if err != nil {
			return false, err
		}
		children++
	}
	return children <= remove, nil
}

// OrphansOf returns the numbers of entities that refer to templates or sites that are to
// be deleted, by their counts.
func (s *Gate) OrphansOf(ctx context.Context, keys []record.Key) (map[record.Count]int, error) {
	adds := map[record.Count]int{}
	if len(keys) == 0 || keys[0].Kind != tko.KindTemplate && keys[0].Kind != tko.KindSite {
		return adds, nil
	}
	chosen := make(map[string]bool, len(keys))
	for batch := range slices.Chunk(keys, record.SelectedPage) {
		records, err := s.store.Get(ctx, record.Fields{Deployments: true, Scope: access.ScopeAll}, batch...)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			chosen[r.ID] = r.Revision != 0
			adds[record.CountOrphanDeployments] += len(r.Deployments)
		}
	}
	if keys[0].Kind != tko.KindTemplate {
		return adds, nil
	}
	query := record.Query{Kind: tko.KindSite, Scope: access.ScopeAll, Limit: -1}
	if len(keys) == 1 {
		pattern, err := tko.ParsePattern(tko.LiteralPattern(keys[0].ID))
		if err != nil {
			return nil, err
		}
		query.Templates = []tko.Pattern{pattern}
	}
	for r, err := range s.store.List(ctx, query) {
		if err != nil {
			return nil, err
		}
		if r.Template != "" && chosen[r.Template] {
			adds[record.CountOrphanSites]++
		}
	}
	return adds, nil
}

// removalText says in words that n entities are deleted, or lose their template or site.
func removalText(n int) string {
	if n == 1 {
		return "delete 1 entity, or leave it without its template or site"
	}
	return fmt.Sprintf("delete %d entities, or leave them without their template or site", n)
}

package enrollment

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/criteria"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// The limits of agents that wait for an approval. A holder of a token for a pattern can keep other
// agents from waiting by them, and do nothing else.
const (
	maxClaimsOfSite  = 5 // that wait; and as many that were refused are kept
	maxClaims        = 20_000
	maxTokenPatterns = 100
	// claimTime is the time in which an approved agent must get its certificate, at least.
	claimTime = 24 * time.Hour
)

// EnrollSites returns a token for the agents of the sites that match a pattern, which is valid for a
// time; [tko.DefaultEnrollment] if 0. Each agent names its site, and waits until it is approved: the
// token alone permits nothing. An earlier token for the same pattern ends, and so do the agents that
// wait with it. A pattern that begins with a wildcard must be confirmed with the number of sites that
// match it, at least 1 ([tko.WithConfirmation]). The caller must hold the right to update all these sites,
// also later ones, as for [AgentEnrollments.EnrollSite].
func (s *AgentEnrollments) EnrollSites(ctx context.Context, pattern string, valid time.Duration) (tko.EnrollmentToken, error) {
	ctx, c, err := s.enterSites(ctx, pattern)
	if err != nil {
		return tko.EnrollmentToken{}, err
	}
	valid = cmp.Or(valid, tko.DefaultEnrollment)
	if err := checkEnrollmentTime(valid); err != nil {
		return tko.EnrollmentToken{}, err
	}
	if err := s.confirmPattern(ctx, c, pattern); err != nil {
		return tko.EnrollmentToken{}, err
	}
	now := time.Now().UTC()
	made := tko.EnrollmentToken{Site: tko.SiteID(pattern), Token: enrollmentPrefix + rand.Text(), Expires: now.Add(valid).Truncate(time.Second)}
	e := tko.AgentEnrollment{
		ID: uuid.NewString(), Pattern: pattern, Token: tko.EnrollmentHash(made.Token), Expires: made.Expires, By: rights.Author(ctx), Created: now.Truncate(time.Second),
	}
	_, err = rights.ChangeRules(ctx, s.rights, c, func(book *rights.Book) (change rights.Change, err error) {
		eraseExpired(&change, book, now)
		patterns := 0
		for _, other := range book.Enrollments {
			switch {
			case other.Pattern == "" || !now.Before(other.Expires):
			case other.Pattern == pattern:
				eraseToken(&change, book, other, now)
			default:
				patterns++
			}
		}
		if patterns >= maxTokenPatterns {
			return change, tko.Errorf(tko.ErrInvalid, "there are tokens for %d patterns of sites, the maximum: end some (tko site revoke --sites), or wait until they expire", patterns)
		}
		return change, change.Write(record.RuleEnrollment, e.ID, e, describeEnrollment("made a token for agents", e))
	})
	if err != nil {
		return tko.EnrollmentToken{}, err
	}
	return made, nil
}

// enterSites begins a method about the token for a pattern of sites.
func (s *AgentEnrollments) enterSites(ctx context.Context, pattern string) (context.Context, *rights.Caller, error) {
	ctx, c, err := s.rights.EnterUser(ctx, access.Update)
	if err != nil {
		return ctx, nil, err
	}
	if pattern == "" || len(pattern) > tko.MaxIDLength {
		return ctx, nil, tko.Errorf(tko.ErrInvalid, "the pattern of sites has %d bytes: use 1 to %d", len(pattern), tko.MaxIDLength)
	}
	p, err := tko.ParsePattern(pattern)
	if err != nil {
		return ctx, nil, err
	}
	if !c.Grant.MayAll(access.Update, tko.KindSite, p) && s.rights.Refuse(ctx, c, tko.KindSite, "", access.Update) != nil {
		return ctx, nil, tko.Errorf(tko.ErrDenied, "%s may not update all the sites %q: use a pattern whose sites it may update, also later ones (tko access can-i shows what you may)", c.Identity.Subject, pattern)
	}
	return ctx, c, nil
}

// eraseExpired adds the tokens, and the agents that wait, whose time is over.
func eraseExpired(change *rights.Change, book *rights.Book, now time.Time) {
	for _, e := range book.Enrollments {
		if !e.IsUsed() && !now.Before(e.Expires) {
			change.Erase(record.RuleEnrollment, e.ID)
		}
	}
}

// eraseToken adds a token for a pattern that is to be removed, with the agents that wait with it.
func eraseToken(change *rights.Change, book *rights.Book, token tko.AgentEnrollment, now time.Time) {
	change.Erase(record.RuleEnrollment, token.ID)
	change.Records = append(change.Records, describeEnrollment("ended the token for agents", token))
	for _, e := range book.Enrollments {
		if e.Claim != nil && !e.IsUsed() && e.Claim.Token == token.Token && now.Before(e.Expires) {
			change.Erase(record.RuleEnrollment, e.ID)
		}
	}
}

// confirmPattern checks that a pattern of any sites is meant.
func (s *AgentEnrollments) confirmPattern(ctx context.Context, c *rights.Caller, pattern string) error {
	if p, err := tko.ParsePattern(pattern); err != nil || p.Prefix() != "" {
		return err
	}
	query, err := criteria.Sites(tko.SiteSelect{IDs: []string{pattern}}, tko.ListOptions{})
	if err != nil {
		return err
	}
	query.Scope = c.View()
	n := 0
	for _, err := range s.store.List(ctx, query) {
		if err != nil {
			return err
		}
		n++
	}
	n = max(n, 1)
	if count, ok := tko.ConfirmationOf(ctx); !ok || !tko.Consents(count, n) {
		return tko.Errorf(tko.ErrInvalid, "the pattern %q begins with a wildcard, so an agent with the token could ask to be that of any of %d sites, or of a later one: begin it with the names of few sites, or confirm it with --confirm %d", pattern, n, n)
	}
	return nil
}

// EndEnrollSites ends the token for a pattern of sites, and the agents that wait with it. ErrNotFound
// if there is none. Agents that were approved stay. It needs the rights of EnrollSites.
func (s *AgentEnrollments) EndEnrollSites(ctx context.Context, pattern string) error {
	ctx, c, err := s.enterSites(ctx, pattern)
	if err != nil {
		return err
	}
	now := time.Now()
	_, err = rights.ChangeRules(ctx, s.rights, c, func(book *rights.Book) (change rights.Change, err error) {
		for _, e := range book.Enrollments {
			if e.Pattern == pattern && now.Before(e.Expires) {
				eraseToken(&change, book, e, now)
			}
		}
		if len(change.Remove) == 0 {
			return change, tko.Errorf(tko.ErrNotFound, "there is no token for the sites %q: nothing was changed", pattern)
		}
		return change, nil
	})
	return err
}

var (
	// errManyClaims is the error of an agent that can't wait.
	errManyClaims = tko.Errorf(tko.ErrUnavailable, "too many agents wait for an approval, of this site or of all: approve or refuse some (tko site waiting), and the agent tries again")
	// errRefused is the error of an agent that a user refused.
	errRefused = tko.Errorf(tko.ErrDenied, "a user has refused the agent: enroll it with a token of its own (tko site enroll)")
)

// errWaiting returns the error of an agent that waits. It doesn't say whether the site exists.
func errWaiting(claim tko.AgentClaim) error {
	return tko.Errorf(tko.ErrUnavailable, "the agent waits until it is approved to be that of site %q: tko site approve %s --key %.16s", claim.Site, claim.Site, claim.Key)
}

// ClaimSite returns the enrollment of the agent of a site, if a user has approved what it claims,
// or if its token is a one-time token of that site. Otherwise the claim is stored, so that it can be
// approved, and an ErrUnavailable says that the agent waits. It is for the server of agents.
func (s *AgentEnrollments) ClaimSite(ctx context.Context, claim tko.AgentClaim) (tko.AgentEnrollment, error) {
	calling := ctx
	ctx, c, err := s.rights.Enter(ctx, "", access.Events)
	if err != nil {
		return tko.AgentEnrollment{}, err
	}
	if tko.CheckID("site", string(claim.Site)) != nil {
		return tko.AgentEnrollment{}, errEnrollment
	}
	claim.From, claim.Refused = printable.Kept(claim.From, 256), false
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return tko.AgentEnrollment{}, err
	}
	found, err := claimOf(book, claim)
	if err != nil {
		return tko.AgentEnrollment{}, err
	}
	if found.Claim == nil && found.Pattern == "" {
		return s.RedeemEnrollment(calling, claim.Token, claim.Key)
	}
	site, err := s.reader.One(ctx, record.Fields{}, record.Key{Kind: tko.KindSite, ID: string(claim.Site)})
	switch {
	case err != nil:
		return tko.AgentEnrollment{}, err
	case found.IsUsed() && site.Revision != 0 && site.UID == found.SiteUID:
		return found, nil
	case found.IsUsed():
		return tko.AgentEnrollment{}, errEnrollment
	case site.Revision == 0: // it may be registered while the agent waits
		return tko.AgentEnrollment{}, errWaiting(claim)
	}
	e := tko.AgentEnrollment{ID: uuid.NewString(), Site: claim.Site, SiteUID: site.UID, Claim: &claim, Created: time.Now().UTC().Truncate(time.Second)}
	decide := func(book *rights.Book) (rights.Change, error) { return noteClaim(book, e) }
	change, err := decide(book)
	if err == nil && len(change.Put) > 0 {
		_, err = rights.ChangeRules(ctx, s.rights, c, decide)
	}
	return tko.AgentEnrollment{}, cmp.Or(err, errWaiting(claim))
}

// claimOf returns the approved enrollment that an agent claims, or else that of its token, which permits
// to claim the site. errEnrollment if there is none.
func claimOf(book *rights.Book, claim tko.AgentClaim) (found tko.AgentEnrollment, err error) {
	now := time.Now()
	for _, e := range book.Enrollments {
		switch {
		case !now.Before(e.Expires):
		case e.IsUsed() && e.Claim != nil && e.Claim.Token == claim.Token && e.Key == claim.Key && e.Site == claim.Site:
			return e, nil
		case e.Token == claim.Token:
			found = e
		}
	}
	if found.Pattern == "" {
		if found.ID == "" || found.Site != claim.Site {
			return tko.AgentEnrollment{}, errEnrollment
		}
		return found, nil
	}
	if p, err := tko.ParsePattern(found.Pattern); err != nil || !p.Match(string(claim.Site)) {
		return tko.AgentEnrollment{}, errEnrollment
	}
	return found, nil
}

// noteClaim returns the change that lets an agent wait; an empty one if it does already, or was
// approved meanwhile.
func noteClaim(book *rights.Book, e tko.AgentEnrollment) (change rights.Change, err error) {
	token, err := claimOf(book, *e.Claim)
	if err != nil || token.Pattern == "" { // a change since the token was read: the agent tries again
		return change, err
	}
	now := time.Now()
	ofSite, all := 0, 0
	for _, other := range book.Enrollments {
		if other.Claim == nil || other.IsUsed() || !now.Before(other.Expires) {
			continue
		}
		same := other.Site == e.Site && other.SiteUID == e.SiteUID
		switch {
		case same && other.Claim.Token == e.Claim.Token && other.Claim.Key == e.Claim.Key && other.Claim.Refused:
			return change, errRefused
		case same && other.Claim.Token == e.Claim.Token && other.Claim.Key == e.Claim.Key:
			return change, nil
		case other.IsWaiting():
			all++
			if same {
				ofSite++
			}
		}
	}
	eraseExpired(&change, book, now)
	if ofSite >= maxClaimsOfSite || all >= maxClaims || len(book.Enrollments)-len(change.Remove) >= maxEnrollments {
		return change, errManyClaims
	}
	e.Expires, e.By = token.Expires, token.By
	rec := describeEnrollment("let the agent wait for an approval", e)
	rec.Detail += fmt.Sprintf(", key %s, from %s", e.Claim.Key, e.Claim.From)
	return change, change.Write(record.RuleEnrollment, e.ID, e, rec)
}

// WaitingAgents returns the agents that wait for an approval, of the sites that the caller may update,
// sorted by site, then by the time since when they wait.
func (s *AgentEnrollments) WaitingAgents(ctx context.Context) ([]tko.WaitingAgent, error) {
	ctx, c, err := s.rights.Enter(ctx, tko.KindSite, access.Read)
	if err != nil {
		return nil, err
	}
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	patterns, used, ids, waiting := map[string]string{}, map[tko.SiteID]string{}, []string(nil), []tko.AgentEnrollment(nil)
	for _, e := range book.Enrollments {
		switch {
		case e.Pattern != "":
			patterns[e.Token] = e.Pattern
		case e.IsUsed():
			used[e.Site] = e.SiteUID
		case e.IsWaiting() && now.Before(e.Expires):
			waiting, ids = append(waiting, e), append(ids, string(e.Site))
		}
	}
	uids := map[tko.SiteID]string{} // of the sites that the caller may update
	err = s.reader.EachOf(ctx, tko.KindSite, ids, func(r record.Record) {
		if c.Sees(r) && (c.MayAnywhere(access.Update, tko.KindSite) || c.Grant.May(access.Update, record.AttributesOf(r))) {
			uids[tko.SiteID(r.ID)] = r.UID
		}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(waiting, func(a, b tko.AgentEnrollment) int {
		return cmp.Or(cmp.Compare(a.Site, b.Site), a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	var all []tko.WaitingAgent
	for _, e := range waiting {
		if uid, ok := uids[e.Site]; ok && uid == e.SiteUID {
			all = append(all, tko.WaitingAgent{
				Site: e.Site, Key: e.Claim.Key, From: e.Claim.From, Pattern: patterns[e.Claim.Token], Since: e.Created, Expires: e.Expires, Replaces: used[e.Site] == e.SiteUID,
			})
		}
	}
	return all, nil
}

// ApproveAgent makes an agent that waits that of its site, or refuses it: then it can't ask again with
// the same token and key. With an approval, the agent that the site has ends, and so does a token of the
// site that was not used; other agents that wait for it go on to wait. ErrNotFound if none waits;
// ErrInvalid if several do, and the key doesn't say which; ErrConflict if the site has an agent, and the
// approval doesn't say that it may be replaced. The caller must hold the right to update the site, as for
// [AgentEnrollments.EnrollSite].
func (s *AgentEnrollments) ApproveAgent(ctx context.Context, a tko.AgentApproval) error {
	ctx, c, err := s.rights.EnterUser(ctx, access.Update)
	if err != nil {
		return err
	}
	if a.Key != "" && len(a.Key) < tko.MinAgentKey {
		return tko.Errorf(tko.ErrInvalid, "the key %q is too short: give at least %d digits of what tko site waiting shows", a.Key, tko.MinAgentKey)
	}
	if a.Refuse && a.Replace {
		return tko.Errorf(tko.ErrInvalid, "an agent of site %q can't be refused and replace another one: use one of both", a.Site)
	}
	site, err := s.enrolling(ctx, c, a.Site)
	if err != nil {
		return err
	}
	now, by := time.Now(), rights.Author(ctx)
	_, err = rights.ChangeRules(ctx, s.rights, c, func(book *rights.Book) (change rights.Change, err error) {
		e, err := waitingAgent(book, a, site.UID, now)
		if err != nil {
			return change, err
		}
		e.By = by
		if a.Refuse {
			return refuseAgent(book, e)
		}
		return approveAgent(book, e, now, a.Replace)
	})
	return err
}

// waitingAgent returns the agent that waits and that an approval means.
func waitingAgent(book *rights.Book, a tko.AgentApproval, uid string, now time.Time) (found tko.AgentEnrollment, err error) {
	n := 0
	for _, e := range book.Enrollments {
		if e.IsWaiting() && e.Site == a.Site && e.SiteUID == uid && now.Before(e.Expires) && strings.HasPrefix(e.Claim.Key, strings.ToLower(a.Key)) {
			found, n = e, n+1
		}
	}
	switch {
	case n == 0 && a.Key == "":
		return found, tko.Errorf(tko.ErrNotFound, "no agent waits for site %q: see tko site waiting", a.Site)
	case n == 0:
		return found, tko.Errorf(tko.ErrNotFound, "no agent with this key waits for site %q: see tko site waiting", a.Site)
	case n > 1:
		return found, tko.Errorf(tko.ErrInvalid, "%d agents wait for site %q: say which with --key, as tko site waiting and the log of the agent show it", n, a.Site)
	}
	return found, nil
}

// refuseAgent returns the change that refuses an agent. The oldest refusals of its site are forgotten,
// so that their number is bounded.
func refuseAgent(book *rights.Book, e tko.AgentEnrollment) (change rights.Change, err error) {
	var refused []tko.AgentEnrollment
	for _, other := range book.Enrollments {
		if other.Site == e.Site && other.Claim != nil && other.Claim.Refused {
			refused = append(refused, other)
		}
	}
	slices.SortFunc(refused, func(a, b tko.AgentEnrollment) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	for i := range len(refused) - maxClaimsOfSite + 1 {
		change.Erase(record.RuleEnrollment, refused[i].ID)
	}
	claim := *e.Claim
	claim.Refused = true
	e.Claim = &claim
	rec := describeEnrollment("refused the agent", e)
	rec.Detail += ", key " + claim.Key
	return change, change.Write(record.RuleEnrollment, e.ID, e, rec)
}

// approveAgent returns the change that makes an agent that of its site.
func approveAgent(book *rights.Book, e tko.AgentEnrollment, now time.Time, replace bool) (change rights.Change, err error) {
	for _, other := range book.Enrollments {
		if other.Site != e.Site || other.ID == e.ID || !other.Permits() {
			continue
		}
		if other.IsUsed() && other.SiteUID == e.SiteUID && !replace {
			return change, tko.Errorf(tko.ErrConflict, "site %q has an agent already, whose certificate would end: approve the new one with --replace, or refuse it with --refuse", e.Site)
		}
		change.Erase(record.RuleEnrollment, other.ID)
		change.Records = append(change.Records, describeEnrollment("replaced the agent", other))
	}
	e.Key = e.Claim.Key
	if until := now.UTC().Add(claimTime).Truncate(time.Second); e.Expires.Before(until) {
		e.Expires = until
	}
	rec := describeEnrollment("approved the agent", e)
	rec.Detail += ", key " + e.Key
	return change, change.Write(record.RuleEnrollment, e.ID, e, rec)
}

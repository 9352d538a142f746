// Package enrollment has which agents of sites may connect: tokens, approvals by users, certificates and revocation.
package enrollment

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// maxEnrollments is the maximum number of enrollments of agents.
const maxEnrollments = 100_000

// enrollmentPrefix begins one-time tokens of agents, so that tools that search for secrets find
// them.
const enrollmentPrefix = "tko_agent_"

// AgentEnrollments permit the agents of sites to connect.
type AgentEnrollments struct {
	rights *rights.Authorizer
	reader record.Lookup
	store  record.Store
	report Reporter
}

// A Reporter replaces conditions of a site.
type Reporter func(ctx context.Context, site record.Key, conditions []tko.Condition) error

// New returns the enrollments that a store has.
func New(authorizer *rights.Authorizer, store record.Store, report Reporter) *AgentEnrollments {
	return &AgentEnrollments{rights: authorizer, reader: record.Lookup{Store: store}, store: store, report: report}
}

// EnrollSite returns a one-time token for an agent of a site, which is valid for a time;
// [tko.DefaultEnrollment] if 0. Another token of the site that was not used ends. An agent that has
// a certificate keeps it until the token is used. The caller must hold the right to update the
// site: its agent gets all that the site shall have.
func (s *AgentEnrollments) EnrollSite(ctx context.Context, id tko.SiteID, valid time.Duration) (tko.EnrollmentToken, error) {
	ctx, c, err := s.rights.EnterUser(ctx, access.Update)
	if err != nil {
		return tko.EnrollmentToken{}, err
	}
	valid = cmp.Or(valid, tko.DefaultEnrollment)
	if err := checkEnrollmentTime(valid); err != nil {
		return tko.EnrollmentToken{}, err
	}
	site, err := s.enrolling(ctx, c, id)
	if err != nil {
		return tko.EnrollmentToken{}, err
	}
	now := time.Now().UTC()
	made := tko.EnrollmentToken{Site: id, Token: enrollmentPrefix + rand.Text(), Expires: now.Add(valid).Truncate(time.Second)}
	e := tko.AgentEnrollment{
		ID: uuid.NewString(), Site: id, SiteUID: site.UID, Token: tko.EnrollmentHash(made.Token), Expires: made.Expires, By: rights.Author(ctx), Created: now.Truncate(time.Second),
	}
	_, err = rights.ChangeRules(ctx, s.rights, c, func(book *rights.Book) (change rights.Change, err error) {
		made.Replaces = false
		for _, other := range book.Enrollments {
			if ended := !other.IsUsed() && (other.Site == id && other.Permits() || !now.Before(other.Expires)); ended {
				change.Erase(record.RuleEnrollment, other.ID)
			} else if other.Site == id && other.IsUsed() {
				made.Replaces = true
			}
		}
		if len(book.Enrollments)-len(change.Remove) >= maxEnrollments {
			return change, tko.Errorf(tko.ErrInvalid, "there are %d agents, the maximum: revoke those that are no longer used (tko site revoke)", len(book.Enrollments))
		}
		return change, change.Write(record.RuleEnrollment, e.ID, e, describeEnrollment("made a token for the agent", e))
	})
	if err != nil {
		return tko.EnrollmentToken{}, err
	}
	return made, nil
}

func checkEnrollmentTime(valid time.Duration) error {
	if valid < time.Second || valid > tko.MaxEnrollment {
		return tko.Errorf(tko.ErrInvalid, "the token would be valid for %s: use at least 1s and at most %s", valid, tko.MaxEnrollment)
	}
	return nil
}

// enrolling returns the site whose agents a caller may enroll.
func (s *AgentEnrollments) enrolling(ctx context.Context, c *rights.Caller, id tko.SiteID) (record.Record, error) {
	key := record.Key{Kind: tko.KindSite, ID: string(id)}
	if err := record.CheckKey(key); err != nil {
		return record.Record{}, record.Missing(key)
	}
	site, err := s.rights.GetVisible(ctx, c, record.Fields{}, key)
	if err != nil {
		return record.Record{}, err
	}
	return site, s.rights.Permit(ctx, &site, nil, access.Update)
}

// RevokeSite ends the tokens and the certificates of a site's agents, and what they are connected
// by. ErrNotFound if there are none. What the site has stays there.
func (s *AgentEnrollments) RevokeSite(ctx context.Context, id tko.SiteID) error {
	ctx, c, err := s.rights.EnterUser(ctx, access.Update)
	if err != nil {
		return err
	}
	site, err := s.enrolling(ctx, c, id)
	if err != nil {
		return err
	}
	_, err = rights.ChangeRules(ctx, s.rights, c, func(book *rights.Book) (change rights.Change, err error) {
		for _, e := range book.Enrollments {
			if e.Site == id && e.Permits() {
				change.Erase(record.RuleEnrollment, e.ID)
				change.Records = append(change.Records, describeEnrollment("revoked the agent", e))
			}
		}
		if len(change.Remove) == 0 {
			return change, tko.Errorf(tko.ErrNotFound, "site %q has no agent that could connect: nothing was changed", id)
		}
		return change, nil
	})
	if err != nil {
		return err
	}
	if tko.HasCondition(site.Conditions, tko.ConditionConnected) {
		own := rights.WithAllRights(ctx, c)
		if err := s.report(own, site.Key, []tko.Condition{{
			Type: tko.ConditionConnected, Status: tko.ConditionFalse, Reason: tko.ReasonRevoked, ObservedRevision: site.Revision,
			Message: "the certificate of its agent was revoked: what the site has is not known; enroll an agent with tko site enroll",
		}}); err != nil {
			return err
		}
	}
	return s.store.EnqueueWork(ctx, tko.QueueSchedule, []string{string(id)}, false) // the health of its deployments isn't known any more
}

// errEnrollment is the error of all tokens that aren't valid: it says no more to a client that has
// none.
var errEnrollment = tko.Errorf(tko.ErrDenied, "the token is not valid: it has expired, was used by another agent, or another one was made for the site: make a new one with tko site enroll")

// RedeemEnrollment makes the key with a hash that of the agent for which the token with a hash was
// made. The same key may use the token again until it expires, since a response can get lost; for
// other keys it is used up. Other agents of the site are revoked. It is for the server of agents.
func (s *AgentEnrollments) RedeemEnrollment(ctx context.Context, token, key string) (tko.AgentEnrollment, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Events)
	if err != nil {
		return tko.AgentEnrollment{}, err
	}
	var found tko.AgentEnrollment
	decide := func(book *rights.Book) (change rights.Change, err error) {
		found = tko.AgentEnrollment{}
		for _, e := range book.Enrollments {
			if e.Token == token && e.Pattern == "" {
				found = e
			}
		}
		if found.ID == "" || !time.Now().Before(found.Expires) || found.IsUsed() && found.Key != key {
			return change, errEnrollment
		}
		if found.IsUsed() {
			return change, nil
		}
		found.Key = key
		for _, other := range book.Enrollments {
			if other.Site == found.Site && other.ID != found.ID && other.Permits() {
				change.Erase(record.RuleEnrollment, other.ID)
				change.Records = append(change.Records, describeEnrollment("replaced the agent", other))
			}
		}
		return change, change.Write(record.RuleEnrollment, found.ID, found, describeEnrollment("enrolled the agent", found))
	}
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return tko.AgentEnrollment{}, err
	}
	change, err := decide(book)
	if err != nil {
		return tko.AgentEnrollment{}, err
	}
	site, err := s.reader.One(ctx, record.Fields{}, record.Key{Kind: tko.KindSite, ID: string(found.Site)})
	switch {
	case err != nil:
		return tko.AgentEnrollment{}, err
	case site.Revision == 0 || site.UID != found.SiteUID:
		return tko.AgentEnrollment{}, errEnrollment
	case len(change.Put) == 0: // the same key again
		return found, nil
	}
	_, err = rights.ChangeRules(ctx, s.rights, c, decide)
	return found, err
}

// Enrollments returns the agents that may connect or enroll, by the IDs of their enrollments, which
// belong to the catalog; and a text that differs if stops or freezes do. It is for the server of
// agents.
func (s *AgentEnrollments) Enrollments(ctx context.Context) (all map[string]tko.AgentEnrollment, holds string, err error) {
	if ctx, _, err = s.rights.Enter(ctx, "", access.Events); err != nil {
		return nil, "", err
	}
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return nil, "", err
	}
	return book.Enrollments, book.Holds, nil
}

func describeEnrollment(verb string, e tko.AgentEnrollment) audit.Record {
	return audit.Record{Kind: record.RuleEnrollment, ID: cmp.Or(string(e.Site), e.Pattern), Op: verb, Detail: fmt.Sprintf("enrollment %s, token valid until %s", e.ID, e.Expires.UTC().Format(time.RFC3339)), Why: e.By.Why}
}

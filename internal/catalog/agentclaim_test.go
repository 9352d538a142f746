package catalog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// A claims is a catalog with sites, an editor of a/** only, and agents that ask for them.
type claims struct {
	*world
}

func newClaims(t *testing.T) *claims {
	t.Helper()
	return &claims{agents(t)}
}

// claim asks to be the agent of a site.
func (w *claims) claim(made tko.EnrollmentToken, site, key string) (tko.AgentEnrollment, error) {
	return w.ClaimSite(identity.With(w.t.Context(), identity.Controller(identity.RoleServer)), tko.AgentClaim{
		Site: tko.SiteID(site), Token: tko.EnrollmentHash(made.Token), Key: tko.EnrollmentHash(key), From: "192.0.2.1:5",
	})
}

func (w *claims) token(pattern string) tko.EnrollmentToken {
	w.t.Helper()
	made, err := w.EnrollSites(w.ctx, pattern, time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	return made
}

// waits checks which sites' agents wait, as a caller sees it.
func (w *claims) waits(who, want string) []tko.WaitingAgent {
	w.t.Helper()
	all, err := w.WaitingAgents(w.as(who))
	if err != nil {
		w.t.Fatal(err)
	}
	var sites []string
	for _, one := range all {
		sites = append(sites, string(one.Site))
	}
	if got := strings.Join(sites, " "); got != want {
		w.t.Errorf("agents of %q wait, want %q", got, want)
	}
	return all
}

func TestAgentWithATokenForSeveralSitesWaitsForAnApproval(t *testing.T) {
	t.Parallel()
	w := newClaims(t)
	made := w.token("a/*")
	server := identity.With(t.Context(), identity.Controller(identity.RoleServer))

	_, err := w.claim(made, "a/1", "one")
	w.is("the first claim", err, tko.ErrUnavailable)
	if !strings.Contains(err.Error(), "tko site approve a/1 --key "+tko.EnrollmentHash("one")[:16]) {
		t.Errorf("the agent gets %v", err)
	}
	_, err = w.claim(made, "a/1", "one")
	w.is("the same claim again", err, tko.ErrUnavailable)
	all := w.waits("cert:a", "a/1")
	if len(all) == 1 && (all[0].Key != tko.EnrollmentHash("one") || all[0].From != "192.0.2.1:5" || all[0].Pattern != "a/*" || all[0].Replaces) {
		t.Errorf("it waits as %+v", all[0])
	}
	enrolled, _, err := w.Enrollments(server)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range enrolled {
		if e.IsUsed() {
			t.Errorf("an agent that waits may connect: %+v", e)
		}
	}

	// The token permits nothing else.
	_, err = w.RedeemEnrollment(server, tko.EnrollmentHash(made.Token), "key")
	w.is("the token as a one-time token", err, tko.ErrDenied)
	_, err = w.claim(made, "b/1", "one")
	w.is("a site that the pattern doesn't have", err, tko.ErrDenied)
	_, err = w.claim(tko.EnrollmentToken{Token: "another"}, "a/1", "one")
	w.is("an unknown token", err, tko.ErrDenied)
	_, err = w.claim(made, "a/9", "one")
	w.is("a site that doesn't exist", err, tko.ErrUnavailable)
	w.waits("cert:a", "a/1")

	// The keys say which of two agents that claim one site is meant.
	_, err = w.claim(made, "a/1", "two")
	w.is("another key", err, tko.ErrUnavailable)
	approve := func(who string, a tko.AgentApproval, want error) {
		t.Helper()
		w.is(fmt.Sprintf("%s approves %+v", who, a), w.ApproveAgent(w.as(who), a), want)
	}
	approve("cert:a", tko.AgentApproval{Site: "a/1"}, tko.ErrInvalid)
	approve("cert:a", tko.AgentApproval{Site: "a/1", Key: tko.EnrollmentHash("one")[:15]}, tko.ErrInvalid)
	approve("cert:a", tko.AgentApproval{Site: "a/1", Key: tko.EnrollmentHash("three")}, tko.ErrNotFound)
	approve("cert:a", tko.AgentApproval{Site: "a/1", Key: tko.EnrollmentHash("one"), Refuse: true, Replace: true}, tko.ErrInvalid)
	approve("cert:a", tko.AgentApproval{Site: "a/1", Key: strings.ToUpper(tko.EnrollmentHash("one")[:16])}, nil)
	e, err := w.claim(made, "a/1", "one")
	if err != nil || e.Site != "a/1" || e.Key != tko.EnrollmentHash("one") || !e.IsUsed() {
		t.Fatalf("the approved agent gets %+v, %v", e, err)
	}

	// An agent is not replaced by accident, by an approval or a claim.
	_, err = w.claim(made, "a/1", "two")
	w.is("another key after the approval", err, tko.ErrUnavailable)
	if all := w.waits("cert:a", "a/1"); len(all) == 1 && (!all[0].Replaces || all[0].Key != tko.EnrollmentHash("two")) {
		t.Errorf("it would replace an agent: %+v", all[0])
	}
	approve("cert:a", tko.AgentApproval{Site: "a/1"}, tko.ErrConflict)
	if _, err := w.claim(made, "a/1", "one"); err != nil {
		t.Errorf("the agent that the site has: %v", err)
	}
	approve("cert:a", tko.AgentApproval{Site: "a/1", Replace: true}, nil)
	_, err = w.claim(made, "a/1", "one")
	w.is("the replaced agent", err, tko.ErrUnavailable)
	if e, err = w.claim(made, "a/1", "two"); err != nil || e.Key != tko.EnrollmentHash("two") {
		t.Errorf("the new agent gets %+v, %v", e, err)
	}

	// The end of the token ends what waits, and not what was approved.
	w.waits("cert:a", "a/1")
	w.is("end the token", w.EndEnrollSites(w.as("cert:a"), "a/*"), nil)
	w.is("end it again", w.EndEnrollSites(w.as("cert:a"), "a/*"), tko.ErrNotFound)
	w.waits("cert:a", "")
	_, err = w.claim(made, "a/1", "one")
	w.is("the ended token", err, tko.ErrDenied)
	if e, err = w.claim(made, "a/1", "two"); err != nil || e.Key != tko.EnrollmentHash("two") {
		t.Errorf("the approved agent gets %+v, %v", e, err)
	}
	w.is("revoke it", w.RevokeSite(w.as("cert:a"), "a/1"), nil)
	_, err = w.claim(made, "a/1", "two")
	w.is("the revoked agent", err, tko.ErrDenied)
}

// A refusal holds until the token ends: the agent doesn't wait again by itself.
func TestRefusedAgentDoesNotWaitAgain(t *testing.T) {
	t.Parallel()
	w := newClaims(t)
	made := w.token("a/*")
	for i := range 2 * 5 { // no refusal takes the place of an agent that waits
		key := fmt.Sprintf("key %d", i)
		_, err := w.claim(made, "a/1", key)
		w.is("it claims", err, tko.ErrUnavailable)
		w.is("refuse it", w.ApproveAgent(w.as("cert:a"), tko.AgentApproval{Site: "a/1", Refuse: true}), nil)
		_, err = w.claim(made, "a/1", key)
		w.is("it claims again", err, tko.ErrDenied)
		w.waits("cert:a", "")
		w.is("approve it nevertheless", w.ApproveAgent(w.ctx, tko.AgentApproval{Site: "a/1"}), tko.ErrNotFound)
	}
	all, _, err := w.Enrollments(identity.With(t.Context(), identity.Controller(identity.RoleServer)))
	if err != nil || len(all) != 1+5 { // the token, and the latest refusals
		t.Errorf("%d enrollments are stored, %v", len(all), err)
	}

	// A token of its own enrolls the machine, with another key or the same one.
	own, err := w.EnrollSite(w.as("cert:a"), "a/1", time.Hour)
	if err != nil || own.Replaces {
		t.Fatalf("the token is %+v, %v", own, err)
	}
	if _, err := w.claim(own, "a/1", "key 9"); err != nil {
		t.Errorf("the token of its own: %v", err)
	}
	w.is("a new token for the pattern", w.EndEnrollSites(w.ctx, "a/*"), nil)
	if all, _, err = w.Enrollments(identity.With(t.Context(), identity.Controller(identity.RoleServer))); err != nil || len(all) != 1 {
		t.Errorf("after the end of the token, %d enrollments are stored, %v", len(all), err)
	}
}

// One-time tokens and revocations leave alone who waits, and the other way around.
func TestAgentsThatWaitAreNoAgentsOfTheSite(t *testing.T) {
	t.Parallel()
	w := newClaims(t)
	made := w.token("a/*")
	_, err := w.claim(made, "a/1", "waits")
	w.is("it claims", err, tko.ErrUnavailable)
	w.is("revoke what isn't there", w.RevokeSite(w.ctx, "a/1"), tko.ErrNotFound)
	own, err := w.EnrollSite(w.ctx, "a/1", time.Hour)
	if err != nil || own.Replaces {
		t.Fatalf("the token is %+v, %v", own, err)
	}
	w.waits("cert:a", "a/1")
	if _, err := w.claim(own, "a/1", "own"); err != nil {
		t.Fatal(err)
	}
	if all := w.waits("cert:a", "a/1"); len(all) == 1 && !all[0].Replaces {
		t.Errorf("it would replace the agent: %+v", all[0])
	}
	w.is("approve it", w.ApproveAgent(w.ctx, tko.AgentApproval{Site: "a/1"}), tko.ErrConflict)
	w.is("revoke the agent", w.RevokeSite(w.ctx, "a/1"), nil)
	w.waits("cert:a", "a/1")

	// A site that is registered again is another one, for which no agent has asked.
	if _, err := w.DeleteSite(tko.WithConfirmation(w.ctx, 1), "a/1"); err != nil {
		t.Fatal(err)
	}
	w.waits("cert:root", "")
	w.site("a/1", "")
	w.waits("cert:root", "")
	w.is("approve the claim of the former site", w.ApproveAgent(w.ctx, tko.AgentApproval{Site: "a/1"}), tko.ErrNotFound)
	_, err = w.claim(made, "a/1", "waits")
	w.is("it claims the new site", err, tko.ErrUnavailable)
	w.is("approve that", w.ApproveAgent(w.ctx, tko.AgentApproval{Site: "a/1"}), nil)
}

// What waits is in the store: another server of it lists and approves it.
func TestAgentsWaitAtAllServersOfAStore(t *testing.T) {
	t.Parallel()
	w := newClaims(t)
	made := w.token("a/*")
	_, err := w.claim(made, "a/1", "one")
	w.is("it claims", err, tko.ErrUnavailable)
	again := catalog.New(w.store, w.validator, catalog.Options{Access: rights.Enforce, Audit: true})
	if all, err := again.WaitingAgents(w.as("cert:a")); err != nil || len(all) != 1 || all[0].Key != tko.EnrollmentHash("one") {
		t.Errorf("the other server lists %+v, %v", all, err)
	}
	w.is("approve it there", again.ApproveAgent(w.as("cert:a"), tko.AgentApproval{Site: "a/1"}), nil)
	if e, err := w.claim(made, "a/1", "one"); err != nil || e.Site != "a/1" {
		t.Errorf("the agent gets %+v, %v", e, err)
	}
	_, rules, err := w.store.Access(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if strings.Contains(string(r.Doc), made.Token) {
			t.Error("the store has the token itself")
		}
	}
}

func TestAgentsAreApprovedByThoseWhoMayUpdateTheSite(t *testing.T) {
	t.Parallel()
	w := newClaims(t)
	made := w.token("b/*")
	_, err := w.claim(made, "b/1", "one")
	w.is("it claims", err, tko.ErrUnavailable)
	w.bind("cert:reader", access.Viewer, access.Scope{})
	w.waits("cert:a", "")
	w.waits("cert:root", "b/1")
	w.waits("cert:reader", "")
	w.is("another's site", w.ApproveAgent(w.as("cert:a"), tko.AgentApproval{Site: "b/1"}), tko.ErrNotFound)
	w.is("a reader approves", w.ApproveAgent(w.as("cert:reader"), tko.AgentApproval{Site: "b/1"}), tko.ErrDenied)
	w.is("the own site", w.ApproveAgent(w.ctx, tko.AgentApproval{Site: "b/1"}), nil)

	// Tokens are for sites that one may update.
	_, err = w.EnrollSites(w.as("cert:reader"), "b/*", time.Hour)
	w.is("a reader makes a token", err, tko.ErrDenied)
	for _, pattern := range []string{"b/*", "*", "a*"} {
		_, err = w.EnrollSites(tko.WithConfirmation(w.as("cert:a"), 1), pattern, time.Hour)
		w.is("a token for "+pattern, err, tko.ErrDenied)
		w.is("the end of the token for "+pattern, w.EndEnrollSites(w.as("cert:a"), pattern), tko.ErrDenied)
	}
	_, err = w.EnrollSites(w.as("cert:a"), "a/*", time.Hour)
	w.is("a token for the own sites", err, nil)
}

func TestPatternsOfAllSitesMustBeConfirmed(t *testing.T) {
	t.Parallel()
	w := newClaims(t)
	for _, pattern := range []string{"*", "**", "*/1", `**1`} {
		_, err := w.EnrollSites(w.ctx, pattern, time.Hour)
		w.is("without a confirmation: "+pattern, err, tko.ErrInvalid)
	}
	_, err := w.EnrollSites(tko.WithConfirmation(w.ctx, 2), "**", time.Hour)
	w.is("with too small a number", err, tko.ErrInvalid)
	_, err = w.EnrollSites(tko.WithConfirmation(w.ctx, 3), "**", time.Hour)
	w.is("with the number", err, nil)
	for _, pattern := range []string{"", "a\\", strings.Repeat("a", tko.MaxIDLength+1)} {
		_, err := w.EnrollSites(tko.WithConfirmation(w.ctx, 3), pattern, time.Hour)
		w.is(fmt.Sprintf("the pattern %.20q", pattern), err, tko.ErrInvalid)
	}
}

func TestFewAgentsWaitForOneSite(t *testing.T) {
	t.Parallel()
	w := newClaims(t)
	made := w.token("a/*")
	for i := range 5 {
		_, err := w.claim(made, "a/1", strings.Repeat("k", i+1))
		w.is("it claims", err, tko.ErrUnavailable)
	}
	_, err := w.claim(made, "a/1", "another")
	if !errors.Is(err, tko.ErrUnavailable) || !strings.Contains(err.Error(), "too many agents wait") {
		t.Errorf("the sixth: %v", err)
	}
	w.waits("cert:a", "a/1 a/1 a/1 a/1 a/1")
	_, err = w.claim(made, "a/2", "another")
	w.is("for another site", err, tko.ErrUnavailable)
	w.waits("cert:a", "a/1 a/1 a/1 a/1 a/1 a/2")

	// A new token for the pattern ends what waits with the former one.
	w.token("a/*")
	w.waits("cert:a", "")
}

// With a token of its own, an agent may name its site as well; another one is refused.
func TestOneTimeTokenIsOfTheClaimedSite(t *testing.T) {
	t.Parallel()
	w := newClaims(t)
	made, err := w.EnrollSite(w.ctx, "a/1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.claim(made, "a/2", "one")
	w.is("another site", err, tko.ErrDenied)
	e, err := w.claim(made, "a/1", "one")
	if err != nil || e.Site != "a/1" || !e.IsUsed() {
		t.Errorf("it is %+v, %v", e, err)
	}
}

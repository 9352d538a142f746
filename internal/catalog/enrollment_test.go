package catalog_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// agents returns a catalog with sites, whose owner cert:a may change only a/**.
func agents(t *testing.T) *world {
	t.Helper()
	w := newGuarded(t, catalog.Options{})
	w.site("a/1", "")
	w.site("a/2", "")
	w.site("b/1", "")
	w.bind("cert:a", access.Editor, access.Scope{SiteID: "a/**"})
	return w
}

func TestTokenOfAnAgentIsUsedByOneKeyOnly(t *testing.T) {
	t.Parallel()
	w := agents(t)
	server := identity.With(t.Context(), identity.Controller(identity.RoleServer))
	made, err := w.EnrollSite(w.as("cert:a"), "a/1", 0)
	if err != nil {
		t.Fatal(err)
	}
	token := tko.EnrollmentHash(made.Token)
	redeem := func(token, key string, want error) tko.AgentEnrollment {
		t.Helper()
		e, err := w.RedeemEnrollment(server, token, key)
		if !errors.Is(err, want) {
			t.Fatalf("redeemed for %s: %v, want %v", key, err, want)
		}
		return e
	}
	if _, err := w.RedeemEnrollment(w.as("cert:a"), token, "k"); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("a user redeems a token: %v", err)
	}
	redeem(tko.EnrollmentHash("another"), "key", tko.ErrDenied)
	first := redeem(token, "key", nil)
	if again := redeem(token, "key", nil); again.ID != first.ID || first.Site != "a/1" { // the response was lost
		t.Errorf("the same key got %+v, and then %+v", first, again)
	}
	redeem(token, "another key", tko.ErrDenied)

	// A second token replaces the agent when it is used, and not before.
	second, err := w.EnrollSite(w.as("cert:a"), "a/1", time.Hour)
	if err != nil || !second.Replaces {
		t.Fatalf("it is %+v, %v", second, err)
	}
	if _, err := w.EnrollSite(w.as("cert:a"), "a/2", time.Hour); err != nil {
		t.Fatal(err)
	}
	if all, _, err := w.Enrollments(server); err != nil || all[first.ID].Key != "key" {
		t.Errorf("the agent has ended too early: %v, %v", all, err)
	}
	third, err := w.EnrollSite(w.as("cert:a"), "a/1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	redeem(tko.EnrollmentHash(second.Token), "another key", tko.ErrDenied) // the newer token has replaced it
	if got := redeem(tko.EnrollmentHash(third.Token), "another key", nil); got.ID == first.ID {
		t.Error("two agents have one enrollment")
	}
	all, _, err := w.Enrollments(server)
	if _, there := all[first.ID]; err != nil || there || len(all) != 2 {
		t.Errorf("the agents are %v, %v", all, err)
	}
	redeem(token, "key", tko.ErrDenied)

	if err := w.RevokeSite(w.as("cert:a"), "a/1"); err != nil {
		t.Fatal(err)
	}
	redeem(tko.EnrollmentHash(third.Token), "another key", tko.ErrDenied)
	if err := w.RevokeSite(w.as("cert:a"), "a/1"); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
}

func TestTokenOfAnAgentEnds(t *testing.T) {
	t.Parallel()
	w := agents(t)
	server := identity.With(t.Context(), identity.Controller(identity.RoleServer))
	for _, valid := range []time.Duration{-time.Second, time.Millisecond, tko.MaxEnrollment + time.Second} {
		if _, err := w.EnrollSite(w.ctx, "a/1", valid); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("valid for %s: %v", valid, err)
		}
	}
	made, err := w.EnrollSite(w.ctx, "a/1", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(made.Expires)) // stores have clocks of their own
	if _, err := w.RedeemEnrollment(server, tko.EnrollmentHash(made.Token), "key"); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("an expired token: %v", err)
	}

	// A site that is registered again is another one.
	if made, err = w.EnrollSite(w.ctx, "a/1", time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := w.DeleteSite(tko.WithConfirmation(w.ctx, 1), "a/1"); err != nil {
		t.Fatal(err)
	}
	w.site("a/1", "")
	if _, err := w.RedeemEnrollment(server, tko.EnrollmentHash(made.Token), "key"); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("a token of a site that was deleted: %v", err)
	}
}

func TestAgentsAreEnrolledByThoseWhoMayUpdateTheSite(t *testing.T) {
	t.Parallel()
	w := agents(t)
	w.bind("cert:reader", access.Viewer, access.Scope{})
	for who, want := range map[string]error{"cert:a": tko.ErrNotFound, "cert:reader": tko.ErrDenied} {
		if _, err := w.EnrollSite(w.as(who), "b/1", 0); !errors.Is(err, want) {
			t.Errorf("%s enrolls: %v, want %v", who, err, want)
		}
		if err := w.RevokeSite(w.as(who), "b/1"); !errors.Is(err, want) {
			t.Errorf("%s revokes: %v, want %v", who, err, want)
		}
	}
	made, err := w.EnrollSite(w.ctx, "b/1", 0)
	if err != nil {
		t.Fatal(err)
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

package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
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

// An accessStore counts what changes of rules cost.
type accessStore struct {
	record.Store

	conflicts, reads atomic.Int64
}

func (s *accessStore) Access(ctx context.Context) (int64, []record.AccessRule, error) {
	s.reads.Add(1)
	return s.Store.Access(ctx)
}

func (s *accessStore) ChangeAccess(ctx context.Context, expect int64, put, remove []record.AccessRule, records ...audit.Record) (int64, error) {
	version, err := s.Store.ChangeAccess(ctx, expect, put, remove, records...)
	if errors.Is(err, tko.ErrConflict) {
		s.conflicts.Add(1)
	}
	return version, err
}

// The enrollments of one server wait for each other, so that none is done in vain, and don't read the
// rules again.
func TestEnrollmentsOfOneServerDoNotConflict(t *testing.T) {
	t.Parallel()
	w := agents(t)
	const n = 50
	for i := range n {
		w.site(fmt.Sprintf("a/many/%d", i), "")
	}
	store := &accessStore{Store: w.store}
	server := catalog.New(store, w.validator, catalog.Options{Access: rights.Enforce, Audit: true})
	own := identity.With(t.Context(), identity.Controller(identity.RoleServer))
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			made, err := server.EnrollSite(w.as("cert:a"), tko.SiteID(fmt.Sprintf("a/many/%d", i)), time.Hour) //nolint:contextcheck // of another caller
			if err == nil {
				_, err = server.RedeemEnrollment(own, tko.EnrollmentHash(made.Token), fmt.Sprintf("key %d", i))
			}
			errs[i] = err
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if conflicts, reads := store.conflicts.Load(), store.reads.Load(); conflicts != 0 || reads != 1 {
		t.Errorf("%d enrollments have %d conflicts, and read all rules %d times", n, conflicts, reads)
	}
}

// Many sites are enrolled at once through two servers, and their agents use the tokens at once. No
// call is refused because of another one, and both servers know all agents.
func TestManySitesAreEnrolledAtOnce(t *testing.T) {
	t.Parallel()
	w := agents(t)
	servers := []*catalog.Service{w.Service, catalog.New(w.store, w.validator, catalog.Options{Access: rights.Enforce, Audit: true})}
	const n = 50
	for i := range n {
		w.site(fmt.Sprintf("a/many/%d", i), "")
	}
	own := identity.With(t.Context(), identity.Controller(identity.RoleServer))
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			made, err := servers[i%2].EnrollSite(w.as("cert:a"), tko.SiteID(fmt.Sprintf("a/many/%d", i)), time.Hour) //nolint:contextcheck // of another caller
			if err == nil {
				_, err = servers[(i+1)%2].RedeemEnrollment(own, tko.EnrollmentHash(made.Token), fmt.Sprintf("key %d", i))
			}
			errs[i] = err
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	again, _, err := catalog.New(w.store, w.validator, catalog.Options{}).Enrollments(own) // as the store has them
	if err != nil || len(again) != n {
		t.Fatalf("the store has %d agents, %v", len(again), err)
	}
	for i, s := range servers {
		known, _, err := s.Enrollments(own)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(again, known); diff != "" {
			t.Errorf("server %d has other agents than the store: %s", i, diff)
		}
	}
	for _, e := range again {
		if !e.IsUsed() {
			t.Errorf("the token of site %q was not used", e.Site)
		}
	}
}

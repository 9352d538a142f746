package identity_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/identity"
)

func TestMissingIdentityIsNoCaller(t *testing.T) {
	t.Parallel()
	if i, ok := identity.From(t.Context()); ok || !i.IsZero() {
		t.Errorf("a context without an identity: %+v, %t", i, ok)
	}
	if i, ok := identity.From(identity.With(t.Context(), identity.Identity{Groups: []string{"oidc:corp:admins"}})); ok {
		t.Errorf("an identity without a subject is accepted: %+v", i)
	}
	if i, ok := identity.From(identity.With(t.Context(), identity.Anonymous("127.0.0.1:1"))); !ok || !i.IsAnonymous() || !i.IsLocal() {
		t.Errorf("anonymous: %+v, %t", i, ok)
	}
}

func TestNamesOfOwnControllersAreRefusedFromOutside(t *testing.T) {
	t.Parallel()
	for prefix, name := range map[string]string{
		identity.Certificate: "tko:preparer", identity.Token: "TKO:x", identity.Own: "preparer", identity.Kubernetes: "",
		identity.OIDC: "corp:line\nbreak", identity.SPIFFE: " space", identity.Unix: strings.Repeat("x", 600),
	} {
		if got, err := identity.Named(prefix, name); !errors.Is(err, tko.ErrDenied) {
			t.Errorf("%s%.20q: %.40q, %v", prefix, name, got, err)
		}
	}
	if _, err := identity.Groups("oidc:corp:", []string{"noc", "tko:admin"}); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("a group with the prefix: %v", err)
	}
	groups, err := identity.Groups("oidc:corp:", []string{"noc", "ops", "noc"})
	if err != nil || strings.Join(groups, " ") != "oidc:corp:noc oidc:corp:ops" {
		t.Errorf("groups: %v, %v", groups, err)
	}
}

func TestOnlyControllersHaveRoles(t *testing.T) {
	t.Parallel()
	for want, i := range map[string]identity.Identity{
		"preparer": identity.Controller(identity.RolePreparer),
		"":         identity.OfPlugin(identity.Plugin{Type: "prepare", Name: "x"}, time.Time{}, "process"),
	} {
		if got := i.Role(); got != want {
			t.Errorf("the role of %s is %q, want %q", i.Subject, got, want)
		}
	}
	if role := (identity.Identity{Subject: "tko:cook"}).Role(); role != "" {
		t.Errorf("an unknown role: %q", role)
	}
}

func TestIdentityExpires(t *testing.T) {
	t.Parallel()
	now := time.Now()
	if (identity.Identity{}).Expired(now) || !(identity.Identity{Expires: now}).Expired(now) {
		t.Error("an identity ends at its expiry, and never without one")
	}
}

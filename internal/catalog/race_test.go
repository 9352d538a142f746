package catalog_test

import (
	"context"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// A movingStore calls before at the start of each modification.
type movingStore struct {
	record.Store

	before func()
}

func (s *movingStore) StartModification(ctx context.Context, id, token string, life time.Duration) (record.Record, time.Time, error) {
	if s.before != nil {
		s.before()
	}
	return s.Store.StartModification(ctx, id, token, life)
}

// A deployment leaves the scope of a caller between the check of the caller's rights and
// the start of the modification.
func TestModificationDoesNotShowWhatHasLeftTheScope(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	store := &movingStore{Store: w.store}
	w.Service = catalog.New(store, w.validator, catalog.Options{Access: rights.Enforce, Audit: true})
	w.site("emea/1", "")
	w.site("apac/1", "")
	w.bind("cert:ada", access.Editor, emea)
	d := w.create(tko.NewDeployment{Site: "emea/1"})
	store.before = func() {
		store.before = nil
		_, err := w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: d, Revision: 1, Package: pkg(t, state("siteId: apac/1", "")+thing("hidden", ""))})
		w.is("move", err, nil)
	}
	m, err := w.StartModification(w.as("cert:ada"), d)
	w.is("start", err, tko.ErrNotFound)
	if m.Package != nil || m.Token != "" {
		t.Errorf("the caller got %v and the token %q", m.Package, m.Token)
	}
	m, err = w.StartModification(w.ctx, d)
	w.is("start as one who may, which the refused start doesn't block", err, nil)
	w.is("cancel", w.CancelModification(w.ctx, m.Token), nil)
}

// Who registered a plugin that changed a deployment, or wrote the revision of the template that an
// approved deployment then took, takes part in the change.
func TestAuthorsOfPluginsDoNotApproveTheirChanges(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.site("emea/1", "")
	for _, name := range []string{"ada", "bob", "cy"} {
		w.bind("cert:"+name, access.Admin, access.Scope{})
	}
	if _, err := w.AddPolicy(w.ctx, access.Policy{Scope: emea, Approvers: 1}); err != nil {
		t.Fatal(err)
	}
	ada, bob, cy := w.as("cert:ada"), w.as("cert:bob"), w.as("cert:cy")
	preparer := identity.With(w.ctx, identity.Controller(identity.RolePreparer))
	_, err := w.RegisterPlugin(bob, tko.Plugin{Type: tko.PluginPrepare, Name: "p", Arguments: []string{"true"}})
	w.is("register", err, nil)
	prepared := func(extra string) (d tko.DeploymentID) {
		t.Helper()
		d, err := w.CreateDeployment(ada, tko.NewDeployment{Site: "emea/1"})
		w.is("create", err, nil)
		_, err = w.CommitDeployment(preparer, tko.DeploymentCommit{
			ID: d, Revision: 1, Package: pkg(t, state("siteId: emea/1", isPrepared)+thing("x", extra)), Steps: []tko.PreparationStep{{Resource: "x", Plugin: "p"}},
		})
		w.is("prepare", err, nil)
		return d
	}
	_, err = w.ApproveDeployment(bob, prepared("n: 1"))
	w.is("who registered a plugin that prepared it", err, tko.ErrDenied)
	_, err = w.ApproveDeployment(cy, prepared("n: 2"))
	w.is("another person", err, nil)

	d, err := w.CreateDeployment(ada, tko.NewDeployment{Site: "emea/1", Prepared: true})
	w.is("create", err, nil)
	run := identity.With(t.Context(), identity.OfPlugin(identity.Plugin{Type: "prepare", Name: "p", Kind: tko.KindDeployment, ID: string(d)}, time.Now().Add(time.Hour), "127.0.0.1:1"))
	_, err = w.CommitDeployment(run, tko.DeploymentCommit{ID: d, Revision: 1, Package: pkg(t, state("siteId: emea/1", isPrepared)+thing("x", ""))})
	w.is("a plugin changes it by its token", err, nil)
	_, err = w.ApproveDeployment(bob, d)
	w.is("who registered a plugin that changed it", err, tko.ErrDenied)
	_, err = w.ApproveDeployment(cy, d)
	w.is("another person", err, nil)
}

// One person has two identities, which the operator has joined.
func TestIdentitiesOfOnePersonAreOneAuthorAndOneApprover(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{Persons: map[string]string{"cert:ada": "Ada", "oidc:corp:17": "Ada"}})
	w.site("emea/1", "")
	for _, subject := range []string{"cert:ada", "oidc:corp:17", "cert:bob", "cert:cy"} {
		w.bind(subject, access.Admin, access.Scope{})
	}
	if _, err := w.AddPolicy(w.ctx, access.Policy{Scope: emea, Approvers: 2}); err != nil {
		t.Fatal(err)
	}
	create := func(subject string) tko.DeploymentID {
		t.Helper()
		d, err := w.CreateDeployment(w.as(subject), tko.NewDeployment{Site: "emea/1", Prepared: true})
		w.is("create", err, nil)
		return d
	}
	_, err := w.ApproveDeployment(w.as("oidc:corp:17"), create("cert:ada"))
	w.is("one's own, by another identity", err, tko.ErrDenied)
	d := create("cert:bob")
	for _, subject := range []string{"cert:ada", "oidc:corp:17"} {
		n, err := w.ApproveDeployment(w.as(subject), d)
		if n != 0 || err != nil {
			t.Errorf("the identities of one person approved %d, %v, want them to count once", n, err)
		}
	}
	if n, err := w.ApproveDeployment(w.as("cert:cy"), d); n != 1 || err != nil {
		t.Errorf("the second person approved %d, %v", n, err)
	}
}

// The one-time token binds the first administrator, once, and does nothing else.
func TestOneTimeTokenMakesTheFirstAdministratorOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{Access: rights.Enforce, Audit: true})
	w.is("make a token", rights.AddSetupToken(w.ctx, w.store, "first", time.Now().Add(time.Hour)), nil)
	w.is("make another one in its place", rights.AddSetupToken(w.ctx, w.store, "hash", time.Now().Add(time.Hour)), nil)
	_, err := w.SetupToken(w.ctx, "first")
	w.is("the first token", err, tko.ErrNotFound)
	until, err := w.SetupToken(w.ctx, "hash")
	w.is("the second token", err, nil)
	ctx := identity.With(w.ctx, identity.Setup(until))
	_, err = w.RegisterSite(ctx, tko.Site{ID: "s"})
	w.is("register a site", err, tko.ErrDenied)
	_, err = w.AddPolicy(ctx, access.Policy{Approvers: 1})
	w.is("add a policy", err, tko.ErrDenied)
	for name, b := range map[string]access.Binding{
		"another role": {Subject: "cert:ada", Role: access.Editor}, "a scope": {Subject: "cert:ada", Role: access.Admin, Scope: emea}, "a group": {Group: "cert:all", Role: access.Admin},
		"an end": {Subject: "cert:ada", Role: access.Admin, Expires: time.Now().Add(time.Hour)}, "a typo": {Subject: "ada", Role: access.Admin},
	} {
		_, err := w.Bind(ctx, b)
		w.is("bind "+name, err, tko.ErrDenied)
	}
	_, err = w.Bind(ctx, access.Binding{Subject: "cert:ada", Role: access.Admin})
	w.is("bind the first administrator", err, nil)
	_, err = w.Bind(ctx, access.Binding{Subject: "cert:eve", Role: access.Admin})
	w.is("use it again", err, tko.ErrDenied)
	_, err = w.SetupToken(w.ctx, "hash")
	w.is("the used token", err, tko.ErrNotFound)
	w.is("make a token when there is an administrator", rights.AddSetupToken(w.ctx, w.store, "third", time.Now().Add(time.Hour)), tko.ErrConflict)
	_, err = rights.InitAccess(w.ctx, w.store, "ada", "a typo", time.Time{})
	w.is("an administrator that no client can be", err, tko.ErrInvalid)
	_, err = w.RegisterSite(w.as("cert:ada"), tko.Site{ID: "s"})
	w.is("the administrator", err, nil)
	expired := identity.With(w.ctx, identity.Setup(time.Now().Add(-time.Minute)))
	_, err = w.Bind(expired, access.Binding{Subject: "cert:eve", Role: access.Admin})
	w.is("an expired token", err, tko.ErrDenied)
}

// Users of the Kubernetes API, to whom the cluster permits everything, don't set what the
// controllers report.
func TestUsersOfClustersDoNotSetConditionsOfControllers(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{AccessKubernetes: access.Delegated})
	w.site("s", "")
	user := identity.With(t.Context(), identity.Identity{Subject: "k8s:ed", Authenticator: identity.Delegated, From: "192.0.2.7:4711"})
	key := record.Key{Kind: tko.KindSite, ID: "s"}
	put := func(typ string) error {
		_, err := w.PutConditions(user, key, []tko.Condition{{Type: typ, Status: tko.ConditionTrue, Reason: "Fine"}}, nil, record.Requirement{}, false)
		return err
	}
	w.is("a condition of its own", put("Audited"), nil)
	w.is("a condition of the meta-scheduler", put(tko.ConditionScheduled), tko.ErrDenied)
	_, err := w.PutConditions(user, key, nil, []string{tko.ConditionScheduled}, record.Requirement{}, false)
	w.is("removing one", err, tko.ErrDenied)
	w.is("the meta-scheduler", w.SetConditions(identity.With(t.Context(), identity.Controller(identity.RoleScheduler)), tko.KindSite, "s",
		[]tko.Condition{{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, Reason: "Fine"}}), nil)
}

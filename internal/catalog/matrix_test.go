package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// All roads to the sites (gRPC, HTTP, the Kubernetes API, commands, sources, placements, plugins, rollouts, restores) end
// in the methods of a catalog.Service, and each method that writes has a row here, with what it is called with in the
// scope of the caller, out of it, and in both. TestEveryWriteChangesOnlyWhatItsCallerMay calls it as each role, and as
// each controller that acts for an owner, and reads from the change log what it did. A new method without a row fails.

// A matrix is a catalog with two tenants: cert:ROLE may do in a/** what its role permits. There is a site, a template and
// a deployment of each tenant.
type matrix struct {
	*world

	inA, inB tko.DeploymentID
}

// A place is what a call is about.
type place struct {
	site, template, tenant string
	id, other              tko.DeploymentID // of the place's tenant, and what else it is about
	pattern                string           // of IDs
	mixed                  bool
}

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	w := newGuarded(t, catalog.Options{CheckSource: func(tko.SourceDefinition) error { return nil }})
	for _, tenant := range []string{"a", "b"} {
		w.template(tenant+"/t", thing("of-"+tenant, ""))
		w.site(tenant+"/1", "", "tenant", tenant)
	}
	for _, role := range []access.Role{access.Viewer, access.Editor, access.Approver, access.Operator, access.Admin} {
		w.bind("cert:"+string(role), role, access.Scope{SiteID: "a/**"})
		w.bind("cert:"+string(role), role, access.Scope{TemplateID: "a/**", Kinds: []tko.Kind{tko.KindTemplate}})
	}
	m := &matrix{world: w}
	m.inA = w.create(tko.NewDeployment{Template: "a/t", Site: "a/1", Prepared: true})
	m.inB = w.create(tko.NewDeployment{Template: "b/t", Site: "b/1", Prepared: true})
	return m
}

// in returns a place in the scope of the tenant a, in that of b, or in both.
func (m *matrix) in(scope string) place {
	switch scope {
	case "own":
		return place{site: "a/1", template: "a/t", tenant: "a", id: m.inA, other: m.inA, pattern: "a/**"}
	case "foreign":
		return place{site: "b/1", template: "b/t", tenant: "b", id: m.inB, other: m.inB, pattern: "b/**"}
	default:
		return place{site: "b/1", template: "a/t", tenant: "a", id: m.inA, other: m.inB, pattern: "**", mixed: true}
	}
}

func (m *matrix) revisionOf(id tko.DeploymentID) int64 { return m.deployment(id).Stamp.Revision }

func (m *matrix) key(kind tko.Kind, id string) record.Key { return record.Key{Kind: kind, ID: id} }

// last returns the last error that isn't nil.
func last(errs ...error) error { return errors.Join(errs...) }

// of returns only the error of a call.
func of[T any](_ T, err error) error { return err }

func of2[T, U any](_ T, _ U, err error) error { return err }

// writes are the methods of a Service that change entities or rules, and how they are called about a place.
func writes() map[string]func(m *matrix, ctx context.Context, p place) error {
	commit := func(m *matrix, id tko.DeploymentID, site string) tko.DeploymentCommit {
		d := m.deployment(id)
		return tko.DeploymentCommit{ID: id, Revision: d.Stamp.Revision, Package: append(d.Package.WithDeployment(string(d.Template), site, d.Prepared, d.Approved), krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "more"}})}
	}
	siteOf := func(p place) string {
		if p.mixed {
			return "b/1"
		}
		return p.site
	}
	end := func(m *matrix, ctx context.Context, p place) error {
		started, err := m.StartModification(ctx, p.id)
		if err != nil {
			return err
		}
		if _, _, err = m.EndModification(ctx, started.Token, commit(m, p.id, siteOf(p)).Package); err != nil {
			m.is("break", of(m.BreakModification(m.ctx, p.id)), nil) //nolint:contextcheck // for the next call, by all rights
		}
		return err
	}
	rollout := func(p place) krm.Package {
		return krm.Package{{"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": "r"}, "spec": map[string]any{
			"edits": []any{map[string]any{"delete": map[string]any{}, "select": map[string]any{"siteIdPatterns": []any{p.pattern}}}},
		}}}
	}
	return map[string]func(m *matrix, ctx context.Context, p place) error{
		"RegisterTemplate": func(m *matrix, ctx context.Context, p place) error {
			return last(of(m.RegisterTemplate(ctx, tko.Template{ID: tko.TemplateID(p.tenant + "/new")})), of(m.RegisterTemplate(ctx, tko.Template{ID: tko.TemplateID(p.template), Package: pkg(m.t, thing("new", ""))})))
		},
		"RegisterSite": func(m *matrix, ctx context.Context, p place) error {
			return last(of(m.RegisterSite(ctx, tko.Site{ID: tko.SiteID(p.tenant + "/new"), Template: tko.TemplateID(p.template)})), of(m.RegisterSite(ctx, tko.Site{ID: tko.SiteID(p.site), Package: pkg(m.t, thing("new", ""))})))
		},
		"DeleteTemplate": func(m *matrix, ctx context.Context, p place) error {
			return of(m.DeleteTemplate(ctx, tko.TemplateID(p.template)))
		},
		"DeleteSite": func(m *matrix, ctx context.Context, p place) error { return of(m.DeleteSite(ctx, tko.SiteID(p.site))) },
		"PurgeTemplates": func(m *matrix, ctx context.Context, p place) error {
			return of(m.PurgeTemplates(ctx, tko.TemplateSelect{IDs: []string{p.pattern}}, false))
		},
		"PurgeSites": func(m *matrix, ctx context.Context, p place) error {
			return of(m.PurgeSites(ctx, tko.SiteSelect{IDs: []string{p.pattern}}, false))
		},
		"PurgeDeployments": func(m *matrix, ctx context.Context, p place) error {
			return of(m.PurgeDeployments(ctx, tko.DeploymentSelect{Sites: []string{p.pattern}}, false))
		},
		"CreateDeployment": func(m *matrix, ctx context.Context, p place) error {
			return last(of(m.CreateDeployment(ctx, tko.NewDeployment{Template: tko.TemplateID(p.template), Site: tko.SiteID(p.site)})),
				of(m.CreateDeployment(ctx, tko.NewDeployment{Parent: p.id, Template: tko.TemplateID(p.template), Site: tko.SiteID(p.site)})))
		},
		"CreateChildren": func(m *matrix, ctx context.Context, p place) error {
			return of2(m.CreateChildren(ctx, tko.NewChildren{Parent: p.id, Children: []tko.NewChild{
				{Origin: "1", Template: tko.TemplateID(p.template), Site: tko.SiteID(p.tenant + "/1")}, {Origin: "2", Template: tko.TemplateID(p.template), Site: tko.SiteID(p.site)},
			}}))
		},
		"DeleteDeployment": func(m *matrix, ctx context.Context, p place) error { return of(m.DeleteDeployment(ctx, p.other)) },
		"DeleteDeploymentAt": func(m *matrix, ctx context.Context, p place) error {
			return of(m.DeleteDeploymentAt(ctx, p.other, m.revisionOf(p.other)))
		},
		"CommitDeployment": func(m *matrix, ctx context.Context, p place) error {
			return of(m.CommitDeployment(ctx, commit(m, p.id, siteOf(p))))
		},
		"CommitDeployments": func(m *matrix, ctx context.Context, p place) error {
			commits := []tko.DeploymentCommit{commit(m, p.id, m.siteOf(p.id))}
			if p.other != p.id {
				commits = append(commits, commit(m, p.other, m.siteOf(p.other)))
			}
			return of(m.CommitDeployments(ctx, commits))
		},
		"EndModification":   end,
		"ApproveDeployment": func(m *matrix, ctx context.Context, p place) error { return of(m.ApproveDeployment(ctx, p.other)) },
		"ApproveDeployments": func(m *matrix, ctx context.Context, p place) error {
			return of(m.ApproveDeployments(ctx, tko.DeploymentSelect{Sites: []string{p.pattern}}, false))
		},
		"SetConditions": func(m *matrix, ctx context.Context, p place) error {
			return m.SetConditions(ctx, tko.KindDeployment, string(p.other), []tko.Condition{{Type: "X", Status: "True"}})
		},
		"PutConditions": func(m *matrix, ctx context.Context, p place) error {
			return of(m.PutConditions(ctx, m.key(tko.KindDeployment, string(p.other)), []tko.Condition{{Type: "X", Status: "True"}}, nil, record.Requirement{}, false))
		},
		"PutApproval": func(m *matrix, ctx context.Context, p place) error {
			return of(m.PutApproval(ctx, m.key(tko.KindDeployment, string(p.other)), record.Requirement{}, false))
		},
		"PutRecord": func(m *matrix, ctx context.Context, p place) error {
			return last(of2(m.PutRecord(ctx, catalog.Put{Key: m.key(tko.KindSite, p.site), Metadata: map[string]string{"new": "x"}})),
				of2(m.PutRecord(ctx, catalog.Put{Key: m.key(tko.KindDeployment, ""), Template: p.template, Site: p.site})))
		},
		"PutEntity": func(m *matrix, ctx context.Context, p place) error {
			return last(of(m.PutEntity(ctx, tko.Put{Kind: tko.KindSite, ID: p.site, Metadata: map[string]string{"new": "x"}})),
				of(m.PutEntity(ctx, tko.Put{Kind: tko.KindDeployment, Origin: "new", Template: tko.TemplateID(p.template), Site: tko.SiteID(p.site)})))
		},
		"RemoveEntity": func(m *matrix, ctx context.Context, p place) error {
			return of(m.RemoveEntity(ctx, tko.KindSite, p.site, false))
		},
		"RemoveRecord": func(m *matrix, ctx context.Context, p place) error {
			return of2(m.RemoveRecord(ctx, m.key(tko.KindSite, p.site), record.Requirement{}, false))
		},
		"RemoveRecords": func(m *matrix, ctx context.Context, p place) error {
			return of(m.RemoveRecords(ctx, tko.KindSite, slices.Compact([]string{"a/1", p.site}), record.Requirement{}, false))
		},
		"ProvisionSite": func(m *matrix, ctx context.Context, p place) error {
			return of2(m.ProvisionSite(ctx, tko.NewSite{Origin: p.tenant + "/provisioned", Template: tko.TemplateID(p.template)}))
		},
		"RestorePast": func(m *matrix, ctx context.Context, p place) error {
			then, err := m.Position(m.ctx) //nolint:contextcheck // by all rights
			for _, tenant := range []string{"a", "b"} {
				m.site(tenant+"/1", thing("later", ""), "tenant", tenant)
			}
			return last(err, of(m.RestorePast(ctx, tko.RestoreRequest{Select: tko.PastSelect{Kind: tko.KindSite, IDs: []string{p.pattern}}, AsOf: tko.AsOf{Position: then}})))
		},
		"RegisterRollout": func(m *matrix, ctx context.Context, p place) error {
			return of(m.RegisterRollout(ctx, tko.Rollout{ID: "r", Package: rollout(p)}))
		},
		"RegisterPlugin": func(m *matrix, ctx context.Context, _ place) error {
			return of(m.RegisterPlugin(ctx, tko.Plugin{Type: tko.PluginPrepare, Name: "p", Arguments: []string{"true"}}))
		},
		"DeletePlugin": func(m *matrix, ctx context.Context, _ place) error {
			m.plugin(tko.Plugin{Type: tko.PluginPrepare, Name: "p", Arguments: []string{"true"}})
			return of(m.DeletePlugin(ctx, tko.PluginPrepare, "p"))
		},
		"PurgePlugins": func(m *matrix, ctx context.Context, _ place) error {
			m.plugin(tko.Plugin{Type: tko.PluginPrepare, Name: "p", Arguments: []string{"true"}})
			return of(m.PurgePlugins(ctx, tko.PluginSelect{Names: []string{"p"}}, false))
		},
		"DeleteRollout": func(m *matrix, ctx context.Context, p place) error {
			return last(of(m.RegisterRollout(m.ctx, tko.Rollout{ID: "r", Package: rollout(p)})), m.DeleteRollout(ctx, "r")) //nolint:contextcheck // registered by all rights
		},
		"Bind": func(m *matrix, ctx context.Context, p place) error {
			return of(m.Bind(ctx, access.Binding{Subject: "cert:eve", Role: access.Viewer, Scope: access.Scope{SiteID: p.pattern}}))
		},
		"AddPolicy": func(m *matrix, ctx context.Context, p place) error {
			return of(m.AddPolicy(ctx, access.Policy{Approvers: 1, Scope: access.Scope{SiteID: p.pattern}}))
		},
		"Freeze": func(m *matrix, ctx context.Context, p place) error {
			return of(m.Freeze(ctx, tko.Freeze{SiteMetadata: map[string]string{"tenant": strings.ReplaceAll(p.pattern, "/**", "")}, Until: time.Now().Add(time.Hour), Reason: "x"}))
		},
		"Stop": func(m *matrix, ctx context.Context, p place) error {
			return of(m.Stop(ctx, tko.Stop{Sites: []string{p.pattern}, Reason: "x"}))
		},
		"SetOwner": func(m *matrix, ctx context.Context, p place) error {
			return m.SetOwner(ctx, tko.KindDeployment, string(p.other), tko.Owner{Subject: "cert:eve"})
		},
		"RegisterSources": func(m *matrix, ctx context.Context, _ place) error {
			return of(m.RegisterSources(ctx, []tko.SourceDefinition{{Kind: tko.SourceKinds[0], Name: "new", Spec: []byte("{}")}}, false))
		},
	}
}

func (m *matrix) siteOf(id tko.DeploymentID) string { return string(m.deployment(id).Site) }

// elsewhere are the methods that write, and the test that calls them as each who may and may not.
var elsewhere = map[string]string{
	"ReportRolloutMeasurement": "TestEveryMethodAsEveryRole",
	"ReportRolloutTicket":      "TestEveryMethodAsEveryRole",
	"ReportSiteStaging":        "TestEveryMethodAsEveryRole",
	"AdvanceRollout":           "TestRowsNeedTheRightsOfOwnerAndStarterWhenTheyAreApplied", "RolloutDo": "TestRolloutIsPlannedAsItsOwner", "ProposeRollout": "TestRolloutIsPlannedAsItsOwner",
	"EnrollSite": "TestEveryMethodAsEveryRole", "RevokeSite": "TestEveryMethodAsEveryRole", "RedeemEnrollment": "TestTokenOfAnAgentIsUsedByOneKeyOnly",
	"EnrollSites": "TestEveryMethodAsEveryRole", "ApproveAgent": "TestEveryMethodAsEveryRole", "EndEnrollSites": "TestAgentWithATokenForSeveralSitesWaitsForAnApproval", "ClaimSite": "TestAgentWithATokenForSeveralSitesWaitsForAnApproval",
	"BreakGlass": "TestBreakGlassIsForLocalUsersOfTheServer", "Unbind": "TestEveryMethodAsEveryRole", "Unfreeze": "TestEveryMethodAsEveryRole", "Resume": "TestEveryMethodAsEveryRole", "AdvanceReleases": "TestReleaseOfManySitesGoesInWaves", "ReleaseStops": "TestReleaseOfManySitesGoesInWaves", "DeleteSource": "TestEveryMethodAsEveryRole",
	"DeclareSources": "TestEveryMethodAsEveryRole", "SaveSource": "TestEveryMethodAsEveryRole", "ForgetSource": "TestEveryMethodAsEveryRole", "SaveTargetState": "TestEveryMethodAsEveryRole",
	"EnqueueSources": "TestEveryMethodAsEveryRole", "EnqueueSites": "TestEveryMethodAsEveryRole", "ReleaseHolds": "TestEveryMethodAsEveryRole", "RecordBundle": "TestBundlesAreRecorded", "BreakModification": "TestEveryMethodAsEveryRole",
	"StartModification": "TestEveryMethodAsEveryRole", "StartEncodedModification": "TestEveryMethodAsEveryRole", "CancelModification": "TestEveryMethodAsEveryRole", "ClaimWork": "TestEveryMethodAsEveryRole",
	"RenewWork": "TestEveryMethodAsEveryRole", "FinishWork": "TestEveryMethodAsEveryRole", "RegisterSubscriptions": "TestEveryMethodAsEveryRole", "DeleteSubscription": "TestEveryMethodAsEveryRole", "TestSubscription": "TestEveryMethodAsEveryRole", "RegisterViews": "TestEveryMethodAsEveryRole", "DeleteView": "TestEveryMethodAsEveryRole", "ResolveSite": "TestWaitingSiteActsAsItsOwner", "SetLogLevels": "TestEveryMethodAsEveryRole", "CompareSite": "TestEveryMethodAsEveryRole",
}

// reads are the methods that change no entity and no rule.
var reads = strings.Fields(`About AccessMode CredentialUses AuditRecords Authorize Backup Before BeforeNewest Bindings Blame CanI Changes CheckPosition CountOwned Deployment Deployments DeploymentsByID DiffPast
	EncodedDeployment EncodedDeployments EncodedSite EncodedSites EncodedTemplate EncodedTemplates Enrollments EnqueueEvents Events ExplainSite ExportAudit FeedLag Fence Fleet FleetAtHand Freezes HistoryOf Holds KeepAudit LogLevels Marks
	MayImpersonate Modifications Named Owner PlanWith Plugin PluginRuns Plugins Queues Position PositionOf Record RecordAt RecordRefusal Records ReservedOrigins Retain Retention RevealsSecrets Rights Rollout RolloutPlan RolloutEvidence RolloutMeasurements RolloutTickets
	RolloutRows RolloutStatus Rollouts SetupToken Site SiteHold SiteStagings SiteStop Sites Snapshot Source SourceDefinitions Sources Stops Subscriptions TargetState Template TemplateImpact Templates Told VerifyAudit ViewKey Views WaitingAgents Watch Watcher WorkClaim`)

func TestEachMethodOfTheCatalogIsInTheMatrix(t *testing.T) {
	t.Parallel()
	rows, service := writes(), reflect.TypeFor[*catalog.Service]()
	known := map[string]int{}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(rows)), slices.Collect(maps.Keys(elsewhere)), reads) {
		known[name]++
	}
	for method := range service.Methods() {
		name := method.Name
		if known[name] != 1 {
			t.Errorf("the method %s of the catalog is in %d places of the matrix: give it a row in writes if it changes anything, with what it does in and out of the scope of its caller", name, known[name])
		}
		delete(known, name)
	}
	for name := range known {
		t.Errorf("the catalog has no method %s: remove it from the matrix", name)
	}
	tests := testNames(t, ".", "../grpcapi", "../rollout/planner")
	for method, test := range elsewhere {
		if !tests[test] {
			t.Errorf("%s: there is no test %s", method, test)
		}
	}
}

// testNames returns the tests in folders.
func testNames(t *testing.T, folders ...string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, folder := range folders {
		files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range syntax.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					names[f.Name.Name] = true
				}
			}
		}
	}
	return names
}

// callers are those who call, and how they call in a matrix. Controllers act for the editor, except for one.
func callers() map[string]func(m *matrix) context.Context {
	all := map[string]func(m *matrix) context.Context{"none": func(m *matrix) context.Context { return m.as("cert:eve") }}
	for _, role := range []string{"viewer", "editor", "approver", "operator", "admin"} {
		all[role] = func(m *matrix) context.Context { return m.as("cert:" + role) }
	}
	all["bound preparer without a claim"] = func(m *matrix) context.Context {
		return tko.WithActing(m.bound(), tko.Acting{Kind: tko.KindDeployment, ID: string(m.inA)})
	}
	own := func(m *matrix, subject string) {
		m.is("owner", m.SetOwner(m.ctx, tko.KindDeployment, string(m.inA), tko.Owner{Subject: subject}), nil)
	}
	for _, owner := range []string{"viewer", "editor"} {
		all["preparer for "+owner] = func(m *matrix) context.Context {
			own(m, "cert:"+owner)
			return tko.WithActing(identity.With(m.ctx, identity.Controller(identity.RolePreparer)), tko.Acting{Kind: tko.KindDeployment, ID: string(m.inA)})
		}
		all["bound preparer for "+owner] = func(m *matrix) context.Context {
			own(m, "cert:"+owner)
			return m.claiming(m.bound(), m.inA)
		}
		all["plugin for "+owner] = func(m *matrix) context.Context {
			own(m, "cert:"+owner)
			return identity.With(m.ctx, identity.Identity{Subject: "tko:plugin:prepare/p", Authenticator: "plugin", Plugin: &identity.Plugin{Type: "prepare", Name: "p", Kind: tko.KindDeployment, ID: string(m.inA)}})
		}
		all["source of "+owner] = func(m *matrix) context.Context {
			m.is("source", of(m.RegisterSources(m.ctx, []tko.SourceDefinition{{Kind: tko.SourceKinds[0], Name: "s", Spec: []byte("{}")}}, false)), nil)
			m.is("owner", m.SetOwner(m.ctx, tko.KindSource, "s", tko.Owner{Subject: "cert:" + owner}), nil)
			return tko.WithActing(tko.WithAuthor(identity.With(m.ctx, identity.Controller(identity.RoleGitOps)), tko.Author{Who: "gitops:s"}), tko.Acting{Kind: tko.KindSource, ID: "s"})
		}
	}
	return all
}

// bound returns the calls of a preparer of another process.
func (m *matrix) bound() context.Context {
	m.bind("cert:preparer", access.ControllerPrepare, access.Scope{})
	return m.as("cert:preparer")
}

// readsOnly are the callers who may change nothing.
var readsOnly = []string{"none", "viewer", "plugin for viewer", "source of viewer", "bound preparer without a claim"}

// forController are what a controller writes although its owner may only read: the result of its own work on the
// deployment that it acts for.
var forController = []string{"CommitDeployment", "CommitDeployments", "EndModification", "SetConditions", "PutConditions"}

func TestEveryWriteChangesOnlyWhatItsCallerMay(t *testing.T) {
	t.Parallel()
	for name, call := range writes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The row does something: an administrator of everything may.
			m := newMatrix(t)
			before, rules := m.state()
			may := m.ctx
			if strings.HasSuffix(name, "Conditions") { // no user may
				may = identity.With(m.ctx, identity.Controller(identity.RoleScheduler))
			}
			if err := call(m, tko.WithConfirmation(may, confirmed(name)), m.in("own")); err != nil {
				t.Fatalf("as an administrator: %v", err)
			}
			if position, version := m.state(); position == before && version == rules {
				t.Fatal("as an administrator it changes nothing, so this row shows nothing")
			}
			for who, as := range callers() {
				t.Run(who, func(t *testing.T) { // its catalogs are closed when it ends
					var m *matrix
					for _, scope := range []string{"foreign", "mixed", "own"} {
						if m == nil {
							m = newMatrix(t)
						}
						ctx := tko.WithConfirmation(as(m), confirmed(name))
						if m.judge(name, who, scope, func() error { return call(m, ctx, m.in(scope)) }) {
							m = nil // the next call is judged in a catalog that is as it was
						}
					}
				})
			}
		})
	}
}

// confirmed is the number that a call confirms: some count exactly.
func confirmed(method string) int {
	if method == "Freeze" || method == "RestorePast" {
		return 1
	}
	return 5
}

// state returns the position of the change log, and the version of the rules.
func (m *matrix) state() (position, rules int64) {
	m.t.Helper()
	position, err := m.Position(m.ctx)
	if err != nil {
		m.t.Fatal(err)
	}
	if rules, err = m.store.AccessVersion(m.ctx); err != nil {
		m.t.Fatal(err)
	}
	return position, rules
}

// judge compares what a call did with what its caller may. It reports whether anything changed.
func (m *matrix) judge(method, who, scope string, call func() error) (changed bool) {
	m.t.Helper()
	before, rules := m.state()
	err := call()
	after, version := m.state()
	what := fmt.Sprintf("%s as %s, %s scope (%v)", method, who, scope, err)
	if version != rules && (scope != "own" || slices.Contains(readsOnly, who) || who == "editor" || strings.Contains(who, " ")) {
		m.t.Errorf("%s: it changed rules", what)
	}
	for c, err := range m.Changes(m.ctx, before) {
		if err != nil {
			m.t.Fatal(err)
		}
		if c.Author.Who == "cert:root" { // the row's own preparation
			continue
		}
		if slices.Contains(readsOnly, who) || strings.HasSuffix(who, "preparer for viewer") && !slices.Contains(forController, method) {
			m.t.Errorf("%s: it changed %s %q (%s)", what, c.Kind, c.ID, c.Op)
		}
		if foreign := m.foreign(c); foreign != "" {
			m.t.Errorf("%s: it changed %s %q (%s), which is of b: %s", what, c.Kind, c.ID, c.Op, foreign)
		}
	}
	return after != before || version != rules
}

// foreign says why a change isn't in the scope of a; "" if it is.
func (m *matrix) foreign(c tko.Change) string {
	if c.Kind != tko.KindDeployment {
		if strings.HasPrefix(c.ID, "b/") {
			return "its ID"
		}
		return ""
	}
	if c.ID == string(m.inB) {
		return "it was there"
	}
	if c.Op == tko.OpDeleted {
		return ""
	}
	d, err := m.Deployment(m.ctx, tko.DeploymentID(c.ID), 0)
	if err != nil {
		m.t.Fatal(err)
	}
	if strings.HasPrefix(string(d.Site), "b/") || strings.HasPrefix(string(d.Template), "b/") {
		return fmt.Sprintf("from %q at %q", d.Template, d.Site)
	}
	return ""
}

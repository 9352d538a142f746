package grpcapi_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/planner"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
)

// named authenticates callers by their token: it is their subject.
type named struct{}

func (named) Identify(_ context.Context, _ authn.Connection, token string) (identity.Identity, error) {
	if token == "" {
		return identity.Anonymous("127.0.0.1:1"), nil
	}
	return identity.Identity{Subject: token, Authenticator: "token", From: "127.0.0.1:1"}, nil
}

// methods returns the methods of the services of TKO, from the protocol.
func methods(t *testing.T) []protoreflect.MethodDescriptor {
	t.Helper()
	var all []protoreflect.MethodDescriptor
	for _, name := range []protoreflect.FullName{"tko.Data", "tko.Access", "tko.Logs", "tko.Admin", "tko.Rollouts", "tko.Why", "tko.Past"} {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		service, ok := d.(protoreflect.ServiceDescriptor)
		if !ok {
			t.Fatalf("%s is a %T, want a service", name, d)
		}
		for i := range service.Methods().Len() {
			all = append(all, service.Methods().Get(i))
		}
	}
	return all
}

func fullName(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

func TestEachMethodHasARowInTheTableOfRights(t *testing.T) {
	t.Parallel()
	table := grpcapi.Rights()
	for _, m := range methods(t) {
		row, ok := table[fullName(m)]
		if !ok || len(row.Verbs) == 0 {
			t.Errorf("%s has no row, so it is not served", fullName(m))
		}
		delete(table, fullName(m))
	}
	for name := range table {
		t.Errorf("%s is in the table and not in the protocol", name)
	}
}

// A fixture is a server with entities inside and outside of the scope of the callers
// whose names start with "in".
type fixture struct {
	t       *testing.T
	conn    *grpc.ClientConn
	service *catalog.Service
	root    context.Context

	inside, outside string // deployments
}

const (
	insideSite, outsideSite         = "emea/canary-inside", "apac/canary-outside"
	insideTemplate, outsideTemplate = "emea-t/canary-inside", "apac-t/canary-outside"
	secretValue                     = "Y2FuYXJ5LXNlY3JldA=="
	secretPackage                   = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {k: " + secretValue + "}\n"
)

func newFixture(t *testing.T) *fixture {
	t.Helper()
	store, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	service := catalog.New(store, validNothing{}, catalog.Options{Access: rights.Enforce, Audit: true, CompareWait: time.Nanosecond})
	if _, err := rights.InitAccess(t.Context(), store, "token:root", "first", time.Time{}); err != nil {
		t.Fatal(err)
	}
	service.PlanWith(planner.New(planner.OnCatalog(service), planner.Options{}))
	server := grpcapi.NewServer(service, grpcapi.Options{Callers: named{}})
	listener := bufconn.Listen(1 << 20)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	f := &fixture{t: t, conn: conn, service: service, root: identity.With(t.Context(), identity.Identity{Subject: "token:root", Authenticator: "token"})}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{insideTemplate, outsideTemplate} {
		f.call("token:root", "registerTemplate", &tkopb.Template{TemplateId: id, PackageFormat: "yaml", Package: []byte(secretPackage)})
	}
	for _, id := range []string{insideSite, outsideSite} {
		f.call("token:root", "registerSite", &tkopb.Site{SiteId: id, PackageFormat: "yaml", Package: []byte(secretPackage)})
	}
	create := func(site, template string) string {
		id, err := service.CreateDeployment(f.root, tko.NewDeployment{Site: tko.SiteID(site), Template: tko.TemplateID(template), Prepared: true})
		must(err)
		return string(id)
	}
	f.inside, f.outside = create(insideSite, insideTemplate), create(outsideSite, outsideTemplate)
	_, err = service.RegisterPlugin(f.root, tko.Plugin{Type: tko.PluginPrepare, Name: "canary-outside", Arguments: []string{"true"}})
	must(err)
	for _, role := range access.Roles() {
		scopes := []access.Scope{{SiteID: "emea/**"}, {TemplateID: "emea-t/**", Kinds: []tko.Kind{tko.KindTemplate}}}
		if !slices.ContainsFunc(role.Verbs(), access.Verb.Scoped) {
			scopes = []access.Scope{{}}
		}
		for _, scope := range scopes {
			_, err := service.Bind(f.root, access.Binding{Subject: "token:in-" + string(role), Role: role, Scope: scope})
			must(err)
		}
		_, err := service.Bind(f.root, access.Binding{Subject: "token:all-" + string(role), Role: role})
		must(err)
	}
	return f
}

const rolloutPackage = "apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {edits: [{delete: {}, select: {templateIdPatterns: [x]}}]}\n"

type validNothing struct{}

func (validNothing) Validate(context.Context, tko.Validation) error { return nil }

// call calls a method as a subject, and returns the responses as one text of bytes.
func (f *fixture) call(subject, name string, request proto.Message) (responses string, err error) {
	f.t.Helper()
	for _, m := range methods(f.t) {
		if string(m.Name()) == name {
			return f.invoke(subject, m, request)
		}
	}
	f.t.Fatalf("there is no method %s", name)
	return "", nil
}

func (f *fixture) invoke(subject string, m protoreflect.MethodDescriptor, request proto.Message) (responses string, err error) {
	if m.Name() != "watchChanges" {
		return f.invokeWithin(20*time.Second, subject, m, request)
	}
	// A watch ends some time after it has sent what is there. On a busy machine it may
	// not have been refused by then.
	for limit := 200 * time.Millisecond; ; limit *= 5 {
		responses, err = f.invokeWithin(limit, subject, m, request)
		if status.Code(err) != codes.DeadlineExceeded {
			return responses, err
		}
		if responses != "" || limit > 20*time.Second {
			return responses, nil
		}
	}
}

func (f *fixture) invokeWithin(limit time.Duration, subject string, m protoreflect.MethodDescriptor, request proto.Message) (responses string, err error) {
	ctx, cancel := context.WithTimeout(f.t.Context(), limit)
	defer cancel()
	if subject != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+subject)
	}
	s, err := f.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: m.IsStreamingServer()}, fullName(m))
	if err == nil {
		err = s.SendMsg(request)
	}
	if err == nil {
		err = s.CloseSend()
	}
	for err == nil {
		response := dynamicpb.NewMessage(m.Output())
		if err = s.RecvMsg(response); err == nil {
			text, _ := proto.Marshal(response)
			responses += string(text)
		}
		if err == nil && !m.IsStreamingServer() {
			return responses, nil
		}
	}
	if err.Error() == "EOF" {
		err = nil
	}
	return responses, err
}

// requests are the requests of each method on an entity in or out of scope.
func (f *fixture) requests(in bool) map[string]proto.Message {
	site, template, deployment, revision := insideSite, insideTemplate, f.inside, int64(1)
	if !in {
		site, template, deployment = outsideSite, outsideTemplate, f.outside
	}
	item := func(queue, key string) *tkopb.WorkItem {
		return &tkopb.WorkItem{Queue: queue, Key: key, Claim: "none"}
	}
	everything := &tkopb.SelectDeployments{DryRun: true}
	return map[string]proto.Message{
		"registerTemplate": &tkopb.Template{TemplateId: template, PackageFormat: "yaml", Package: []byte(secretPackage)}, "deleteTemplate": &tkopb.TemplateID{TemplateId: template, Confirm: 99},
		"getTemplate": &tkopb.GetTemplate{TemplateId: template}, "purgeTemplates": &tkopb.SelectTemplates{DryRun: true},
		"registerSite": &tkopb.Site{SiteId: site, PackageFormat: "yaml", Package: []byte(secretPackage)}, "deleteSite": &tkopb.SiteID{SiteId: site, Confirm: 99},
		"getSite": &tkopb.GetSite{SiteId: site, PreferredPackageFormat: "yaml"}, "purgeSites": &tkopb.SelectSites{DryRun: true}, "listTemplates": &tkopb.ListTemplates{WithPackages: true, PreferredPackageFormat: "yaml"},
		"listSites": &tkopb.ListSites{WithPackages: true, PreferredPackageFormat: "yaml"}, "listDeployments": &tkopb.ListDeployments{WithPackages: true, PreferredPackageFormat: "yaml"},
		"createDeployment": &tkopb.CreateDeployment{SiteId: site}, "deleteDeployment": &tkopb.DeploymentID{DeploymentId: deployment, Confirm: 99},
		"getDeployment": &tkopb.GetDeployment{DeploymentId: deployment, PreferredPackageFormat: "yaml"}, "purgeDeployments": everything,
		"startDeploymentModification":  &tkopb.StartDeploymentModification{DeploymentId: deployment, PreferredPackageFormat: "yaml"},
		"endDeploymentModification":    &tkopb.EndDeploymentModification{ModificationToken: "none"},
		"cancelDeploymentModification": &tkopb.CancelDeploymentModification{ModificationToken: "none"},
		"registerPlugin":               &tkopb.Plugin{Type: "prepare", Name: "canary-outside", Arguments: []string{"true"}}, "deletePlugin": &tkopb.PluginID{Type: "prepare", Name: "missing"},
		"getPlugin": &tkopb.PluginID{Type: "prepare", Name: "canary-outside"}, "purgePlugins": &tkopb.SelectPlugins{DryRun: true},
		"approveDeployments": &tkopb.ApproveDeployments{DeploymentId: deployment}, "commitDeployment": &tkopb.CommitDeployment{DeploymentId: deployment, Revision: revision + 100},
		"commitDeployments": &tkopb.CommitDeployments{Commits: []*tkopb.CommitDeployment{{DeploymentId: deployment, Revision: revision + 100}}},
		"getDeployments":    &tkopb.GetDeployments{DeploymentIds: []string{f.inside, f.outside}, PreferredPackageFormat: "yaml"},
		"breakModification": &tkopb.BreakModification{DeploymentId: deployment}, "createChildren": &tkopb.CreateChildren{ParentDeploymentId: deployment, Children: []*tkopb.Child{{Origin: "x", SiteId: site}}},
		"provisionSite": &tkopb.ProvisionSite{Origin: "x"}, "resolveSite": &tkopb.ResolveSite{SiteId: site}, "setConditions": &tkopb.SetConditions{Kind: "site", Id: site, Conditions: []*tkopb.Condition{{Type: "X", Status: "True"}}},
		"claimWork": &tkopb.ClaimWork{Queue: "schedule", MaxItems: 1, Lease: durationpb.New(time.Second)}, "renewWork": &tkopb.RenewWork{Items: []*tkopb.WorkItem{item("schedule", site)}, Lease: durationpb.New(time.Second)},
		"finishWork": &tkopb.FinishWork{Items: []*tkopb.FinishedWork{{Item: item("schedule", site)}}},
		"putEntity":  &tkopb.PutEntity{Kind: "site", Id: site, PackageFormat: "yaml", Package: []byte(secretPackage), DryRun: true}, "removeEntity": &tkopb.RemoveEntity{Kind: "site", Id: site, DryRun: true},
		"listMarks": &tkopb.ListMarks{Kind: "site"}, "getFleet": &tkopb.GetFleet{},
		"callSites": &tkopb.CallSites{SiteId: []string{site}}, "callSources": &tkopb.CallSources{Names: []string{"x"}}, "getSource": &tkopb.GetSource{Name: "x"},
		"saveSource": &tkopb.SaveSource{Source: &tkopb.Source{Name: "x"}, Claim: item("gitops", "x")}, "forgetSource": &tkopb.ForgetSource{Name: "x", Claim: item("gitops", "x")},
		"getTargetState": &tkopb.GetTargetState{SiteId: site, Name: "x"}, "saveTargetState": &tkopb.SaveTargetState{State: &tkopb.TargetState{SiteId: site, Name: "x"}, Claim: item("schedule", site)},
		"registerRollout": &tkopb.Rollout{RolloutId: "r", PackageFormat: "yaml", Package: []byte(rolloutPackage)}, "deleteRollout": &tkopb.RolloutID{RolloutId: "missing"},
		"getRollout": &tkopb.GetRollout{RolloutId: "r"}, "commandRollout": &tkopb.RolloutCommand{RolloutId: "missing", Command: "pause"}, "getRolloutStatus": &tkopb.RolloutID{RolloutId: "missing"},
		"getRolloutPlan": &tkopb.RolloutID{RolloutId: "missing"}, "listRolloutRows": &tkopb.ListRolloutRows{RolloutId: "missing"}, "advanceRollout": &tkopb.RolloutID{RolloutId: "missing"}, "getRolloutMeasurements": &tkopb.RolloutID{RolloutId: "missing"}, "reportRolloutMeasurement": &tkopb.RolloutMeasurement{RolloutId: "missing"}, "getRolloutTickets": &tkopb.RolloutID{RolloutId: "missing"}, "reportRolloutTicket": &tkopb.RolloutTicket{RolloutId: "missing"}, "listRolloutEvidence": &tkopb.ListRolloutEvidence{RolloutId: "missing"}, "proposeRollout": &tkopb.ProposeRollout{RolloutId: "placement/x", PackageFormat: "yaml", Package: []byte(rolloutPackage)}, "getReservedOrigins": &tkopb.GetReservedOrigins{ParentDeploymentId: deployment}, "getSiteHold": &tkopb.GetSiteHold{SiteId: site}, "getSiteStagings": &tkopb.GetSiteStagings{SiteId: site}, "reportSiteStaging": &tkopb.SiteStaging{SiteId: site, RolloutId: "missing", Key: "x", State: "Pulled"},
		"blame": &tkopb.GetBlame{Kind: "deployment", Id: deployment}, "explainSite": &tkopb.GetSiteExplanation{SiteId: site, TemplateId: template}, "compareSite": &tkopb.CompareSite{SiteId: site}, "getPluginRuns": &tkopb.GetPluginRuns{Kind: "deployment", Id: deployment}, "getTemplateImpact": &tkopb.GetTemplateImpact{TemplateId: template},
		"getOwner": &tkopb.GetOwner{Kind: "deployment", Id: deployment}, "setOwner": &tkopb.SetOwner{Kind: "deployment", Id: deployment, Subject: "token:root"},
		"enrollSite": &tkopb.EnrollSite{SiteId: site}, "revokeSite": &tkopb.RevokeSite{SiteId: site},
		"enrollSites": &tkopb.EnrollSites{Pattern: site}, "approveAgent": &tkopb.ApproveAgent{SiteId: site},
		"canI": &tkopb.CanI{Verb: "read", Kind: "site", Id: site}, "bind": &tkopb.Binding{Subject: "token:x", Role: "viewer", Scope: &tkopb.Scope{SiteId: site}},
		"freeze": &tkopb.Freeze{SiteMetadata: map[string]string{"where": "*"}, Until: timestamppb.New(time.Now().Add(time.Hour)), Reason: "x"}, "unfreeze": &tkopb.Unfreeze{Ids: []string{"missing"}},
		"listHistory": &tkopb.ListHistory{Select: &tkopb.PastSelect{Kind: "site"}}, "diffPast": &tkopb.DiffPast{Select: &tkopb.PastSelect{Kind: "site"}, From: "1"},
		"restorePast":     &tkopb.RestorePast{Select: &tkopb.PastSelect{Kind: "site", Id: site}, AsOf: "2", DryRun: true},
		"registerSources": &tkopb.RegisterSources{Sources: []*tkopb.SourceDefinition{{Kind: "Inventory", Name: "x", Spec: []byte("{}")}}}, "deleteSource": &tkopb.DeleteSource{Name: "missing"},
		"registerSubscriptions": &tkopb.RegisterSubscriptions{Subscriptions: []*tkopb.Subscription{{Name: "x", Spec: []byte("{}")}}}, "deleteSubscription": &tkopb.DeleteSubscription{Name: "missing"},
		"testSubscription": &tkopb.TestSubscription{Name: "missing"},
		"registerViews":    &tkopb.RegisterViews{Views: []*tkopb.View{{Name: "x", Path: "/"}}}, "deleteView": &tkopb.DeleteView{Name: "missing"},
		"declareSources": &tkopb.DeclareSources{Parent: "x", Claim: "x"},
		"unbind":         &tkopb.Unbind{Id: "missing"}, "addPolicy": &tkopb.Policy{Approvers: 1, Scope: &tkopb.Scope{SiteId: site}}, "breakGlass": &tkopb.BreakGlass{Why: "x"},
	}
}

// unscoped are the methods whose effect doesn't depend on an entity in the request.
var unscoped = []string{
	"about", "whoAmI", "commitDeployments", "getDeployments", "listTemplates", "listSites", "listDeployments", "listPlugins", "listModifications", "listMarks", "getFleet", "listSources", "watchChanges", "purgeTemplates", "purgeSites", "purgeDeployments",
	"purgePlugins", "endDeploymentModification", "cancelDeploymentModification", "registerPlugin", "deletePlugin", "getPlugin", "claimWork", "renewWork", "finishWork", "callSources", "getSource",
	"saveSource", "forgetSource", "getTargetState", "saveTargetState", "canI", "listBindings", "listPolicies", "freeze", "unfreeze", "listFreezes", "listStops", "getSiteStop", "listWaitingAgents", "registerSources", "getSourceDefinitions", "deleteSource", "declareSources", "registerSubscriptions", "listSubscriptions", "deleteSubscription", "testSubscription", "registerViews", "listViews", "deleteView", "listCredentials", "unbind", "breakGlass", "listAudit", "verifyAudit", "bind", "addPolicy", "backup", "listHolds", "listQueues", "releaseHolds", "provisionSite",
	"setOwner", "countOwned", "registerRollout", "deleteRollout", "getRollout", "listRollouts", "commandRollout", "getRolloutStatus", "getRolloutPlan", "listRolloutRows", "advanceRollout", "getReservedOrigins", "getSiteHold", "getSiteStagings", "reportSiteStaging", "proposeRollout", "listHistory", "diffPast", "getRetention", "getRolloutMeasurements", "reportRolloutMeasurement", "getRolloutTickets", "reportRolloutTicket", "listRolloutEvidence",
}

// TestEveryMethodAsEveryRole calls each method of the protocol as each role, in and out
// of its scope, and compares the result with the table of rights. No response to a
// caller with a scope has an ID that is outside of it, or the value of a Secret.
func TestEveryMethodAsEveryRole(t *testing.T) {
	t.Parallel()
	subjects := map[string][]access.Verb{"": nil, "token:unbound": nil}
	for _, role := range access.Roles() {
		subjects["token:in-"+string(role)] = role.Verbs()
		subjects["token:all-"+string(role)] = role.Verbs()
	}
	table := grpcapi.Rights()
	var f *fixture
	for subject, verbs := range subjects {
		f = newFixture(t)
		limited := strings.HasPrefix(subject, "token:in-")
		for _, in := range []bool{false, true} {
			requests := f.requests(in)
			for _, m := range methods(t) {
				name := string(m.Name())
				request := requests[name]
				if request == nil {
					request = dynamicpb.NewMessage(m.Input())
				}
				right := table[fullName(m)]
				may := slices.ContainsFunc(right.Verbs, func(v access.Verb) bool { return v == access.Open || slices.Contains(verbs, v) })
				responses, err := f.invoke(subject, m, request)
				code := status.Code(err)
				what := subject + " calls " + name + map[bool]string{true: " in scope", false: " out of scope"}[in]
				switch {
				case code == codes.Internal, code == codes.Unknown, code == codes.Unimplemented:
					t.Errorf("%s: %v", what, err)
				case !may && err == nil && name != "listSources":
					t.Errorf("%s: allowed, want it refused: the role has none of %v", what, right.Verbs)
				case !may && code != codes.PermissionDenied && code != codes.NotFound && code != codes.OK:
					t.Errorf("%s: %v, want it refused", what, err)
				case err == nil && isUnnamed(name, subject):
					t.Errorf("%s: allowed, want it refused: a controller names what it works for", what)
				case limited && !in && !slices.Contains(unscoped, name) && err == nil:
					t.Errorf("%s: allowed, want it refused", what)
				case may && (in || !limited) && code == codes.PermissionDenied && !exceptional(name, subject):
					t.Errorf("%s: %v, want it allowed", what, err)
				}
				for _, hidden := range []string{"canary-outside", f.outside} {
					if limited && name != "listAudit" && name != "backup" && strings.Contains(responses, hidden) || // the right audit is for everything
						len(verbs) == 0 && strings.Contains(responses, "canary-") {
						t.Errorf("%s: the response names %q, which is outside of its scope", what, hidden)
					}
				}
				if !slices.Contains(verbs, access.Secret) && strings.Contains(responses, secretValue) {
					t.Errorf("%s: the response has the value of a Secret", what)
				}
				if limited && !in && err != nil && strings.Contains(err.Error(), "exists already") {
					t.Errorf("%s: %v tells that the entity exists", what, err)
				}
			}
		}
	}
}

// isUnnamed reports whether a method writes for a controller that doesn't name the
// deployment, rollout or source that it works for, neither in the call nor as its object.
func isUnnamed(name, subject string) bool {
	writes := []string{
		"registerTemplate", "deleteTemplate", "registerSite", "deleteSite", "createDeployment", "deleteDeployment", "registerPlugin", "deletePlugin", "provisionSite",
		"registerRollout", "proposeRollout", "putEntity", "removeEntity", "setConditions",
	}
	switch {
	case strings.HasSuffix(subject, "controller-gitops"): // it works for sources
		writes = append(writes, "startDeploymentModification", "endDeploymentModification", "commitDeployment", "createChildren")
	case !strings.HasSuffix(subject, "controller-prepare"):
		return false
	}
	return slices.Contains(writes, name)
}

// exceptional reports whether a method needs more than one of the verbs in the table,
// or another one for this request.
func exceptional(name, subject string) bool {
	role := subject[strings.LastIndex(subject, "-")+1:]
	if isUnnamed(name, subject) {
		return true
	}
	switch name {
	case "freeze", "unfreeze", "stop", "resume": // controllers call sites for other work
		return role == "gitops" || role == "schedule"
	case "enrollSite", "revokeSite", "enrollSites", "approveAgent": // only users do
		return role == "gitops"
	case "breakGlass": // by the socket and the user
		return true
	case "commandRollout": // the command "pause"
		return strings.HasPrefix(subject, "token:in-") || role == "approver"
	case "registerRollout": // all of a controller that creates nothing but deployments
		return strings.HasPrefix(subject, "token:in-") || role == "prepare"
	case "deleteRollout", "getRollout", "listRollouts", "getRolloutStatus", "getRolloutPlan", "listRolloutRows", "advanceRollout", "getRolloutMeasurements", "reportRolloutMeasurement", "getRolloutTickets", "reportRolloutTicket", "listRolloutEvidence", "getReservedOrigins", "proposeRollout", "resolveSite":
		return strings.HasPrefix(subject, "token:in-") // a scope of sites or templates covers no rollout
	case "claimWork", "renewWork", "finishWork": // of the queue "schedule"
		return subject != "token:all-controller-schedule"
	case "putEntity", "removeEntity": // of a site
		return strings.HasSuffix(subject, "controller-prepare") || strings.HasSuffix(subject, "controller-gitops")
	case "registerPlugin", "deletePlugin", "getPlugin", "purgePlugins", "listPlugins", "callSources", "bind", "addPolicy", "provisionSite", "unbind":
		return strings.HasPrefix(subject, "token:in-") // plugins have no scope; the others need rights on everything
	case "getSource", "listSources", "registerSources", "getSourceDefinitions", "deleteSource", "declareSources", "registerSubscriptions", "listSubscriptions", "deleteSubscription", "testSubscription", "registerViews", "deleteView", "listCredentials", "listAudit", "verifyAudit", "backup", "listHolds", "listQueues", "releaseHolds", "getTargetState", "getSiteHold", "getSiteStagings", "reportSiteStaging", "getSiteStop", "saveTargetState", "saveSource", "forgetSource", "breakModification", "getLogLevels", "setLogLevels", "setOwner", "countOwned":
		return strings.HasPrefix(subject, "token:in-") // rights without a scope are bound without one
	case "registerTemplate", "createDeployment", "createChildren", "registerSite", "purgeTemplates":
		return role == "prepare"
	}
	return false
}

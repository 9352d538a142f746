package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// serve serves a backend in memory, and returns options to dial it.
func serve(t testing.TB, backend grpcapi.Backend) client.Options {
	t.Helper()
	server := grpcapi.NewServer(backend, grpcapi.Options{})
	listener := bufconn.Listen(1 << 20)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return client.Options{Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }}
}

func dial(t testing.TB, o client.Options) *client.Client {
	t.Helper()
	c, err := client.Dial(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// catalogOf returns a catalog on a database in memory.
func catalogOf(t testing.TB) *catalog.Service {
	t.Helper()
	store, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	validator, err := validate.New(validate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return catalog.New(store, validator, catalog.Options{})
}

func collect[T any](t *testing.T, seq iter.Seq2[T, error]) []T {
	t.Helper()
	var all []T
	for row, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	return all
}

func configMap(name string) krm.Resource {
	return krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}}
}

// The client returns the same values and errors as the catalog.
func TestClientReturnsWhatTheCatalogReturns(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	near := catalogOf(t)
	options := serve(t, near)
	for _, format := range []krm.Format{krm.CBOR, krm.YAML} {
		t.Run(string(format), func(t *testing.T) {
			options.PackageFormat = format
			options.Author = tko.Author{Who: "ann", Why: "test " + string(format)}
			far := dial(t, options)
			templateID, siteID := tko.TemplateID("t/"+format), tko.SiteID("s/"+format)

			if _, err := far.RegisterTemplate(ctx, tko.Template{ID: templateID, Metadata: map[string]string{"k": "v"}, Package: krm.Package{configMap("a")}}); err != nil {
				t.Fatal(err)
			}
			if _, err := far.RegisterSite(ctx, tko.Site{ID: siteID, Template: templateID}); err != nil {
				t.Fatal(err)
			}
			if _, err := far.RegisterPlugin(ctx, tko.Plugin{Type: tko.PluginSchedule, Name: string(format), Arguments: []string{"x"}}); err != nil {
				t.Fatal(err)
			}
			id, err := far.CreateDeployment(ctx, tko.NewDeployment{Template: templateID, Site: siteID, Merge: krm.Package{configMap("b")}})
			if err != nil {
				t.Fatal(err)
			}
			if err := far.SetConditions(ctx, tko.KindDeployment, string(id), []tko.Condition{{Type: tko.ConditionHealthy, Status: tko.ConditionTrue}}); err != nil {
				t.Fatal(err)
			}

			same := func(what string, nearly any, nearErr error, farly any, farErr error) {
				t.Helper()
				if nearErr != nil || farErr != nil {
					t.Errorf("%s: catalog %v, client %v", what, nearErr, farErr)
				}
				if diff := cmp.Diff(nearly, farly, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s (-catalog +client):\n%s", what, diff)
				}
			}
			t1, e1 := near.Template(ctx, templateID, 0)
			t2, e2 := far.Template(ctx, templateID, 0)
			same("template", t1, e1, t2, e2)
			if t2.Stamp.Author != options.Author {
				t.Errorf("author is %v, want %v", t2.Stamp.Author, options.Author)
			}
			s1, e1 := near.Site(ctx, siteID, 1)
			s2, e2 := far.Site(ctx, siteID, 1)
			same("site", s1, e1, s2, e2)
			d1, e1 := near.Deployment(ctx, id, 0)
			d2, e2 := far.Deployment(ctx, id, 0)
			same("deployment", d1, e1, d2, e2)
			p1, e1 := near.Plugin(ctx, tko.PluginSchedule, string(format))
			p2, e2 := far.Plugin(ctx, tko.PluginSchedule, string(format))
			same("plugin", p1, e1, p2, e2)
			for _, o := range []tko.ListOptions{{}, {Packages: true, Deployments: true}, {Window: tko.Window{After: "s", Max: new(1)}}, {Window: tko.Window{Offset: 1}}} {
				same("templates", collect(t, near.Templates(ctx, tko.TemplateSelect{}, o)), nil, collect(t, far.Templates(ctx, tko.TemplateSelect{}, o)), nil)
				same("sites", collect(t, near.Sites(ctx, tko.SiteSelect{}, o)), nil, collect(t, far.Sites(ctx, tko.SiteSelect{}, o)), nil)
				same("deployments", collect(t, near.Deployments(ctx, tko.DeploymentSelect{}, o)), nil, collect(t, far.Deployments(ctx, tko.DeploymentSelect{}, o)), nil)
				same("plugins", collect(t, near.Plugins(ctx, tko.PluginSelect{}, o)), nil, collect(t, far.Plugins(ctx, tko.PluginSelect{}, o)), nil)
			}
			a1, e1 := near.About(ctx)
			a2, e2 := far.About(ctx)
			same("about", a1, e1, a2, e2)

			token, err := far.StartModification(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := far.StartModification(ctx, id); !errors.Is(err, tko.ErrBusy) || errors.Is(err, tko.ErrConflict) {
				t.Errorf("second start: %v", err)
			}
			_, _, err = far.EndModification(ctx, token.Token, krm.Package{{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "x"}, "spec": map[string]any{"replicas": "many"}}})
			var invalid *tko.InvalidPackageError
			if !errors.Is(err, tko.ErrInvalid) || !errors.As(err, &invalid) || len(invalid.Findings) == 0 || invalid.Findings[0].Resource.Name != "x" || invalid.Findings[0].Path != "spec.replicas" {
				t.Errorf("invalid package: %v, %+v", err, invalid)
			}
			if _, revision, err := far.EndModification(ctx, token.Token, token.Package); err != nil || revision < 1 {
				t.Errorf("end: %d, %v", revision, err)
			}
			if err := far.CancelModification(ctx, token.Token); !errors.Is(err, tko.ErrNotFound) {
				t.Errorf("cancel of an ended token: %v", err)
			}
			if _, err := far.CommitDeployment(ctx, tko.DeploymentCommit{ID: id, Revision: 99, Package: d2.Package}); !errors.Is(err, tko.ErrConflict) || errors.Is(err, tko.ErrBusy) {
				t.Errorf("commit on another revision: %v", err)
			}
			_, nearErr := near.Site(ctx, "nowhere", 0)
			if _, err := far.Site(ctx, "nowhere", 0); !errors.Is(err, tko.ErrNotFound) || err.Error() != nearErr.Error() {
				t.Errorf("unknown site: the client returns %v, the catalog %v", err, nearErr)
			}
			ids, created, err := far.CreateChildren(ctx, tko.NewChildren{Parent: id, Children: []tko.NewChild{{Origin: "x", Template: templateID}, {Origin: "y", Template: templateID}}})
			if err != nil || created != 2 || len(ids) != 2 {
				t.Errorf("children: %v, %d, %v", ids, created, err)
			}
			again, created, err := far.CreateChildren(ctx, tko.NewChildren{Parent: id, Children: []tko.NewChild{{Origin: "y", Template: templateID}}})
			if err != nil || created != 0 || len(again) != 1 || again[0] != ids[1] {
				t.Errorf("children again: %v, %d, %v", again, created, err)
			}
			provisioned, isNew, err := far.ProvisionSite(ctx, tko.NewSite{Origin: "o" + string(format), Template: templateID})
			if err != nil || !isNew || !strings.HasPrefix(string(provisioned), "provisioned/") {
				t.Errorf("provisioned: %q, %t, %v", provisioned, isNew, err)
			}
			if deleted, err := far.DeleteDeployment(ctx, id); err != nil || deleted != (tko.Deleted{Count: 3, Descendants: 2}) {
				t.Errorf("delete: %+v, %v", deleted, err)
			}
			if deleted, err := far.PurgeSites(ctx, tko.SiteSelect{IDs: []string{"**"}}, true); err != nil || deleted.Count == 0 {
				t.Errorf("dry run: %+v, %v", deleted, err)
			}
		})
	}
}

// The count that a context confirms, and the requirement of a package, reach the
// catalog with each call that they apply to.
func TestConfirmationsAndRequiredPackagesReachTheCatalog(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := dial(t, serve(t, catalogOf(t)))
	if _, err := c.RegisterTemplate(ctx, tko.Template{ID: "t", Package: krm.Package{configMap("a")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RegisterSite(ctx, tko.Site{ID: "s", Package: krm.Package{configMap("a")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RegisterPlugin(ctx, tko.Plugin{Type: tko.PluginPrepare, Name: "p", Arguments: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	id, err := c.CreateDeployment(ctx, tko.NewDeployment{Prepared: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []tko.Details{{Description: "roof"}, {}} {
		if _, err := c.RegisterSite(ctx, tko.Site{ID: "noted", Details: d}); err != nil {
			t.Fatal(err)
		}
		for _, write := range []func() error{ // of a client that doesn't know details
			func() error { _, err := c.RegisterSite(tko.WithDetailsKept(ctx), tko.Site{ID: "noted"}); return err },
			func() error {
				_, err := c.PutEntity(tko.WithDetailsKept(ctx), tko.Put{Kind: tko.KindSite, ID: "noted"})
				return err
			},
		} {
			if err := write(); err != nil {
				t.Fatal(err)
			}
			if got, err := c.Site(ctx, "noted", 0); err != nil || got.Details != d {
				t.Errorf("got %+v, %v, want %+v", got.Details, err, d)
			}
		}
	}
	keep := tko.WithPackageRequired(ctx)
	if _, err := c.RegisterTemplate(keep, tko.Template{ID: "t"}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("register a template: %v", err)
	}
	if _, err := c.RegisterSite(keep, tko.Site{ID: "s"}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("register a site: %v", err)
	}
	calls := map[string]func(ctx context.Context) error{
		"approve": func(ctx context.Context) error {
			_, err := c.ApproveDeployments(ctx, tko.DeploymentSelect{}, false)
			return err
		},
		"delete template":   func(ctx context.Context) error { _, err := c.DeleteTemplate(ctx, "t"); return err },
		"delete site":       func(ctx context.Context) error { _, err := c.DeleteSite(ctx, "s"); return err },
		"delete deployment": func(ctx context.Context) error { _, err := c.DeleteDeployment(ctx, id); return err },
		"delete plugin":     func(ctx context.Context) error { _, err := c.DeletePlugin(ctx, tko.PluginPrepare, "p"); return err },
		"purge templates": func(ctx context.Context) error {
			_, err := c.PurgeTemplates(ctx, tko.TemplateSelect{}, false)
			return err
		},
		"purge sites": func(ctx context.Context) error { _, err := c.PurgeSites(ctx, tko.SiteSelect{}, false); return err },
		"purge deployments": func(ctx context.Context) error {
			_, err := c.PurgeDeployments(ctx, tko.DeploymentSelect{}, false)
			return err
		},
		"purge plugins": func(ctx context.Context) error { _, err := c.PurgePlugins(ctx, tko.PluginSelect{}, false); return err },
		"remove":        func(ctx context.Context) error { _, err := c.RemoveEntity(ctx, tko.KindSite, "s", false); return err },
	}
	for name, call := range calls {
		if err := call(tko.WithConfirmation(ctx, 200)); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "but 200 were confirmed") {
			t.Errorf("%s with another count: %v", name, err)
		}
	}
	for _, name := range []string{"approve", "purge templates", "remove", "delete deployment", "delete plugin"} {
		if err := calls[name](tko.WithConfirmation(ctx, 1)); err != nil {
			t.Errorf("%s with its count: %v", name, err)
		}
	}
}

func TestWorkIsClaimedAndChangesAreStreamed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Limit)
	defer cancel()
	c := dial(t, serve(t, catalogOf(t)))
	about, err := c.About(ctx)
	if err != nil {
		t.Fatal(err)
	}
	id, err := c.CreateDeployment(tko.WithAuthor(ctx, tko.Author{Who: "Zoë", Why: "100% because"}), tko.NewDeployment{})
	if err != nil {
		t.Fatal(err)
	}
	for change, err := range c.Watch(ctx, about.Position, tko.KindDeployment) {
		if err != nil {
			t.Fatal(err)
		}
		want := tko.Change{Kind: tko.KindDeployment, ID: string(id), Op: tko.OpWritten, Revision: 1, Author: tko.Author{Who: "Zoë", Why: "100% because"}}
		if diff := cmp.Diff(want, change, cmpopts.IgnoreFields(tko.Change{}, "Position", "Time")); diff != "" {
			t.Errorf("change (-want +got):\n%s", diff)
		}
		break
	}
	items, err := c.ClaimWork(ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Worker: "me", Max: 10, Lease: time.Minute, Wait: eventually.Limit})
	if err != nil || len(items) != 1 || items[0].Key != string(id) {
		t.Fatalf("claimed %v, %v", items, err)
	}
	if renewed, err := c.RenewWork(ctx, items, time.Minute); err != nil || !slices.Equal(renewed, items) {
		t.Errorf("renewed %v, %v", renewed, err)
	}
	if err := c.FinishWork(ctx, []tko.FinishedWork{{Item: items[0], Outcome: tko.WorkDone}}); err != nil {
		t.Error(err)
	}
	if items, err = c.ClaimWork(ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Max: 10, Lease: time.Minute}); err != nil || len(items) != 0 {
		t.Errorf("claimed %v, %v after all is done", items, err)
	}
	if err := c.EnqueueSites(ctx, []tko.SiteID{"lagos", "abuja"}); err != nil {
		t.Error(err)
	}
	if items, err = c.ClaimWork(ctx, tko.ClaimWork{Queue: tko.QueueSchedule, Max: 10, Lease: time.Minute}); err != nil || len(items) != 2 {
		t.Errorf("claimed %v, %v after two sites were enqueued", items, err)
	}
	if n, err := c.ApproveDeployments(ctx, tko.DeploymentSelect{}, true); err != nil || n != 0 {
		t.Errorf("approved %d, %v: nothing is prepared", n, err)
	}
	if _, err := c.ApproveDeployment(ctx, ""); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("no ID: %v", err)
	}
}

// fake is a backend with the few methods that a test needs.
type fake struct {
	grpcapi.Backend

	site  func(context.Context) (tko.Site, error)
	sites func(context.Context) iter.Seq2[tko.Site, error]
}

func (f *fake) Site(ctx context.Context, _ tko.SiteID, _ int64) (tko.Site, error) { return f.site(ctx) }

func (f *fake) Sites(ctx context.Context, _ tko.SiteSelect, _ tko.ListOptions) iter.Seq2[tko.Site, error] {
	return f.sites(ctx)
}

// Breaking out of the loop ends the call on the server.
func TestBreakingOutOfAListEndsTheCall(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	c := dial(t, serve(t, &fake{sites: func(ctx context.Context) iter.Seq2[tko.Site, error] {
		return func(yield func(tko.Site, error) bool) {
			defer close(ended)
			for ctx.Err() == nil && yield(tko.Site{ID: "s"}, nil) {
				continue
			}
		}
	}}))
	for _, err := range c.Sites(t.Context(), tko.SiteSelect{}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	select {
	case <-ended:
	case <-time.After(eventually.Limit):
		t.Error("the call has not ended")
	}
}

func TestErrorOfAListComesLast(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, &fake{sites: func(context.Context) iter.Seq2[tko.Site, error] {
		return func(yield func(tko.Site, error) bool) {
			if yield(tko.Site{ID: "s"}, nil) {
				yield(tko.Site{}, tko.Errorf(tko.ErrDenied, "enough"))
			}
		}
	}}))
	var got []string
	for site, err := range c.Sites(t.Context(), tko.SiteSelect{}, tko.ListOptions{}) {
		got = append(got, fmt.Sprint(site.ID, " ", err))
		if err != nil && !errors.Is(err, tko.ErrDenied) {
			t.Errorf("got %v", err)
		}
	}
	if want := []string{"s <nil>", " enough"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestContextErrorsKeepTheirKind(t *testing.T) {
	t.Parallel()
	c := dial(t, serve(t, &fake{site: func(ctx context.Context) (tko.Site, error) {
		<-ctx.Done()
		return tko.Site{}, ctx.Err()
	}}))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Site(ctx, "s", 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("late: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := c.Site(ctx, "s", 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// nowhere returns an address without a listener.
func nowhere(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func TestUnreachableServerIsUnavailable(t *testing.T) {
	t.Parallel()
	address := nowhere(t)
	c := dial(t, client.Options{Address: address})
	_, err := c.Site(t.Context(), "s", 0)
	if !errors.Is(err, client.ErrUnavailable) || !strings.HasPrefix(err.Error(), "the server at "+address+" can't be reached: ") || strings.Contains(err.Error(), "desc =") {
		t.Errorf("got %v", err)
	}
	for _, err = range c.Sites(t.Context(), tko.SiteSelect{}, tko.ListOptions{}) {
		if !errors.Is(err, client.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}
	if err == nil {
		t.Error("a list of an unreachable server has no error")
	}

	patient := dial(t, client.Options{Address: address, WaitForReady: true, Timeout: 50 * time.Millisecond})
	if _, err := patient.Site(t.Context(), "s", 0); !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "desc =") {
		t.Errorf("got %v", err)
	}
}

// A client that waits for a server reaches it after a restart, and repeats calls
// that are safe to repeat.
func TestWaitingClientSurvivesARestartOfTheServer(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	backend := &fake{site: func(context.Context) (tko.Site, error) {
		if calls.Add(1) < 3 {
			return tko.Site{}, &net.OpError{Op: "dial", Err: errors.New("the store is away")}
		}
		return tko.Site{ID: "s"}, nil
	}}
	address := nowhere(t)
	c := dial(t, client.Options{Address: address, WaitForReady: true})
	result := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Limit)
	defer cancel()
	go func() {
		_, err := c.Site(ctx, "s", 0)
		result <- err
	}()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpcapi.NewServer(backend, grpcapi.Options{})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	defer func() { <-done }()
	defer server.Stop()
	if err := <-result; err != nil || calls.Load() != 3 {
		t.Errorf("got %v after %d calls, want success after 3", err, calls.Load())
	}

	calls.Store(0)
	impatient := dial(t, client.Options{Address: address, Network: "tcp4"})
	if _, err := impatient.Site(ctx, "s", 0); !errors.Is(err, client.ErrUnavailable) || calls.Load() != 1 {
		t.Errorf("got %v after %d calls, want ErrUnavailable after 1", err, calls.Load())
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]client.Options{
		"network": {Network: "udp"},
		"format":  {PackageFormat: "json"},
		"address": {Address: "localhost"},
		"IPv6":    {Address: "::1:50050"},
	} {
		t.Run(name, func(t *testing.T) {
			if c, err := client.Dial(o); !errors.Is(err, tko.ErrInvalid) {
				t.Errorf("got %v, %v", c, err)
			}
		})
	}
}

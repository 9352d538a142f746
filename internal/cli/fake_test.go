package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A fake is a server that returns its fields and records requests.
type fake struct {
	server // nil: methods that no test expects

	lock        sync.Mutex
	about       tko.About
	caller      tko.Caller
	templates   []tko.Template
	sites       []tko.Site
	deployments func() []tko.Deployment
	revisions   map[int64]tko.Stamp // the earlier revisions of each deployment
	plugins     []tko.Plugin
	stops       []tko.StopStatus
	fleet       *tko.Fleet
	fail        error
	hang        bool

	asked   []string
	authors []tko.Author
	target  target
	closed  bool
}

// got records a request and returns the error that it fails with, or nil.
func (f *fake) got(ctx context.Context, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if n, ok := tko.ConfirmationOf(ctx); ok {
		text += fmt.Sprintf(" confirmed %d", n)
	}
	if asOf := tko.AsOfOf(ctx); !asOf.IsZero() {
		text += " as of " + asOf.String()
	}
	if tko.PackageRequired(ctx) {
		text += ", which must not empty it"
	}
	f.lock.Lock()
	f.asked = append(f.asked, text)
	f.authors = append(f.authors, tko.AuthorOf(ctx))
	f.lock.Unlock()
	if f.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return f.fail
}

func (f *fake) Close() error {
	f.closed = true
	return nil
}

func (f *fake) Stop(ctx context.Context, stop tko.Stop) (tko.StopStatus, error) {
	stop.ID, stop.By, stop.Created = "s-1", tko.Author{Who: "ann"}, time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC)
	status := tko.StopStatus{Stop: stop, SiteCount: 3, DeploymentCount: 7, InFlight: []tko.InFlight{{Queue: tko.QueueSchedule, Key: "lagos/1", Since: stop.Created, Until: stop.Created}}, InFlightCount: 1}
	return status, f.got(ctx, "stop %s: %s", stop.Selection(), stop.Reason)
}

func (f *fake) Resume(ctx context.Context, r tko.Release) (tko.StopStatus, error) {
	return tko.StopStatus{Stop: tko.Stop{ID: r.ID, All: true}, WaitingSites: 2, WaitingDeployments: 1, Rollouts: []tko.RolloutID{"r"}}, f.got(ctx, "resume %+v", r)
}

// Fleet is unsupported, as by servers of earlier versions, unless the fake has a fleet.
func (f *fake) Fleet(ctx context.Context, sel tko.FleetSelect) (tko.Fleet, error) {
	if f.fleet == nil {
		return tko.Fleet{}, errors.ErrUnsupported
	}
	return *f.fleet, f.got(ctx, "fleet %v %v", sel.Sites, sel.SiteMetadata)
}

func (f *fake) Stops(context.Context) ([]tko.StopStatus, error) { return f.stops, nil }

func (f *fake) About(ctx context.Context) (tko.About, error) { return f.about, f.got(ctx, "about") }

func (f *fake) WhoAmI(ctx context.Context) (tko.Caller, error) { return f.caller, f.got(ctx, "whoami") }

func (f *fake) RegisterTemplate(ctx context.Context, t tko.Template) (int64, error) {
	return 3, f.got(ctx, "register template %s %v %d", t.ID, t.Metadata, len(t.Package))
}

func (f *fake) Template(ctx context.Context, id tko.TemplateID, revision int64) (tko.Template, error) {
	err := f.got(ctx, "template %s %d", id, revision)
	for _, t := range f.templates {
		if t.ID == id {
			return t, err
		}
	}
	return tko.Template{}, tko.NotFound(tko.KindTemplate, id)
}

func (f *fake) Templates(ctx context.Context, sel tko.TemplateSelect, o tko.ListOptions) iter.Seq2[tko.Template, error] {
	listed := slices.Clone(f.templates)
	for i := range listed {
		if o.Counts {
			listed[i].DeploymentCount = len(listed[i].Deployments)
		}
		if !o.Deployments {
			listed[i].Deployments = nil
		}
	}
	return items(listed, f.got(ctx, "templates %v %v %s", sel.IDs, sel.Metadata, window(o)))
}

func (f *fake) DeleteTemplate(ctx context.Context, id tko.TemplateID) (tko.Deleted, error) {
	return tko.Deleted{Count: 1}, f.got(ctx, "delete template %s", id)
}

func (f *fake) PurgeTemplates(ctx context.Context, sel tko.TemplateSelect, dryRun bool) (tko.Deleted, error) {
	return tko.Deleted{Count: 2, Orphaned: map[bool]int{true: 1988}[slices.Contains(sel.IDs, "t")]}, f.got(ctx, "purge templates %v %v %v", sel.IDs, sel.Metadata, dryRun)
}

func (f *fake) RegisterSite(ctx context.Context, s tko.Site) (int64, error) {
	return 1, f.got(ctx, "register site %s %q %v %d", s.ID, s.Template, s.Metadata, len(s.Package))
}

func (f *fake) Sites(ctx context.Context, sel tko.SiteSelect, o tko.ListOptions) iter.Seq2[tko.Site, error] {
	return items(f.sites, f.got(ctx, "sites %v %v %v %s", sel.IDs, sel.Templates, sel.Metadata, window(o)))
}

func (f *fake) DeleteSite(ctx context.Context, id tko.SiteID) (tko.Deleted, error) {
	return tko.Deleted{Count: 1}, f.got(ctx, "delete site %s", id)
}

func (f *fake) PurgeSites(ctx context.Context, sel tko.SiteSelect, dryRun bool) (tko.Deleted, error) {
	return tko.Deleted{}, f.got(ctx, "purge sites %v %v %v %v", sel.IDs, sel.Templates, sel.Metadata, dryRun)
}

func (f *fake) CreateDeployment(ctx context.Context, d tko.NewDeployment) (tko.DeploymentID, error) {
	return "D1", f.got(ctx, "create %q %q %q %v %v %v %d", d.Template, d.Site, d.Parent, d.Metadata, d.Prepared, d.Approved, len(d.Merge))
}

func (f *fake) Deployment(ctx context.Context, id tko.DeploymentID, revision int64) (tko.Deployment, error) {
	err := f.got(ctx, "deployment %s %d", id, revision)
	for _, d := range f.deployments() {
		if was, ok := f.revisions[revision]; ok || revision != 0 && f.revisions != nil {
			d.Stamp = was
			if !ok {
				continue
			}
		}
		if d.ID == id {
			return d, err
		}
	}
	return tko.Deployment{}, tko.NotFound(tko.KindDeployment, id)
}

func (f *fake) Deployments(ctx context.Context, sel tko.DeploymentSelect, o tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	if sel.Outdated != nil && *sel.Outdated {
		return items[tko.Deployment](nil, nil) // test/cli tests lists of revisions
	}
	err := f.got(ctx, "deployments %s %s", selection(sel), window(o))
	var found []tko.Deployment
	for _, d := range f.deployments() {
		if sel.Parent == "" || d.Parent == sel.Parent {
			found = append(found, d)
		}
	}
	return items(found, err)
}

func (f *fake) DeleteDeployment(ctx context.Context, id tko.DeploymentID) (tko.Deleted, error) {
	return tko.Deleted{Count: 4, Descendants: 3}, f.got(ctx, "delete deployment %s", id)
}

func (f *fake) PurgeDeployments(ctx context.Context, sel tko.DeploymentSelect, dryRun bool) (tko.Deleted, error) {
	return tko.Deleted{Count: 2, Descendants: 1}, f.got(ctx, "purge deployments %s %v", selection(sel), dryRun)
}

func (f *fake) StartModification(ctx context.Context, id tko.DeploymentID) (tko.Modification, error) {
	return tko.Modification{Token: "T1", Deployment: id, Package: krm.Package{
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "one"}},
	}}, f.got(ctx, "start %s", id)
}

func (f *fake) EndModification(ctx context.Context, token string, pkg krm.Package) (tko.DeploymentID, int64, error) {
	return "D1", 7, f.got(ctx, "end %s %d", token, len(pkg))
}

func (f *fake) Modifications(ctx context.Context) ([]tko.OpenModification, error) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return []tko.OpenModification{
		{Deployment: "D1", Started: at, Expires: at.Add(10 * time.Second), Author: tko.Author{Who: "alice", Why: "to scale"}},
		{Deployment: "D2", Expires: at, Author: tko.Author{Who: "anonymous@::1"}},
	}, f.got(ctx, "modifications")
}

func (f *fake) Queues(ctx context.Context) ([]tko.QueueState, error) {
	failing := tko.FailingWork{Key: "lagos", Failures: 7, Error: "no route", Due: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	return []tko.QueueState{
		{QueueStatistics: tko.QueueStatistics{Queue: "prepare", Ready: 2, Oldest: 5 * time.Minute}},
		{QueueStatistics: tko.QueueStatistics{Queue: "schedule", Ready: 1, Running: 1, Retrying: 3, Waiting: 4, Oldest: time.Hour}, Failing: []tko.FailingWork{failing}},
		{QueueStatistics: tko.QueueStatistics{Queue: "gitops", Ready: 1, Oldest: time.Second}},
	}, f.got(ctx, "queues")
}

func (f *fake) BreakModification(ctx context.Context, id tko.DeploymentID) (tko.OpenModification, error) {
	return tko.OpenModification{Deployment: id, Author: tko.Author{Who: "alice"}}, f.got(ctx, "break %s", id)
}

func (f *fake) CancelModification(ctx context.Context, token string) error {
	return f.got(ctx, "cancel %s", token)
}

func (f *fake) ApproveDeployment(ctx context.Context, id tko.DeploymentID) (int, error) {
	return 1, f.got(ctx, "approve %s", id)
}

func (f *fake) ApproveDeployments(ctx context.Context, sel tko.DeploymentSelect, dryRun bool) (int, error) {
	return 5, f.got(ctx, "approve all %s %v", selection(sel), dryRun)
}

func (f *fake) RegisterPlugin(ctx context.Context, p tko.Plugin) (int64, error) {
	return 1, f.got(ctx, "register plugin %s %s %q %v %v", p.ID(), p.Executor, p.Arguments, p.Properties, p.Triggers)
}

func (f *fake) Plugin(ctx context.Context, typ, name string) (tko.Plugin, error) {
	return f.plugins[0], f.got(ctx, "plugin %s %s", typ, name)
}

func (f *fake) Plugins(ctx context.Context, sel tko.PluginSelect, o tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	text := fmt.Sprint(sel.Names)
	if sel.Type != nil {
		text += " type=" + *sel.Type
	}
	if sel.Executor != nil {
		text += " executor=" + *sel.Executor
	}
	if sel.Trigger != nil {
		text += " trigger=" + sel.Trigger.String()
	}
	return items(f.plugins, f.got(ctx, "plugins %s %s", text, window(o)))
}

func (f *fake) DeletePlugin(ctx context.Context, typ, name string) (tko.Deleted, error) {
	return tko.Deleted{Count: 1}, f.got(ctx, "delete plugin %s %s", typ, name)
}

func (f *fake) PurgePlugins(ctx context.Context, sel tko.PluginSelect, dryRun bool) (tko.Deleted, error) {
	return tko.Deleted{Count: 1}, f.got(ctx, "purge plugins %v %v", sel.Names, dryRun)
}

func (f *fake) Watch(ctx context.Context, _ int64, _ ...tko.Kind) iter.Seq2[tko.Change, error] {
	return func(yield func(tko.Change, error) bool) {
		for yield(tko.Change{}, nil) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
	}
}

func (f *fake) WatchNewest(ctx context.Context, position int64, n uint32, kinds ...tko.Kind) iter.Seq2[tko.Change, error] {
	return f.Watch(ctx, position-int64(n), kinds...)
}

func items[T any](all []T, err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if err != nil {
			var zero T
			yield(zero, err)
			return
		}
		for _, item := range all {
			if !yield(item, nil) {
				return
			}
		}
	}
}

func window(o tko.ListOptions) string {
	limit := "all"
	if o.Window.Max != nil {
		limit = strconv.Itoa(*o.Window.Max)
	}
	return fmt.Sprintf("[%d:%s %q]", o.Window.Offset, limit, o.Window.After)
}

func selection(s tko.DeploymentSelect) string {
	state := func(b *bool) string {
		if b == nil {
			return "?"
		}
		return strconv.FormatBool(*b)
	}
	return fmt.Sprintf("%q %v %v %v %v %v %s %s", s.Parent, s.Metadata, s.Templates, s.TemplateMetadata, s.Sites, s.SiteMetadata,
		state(s.Prepared), state(s.Approved))
}

// A result is the output and the exit code of a command.
type result struct {
	out, err string
	code     int
}

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func run(t *testing.T, f *fake, stdin string, args ...string) result {
	t.Helper()
	return runContext(t.Context(), f, stdin, args...)
}

func runContext(ctx context.Context, f *fake, stdin string, args ...string) result {
	return runServer(ctx, f, f, stdin, args...)
}

// runServer runs a command with a server that embeds f.
func runServer(ctx context.Context, f *fake, asked server, stdin string, args ...string) result {
	var out, errs bytes.Buffer
	if f.deployments == nil {
		f.deployments = func() []tko.Deployment { return nil }
	}
	a := newApp(Streams{In: strings.NewReader(stdin), Out: &out, Err: &errs}, func(to target) (server, error) {
		f.target = to
		return asked, nil
	})
	a.now = func() time.Time { return noon }
	code := a.main(ctx, args)
	return result{out.String(), errs.String(), code}
}

// example returns a server with entities of each kind.
func example() *fake {
	stamp := tko.Stamp{
		Revision: 2, Created: noon.Add(-3 * time.Hour), Updated: noon.Add(-90 * time.Second),
		Author: tko.Author{Who: "ada@desk", Why: "a try"},
		Conditions: []tko.Condition{{
			Type: tko.ConditionScheduled, Status: tko.ConditionFalse, Reason: "GitUnreachable", Message: "no route",
			LastTransition: noon.Add(-time.Minute), ObservedRevision: 1,
		}},
	}
	pkg := krm.Package{
		{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "one"}, "data": map[string]any{"a": "yes", "b": "<&>"}},
		{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{
			"name": "two", "annotations": map[string]any{krm.AnnotationPrepared: "true"},
		}, "spec": map[string]any{"count": int64(5), "ratio": 0.5, "on": true, "none": nil, "list": []any{"x", int64(-1)}, "empty": map[string]any{}}},
	}
	return &fake{
		about: tko.About{InstanceName: "lab", Version: "v1", Backend: "sqlite", AddressPorts: []string{"[::1]:50050"}, DefaultPackageFormat: krm.CBOR},
		templates: []tko.Template{
			{ID: "nf/smf:v1", Metadata: map[string]string{"type": "smf", "vendor": "ours"}, Deployments: []tko.DeploymentID{"D1", "D2"}, Stamp: stamp, Package: pkg},
			{ID: "nf/upf:v1"},
		},
		sites: []tko.Site{
			{ID: "lagos/1", Template: "edge:v1", Metadata: map[string]string{"region": "west\x1b[31m"}, Stamp: stamp},
		},
		deployments: func() []tko.Deployment {
			return []tko.Deployment{
				{ID: "D1", Template: "nf/smf:v1", Site: "lagos/1", Prepared: true, Approved: true, Stamp: stamp, Package: pkg},
				{ID: "D2", Parent: "D1", Template: "nf/smf:v1", Stamp: tko.Stamp{Conditions: []tko.Condition{
					{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: "PluginFailed", Message: "boom"},
				}}},
			}
		},
		plugins: []tko.Plugin{{
			Type: "prepare", Name: "ns", Executor: "kpt", Arguments: []string{"image:v1"}, Properties: map[string]string{"namespace": "spec.namespace"},
			Triggers: []krm.GVK{{Group: "w.plugin.nephio.org", Version: "v1alpha1", Kind: "Namespace"}},
		}},
	}
}

func (f *fake) last() string {
	f.lock.Lock()
	defer f.lock.Unlock()
	if len(f.asked) == 0 {
		return ""
	}
	return f.asked[len(f.asked)-1]
}

func (f *fake) sawAuthor(a tko.Author) bool { return slices.Contains(f.authors, a) }

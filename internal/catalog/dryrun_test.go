package catalog_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/test/soak"
)

// A foreseen is a request that can be made as a dry run: it returns what it did, or would do, without revisions.
type foreseen func(ctx context.Context, dry bool) (any, error)

// dryRuns make random requests, by the method of the catalog. A method with a dry run that has no row fails the test.
func (w *world) dryRuns(r *rand.Rand) map[string]func() foreseen {
	id := func(kind string) string { return fmt.Sprintf("%s/%d", kind, r.IntN(5)) }
	pattern := func(kind string) string { return pick(r, kind+"/**", id(kind), "**", kind+"/1*", "no/**") }
	deployment := func() tko.DeploymentID {
		var ids []tko.DeploymentID
		for d, err := range w.Deployments(w.ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
			if err != nil {
				w.t.Fatal(err)
			}
			ids = append(ids, d.ID)
		}
		if len(ids) == 0 || r.IntN(9) == 0 {
			return "missing"
		}
		return pick(r, ids...)
	}
	metadata := func() map[string]string {
		all := map[string]string{}
		for _, key := range []string{"region", "tier", "pair"} {
			if r.IntN(2) == 0 {
				all[key] = pick(r, "x", "y")
			}
		}
		return all
	}
	key := func() record.Key {
		switch r.IntN(3) {
		case 0:
			return record.Key{Kind: tko.KindTemplate, ID: id("t")}
		case 1:
			return record.Key{Kind: tko.KindSite, ID: id("s")}
		default:
			return record.Key{Kind: tko.KindDeployment, ID: string(deployment())}
		}
	}
	return map[string]func() foreseen{
		"PutEntity": func() foreseen {
			p := tko.Put{Kind: pick(r, tko.KindSite, tko.KindTemplate), Metadata: metadata(), Package: things(pick(r, "mine=1", "mine=2"), pick(r, "more=1", "other=1")), Manager: pick(r, "", "apply", "mine")}
			p.ID = id("t")
			if p.Kind == tko.KindSite {
				p.ID, p.Template = id("s"), pick(r, "", tko.TemplateID(id("t")))
			}
			return func(ctx context.Context, dry bool) (any, error) {
				p.DryRun = dry
				result, err := w.PutEntity(ctx, p)
				result.Revision = 0
				return result, err
			}
		},
		"PutRecord": func() foreseen {
			p := catalog.Put{Key: record.Key{Kind: tko.KindSite, ID: id("s")}, Metadata: metadata(), Package: things(pick(r, "mine=1", "mine=2"))}
			return func(ctx context.Context, dry bool) (any, error) {
				p.DryRun = dry
				rec, created, err := w.PutRecord(ctx, p)
				return fmt.Sprint(rec.Template, rec.Metadata, rec.Digest, created), err
			}
		},
		"RemoveEntity": func() foreseen {
			k := key()
			return func(ctx context.Context, dry bool) (any, error) { return w.RemoveEntity(ctx, k.Kind, k.ID, dry) }
		},
		"RemoveRecord": func() foreseen {
			k := key()
			return func(ctx context.Context, dry bool) (any, error) {
				_, deleted, err := w.RemoveRecord(ctx, k, record.Requirement{}, dry)
				return deleted, err
			}
		},
		"RemoveRecords": func() foreseen {
			k, other := key(), key()
			ids := []string{k.ID}
			if other.Kind == k.Kind && other.ID != k.ID {
				ids = append(ids, other.ID)
			}
			return func(ctx context.Context, dry bool) (any, error) {
				return w.RemoveRecords(ctx, k.Kind, ids, record.Requirement{}, dry)
			}
		},
		"PurgeTemplates": func() foreseen {
			s := tko.TemplateSelect{IDs: []string{pattern("t")}}
			return func(ctx context.Context, dry bool) (any, error) { return w.PurgeTemplates(ctx, s, dry) }
		},
		"PurgeSites": func() foreseen {
			s := tko.SiteSelect{IDs: []string{pattern("s")}}
			return func(ctx context.Context, dry bool) (any, error) { return w.PurgeSites(ctx, s, dry) }
		},
		"PurgeDeployments": func() foreseen {
			s := tko.DeploymentSelect{Templates: []string{pattern("t")}, Sites: []string{pattern("s")}}
			return func(ctx context.Context, dry bool) (any, error) { return w.PurgeDeployments(ctx, s, dry) }
		},
		"PurgePlugins": func() foreseen {
			s := tko.PluginSelect{Names: []string{pick(r, "p*", "p1", "q*")}}
			return func(ctx context.Context, dry bool) (any, error) { return w.PurgePlugins(ctx, s, dry) }
		},
		"ApproveDeployments": func() foreseen {
			s := tko.DeploymentSelect{Sites: []string{pattern("s")}}
			return func(ctx context.Context, dry bool) (any, error) { return w.ApproveDeployments(ctx, s, dry) }
		},
		"PutApproval": func() foreseen {
			k := record.Key{Kind: tko.KindDeployment, ID: string(deployment())}
			return func(ctx context.Context, dry bool) (any, error) {
				record, err := w.PutApproval(ctx, k, record.Requirement{}, dry)
				return record.Approved, err
			}
		},
		"PutConditions": func() foreseen {
			k := record.Key{Kind: tko.KindDeployment, ID: string(deployment())}
			c := tko.Condition{Type: "X", Status: pick(r, tko.ConditionTrue, tko.ConditionFalse), Reason: "R"}
			return func(ctx context.Context, dry bool) (any, error) {
				record, err := w.PutConditions(ctx, k, []tko.Condition{c}, nil, record.Requirement{}, dry)
				var texts []string
				for _, c := range record.Conditions {
					texts = append(texts, c.Type+c.Status+c.Reason)
				}
				return texts, err
			}
		},
		"RestorePast": func() foreseen {
			head, err := w.Position(w.ctx)
			if err != nil {
				w.t.Fatal(err)
			}
			request := tko.RestoreRequest{Select: tko.PastSelect{Kind: pick(r, tko.KindSite, tko.KindTemplate), IDs: []string{pick(r, "s/**", "t/**", "**")}}, AsOf: tko.AsOf{Position: 1 + r.Int64N(max(1, head))}}
			return func(ctx context.Context, dry bool) (any, error) {
				request.DryRun = dry
				result, err := w.RestorePast(ctx, request)
				return result, err
			}
		},
		"RegisterSources": func() foreseen {
			d := tko.SourceDefinition{Kind: tko.SourceKinds[0], Name: pick(r, "one", "two"), Spec: []byte(pick(r, `{"x":1}`, `{"x":2}`))}
			return func(ctx context.Context, dry bool) (any, error) {
				result, err := w.RegisterSources(ctx, []tko.SourceDefinition{d}, dry)
				return result, err
			}
		},
		"RegisterSubscriptions": func() foreseen {
			d := tko.Subscription{Name: pick(r, "one", "two"), Spec: []byte(pick(r, `{"x":1}`, `{"x":2}`, `{`))}
			return func(ctx context.Context, dry bool) (any, error) {
				result, err := w.RegisterSubscriptions(ctx, []tko.Subscription{d}, dry)
				return result, err
			}
		},
		"RegisterViews": func() foreseen {
			v := tko.View{Name: pick(r, "one", "two"), Path: pick(r, "/sites", "/matrix", "/login")}
			return func(ctx context.Context, dry bool) (any, error) {
				result, err := w.RegisterViews(ctx, []tko.View{v}, dry)
				return result, err
			}
		},
		"ReleaseHolds": func() foreseen {
			return func(ctx context.Context, dry bool) (any, error) {
				return w.ReleaseHolds(ctx, tko.ReleaseHolds{Queues: true, DryRun: dry})
			}
		},
		"Resume": func() foreseen {
			return func(ctx context.Context, dry bool) (any, error) {
				if dry { // there is something to resume
					if _, err := w.Stop(ctx, tko.Stop{Sites: []string{"s/**"}, Reason: "x"}); err != nil {
						return nil, nil //nolint:nilerr,nilnil // there are no sites
					}
				}
				stops, err := w.Stops(ctx)
				if err != nil || len(stops) == 0 {
					return nil, err
				}
				status, err := w.Resume(ctx, tko.Release{ID: stops[0].Stop.ID, DryRun: dry})
				return []int{status.WaitingSites, status.WaitingDeployments, len(status.Rollouts)}, err
			}
		},
	}
}

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// hasDryRun reports whether a method has a dry run: a last parameter that is a bool, or a field.
func hasDryRun(m reflect.Method) bool {
	last := m.Type.In(m.Type.NumIn() - 1)
	if last.Kind() == reflect.Struct {
		_, ok := last.FieldByName("DryRun")
		return ok
	}
	return last.Kind() == reflect.Bool
}

// What a dry run says is what the request then does, refusals included, in random states. A dry run changes nothing, and
// a request of which it says that nothing changes doesn't either.
func TestADryRunSaysWhatIsDone(t *testing.T) {
	t.Parallel()
	seeds := uint64(soak.Rounds(t, 4, 500))
	service := reflect.TypeFor[*catalog.Service]()
	rows := newWorld(t, catalog.Options{}).dryRuns(rand.New(rand.NewPCG(0, 0)))
	var names []string
	for m := range service.Methods() {
		if !hasDryRun(m) || m.Name == "DeleteSource" || m.Name == "CredentialUses" { // the last parameter is another choice
			continue
		}
		names = append(names, m.Name)
		if rows[m.Name] == nil {
			t.Errorf("%s has a dry run and no row here", m.Name)
		}
	}
	done := map[string]int{}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 0))
		w := newWorld(t, catalog.Options{ConfirmAbove: 6, CheckSource: func(tko.SourceDefinition) error { return nil }, Notify: messenger{}, Reach: gate.ReachLimits{Created: 4}})
		rows := w.dryRuns(r)
		for step := range 100 {
			w.grow(r)
			name := pick(r, names...)
			ctx := tko.WithAuthor(w.ctx, tko.Author{Who: fmt.Sprint("ada", step/50)})
			if n := r.IntN(4); n > 1 {
				ctx = tko.WithConfirmation(ctx, n*n)
			}
			call := rows[name]()
			what := fmt.Sprintf("seed %d, step %d, %s", seed, step, name)
			before := w.all()
			said, refusal := call(ctx, true)
			if diff := cmp.Diff(before, w.all()); diff != "" {
				t.Fatalf("%s: the dry run changed something:\n%s", what, diff)
			}
			did, err := call(ctx, false)
			if fmt.Sprint(refusal) != fmt.Sprint(err) && !isOnlyOfDoing(name, err) {
				t.Errorf("%s: the dry run said %v, and the request %v", what, refusal, err)
				continue
			}
			if err != nil {
				continue
			}
			if diff := cmp.Diff(said, did); diff != "" {
				t.Errorf("%s: what it said and did differ (-said +did):\n%s", what, diff)
			}
			changed := !cmp.Equal(before, w.all())
			if result, ok := said.(tko.PutResult); ok && changed != (result.Created || result.Changed) {
				t.Errorf("%s: the dry run said %+v; it changed: %t", what, result, changed)
			}
			if result, ok := said.(tko.Deleted); ok && changed != (result.Count > 0) {
				t.Errorf("%s: the dry run said %+v; it changed: %t", what, result, changed)
			}
			if changed {
				done[name]++
			}
		}
	}
	t.Logf("%v", done)
	for _, name := range []string{"PutEntity", "PutRecord", "RemoveEntity", "RemoveRecord", "RemoveRecords", "PurgeTemplates", "PurgeSites", "PurgeDeployments", "ApproveDeployments", "PutApproval", "RestorePast"} {
		if done[name] == 0 {
			t.Errorf("no request %s changed anything", name)
		}
	}
}

// isOnlyOfDoing reports whether an error is of a request that needs consent: its dry run says the number to consent to.
func isOnlyOfDoing(name string, err error) bool {
	return err != nil && (strings.Contains(err.Error(), "need consent") || strings.Contains(err.Error(), "were confirmed")) && name != "PutEntity"
}

// grow adds something.
func (w *world) grow(r *rand.Rand) {
	w.t.Helper()
	for range r.IntN(3) {
		switch r.IntN(4) {
		case 0:
			w.template(fmt.Sprint("t/", r.IntN(5)), thing("base", "value: "+pick(r, "x", "y")))
		case 1:
			w.site(fmt.Sprint("s/", r.IntN(5)), "", "region", pick(r, "x", "y"))
		case 2:
			w.plugin(tko.Plugin{Type: tko.PluginPrepare, Name: fmt.Sprint("p", r.IntN(3)), Arguments: []string{"true"}})
		default:
			_, _ = w.CreateDeployment(w.ctx, tko.NewDeployment{Template: tko.TemplateID(fmt.Sprint("t/", r.IntN(5))), Site: tko.SiteID(fmt.Sprint("s/", r.IntN(5))), Prepared: r.IntN(2) == 0})
		}
	}
}

// all returns all entities with their revisions.
func (w *world) all() []string {
	w.t.Helper()
	var all []string
	head, err := w.Position(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, kind := range []tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindPlugin} {
		for r, err := range w.Records(w.ctx, record.Query{Kind: kind, Limit: -1}, head) {
			if err != nil {
				w.t.Fatal(err)
			}
			all = append(all, fmt.Sprint(kind, r.ID, r.Revision, r.Position))
		}
	}
	slices.Sort(all)
	return all
}

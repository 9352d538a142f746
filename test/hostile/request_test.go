package hostile

import (
	"context"
	"errors"
	"iter"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/krm"
)

// first returns the first error of a list, if it has one.
func first[T any](rows iter.Seq2[T, error]) error {
	for _, err := range rows {
		return err
	}
	return nil
}

func just(_ any, err error) error { return err }

func TestInvalidRequestIsRejected(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 10<<10)
	trigger := []krm.GVK{{Version: "v1", Kind: "ConfigMap"}}
	command := tko.Plugin{Type: tko.PluginPrepare, Name: "p", Arguments: []string{"/bin/true"}, Triggers: trigger}
	with := func(change func(p *tko.Plugin)) func(context.Context, *world) error {
		return func(ctx context.Context, w *world) error {
			p := command
			change(&p)
			return just(w.RegisterPlugin(ctx, p))
		}
	}
	template := func(id string, metadata map[string]string) func(context.Context, *world) error {
		return func(ctx context.Context, w *world) error {
			return just(w.RegisterTemplate(ctx, tko.Template{ID: tko.TemplateID(id), Metadata: metadata}))
		}
	}
	tests := map[string]struct {
		why   string
		bad   func(ctx context.Context, w *world) error
		kind  error
		names []string
	}{
		"template: an empty ID":  {"it could never be found", template("", nil), tko.ErrInvalid, []string{"template ID is empty"}},
		"template: a space":      {"IDs have an alphabet", template("a b", nil), tko.ErrInvalid, []string{`"a b"`, "0-9 A-Z a-z"}},
		"template: a pattern":    {"it would select others", template("a*", nil), tko.ErrInvalid, []string{`"a*"`}},
		"template: an accent":    {"the alphabet is ASCII", template("é", nil), tko.ErrInvalid, []string{`"é"`}},
		"template: NUL":          {"PostgreSQL can't keep it", template("a\x00b", nil), tko.ErrInvalid, []string{`"a\x00b"`}},
		"template: a line break": {"it would break lists", template("a\nb", nil), tko.ErrInvalid, []string{`"a\nb"`}},
		"template: 10 kB":        {"no index takes it, and the error doesn't repeat it", template(long, nil), tko.ErrInvalid, []string{"10240 characters", "at most 512"}},
		"site: an empty ID": {
			"as a template's", func(ctx context.Context, w *world) error { return just(w.RegisterSite(ctx, tko.Site{})) },
			tko.ErrInvalid,
			[]string{"site ID is empty"},
		},
		"site: 10 kB": {
			"as a template's", func(ctx context.Context, w *world) error {
				return just(w.RegisterSite(ctx, tko.Site{ID: tko.SiteID(long)}))
			},
			tko.ErrInvalid,
			[]string{"10240 characters"},
		},
		"site: a template that isn't there": {
			"the contract says so", func(ctx context.Context, w *world) error {
				return just(w.RegisterSite(ctx, tko.Site{ID: "s", Template: "nowhere"}))
			},
			tko.ErrInvalid,
			[]string{`template "nowhere"`},
		},
		"site: a template that is no ID": {
			"as one that isn't there", func(ctx context.Context, w *world) error {
				return just(w.RegisterSite(ctx, tko.Site{ID: "s", Template: "a b\x00"}))
			},
			tko.ErrInvalid,
			[]string{`a b`},
		},
		"get: no ID": {
			"an unset variable, mostly", func(ctx context.Context, w *world) error { return just(w.Template(ctx, "", 0)) },
			tko.ErrInvalid,
			[]string{"template ID is empty"},
		},
		"get: 10 kB": {
			"nothing is called so", func(ctx context.Context, w *world) error { return just(w.Site(ctx, tko.SiteID(long), 0)) },
			tko.ErrInvalid,
			[]string{"site ID", "10240"},
		},
		"get: NUL": {
			"PostgreSQL can't even be asked", func(ctx context.Context, w *world) error { return just(w.Site(ctx, "a\x00", 0)) },
			tko.ErrInvalid,
			[]string{`site ID "a\x00"`},
		},
		"get: no deployment's ID": {
			"nothing is called so", func(ctx context.Context, w *world) error { return just(w.Deployment(ctx, "' OR 1=1 --", 0)) },
			tko.ErrNotFound,
			[]string{"' OR 1=1 --"},
		},
		"get: a negative revision": {
			"there are none", func(ctx context.Context, w *world) error { return just(w.Template(ctx, "kept", -1)) },
			tko.ErrInvalid,
			[]string{"-1"},
		},
		"get: a revision to come": {
			"it isn't there", func(ctx context.Context, w *world) error { return just(w.Template(ctx, "kept", math.MaxInt64)) },
			tko.ErrNotFound,
			[]string{"9223372036854775807"},
		},
		"get: an unknown format": {
			"the formats there are are named", func(ctx context.Context, w *world) error {
				return just(w.data.GetTemplate(ctx, &tkopb.GetTemplate{TemplateId: "kept", PreferredPackageFormat: "json"}))
			},
			tko.ErrInvalid,
			[]string{`"json"`, "yaml", "cbor"},
		},
		"delete: no ID": {
			"it must not be all of them", func(ctx context.Context, w *world) error { return just(w.DeleteTemplate(ctx, "")) },
			tko.ErrInvalid,
			[]string{"template ID is empty"},
		},
		"delete: a pattern": {
			"that is what purge is for", func(ctx context.Context, w *world) error { return just(w.DeleteTemplate(ctx, "*")) },
			tko.ErrInvalid,
			[]string{`"*"`},
		},
		"create: a template that isn't there": {
			"the contract says InvalidArgument", func(ctx context.Context, w *world) error {
				return just(w.CreateDeployment(ctx, tko.NewDeployment{Template: "nowhere"}))
			},
			tko.ErrInvalid,
			[]string{`template "nowhere"`},
		},
		"create: a site that isn't there": {
			"the contract says InvalidArgument", func(ctx context.Context, w *world) error {
				return just(w.CreateDeployment(ctx, tko.NewDeployment{Template: "kept", Site: "nowhere"}))
			},
			tko.ErrInvalid,
			[]string{`site "nowhere"`},
		},
		"create: a parent that is no ID": {
			"the contract says InvalidArgument", func(ctx context.Context, w *world) error {
				return just(w.CreateDeployment(ctx, tko.NewDeployment{Template: "kept", Parent: "no\x00where"}))
			},
			tko.ErrInvalid,
			[]string{"parent"},
		},
		"modify: garbage for a token": {
			"it was never issued", func(ctx context.Context, w *world) error {
				_, _, err := w.EndModification(ctx, long+"\x00", nil)
				return err
			},
			tko.ErrNotFound, nil,
		},
		"metadata: NUL":          {"PostgreSQL can't keep it", template("kept", map[string]string{"color": "a\x00b"}), tko.ErrInvalid, []string{`"color"`}},
		"metadata: NUL in a key": {"PostgreSQL can't keep it", template("kept", map[string]string{"col\x00r": "a"}), tko.ErrInvalid, []string{`"col\x00r"`}},
		"metadata: an empty key": {"it can't be selected", template("kept", map[string]string{"": "a"}), tko.ErrInvalid, []string{"metadata key"}},
		"metadata: a long value": {"no index takes it", template("kept", map[string]string{"color": strings.Repeat("x", 1<<20)}), tko.ErrInvalid, []string{`"color"`, "1048576", "65536"}},
		"metadata: a long key":   {"no index takes it", template("kept", map[string]string{long: "a"}), tko.ErrInvalid, []string{"10240", "512"}},
		"metadata: in the package": {
			"it comes by another way into the same index", func(ctx context.Context, w *world) error {
				p := parse(t, "{apiVersion: metadata.nephio.org/v1alpha1, kind: Region, metadata: {name: r}, spec: {name: "+strings.Repeat(long, 7)+"}}")
				return just(w.RegisterTemplate(ctx, tko.Template{ID: "kept", Package: p}))
			},
			tko.ErrInvalid,
			[]string{`"Region.name"`, "71680"},
		},
		"list: a pattern that ends with a backslash": {
			"it escapes nothing", func(ctx context.Context, w *world) error {
				return first(w.Templates(ctx, tko.TemplateSelect{IDs: []string{`kept\`}}, tko.ListOptions{}))
			},
			tko.ErrInvalid,
			[]string{"template ID", `kept\\`},
		},
		"list: a metadata pattern that ends with a backslash": {
			"the key is named", func(ctx context.Context, w *world) error {
				return first(w.Sites(ctx, tko.SiteSelect{Metadata: map[string]string{"is": `k\`}}, tko.ListOptions{}))
			},
			tko.ErrInvalid,
			[]string{`"is"`},
		},
		"list: plugins": {
			"their names are patterns, too", func(ctx context.Context, w *world) error {
				return first(w.Plugins(ctx, tko.PluginSelect{Names: []string{`\`}}, tko.ListOptions{}))
			},
			tko.ErrInvalid,
			[]string{"plugin name"},
		},
		"list: NUL in a pattern": {
			"PostgreSQL can't be asked", func(ctx context.Context, w *world) error {
				return first(w.Deployments(ctx, tko.DeploymentSelect{Sites: []string{"a\x00*"}}, tko.ListOptions{}))
			},
			tko.ErrInvalid,
			[]string{"site ID"},
		},
		"list: NUL in a cursor": {
			"the error says what a cursor is", func(ctx context.Context, w *world) error {
				return first(w.Templates(ctx, tko.TemplateSelect{}, tko.ListOptions{Window: tko.Window{After: "\x00\x01garbage"}}))
			},
			tko.ErrInvalid,
			[]string{"cursor", "ID of the last"},
		},
		"list: an unknown format": {
			"also without packages", func(ctx context.Context, w *world) error {
				s, err := w.data.ListTemplates(ctx, &tkopb.ListTemplates{PreferredPackageFormat: "json"})
				if err == nil {
					_, err = s.Recv()
				}
				return err
			},
			tko.ErrInvalid,
			[]string{`"json"`},
		},
		"purge: a pattern that ends with a backslash": {
			"nothing may go", func(ctx context.Context, w *world) error {
				return just(w.PurgeTemplates(ctx, tko.TemplateSelect{IDs: []string{`**\`}}, false))
			},
			tko.ErrInvalid,
			[]string{`**\\`},
		},
		"purge: a bad pattern after a good one": {
			"nothing may go", func(ctx context.Context, w *world) error {
				return just(w.PurgeSites(ctx, tko.SiteSelect{IDs: []string{"**"}, Metadata: map[string]string{"is": `\`}}, false))
			},
			tko.ErrInvalid,
			[]string{`"is"`},
		},
		"approve: a bad pattern": {
			"nothing may be approved", func(ctx context.Context, w *world) error {
				return just(w.ApproveDeployments(ctx, tko.DeploymentSelect{Sites: []string{`\`}}, false))
			},
			tko.ErrInvalid,
			[]string{"site ID"},
		},
		"watch: an unknown kind": {
			"it would wait for ever", func(ctx context.Context, w *world) error { return first(w.Watch(ctx, 0, "thing")) },
			tko.ErrInvalid,
			[]string{"thing"},
		},
		"watch: a position to come": {
			"it would miss everything without a word", func(ctx context.Context, w *world) error {
				return first(w.Watch(ctx, 1<<60))
			},
			tko.ErrGone,
			[]string{"1152921504606846976", "newest"},
		},
		"work: an unknown queue": {
			"nothing would ever come", func(ctx context.Context, w *world) error {
				return just(w.ClaimWork(ctx, tko.ClaimWork{Queue: "lunch", Max: 1, Lease: time.Second}))
			},
			tko.ErrInvalid,
			[]string{"lunch", "prepare", "schedule"},
		},
		"work: a negative lease": {
			"it would be over before it began", func(ctx context.Context, w *world) error {
				return just(w.ClaimWork(ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Max: 1, Lease: -time.Second}))
			},
			tko.ErrInvalid,
			[]string{"lease"},
		},
		"work: a lease for ever": {
			"the work of one who died would be lost", func(ctx context.Context, w *world) error {
				return just(w.ClaimWork(ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Max: 1, Lease: math.MaxInt64}))
			},
			tko.ErrInvalid,
			[]string{"lease"},
		},
		"conditions: of a template": {
			"it has none", func(ctx context.Context, w *world) error {
				return w.SetConditions(ctx, tko.KindTemplate, "kept", []tko.Condition{{Type: "A", Status: tko.ConditionTrue}})
			},
			tko.ErrInvalid,
			[]string{"template"},
		},
		"conditions: an unknown status": {
			"its meaning is unclear", func(ctx context.Context, w *world) error {
				return w.SetConditions(ctx, tko.KindSite, "kept", []tko.Condition{{Type: "A", Status: "Maybe"}})
			},
			tko.ErrInvalid,
			[]string{"Maybe", "Unknown"},
		},
		"plugin: an unknown type":     {"it would never run", with(func(p *tko.Plugin) { p.Type = "destroy" }), tko.ErrInvalid, []string{`"destroy"`, "schedule"}},
		"plugin: an unknown executor": {"it would never run", with(func(p *tko.Plugin) { p.Executor = "magic" }), tko.ErrInvalid, []string{`"magic"`, "command"}},
		"plugin: no program":          {"it would never run", with(func(p *tko.Plugin) { p.Arguments = nil }), tko.ErrInvalid, []string{`"prepare|p"`, "arguments"}},
		"plugin: a bar in its name":   {"the bar is what separates type and name", with(func(p *tko.Plugin) { p.Name = "a|b" }), tko.ErrInvalid, []string{`"a|b"`}},
		"plugin: a long name":         {"no index takes it", with(func(p *tko.Plugin) { p.Name = long }), tko.ErrInvalid, []string{"10240"}},
		"plugin: an empty trigger":    {"it would never run", with(func(p *tko.Plugin) { p.Triggers = []krm.GVK{{Group: "g"}} }), tko.ErrInvalid, []string{`"prepare|p"`, "trigger"}},
		"plugin: NUL in an argument":  {"no program can be given it", with(func(p *tko.Plugin) { p.Arguments = []string{"/bin/true", "a\x00"} }), tko.ErrInvalid, []string{"NUL"}},
	}
	for store, dsn := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "--roles=data", "--store="+dsn(t))
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					w.harmless(t, func(ctx context.Context) {
						ctx, cancel := context.WithTimeout(ctx, time.Minute)
						defer cancel()
						err := test.bad(ctx, w)
						if err == nil {
							t.Fatalf("it was accepted: %s", test.why)
						}
						if st, ok := status.FromError(err); ok && st.Code() == codes.InvalidArgument {
							err = tko.Errorf(tko.ErrInvalid, "%s", st.Message())
						}
						if !errors.Is(err, test.kind) {
							t.Errorf("%.500v, want it to be %v: %s", err, test.kind, test.why)
						}
						names(t, err.Error(), test.names...)
					})
				})
			}
			w.bounded(t)
		})
	}
}

// Unusual but valid windows and cursors.
func TestUnusualWindowsAreValid(t *testing.T) {
	t.Parallel()
	negative, none := -5, 0
	tests := map[string]struct {
		why    string
		window tko.Window
		want   string
	}{
		"everything":              {"the others compare with it", tko.Window{}, "good kept other"},
		"a huge offset":           {"it is beyond the end", tko.Window{Offset: math.MaxUint32}, ""},
		"an offset at the end":    {"as many as there are", tko.Window{Offset: 3}, ""},
		"a negative limit":        {"it is none", tko.Window{Max: &negative}, "good kept other"},
		"nothing":                 {"0 is nothing", tko.Window{Max: &none}, ""},
		"a cursor of no entity":   {"it lies between two", tko.Window{After: "h"}, "kept other"},
		"a cursor before all":     {"it sorts first", tko.Window{After: "%_'\"; --"}, "good kept other"},
		"a cursor beyond all":     {"it sorts last", tko.Window{After: "\U0010FFFF"}, ""},
		"a cursor of 10 kB":       {"it sorts last", tko.Window{After: strings.Repeat("z", 10<<10)}, ""},
		"a cursor and an offset":  {"both count", tko.Window{After: "good", Offset: 1}, "other"},
		"a cursor and a negative": {"both count", tko.Window{After: "good", Max: &negative}, "kept other"},
	}
	for store, dsn := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "--roles=data", "--store="+dsn(t))
			w.goesOn(t)
			if _, err := w.RegisterTemplate(patient(t), tko.Template{ID: "other"}); err != nil {
				t.Fatal(err)
			}
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					w.harmless(t, func(ctx context.Context) {
						var got []string
						for row, err := range w.Templates(ctx, tko.TemplateSelect{}, tko.ListOptions{Window: test.window}) {
							if err != nil {
								t.Fatalf("%v: %s", err, test.why)
							}
							got = append(got, string(row.ID))
						}
						if strings.Join(got, " ") != test.want {
							t.Errorf("got %q, want %q: %s", got, test.want, test.why)
						}
					})
				})
			}
		})
	}
}

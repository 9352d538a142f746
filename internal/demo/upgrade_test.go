package demo_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/demo"
	"github.com/tko-orchestrator/tko/krm"
)

// A rollouts stands in for a server with rollouts: a command moves one through its states,
// one at each read of its status.
type rollouts struct {
	fleet

	plan    tko.RolloutPlan
	states  map[string][]tko.RolloutStatus // of a rollout, by "" or the verb of its last command
	undo    []tko.RolloutStatus            // of the rollout that undoes it
	deleted []tko.RolloutID
	done    []tko.RolloutCommand
	proof   []tko.RolloutEvidence
	pkg     krm.Package
	verb    string
	step    int
}

func (r *rollouts) Template(_ context.Context, id tko.TemplateID, _ int64) (tko.Template, error) {
	t, ok := r.templates[id]
	if !ok {
		return t, tko.Errorf(tko.ErrNotFound, "template %q: not found", id)
	}
	return t, nil
}

func (r *rollouts) RegisterRollout(_ context.Context, rollout tko.Rollout) (int64, error) {
	r.pkg = rollout.Package
	return 1, r.failed("RegisterRollout")
}

func (r *rollouts) DeleteRollout(_ context.Context, id tko.RolloutID) error {
	r.deleted = append(r.deleted, id)
	return r.failed("DeleteRollout")
}

func (r *rollouts) RolloutPlan(context.Context, tko.RolloutID) (tko.RolloutPlan, error) {
	return r.plan, r.failed("RolloutPlan")
}

func (r *rollouts) RolloutDo(_ context.Context, c tko.RolloutCommand) (tko.RolloutStatus, error) {
	r.done, r.verb, r.step = append(r.done, c), c.Verb, 0
	return tko.RolloutStatus{}, r.failed("RolloutDo " + c.Verb)
}

func (r *rollouts) RolloutStatus(_ context.Context, id tko.RolloutID) (tko.RolloutStatus, error) {
	if err := r.failed("RolloutStatus"); err != nil {
		return tko.RolloutStatus{}, err
	}
	if strings.HasSuffix(string(id), "-undo") {
		return r.undo[min(r.step, len(r.undo))-1], nil
	}
	states := r.states[r.verb]
	s := states[min(r.step, len(states)-1)]
	r.step++
	s.ID = id
	return s, nil
}

func (r *rollouts) RolloutEvidence(_ context.Context, s tko.RolloutEvidenceSelect) iter.Seq2[tko.RolloutEvidence, error] {
	return func(yield func(tko.RolloutEvidence, error) bool) {
		if err := r.failed("RolloutEvidence"); err != nil || s.ID != "demo/smf-v2" {
			yield(tko.RolloutEvidence{}, errServer)
			return
		}
		for _, e := range r.proof {
			if !yield(e, nil) {
				return
			}
		}
	}
}

const bad = `2 deployments wait: the metric "m" is bad: 4`

func waves(canary, rest, failed int) []tko.RolloutWave {
	return []tko.RolloutWave{
		{Name: "canary", Rows: 1, Progress: map[string]int{"Healthy": canary}},
		{Name: "rest", Rows: 2, Progress: map[string]int{"Healthy": rest, "Failed": failed}},
	}
}

// smf returns a server on which the upgrade works.
func smf(t *testing.T) *rollouts {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: smf}\nspec: {image: \"smf:v1.4.0\"}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n"), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	undo := tko.RolloutID("demo/smf-v2-undo")
	return &rollouts{
		fleet: fleet{templates: map[tko.TemplateID]tko.Template{"workload/smf:v1": {ID: "workload/smf:v1", Package: p}}},
		plan: tko.RolloutPlan{
			Digest: "0123456789abcdef", Kinds: map[string]int{"Change": 3},
			Groups: []tko.RolloutGroup{{Kind: "Change", Count: 3, More: 4, Changes: []tko.RolloutChange{{Resource: "Pod smf", Path: "spec.image", Before: "v1.4.0", After: "v1.5.0"}}}},
		},
		states: map[string][]tko.RolloutStatus{
			"":      {{State: "Draft"}, {State: "Planning"}, {State: "Planned"}},
			"start": {{State: "Running", Waves: waves(0, 0, 0)}, {State: "Running", Waves: waves(0, 0, 0), Blocks: []string{"2 deployments wait for a wave", bad}}, {State: "Running", Waves: waves(0, 0, 0), Blocks: []string{bad}}, {State: "Running", Waves: waves(1, 1, 0)}, {State: "Done", Waves: waves(1, 2, 0)}},
			"undo":  {{State: "Undoing", UndoneBy: undo, Waves: waves(1, 2, 0)}, {State: "Undone", UndoneBy: undo, Waves: waves(1, 2, 0)}},
		},
		proof: []tko.RolloutEvidence{{Wave: "canary", Metric: "m", Outcome: "Bad", Text: "4"}, {Wave: "rest", Metric: "m", Outcome: "Good", Text: "0.3"}},
		undo:  []tko.RolloutStatus{{ID: undo, State: "Running", Waves: waves(0, 0, 0)}, {ID: undo, State: "Done", Waves: waves(1, 2, 0)}},
	}
}

func TestUpgradeIsReportedStepByStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := smf(t)
		var lines []string
		if err := demo.Upgrade(t.Context(), r, "http://127.0.0.1:9/metrics", func(line string) { lines = append(lines, line) }); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"rollout demo/smf-v2: upgrade workload/smf:v1 to workload/smf:v2 in two waves, one deployment first (the canary), then the rest",
			"  it goes on only while the SMFs that it has changed lose at most 1 % of their sessions; here, a stand-in for Prometheus says how many they lose",
			"plan 0123456789ab, nothing is changed yet:", "  Change of 3 deployments:", "    Pod smf spec.image: v1.4.0 → v1.5.0", "    and 4 more changes",
			"$ tko rollout start demo/smf-v2 --plan 0123456789ab",
			"  demo/smf-v2 Running: canary 0/1 healthy, rest 0/2 healthy", "  demo/smf-v2 holds: " + bad, "  demo/smf-v2 Running: canary 1/1 healthy, rest 1/2 healthy", "  demo/smf-v2 Done: canary 1/1 healthy, rest 2/2 healthy",
			"rollout demo/smf-v2 is Done: 3 of 3 deployments are changed and healthy at their sites",
			"$ tko rollout evidence demo/smf-v2", "  wave canary, m is Bad: 4", "  wave rest, m is Good: 0.3",
			"$ tko rollout undo demo/smf-v2",
			"  demo/smf-v2-undo Running: canary 0/1 healthy, rest 0/2 healthy", "  demo/smf-v2-undo Done: canary 1/1 healthy, rest 2/2 healthy",
			"rollout demo/smf-v2 is Undone: 3 of 3 deployments are returned to what they were, the last wave first",
		}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("lines (-want +got):\n%s", diff)
		}
		if len(r.done) != 2 || r.done[0].Plan != r.plan.Digest {
			t.Errorf("commands: %+v", r.done)
		}
		text, err := krm.Encode(krm.YAML, r.templates["workload/smf:v2"].Package)
		if err != nil || !strings.Contains(string(text), "smf:v1.5.0") || strings.Contains(string(text), "v1.4.0") || !strings.Contains(string(text), "name: other") {
			t.Errorf("%v, the new version of the template:\n%s", err, text)
		}
		if text, err = krm.Encode(krm.YAML, r.pkg); err != nil || !strings.Contains(string(text), "workload/smf:v2") || !strings.Contains(string(text), "canary") || !strings.Contains(string(text), "http://127.0.0.1:9/metrics") {
			t.Errorf("%v, the rollout:\n%s", err, text)
		}
		if diff := cmp.Diff([]tko.RolloutID{"demo/smf-v2-undo", "demo/smf-v2"}, r.deleted); diff != "" {
			t.Errorf("rollouts of an earlier run (-want +got):\n%s", diff)
		}
	})
}

// A server on which the upgrade doesn't do what the demo shows makes the demo fail, with
// the reason.
func TestUpgradeThatDoesNotWorkIsNamed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*rollouts)
		says   string
	}{
		"no template":            {func(r *rollouts) { r.templates = nil }, `template "workload/smf:v1": not found`},
		"no new version":         {func(r *rollouts) { r.fail = "RegisterTemplate" }, errServer.Error()},
		"an earlier run goes on": {func(r *rollouts) { r.fail = "RegisterRollout" }, errServer.Error()},
		"no plan":                {func(r *rollouts) { r.fail = "RolloutPlan" }, errServer.Error()},
		"no status":              {func(r *rollouts) { r.fail = "RolloutStatus" }, errServer.Error()},
		"no start":               {func(r *rollouts) { r.fail = "RolloutDo start" }, errServer.Error()},
		"no undo":                {func(r *rollouts) { r.fail = "RolloutDo undo" }, errServer.Error()},
		"an invalid rollout":     {func(r *rollouts) { r.states[""] = []tko.RolloutStatus{{State: "Draft", Reason: "Invalid"}} }, `rollout "demo/smf-v2" is Draft (Invalid), and not Planned`},
		"a failure in the canary": {func(r *rollouts) {
			r.states["start"][1] = tko.RolloutStatus{State: "Paused", Reason: "Failures", Waves: waves(0, 0, 1)}
		}, "is Paused (Failures), and not Done"},
		"another user's cancel":    {func(r *rollouts) { r.states["start"][1].State = "Cancelled" }, "is Cancelled (), and not Done"},
		"nothing to change":        {func(r *rollouts) { r.plan.Kinds = nil; r.states["start"][4].Waves = nil }, "is Done: 0 of 0 deployments are changed and healthy at their sites: see tko rollout status demo/smf-v2"},
		"one that isn't healthy":   {func(r *rollouts) { r.states["start"][4].Waves = waves(1, 1, 1) }, "is Done: 2 of 3 deployments are changed"},
		"one that isn't undone":    {func(r *rollouts) { r.undo[1].Waves = waves(0, 2, 0) }, "is Undone: 2 of 3 deployments are returned"},
		"a metric that never held": {func(r *rollouts) { r.proof = r.proof[1:] }, "did not wait for its metric: see tko rollout evidence demo/smf-v2"},
		"a metric that stays bad":  {func(r *rollouts) { r.proof = append(r.proof, r.proof[0]) }, "did not wait for its metric"},
		"no evidence":              {func(r *rollouts) { r.fail = "RolloutEvidence" }, errServer.Error()},
		"an undo that is stopped":  {func(r *rollouts) { r.undo[0].State, r.undo[0].Reason = "Paused", "Conflicts" }, `rollout "demo/smf-v2-undo" is Paused (Conflicts)`},
		"an undo that didn't work": {func(r *rollouts) { r.states["undo"][1].State = "Done" }, "is Done (), and not Undone"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := smf(t)
				test.change(r)
				if err := demo.Upgrade(t.Context(), r, "http://127.0.0.1:9/metrics", func(string) {}); err == nil || !strings.Contains(err.Error(), test.says) {
					t.Errorf("%v, want %q", err, test.says)
				}
			})
		})
	}
}

func TestUpgradeEndsWithTheTimeLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := errors.New("not done after 1m")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, late)
		defer cancel()
		r := smf(t)
		r.states[""] = r.states[""][:2]
		r.fail = "DeleteRollout" // there is none of an earlier run
		if err := demo.Upgrade(ctx, r, "", func(string) {}); !errors.Is(err, late) || r.step < 200 {
			t.Errorf("%v after %d reads, want the time limit", err, r.step)
		}
	})
}

// The sources of the stand-in for a server have states, one at each read.
type sources struct {
	states   map[string][]tko.Source
	enqueued []string
	fail     string
}

func (s *sources) EnqueueSources(_ context.Context, names []string, missing bool, approve string) error {
	s.enqueued = append(s.enqueued, strings.TrimSpace(fmt.Sprint(names, missing, approve)))
	if s.fail == "EnqueueSources" {
		return errServer
	}
	return nil
}

func (s *sources) Source(_ context.Context, name string) (tko.Source, error) {
	if s.fail == "Source" {
		return tko.Source{}, errServer
	}
	states := s.states[name]
	if len(states) == 0 {
		return tko.Source{}, tko.Errorf(tko.ErrNotFound, "source %q: not found", name)
	}
	if len(states) > 1 {
		s.states[name] = states[1:]
	}
	return states[0], nil
}

func ready(status, message string, sites int, enqueued bool) tko.Source {
	return tko.Source{Enqueued: enqueued, Status: tko.SourceStatus{
		Items: make([]tko.SourceItem, sites), Conditions: []tko.Condition{{Type: tko.ConditionReady, Status: status, Message: message}},
	}}
}

const inventory = "inventory: {sources: sources.yaml, sites: files/sites.csv}"

var twoSources = map[string]string{"sources.yaml": "sources: [{name: a, file: \"${DEMO}/sites.csv\"}, {name: b}]\n", "files/sites.csv": "site,region\ns,${REGION}\n"}

func TestSitesOfTheInventoryAreAwaited(t *testing.T) {
	t.Parallel()
	c, err := demo.Load(catalog(t, inventory, twoSources), map[string]string{"DEMO": "/demo", "REGION": "north"})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &sources{states: map[string][]tko.Source{
			"a": {{}, ready(tko.ConditionTrue, "", 9, true), ready(tko.ConditionFalse, "no file\ndetails", 0, false), ready(tko.ConditionFalse, "no file\nothers", 0, false), ready(tko.ConditionTrue, "", 2, false)},
			"b": {ready(tko.ConditionFalse, "no file", 0, false), ready(tko.ConditionUnknown, "soon", 0, false), ready(tko.ConditionTrue, "", 3, false)},
		}}
		var reports []string
		n, err := c.AwaitSites(t.Context(), s, func(text string) { reports = append(reports, text) })
		if n != 5 || err != nil {
			t.Errorf("%d sites, %v; want those of both sources, after the requested reconciliation", n, err)
		}
		if diff := cmp.Diff([]string{"no file", "soon"}, reports); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"[a] false", "[b] false"}, s.enqueued); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		late := errors.New("not done after 1m")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, late)
		defer cancel()
		if _, err := c.AwaitSites(ctx, &sources{}, func(string) {}); !errors.Is(err, late) || !strings.Contains(err.Error(), `source "a"`) {
			t.Errorf("a server that makes no sites: %v, want the time limit and the source", err)
		}
		for _, method := range []string{"EnqueueSources", "Source"} {
			if _, err := c.AwaitSites(t.Context(), &sources{fail: method}, func(string) {}); !errors.Is(err, errServer) || !strings.Contains(err.Error(), `source "a"`) {
				t.Errorf("%s: %v", method, err)
			}
		}
	})
}

// The folder of the demo gets the sources and the CSV file of sites. Users change the
// latter: a second run leaves it as it is.
func TestInventoryIsCopiedOnce(t *testing.T) {
	t.Parallel()
	from, to := catalog(t, inventory, twoSources), t.TempDir()
	load := func(region string) *demo.Catalog {
		c, err := demo.Load(from, map[string]string{"DEMO": to, "REGION": region})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(to, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	path, err := load("north").WriteInventory(to)
	if err != nil || path != filepath.Join(to, "sources.yaml") || !strings.Contains(read("sources.yaml"), to+"/sites.csv") || read("sites.csv") != "site,region\ns,north\n" {
		t.Fatalf("%q, %v:\n%s%s", path, err, read("sources.yaml"), read("sites.csv"))
	}
	if err := os.WriteFile(filepath.Join(to, "sites.csv"), []byte("site,region\nmine,west\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := time.Unix(1, 0)
	if err := os.Chtimes(path, before, before); err != nil {
		t.Fatal(err)
	}
	if _, err := load("south").WriteInventory(to); err != nil || read("sites.csv") != "site,region\nmine,west\n" {
		t.Errorf("%v, a user's change is lost: %s", err, read("sites.csv"))
	}
	if info, err := os.Stat(path); err != nil || !info.ModTime().Equal(before) {
		t.Errorf("equal sources were written again (%v)", err)
	}
	if err := os.WriteFile(path, []byte("sources: [{name: of-an-earlier-version}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load("north").WriteInventory(to); err != nil || strings.Contains(read("sources.yaml"), "earlier") {
		t.Errorf("%v, sources of an earlier version stay", err)
	}
}

func TestUnusableInventoriesAreRefused(t *testing.T) {
	t.Parallel()
	set := map[string]string{"DEMO": "/d", "REGION": "r"}
	for name, test := range map[string]struct {
		files map[string]string
		says  string
	}{
		"no sources file": {map[string]string{"files/sites.csv": "site\n"}, "sources.yaml"},
		"no sites file":   {map[string]string{"sources.yaml": "sources: [{name: a}]"}, "sites.csv"},
	} {
		c, err := demo.Load(catalog(t, inventory, test.files), set)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.WriteInventory(t.TempDir()); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{"sources: []", "sources: {}", ""} {
		c, err := demo.Load(catalog(t, inventory, map[string]string{"sources.yaml": text + "\n"}), set)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.AwaitSites(t.Context(), &sources{}, func(string) {}); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "sources.yaml names no sources") {
			t.Errorf("%q: %v", text, err)
		}
	}
	c, err := demo.Load(catalog(t, "sites: []", nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	path, err := c.WriteInventory("/none")
	if n, wait := c.AwaitSites(t.Context(), nil, nil); path != "" || err != nil || n != 0 || wait != nil {
		t.Errorf("a catalog without an inventory: %q, %v, %d, %v", path, err, n, wait)
	}
}

// The catalogs of the examples are what they expect: each site of the CSV file, and those
// that the topology provisions; each template and plugin can be registered.
func TestExamplesCanBeRegistered(t *testing.T) {
	t.Parallel()
	c, err := demo.Load("../../examples", map[string]string{"BIN": "/bin", "DEMO": "/demo"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Plugins {
		c.Plugins[i].Needs = nil
	}
	var f fleet
	if err := c.Register(t.Context(), &f, func(text string) { t.Error(text) }); err != nil {
		t.Fatal(err)
	}
	csv, err := os.ReadFile("../../examples/sites.csv")
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(csv)), "\n")[1:]
	columns := strings.Count(string(csv[:strings.IndexByte(string(csv), '\n')]), ",")
	seen := map[string]bool{}
	for _, row := range rows {
		cells := strings.Split(row, ",")
		if len(cells) != columns+1 || seen[cells[0]] {
			t.Errorf("row %q: %d cells, want %d, or its site is there twice", row, len(cells), columns+1)
			continue
		}
		seen[cells[0]] = true
		if _, ok := f.templates[tko.TemplateID(cells[1])]; !ok {
			t.Errorf("site %s has the template %q, which the catalog lacks", cells[0], cells[1])
		}
	}
	if len(rows) != 12 || c.Expect.Sites != len(rows)+1 {
		t.Errorf("%d rows and %d expected sites: the topology provisions one", len(rows), c.Expect.Sites)
	}
	for _, topology := range c.Topologies {
		if len(f.templates[topology.Template].Package) == 0 {
			t.Errorf("the topology's template %q is not in the catalog", topology.Template)
		}
	}
	if text, err := krm.Encode(krm.YAML, f.templates["workload/smf:v1"].Package); err != nil || !strings.Contains(string(text), "v1.4.0") {
		t.Errorf("the SMF has no v1.4.0, which the demo upgrades (%v)", err)
	}
}

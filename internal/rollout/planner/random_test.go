package planner_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/fleettest"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/soak"
)

// runs returns a number of random runs; TKO_ROLLOUT_RUNS changes it, for long runs.
func runs(t *testing.T, few uint64) uint64 {
	t.Helper()
	text := os.Getenv("TKO_ROLLOUT_RUNS")
	if text == "" {
		return few
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Rollouts of a real catalog, which two executors advance, under all that happens to a
// fleet: users edit and delete deployments, sites are relabelled, frozen, and lost for a
// while, deployments become healthy late, never, or in turns, clients change neighbours,
// users pause, cancel and undo. After each step no limit is exceeded, each row is applied
// once and only as planned, and at the end what was undone is as before. The package
// fleettest does the same with the decisions alone, in more and longer runs.
func TestRandomRolloutsKeepAllRules(t *testing.T) {
	t.Parallel()
	newWorld(t).template("t", config("c", "a: "+strings.Repeat("b ", 2000)+".")) // what all stores share is made outside of the bubbles
	sum := map[string]int{}
	for seed := range runs(t, uint64(soak.Rounds(t, 3, 6))) {
		synctest.Test(t, func(t *testing.T) {
			s := newSimulation(t, seed)
			s.run()
			for what, n := range s.stats {
				sum[what] += n
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%v", sum)
	for _, what := range []string{"applied", "undone", "failed", "frozen", "edits", "Done", "Undone"} {
		if sum[what] == 0 {
			t.Errorf("no run has %s: %v", what, sum)
		}
	}
}

type simulation struct {
	*world

	seed     uint64
	r        *rand.Rand
	services []*catalog.Service
	ids      []tko.DeploymentID
	sites    map[tko.SiteID]map[string]string
	siteIDs  []tko.SiteID
	lost     map[tko.SiteID]bool
	frozen   map[tko.SiteID]tko.Freeze
	behavior map[tko.DeploymentID]string
	rollouts []tko.RolloutID
	limits   map[string]spec.Limits // by family
	specs    map[tko.RolloutID]spec.Rollout
	flight   map[tko.DeploymentID]string            // rollouts, after the last step
	values   map[tko.DeploymentID]map[string]string // of sites, when those in flight were admitted
	applied  map[string]int64                       // revisions, by rollout and deployment
	seen     map[tko.RolloutID]map[tko.DeploymentID]tko.RolloutRow
	forced   map[tko.RolloutID]bool // undos that take what others changed, too
	calm     bool
	stats    map[string]int
	trace    []string
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	t.Helper()
	s := &simulation{
		world: newWorld(t), seed: seed, r: rand.New(rand.NewPCG(seed, 7)), sites: map[tko.SiteID]map[string]string{}, lost: map[tko.SiteID]bool{}, frozen: map[tko.SiteID]tko.Freeze{},
		behavior: map[tko.DeploymentID]string{}, limits: map[string]spec.Limits{}, specs: map[tko.RolloutID]spec.Rollout{}, applied: map[string]int64{},
		seen: map[tko.RolloutID]map[tko.DeploymentID]tko.RolloutRow{}, stats: map[string]int{}, forced: map[tko.RolloutID]bool{}, values: map[tko.DeploymentID]map[string]string{},
	}
	validator, err := validate.New(validate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	other := catalog.New(s.counted.Store, validator, catalog.Options{})
	other.PlanWith(s.planner)
	s.services = []*catalog.Service{s.Service, other}
	for _, v := range []string{"v1", "v2"} {
		s.template("t:"+v, config("c", "version: "+v+", other: x"))
	}
	for i := range 6 {
		id := tko.SiteID(fmt.Sprintf("s%d", i))
		s.relabel(id)
		s.siteIDs = append(s.siteIDs, id)
	}
	for i := range 10 {
		id, err := s.CreateDeployment(s.ctx, tko.NewDeployment{
			Template: "t:v1", Site: s.siteIDs[s.r.IntN(len(s.siteIDs))], Prepared: true, Approved: true, Metadata: map[string]string{"group": []string{"a", "a", "b", "b", "other"}[i%5]},
		})
		if err != nil {
			t.Fatal(err)
		}
		s.ids = append(s.ids, id)
		s.behavior[id] = []string{"prompt", "prompt", "prompt", "prompt", "prompt", "prompt", "late", "never", "sometimes"}[s.r.IntN(9)]
	}
	time.Sleep(time.Hour)
	s.report(100)
	return s
}

func (s *simulation) say(format string, args ...any) {
	s.trace = append(s.trace, time.Now().UTC().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

func (s *simulation) fatal(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("seed %d: %s\n%s", s.seed, fmt.Sprintf(format, args...), strings.Join(s.trace[max(0, len(s.trace)-40):], "\n"))
}

// chance returns true in so many of 100 cases.
func (s *simulation) chance(percent int) bool { return s.r.IntN(100) < percent }

func (s *simulation) relabel(id tko.SiteID) {
	s.sites[id] = map[string]string{"name": string(id), "pair": strconv.Itoa(s.r.IntN(3)), "tac": strconv.Itoa(s.r.IntN(2))}
	if _, err := s.RegisterSite(s.ctx, tko.Site{ID: id, Metadata: s.sites[id]}); err != nil {
		s.fatal("%v", err)
	}
	s.say("site %s is %v", id, s.sites[id])
}

// report lets sites schedule what they have, and say how healthy it is.
func (s *simulation) report(percent int) {
	items, err := s.ClaimWork(s.ctx, tko.ClaimWork{Queue: tko.QueueSchedule, Max: 1000, Lease: time.Minute})
	if err != nil {
		s.fatal("%v", err)
	}
	done := make([]tko.FinishedWork, len(items))
	for i, item := range items {
		done[i] = tko.FinishedWork{Item: item, Outcome: tko.WorkDone}
	}
	if err := s.FinishWork(s.ctx, done); err != nil {
		s.fatal("%v", err)
	}
	for _, id := range s.ids { // in the order of their creation: their IDs are random
		d, err := s.Deployment(s.ctx, id, 0)
		if err != nil || s.lost[d.Site] || s.isFrozen(d.Site) || !s.chance(percent) {
			continue
		}
		age, healthy := time.Since(d.Stamp.Updated), tko.ConditionFalse
		if s.calm || s.behavior[id] == "prompt" || s.behavior[id] == "late" && age > 8*time.Minute || s.behavior[id] == "sometimes" && time.Now().Unix()/45%2 == 0 {
			healthy = tko.ConditionTrue
		}
		if err := s.SetConditions(s.ctx, tko.KindDeployment, string(id), []tko.Condition{
			{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, ObservedRevision: d.Stamp.Revision}, {Type: tko.ConditionHealthy, Status: healthy, ObservedRevision: d.Stamp.Revision},
		}); err != nil {
			s.fatal("%v", err)
		}
	}
}

func (s *simulation) isFrozen(id tko.SiteID) bool {
	f, ok := s.frozen[id]
	return ok && time.Now().Before(f.Until)
}

// start makes a random rollout and starts it, unless another one has its deployments.
func (s *simulation) start() {
	id := tko.RolloutID(fmt.Sprintf("r%d", len(s.rollouts)))
	limits := []string{fmt.Sprintf("concurrent: %d", 1+s.r.IntN(4)), fmt.Sprintf("failures: {count: %d}", s.r.IntN(3))}
	if s.chance(50) {
		limits = append(limits, fmt.Sprintf("per: [{key: tac, max: %d}]", 1+s.r.IntN(2)))
	}
	if s.chance(50) {
		limits = append(limits, "apart: [pair]")
	}
	windows := ""
	if s.chance(30) {
		windows = fmt.Sprintf("\n  windows: [{from: %q, to: %q}]", fmt.Sprintf("%02d:00", s.r.IntN(12)), fmt.Sprintf("%02d:00", 13+s.r.IntN(10)))
	}
	group := []string{"a", "b", "*"}[s.r.IntN(3)]
	edits := fmt.Sprintf("{merge: [{apiVersion: v1, kind: ConfigMap, name: m}], select: {metadataPatterns: {group: %q}}}", group)
	resources := "---\n" + config("m", "of: "+string(id))
	switch s.r.IntN(4) {
	case 0, 1:
		edits += `, {upgrade: {to: "t:v2"}, select: {templateIdPatterns: ["t:v1"], metadataPatterns: {group: "` + group + `"}}}`
	case 2:
		resources = ""
		edits = fmt.Sprintf("{delete: {}, select: {metadataPatterns: {group: %q}}}", []string{"a", "b"}[s.r.IntN(2)])
	}
	approval := ""
	if s.chance(30) {
		approval = ", approval: Required"
	}
	text := fmt.Sprintf(`apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: r}
spec:
  edits: [%s]
  waves: [{name: canary, count: %d}, {name: rest%s}]
  limits: {%s}
  health: {within: %dm, soak: %ds}
  onFailure: %s%s
%s`, edits, 1+s.r.IntN(2), approval, strings.Join(limits, ", "), 1+s.r.IntN(4), 30*s.r.IntN(3), []string{"Pause", "Undo", "Continue"}[s.r.IntN(3)], windows, resources)
	pkg := decode(s.t, text)
	parsed, err := spec.Parse(pkg)
	if err != nil {
		s.fatal("%v\n%s", err, text)
	}
	st := s.create(id, text)
	if st.State != "Planned" {
		s.fatal("%s is %s: %s", id, st.State, st.Reason)
	}
	s.rollouts, s.specs[id], s.limits[string(id)] = append(s.rollouts, id), parsed, parsed.Limits
	for range s.r.IntN(3) {
		s.disturb() // between plan and start
	}
	_, err = s.RolloutDo(s.ctx, tko.RolloutCommand{ID: id, Verb: "start", Plan: st.Plan})
	if err != nil && !errors.Is(err, tko.ErrConflict) {
		s.fatal("start %s: %v", id, err)
	}
	s.say("%s starts: %v: %v", id, err, strings.ReplaceAll(text, "\n", " "))
	if err != nil {
		s.do(id, "cancel")
	}
}

// disturb lets something happen that no rollout has asked for.
func (s *simulation) disturb() {
	id := s.ids[s.r.IntN(len(s.ids))]
	site := s.siteIDs[s.r.IntN(len(s.siteIDs))]
	d, err := s.Deployment(s.ctx, id, 0)
	if err != nil && !errors.Is(err, tko.ErrNotFound) {
		s.fatal("%v", err)
	}
	switch n := s.r.IntN(24); {
	case n < 2 && err == nil: // an edit, also of the same content again
		pkg := slices.DeleteFunc(slices.Clone(d.Package), func(r krm.Resource) bool { return r.Identity().Name == "own" })
		pkg = append(pkg, krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "own"}, "data": map[string]any{"n": strconv.Itoa(s.r.IntN(3))}})
		if _, err := s.CommitDeployment(tko.WithAuthor(s.ctx, tko.Author{Who: "ann"}), tko.DeploymentCommit{ID: id, Revision: d.Stamp.Revision, Package: pkg.WithDeployment(string(d.Template), string(d.Site), true, true)}); err != nil {
			s.fatal("%v", err)
		}
		s.stats["edits"]++
		s.say("ann edits %s", id)
	case n == 2 && err == nil && s.chance(30):
		if _, err := s.DeleteDeployment(s.ctx, id); err != nil {
			s.fatal("%v", err)
		}
		s.say("ann deletes %s", id)
	case n == 3:
		s.relabel(site)
	case n == 4 && !s.isFrozen(site):
		f, err := s.Freeze(s.ctx, tko.Freeze{SiteMetadata: map[string]string{"name": string(site)}, Until: time.Now().Add(time.Duration(1+s.r.IntN(30)) * time.Minute), Reason: "work"})
		if err != nil {
			s.fatal("%v", err)
		}
		s.frozen[site] = f
		s.stats["frozen"]++
		s.say("%s is frozen until %s", site, f.Until.UTC().Format(time.TimeOnly))
	case n == 5:
		s.lost[site] = !s.lost[site]
		if s.lost[site] {
			s.say("%s is lost", site)
		}
	default:
		s.report(60)
	}
}

// command does what users do, or what helps, once it is calm.
func (s *simulation) command(id tko.RolloutID, st tko.RolloutStatus) {
	verbs := map[string][]string{"Running": {"approve", "waive"}, "Paused": {"skip", "waive", "resume"}}[st.State]
	if !s.calm && s.chance(20) {
		verbs = map[string][]string{"Running": {"pause", "cancel", "undo", "undo"}, "Paused": {"undo", "resume"}, "Done": {"undo"}, "Cancelled": {"undo"}}[st.State]
		if len(verbs) > 0 {
			verbs = []string{verbs[s.r.IntN(len(verbs))]}
		}
	}
	for _, verb := range verbs {
		c := tko.RolloutCommand{ID: id, Verb: verb, Plan: st.Plan, Force: verb == "undo" && s.chance(20)}
		if slices.Contains([]string{"skip", "waive"}, verb) {
			c.Plan = ""
		}
		_, err := s.RolloutDo(s.ctx, c)
		if err != nil && !errors.Is(err, tko.ErrConflict) && !errors.Is(err, tko.ErrNotFound) {
			s.fatal("%s %s: %v", verb, id, err)
		}
		s.say("%s %s (force: %t): %v", verb, id, c.Force, err)
		if undo := s.status(id).UndoneBy; c.Force && undo != "" {
			s.forced[undo] = true
		}
	}
}

func ended(state string) bool {
	return slices.Contains([]string{"Done", "Undone", "Cancelled"}, state)
}

func (s *simulation) run() {
	s.start()
	for range 80 {
		if len(s.rollouts) < 4 && s.chance(8) {
			s.start()
		}
		s.disturb()
		s.step(time.Duration(1+s.r.IntN(60)) * time.Second)
	}
	s.calm = true
	clear(s.lost)
	for _, site := range slices.Sorted(maps.Keys(s.frozen)) {
		if s.isFrozen(site) {
			if err := s.Unfreeze(s.ctx, s.frozen[site].ID); err != nil {
				s.fatal("%v", err)
			}
		}
	}
	clear(s.frozen)
	for n := 0; ; n++ {
		left := 0
		for _, id := range s.all() {
			if st := s.status(id); !ended(st.State) {
				left++
				if n > 400 {
					s.fatal("%s doesn't end: %+v", id, st)
				}
			}
		}
		if left == 0 {
			break
		}
		s.report(100)
		s.step(time.Duration(1+s.r.IntN(90)) * time.Minute)
	}
	s.checkEnd()
}

// all returns the rollouts and their undos.
func (s *simulation) all() []tko.RolloutID {
	var all []tko.RolloutID
	for r, err := range s.Rollouts(s.ctx, tko.RolloutSelect{}, tko.ListOptions{}) {
		if err != nil {
			s.fatal("%v", err)
		}
		all = append(all, r.ID)
	}
	return all
}

// step lets time pass, and advances a rollout, and checks.
func (s *simulation) step(passed time.Duration) {
	time.Sleep(passed)
	all := s.all()
	targets := all
	if !s.calm {
		s.r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		targets = all[:1+s.r.IntN(len(all))]
	}
	for _, id := range targets {
		st := s.status(id)
		if s.chance(25) || s.calm {
			s.command(id, st)
			st = s.status(id)
		}
		executor := s.services[s.r.IntN(2)]
		wait, err := executor.AdvanceRollout(s.ctx, id)
		if err != nil {
			s.fatal("advance %s: %v", id, err)
		}
		after := s.status(id)
		s.say("%s was %s and is %s (%s), next in %s: %v", id, st.State, after.State, after.Reason, wait, after.Blocks)
		s.check(id, st, after)
	}
}

// check checks the rows that a step applied, and all limits.
func (s *simulation) check(id tko.RolloutID, before, after tko.RolloutStatus) {
	view, err := s.counted.Store.RolloutView(s.ctx, string(id), record.RowsAt{})
	if err != nil {
		s.fatal("%v", err)
	}
	inFlight := map[tko.DeploymentID]string{}
	for _, e := range view.Flight {
		inFlight[e.Deployment] = e.Rollout
	}
	rows := s.rows(id)
	parsed, known := s.specs[s.root(after)]
	if !known {
		s.fatal("%s has no spec", id)
	}
	failed := 0
	for _, row := range rows { // before the step, and not waived since
		if row.Progress == "Failed" && s.seen[id][row.Deployment].Progress == "Failed" {
			failed++
		}
	}
	for _, row := range rows {
		key := string(id) + " " + string(row.Deployment)
		was, applied := s.applied[key]
		if applied && row.Applied != 0 && row.Applied != was {
			s.fatal("%s applied %s as revisions %d and %d", id, row.Deployment, was, row.Applied)
		}
		if row.Progress == "Failed" && s.seen[id][row.Deployment].Progress != "Failed" {
			s.stats["failed"]++
		}
		if row.Progress == "Stale" && s.seen[id][row.Deployment].Progress != "Stale" {
			s.stats["stale"]++
		}
		flying := slices.Contains([]string{"Applied", "Soaking", "Failed"}, row.Progress)
		if flying && (after.State == "Running" || after.State == "Paused") && inFlight[row.Deployment] != string(id) {
			s.fatal("%s changes %s, and the set in flight has %q", id, row.Deployment, inFlight[row.Deployment])
		}
		if applied || row.Progress != "Applied" || s.seen[id][row.Deployment].Progress == "Applied" {
			continue
		}
		s.applied[key] = row.Applied
		if _, takenOver := s.flight[row.Deployment]; !takenOver {
			s.values[row.Deployment] = maps.Clone(s.sites[row.Site])
		}
		s.stats["applied"]++
		if after.Undoes != "" {
			s.stats["undone"]++
		}
		s.say("%s applies %s, %+v", id, row.Deployment, row)
		switch site := s.sites[row.Site]; {
		case before.State != "Running":
			s.fatal("%s applies %s while it is %s", id, row.Deployment, before.State)
		case row.Kind == "Change" && !s.forced[id] && row.Applied != row.Revision+1:
			s.fatal("%s applies %s, planned at revision %d, as revision %d", id, row.Deployment, row.Revision, row.Applied)
		case site != nil && s.isFrozen(row.Site):
			s.fatal("%s applies %s at %s, which is frozen", id, row.Deployment, row.Site)
		case len(parsed.Windows) > 0 && !s.open(parsed):
			s.fatal("%s applies %s outside of its window", id, row.Deployment)
		case after.Undoes == "" && parsed.OnFailure != spec.Continue && failed > *parsed.Limits.Failures.Count:
			s.fatal("%s applies %s after %d failures", id, row.Deployment, failed)
		}
		for _, o := range rows {
			if after.Undoes == "" && o.Wave >= 0 && o.Wave < row.Wave && slices.Contains([]string{"Waiting", "Applied", "Soaking"}, o.Progress) {
				s.fatal("%s applies %s of wave %d while %s of wave %d is %s", id, row.Deployment, row.Wave, o.Deployment, o.Wave, o.Progress)
			}
		}
	}
	s.seen[id] = rows
	// The limits are recomputed from what sites were at the admissions, and not from what
	// the set in flight says.
	for i, e := range view.Flight {
		view.Flight[i].Values = s.values[e.Deployment]
	}
	if found := fleettest.Violations(view.Flight, s.limits); len(found) > 0 {
		s.fatal("%s", found[0])
	}
	s.flight = inFlight
}

func (s *simulation) open(r spec.Rollout) bool {
	now := time.Now().UTC()
	clock := time.Duration(now.Hour())*time.Hour + time.Duration(now.Minute())*time.Minute
	return clock >= r.Windows[0].From && clock < r.Windows[0].To
}

func (s *simulation) root(st tko.RolloutStatus) tko.RolloutID {
	for st.Undoes != "" {
		st = s.status(st.Undoes)
	}
	return st.ID
}

func (s *simulation) rows(id tko.RolloutID) map[tko.DeploymentID]tko.RolloutRow {
	rows := map[tko.DeploymentID]tko.RolloutRow{}
	for row, err := range s.RolloutRows(s.ctx, tko.RolloutRows{ID: id}) {
		if err != nil {
			s.fatal("%v", err)
		}
		rows[row.Deployment] = row
	}
	return rows
}

// checkEnd checks that each row that was applied is in the history once, and that what
// an undo applied is what the rollout had found.
func (s *simulation) checkEnd() {
	times := map[string]int{}
	for e, err := range s.HistoryOf(s.ctx, tko.HistoryRequest{Select: tko.PastSelect{Kind: tko.KindDeployment}}) {
		if err != nil {
			s.fatal("%v", err)
		}
		times[e.Author.Why+" "+e.ID]++
	}
	for _, id := range s.all() {
		st := s.status(id)
		s.stats[st.State]++
		for _, row := range s.rows(id) {
			n := times[fmt.Sprintf("rollout %q %s", id, row.Deployment)]
			if n > 1 || n == 1 != (row.Applied != 0 || row.Kind == "Delete" && s.applied[string(id)+" "+string(row.Deployment)] != 0) && row.Progress != "Superseded" {
				s.fatal("%s wrote %s %d times, and its row is %+v", id, row.Deployment, n, row)
			}
			if st.Undoes == "" || row.Applied == 0 {
				continue
			}
			found, ok := s.rows(st.Undoes)[row.Deployment]
			if !ok || found.Kind == "Create" {
				continue
			}
			if was, is := s.at(row.Deployment, found.Revision), s.at(row.Deployment, row.Applied); was != is {
				s.fatal("%s returned %s to\n%s\ninstead of\n%s", id, row.Deployment, is, was)
			}
		}
	}
}

// at returns what is stored of a revision, byte for byte.
func (s *simulation) at(id tko.DeploymentID, revision int64) string {
	d, err := s.Deployment(context.WithoutCancel(s.ctx), id, revision)
	if err != nil {
		s.fatal("%s at revision %d: %v", id, revision, err)
	}
	return fmt.Sprint(d.Parent, d.Template, d.TemplateRevision, d.Site, d.Metadata, d.Prepared, d.Approved, d.Origin, d.Replaces, "\n", write(s.t, d.Package))
}

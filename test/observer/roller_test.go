package observer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// Units are deployments that rollouts change, one at each of some sites. At some of those is a rival, too: a deployment
// whose object a rollout of the kind "bad" wants with another content, so that it fails there.

// unitsOf is the number of units of each tenant.
func (w *world) unitsOf() int { return min(60, max(16, w.sitesOf()/3), w.sitesOf()-1) }

// rivalEvery is how many units there are for each rival.
const rivalEvery = 4

// createUnits creates the units and rivals at the start.
func (w *world) createUnits(ctx context.Context, root *client.Client) {
	for _, tenant := range tenants {
		for i := range w.unitsOf() {
			for _, name := range unitNames(i) {
				if _, err := root.CreateDeployment(ctx, tko.NewDeployment{Template: tko.TemplateID(tenant + "/" + name + ":v1"), Site: w.siteID(tenant, i)}); err != nil {
					w.t.Fatal(err)
				}
			}
		}
	}
}

// unitNames returns the names of the templates of the deployments at the i-th site.
func unitNames(i int) []string {
	if i%rivalEvery == 2 {
		return []string{"du", "rival"}
	}
	return []string{"du"}
}

// A roller makes rollouts of the units of a tenant, one after the other, and disturbs them.
type roller struct {
	actor

	tenant string
}

func newRoller(w *world, l *ledger, tenant string, random *rand.Rand) *roller {
	return &roller{actor{w: w, l: l, name: "root", series: "root-" + tenant, client: w.dial("root"), random: random}, tenant}
}

// The budgets of failures by the kinds of rollouts. A "bad" one fails at rivals, a unit of a "moved" one is edited meanwhile, and a "piar" one names a key that
// no site has.
var budgets = map[string]int{"pair": 2, "moved": 2, "bad": 0, "piar": 0}

// within is the time in which deployments become healthy, and after which what authors left broken doesn't keep peers
// from being changed.
func (w *world) within() time.Duration {
	return 20*time.Second + time.Duration(w.sites)*50*time.Millisecond
}

const rolloutOfUnits = `
apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: r}
spec:
  edits:
  - {upgrade: {to: "%[1]s/du:%[2]s"}, select: {templateIdPatterns: ["%[1]s/du:*"]}}
  - {merge: [{apiVersion: v1, kind: ConfigMap, name: %[3]s}], select: {templateIdPatterns: ["%[1]s/du:*"]}}
  waves: [{name: canary, count: 1}, {name: half, percent: 50}, {name: rest, approval: Required}]
  limits: {concurrent: %[4]d, apart: [%[5]s], failures: {count: %[6]d}}
  health: {within: %[7]s, none: Accept}
  onFailure: %[8]s
---
`

func (r *roller) run(ctx context.Context) {
	for n := 1; ctx.Err() == nil; n++ {
		r.completeUnits(ctx)
		kind := []string{"piar", "pair", "bad", "moved"}[(n-1+2*slices.Index(tenants, r.tenant))%4]
		id := tko.RolloutID(fmt.Sprintf("%s-%s-%d", kind, r.tenant, n))
		if r.register(ctx, id, kind) {
			r.follow(ctx, id, kind)
		}
	}
}

// register registers a rollout, and reports whether it was done.
func (r *roller) register(ctx context.Context, id tko.RolloutID, kind string) bool {
	apart, merged := "pair", "rolled"
	switch kind {
	case "piar":
		apart = "piar"
	case "bad":
		merged = "rival"
	}
	text := fmt.Sprintf(rolloutOfUnits, r.tenant, one(r.random, "v1", "v2"), merged, concurrent, apart, budgets[kind], r.w.within(), one(r.random, "Pause", "Pause", "Undo"))
	q := &request{verb: "rollout " + kind}
	r.do(ctx, q, func(ctx context.Context) error {
		_, err := r.client.RegisterRollout(ctx, tko.Rollout{ID: id, Package: append(parse(r.w.t, text), r.mark(merged, q.op))})
		return err
	})
	return q.done
}

// completeUnits creates the units and rivals that authors removed.
func (r *roller) completeUnits(ctx context.Context) {
	there := map[string]bool{}
	for d, err := range r.client.Deployments(ctx, tko.DeploymentSelect{Templates: []string{r.tenant + "/*:*"}}, tko.ListOptions{}) {
		if err != nil {
			return
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(string(d.Template), r.tenant+"/"), ":")
		there[name+" "+string(d.Site)] = true
	}
	for i := range r.w.unitsOf() {
		site := r.w.siteID(r.tenant, i)
		for _, name := range unitNames(i) {
			if !there[name+" "+string(site)] {
				r.do(ctx, &request{verb: "unit"}, func(ctx context.Context) error {
					_, err := r.client.CreateDeployment(ctx, tko.NewDeployment{Template: tko.TemplateID(r.tenant + "/" + name + ":v1"), Site: site})
					return err
				})
			}
		}
	}
}

// rolloutTime is after which a rollout is undone if it hasn't ended.
func (w *world) rolloutTime() time.Duration { return 90*time.Second + w.within() }

// unblock goes on with an undo that paused.
func (r *roller) unblock(ctx context.Context, id tko.RolloutID) {
	s, err := r.client.RolloutStatus(ctx, id)
	if err != nil || s.State != "Paused" {
		return
	}
	for _, verb := range []string{"waive", "skip", "resume"} {
		if slices.Contains(s.Commands, verb) {
			r.send(ctx, tko.RolloutCommand{ID: id, Plan: s.Plan, Verb: verb})
		}
	}
}

// follow takes a rollout from its plan to its end, with edits, pauses and undos in between.
func (r *roller) follow(ctx context.Context, id tko.RolloutID, kind string) {
	begin, said, moved := time.Now(), time.Now(), kind != "moved"
	for ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
		s, err := r.client.RolloutStatus(ctx, id)
		if err != nil {
			continue
		}
		if !moved && s.State == "Running" {
			moved = r.move(ctx, id)
		}
		late := time.Since(begin) > r.w.rolloutTime()
		if s.State == "Undoing" {
			r.unblock(ctx, s.UndoneBy)
		}
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			r.w.t.Logf("rollout %s is %s after %s: %s %v %v", id, s.State, time.Since(begin).Round(time.Second), s.Reason, s.Blocks, s.Waves)
		}
		command, ended := r.next(s, kind, late)
		if ended {
			return
		}
		if command.Verb != "" {
			r.send(ctx, command)
		}
	}
	r.end(context.WithoutCancel(ctx), id)
}

// next returns the next command, if any, or that the rollout has ended.
func (r *roller) next(s tko.RolloutStatus, kind string, late bool) (command tko.RolloutCommand, ended bool) {
	command = tko.RolloutCommand{ID: s.ID, Plan: s.Plan}
	switch s.State {
	case "Draft", "Planning":
		if late || kind == "piar" && s.Reason != "" {
			command.Verb = "cancel"
		}
	case "Planned":
		command.Verb, command.SkipBlocked = "start", true
		if late {
			command.Verb = "cancel"
		}
	case "Running":
		switch {
		case late || r.random.IntN(400) == 0:
			command.Verb = "undo"
		case slices.Contains(s.Commands, "approve"):
			command.Verb = "approve"
		case r.random.IntN(200) == 0:
			command.Verb = "pause"
		}
	case "Paused":
		command.Verb = one(r.random, "plan", "plan", "resume", "resume", "resume", "skip", "undo")
		if late || s.Failures+s.Failing > budgets[kind] {
			command.Verb = "undo"
		}
	case "Done":
		if late || s.UndoneBy != "" || r.random.IntN(3) == 0 {
			return command, true
		}
		command.Verb = "undo"
	case "Undone", "Cancelled":
		return command, true
	}
	return command, false
}

func (r *roller) send(ctx context.Context, command tko.RolloutCommand) {
	r.do(ctx, &request{verb: command.Verb}, func(ctx context.Context) error {
		_, err := r.client.RolloutDo(ctx, command)
		return err
	})
}

// move edits a unit that the rollout hasn't changed yet, so that it moves away from the plan.
func (r *roller) move(ctx context.Context, id tko.RolloutID) bool {
	var waiting []tko.DeploymentID
	for row, err := range r.client.RolloutRows(ctx, tko.RolloutRows{ID: id}) {
		if err != nil {
			return false
		}
		if row.Applied == 0 && row.Kind == "Change" {
			waiting = append(waiting, row.Deployment)
		}
	}
	if len(waiting) == 0 {
		return true
	}
	q := &request{verb: "move", consent: 1}
	r.do(ctx, q, func(ctx context.Context) error {
		m, err := r.client.StartModification(ctx, waiting[len(waiting)-1])
		if err != nil {
			return err
		}
		_, _, err = r.client.EndModification(ctx, m.Token, setMark(m.Package, r.mark(markName(q.op), q.op)))
		return err
	})
	return q.done
}

// setMark puts a mark in the place of one that a package has.
func setMark(p krm.Package, mark krm.Resource) krm.Package {
	for i, resource := range p {
		if resource.GVK().Kind == "ConfigMap" && strings.HasPrefix(resource.Name(), "mark") {
			mark["metadata"] = map[string]any{"name": resource.Name()}
			p[i] = mark
			return p
		}
	}
	return append(p, mark)
}

// end undoes a rollout that hasn't ended: what has failed would keep its peers waiting.
func (r *roller) end(ctx context.Context, id tko.RolloutID) {
	if r.w.abandoned.Load() {
		return
	}
	eventually.Within(r.w.t, settleLimit, "the end of rollout "+string(id), func() error {
		s, err := r.client.RolloutStatus(ctx, id)
		if err != nil {
			return err
		}
		command := tko.RolloutCommand{ID: id, Plan: s.Plan}
		switch s.State {
		case "Draft", "Planning", "Planned":
			command.Verb = "cancel"
		case "Running", "Paused":
			command.Verb = "undo"
		case "Undoing":
			r.unblock(ctx, s.UndoneBy)
			return errors.New("it is being undone")
		default:
			return nil
		}
		r.send(ctx, command)
		return fmt.Errorf("it is %s", s.State)
	})
}

const lastRollout = `
apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: r}
spec:
  edits:
  - {merge: [{apiVersion: v1, kind: ConfigMap, name: rolled}], select: {templateIdPatterns: ["%[1]s/du:*"]}}
  limits: {concurrent: %[2]d, apart: [pair], failures: {count: %[3]d}}
  health: {within: %[4]s, none: Accept}
---
`

// undoLast changes all units of a tenant and undoes it, when all is quiet: what random work does to a large fleet may leave
// no undo whose files can be compared.
func (r *roller) undoLast(ctx context.Context) {
	r.w.t.Helper()
	id := tko.RolloutID("pair-" + r.tenant + "-last")
	r.series = "last-" + r.tenant
	text := fmt.Sprintf(lastRollout, r.tenant, concurrent, budgets["pair"], r.w.within())
	q := &request{verb: "last rollout"}
	r.do(ctx, q, func(ctx context.Context) error {
		_, err := r.client.RegisterRollout(ctx, tko.Rollout{ID: id, Package: append(parse(r.w.t, text), r.mark("rolled", q.op))})
		return err
	})
	eventually.Within(r.w.t, settleLimit, "the undo of rollout "+string(id), func() error {
		s, err := r.client.RolloutStatus(ctx, id)
		if err != nil {
			return err
		}
		command := tko.RolloutCommand{ID: id, Plan: s.Plan}
		switch s.State {
		case "Planned":
			command.Verb, command.SkipBlocked = "start", true
		case "Paused", "Done":
			command.Verb = "undo"
		case "Undoing":
			r.unblock(ctx, s.UndoneBy)
		case "Undone":
			return nil
		}
		if command.Verb != "" {
			r.send(ctx, command)
		}
		return fmt.Errorf("it is %s: %s", s.State, s.Reason)
	})
}

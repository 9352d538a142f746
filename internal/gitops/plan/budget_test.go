package plan_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/gitops/plan/plantest"
	"github.com/tko-orchestrator/tko/internal/prune"
)

// A removal of more than the percentage and more than the count of the budget waits for an
// approval. All other changes are applied meanwhile.
func TestRemovalsBeyondBothLimitsWait(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why          string
		budget       prune.Budget
		owned, gone  int
		prune, waits bool
	}{
		"nothing":                    {"a source that owns nothing removes nothing", prune.Budget{}, 0, 0, true, false},
		"none gone":                  {"a budget of nothing concerns removals only", prune.Budget{}, 3, 0, true, false},
		"one without a budget":       {"0 and 0 hold each removal", prune.Budget{}, 3, 1, true, true},
		"the count":                  {"exactly the count is allowed", prune.Budget{Count: 3, Percent: 0}, 6, 3, true, false},
		"one more than the count":    {"both limits are exceeded", prune.Budget{Count: 3, Percent: 50}, 6, 4, true, true},
		"the percentage":             {"exactly the percentage is allowed", prune.Budget{Count: 0, Percent: 50}, 6, 3, true, false},
		"above the percentage":       {"4 of 6 are more than half", prune.Budget{Count: 0, Percent: 50}, 6, 4, true, true},
		"count only":                 {"one limit alone holds nothing", prune.Budget{Count: 1, Percent: 50}, 6, 3, true, false},
		"percentage only":            {"one limit alone holds nothing", prune.Budget{Count: 4, Percent: 50}, 6, 4, true, false},
		"all":                        {"an empty source", prune.Budget{Count: 3, Percent: 50}, 4, 4, true, true},
		"all, within the count":      {"few entities need no approval", prune.Budget{Count: 4, Percent: 50}, 4, 4, true, false},
		"all, 100 percent":           {"100 percent is no limit", prune.Budget{Count: 0, Percent: 100}, 4, 4, true, false},
		"pruning is off":             {"nothing would be removed", prune.Budget{}, 4, 4, false, false},
		"all of many":                {"an empty source, whatever its budget", prune.Budget{Count: 100, Percent: 100}, 11, 11, true, true},
		"all but one of many":        {"the budget has the last word", prune.Budget{Count: 100, Percent: 100}, 11, 10, true, false},
		"fractions are not rounded":  {"2 of 3 are more than 66 percent", prune.Budget{Count: 1, Percent: 66}, 3, 2, true, true},
		"fractions are not rounded ": {"2 of 3 are less than 67 percent", prune.Budget{Count: 1, Percent: 67}, 3, 2, true, false},
	}
	w := newWorld(t, plan.Policy{})
	for name, test := range tests {
		// The worlds of the cases are sources of their own in one data controller.
		w.policy = plan.Policy{Source: "fleet", Prune: true, Budget: prune.Default}
		w.items = nil
		owned := w.of(numbered(test.owned, plainSite, "s")...)
		w.apply(owned...)
		w.policy.Budget, w.policy.Prune = test.budget, test.prune
		revision := slices.Concat(owned[test.gone:], w.of(template("new", name)))
		p := w.plan(revision...)
		want := map[string]int{"create template": 1}
		held := map[string]int{}
		if test.gone > 0 && test.prune {
			if test.waits {
				held["delete site"] = test.gone
			} else {
				want["delete site"] = test.gone
			}
		}
		equal(t, name+" ("+test.why+"): actions", want, verbs(p.Actions))
		equal(t, name+" ("+test.why+"): held", held, verbs(p.Held))
		if waits := p.Asks != ""; waits != test.waits {
			t.Errorf("%s: %s: waits %t, want %t: %q", name, test.why, waits, test.waits, p.Messages)
		}
		if n := plantest.Changes(p); n != len(p.Actions)+len(p.Held) {
			t.Errorf("%s: %d changes", name, n)
		}
		if text := strings.Join(p.Messages, "\n"); test.waits && !strings.Contains(text, fmt.Sprintf("%d of %d entities would be removed", test.gone, test.owned)) ||
			test.waits && !strings.Contains(text, "tko gitops approve fleet "+p.Asks) {
			t.Errorf("%s: the message is %q, want one with the numbers and the command", name, text)
		}
		w.policy.Budget, w.policy.Prune = prune.Budget{Percent: 100}, true
		w.apply()
	}
}

// Children of deployments count, both as removed and as owned.
func TestChildrenCountInTheBudget(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		children, count, percent int
		waits                    bool
	}{
		"below the count":     {children: 2, count: 3, percent: 0, waits: false},
		"above the count":     {children: 3, count: 3, percent: 0, waits: true},
		"half":                {children: 2, count: 0, percent: 50, waits: false}, // 3 of 4 + 2
		"more than half":      {children: 3, count: 0, percent: 50, waits: true},  // 4 of 4 + 3
		"many, but a part":    {children: 9, count: 0, percent: 80, waits: false}, // 10 of 4 + 9
		"many, within counts": {children: 9, count: 10, percent: 0, waits: false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, pruning())
			owned := w.of(numbered(4, plainDeployment, "d")...)
			w.apply(owned...)
			w.grow("d00", test.children)
			w.policy.Budget = prune.Budget{Count: test.count, Percent: test.percent}
			p := w.plan(owned[1:]...)
			if waits := p.Asks != ""; waits != test.waits {
				t.Errorf("the removal waits: %t, want %t; %q", waits, test.waits, p.Messages)
			}
			if list := slices.Concat(p.Actions, p.Held); len(list) != 1 || list[0].With != test.children || !strings.Contains(list[0].String(), fmt.Sprintf("and %d below it", test.children)) {
				t.Errorf("the removal is %v", list)
			}
		})
	}
}

// An approval is for one removal: the digest changes with what is removed, also with the
// number of children, and not with other changes.
func TestApprovalIsForWhatWasShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	owned := w.of(numbered(4, plainDeployment, "d")...)
	w.apply(owned...)
	w.policy.Budget = prune.Budget{}
	asked := w.plan(owned[2:]...).Asks
	digests := map[string]bool{asked: true}
	for name, other := range map[string]string{"more": w.plan(owned[3:]...).Asks, "fewer": w.plan(owned[1:]...).Asks, "others": w.plan(owned[:2]...).Asks} {
		if other == "" || digests[other] {
			t.Errorf("the removal of %s has the digest %q, as another one has", name, other)
		}
		digests[other] = true
	}
	if same := w.plan(append(owned[2:4:4], of(t, plainSite("new")))...).Asks; same != asked {
		t.Errorf("with another change the digest is %q, want %q", same, asked)
	}
	w.policy.Approve = asked
	if p := w.plan(owned[3:]...); p.Asks == "" || len(p.Actions) > 0 {
		t.Errorf("an approval of another removal is enough for %v", p.Actions)
	}
	w.grow("d00", 3)
	p := w.plan(owned[2:]...)
	if p.Asks == "" || p.Asks == asked || len(p.Actions) > 0 {
		t.Errorf("an approval of 2 deployments is enough for 2 with 3 children: %v", p.Actions)
	}
	w.policy.Approve = p.Asks
	p = w.apply(owned[2:]...)
	if p.Asks != "" || len(p.Held) > 0 || len(p.Actions) != 2 {
		t.Errorf("after the approval %v is held: %q", p.Held, p.Messages)
	}
	if n := len(w.entities()); n != 2 {
		t.Errorf("%d deployments are left, want 2", n)
	}
}

// Held removals stay in the inventory, so that they aren't forgotten, and all else is
// applied meanwhile.
func TestHeldRemovalsStayOwned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.apply(w.of(numbered(3, plainSite, "s")...)...)
	w.policy.Budget = prune.Budget{}
	w.apply(w.of(plainSite("new"))...)
	equal(t, "inventory", []string{"site new", "site s00", "site s01", "site s02"}, names(w.items))
	equal(t, "entities", []string{"site new 1 gitops:fleet", "site s00 1 gitops:fleet", "site s01 1 gitops:fleet", "site s02 1 gitops:fleet"}, w.entities())
	p := w.plan(w.of(plainSite("new"))...)
	w.policy.Approve = p.Asks
	w.apply(w.of(plainSite("new"))...)
	equal(t, "inventory after the approval", []string{"site new"}, names(w.items))
	equal(t, "entities after the approval", []string{"site new 1 gitops:fleet"}, w.entities())
}

// The message names five of the removed entities.
func TestHeldRemovalsAreNamed(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{
		1: `: site "s00". To`,
		5: `: site "s00", site "s01", site "s02", site "s03", site "s04". To`,
		7: `site "s04" and 2 more. To`,
	} {
		w := newWorld(t, pruning())
		w.apply(w.of(numbered(n, plainSite, "s")...)...)
		w.policy.Budget = prune.Budget{}
		if p := w.plan(); len(p.Messages) != 1 || !strings.Contains(p.Messages[0], want) {
			t.Errorf("%d sites: the messages are %q, want one with %q", n, p.Messages, want)
		}
	}
}

// A removal deletes no more descendants than the plan counted, whether it counted some or
// none: the budget charged no others.
func TestRemovalsRefuseDescendantsThatWerentCounted(t *testing.T) {
	t.Parallel()
	for _, counted := range []int{0, 1} {
		t.Run(strconv.Itoa(counted), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, pruning())
			w.apply(w.of(plainDeployment("top"))...)
			if counted > 0 {
				w.grow("top", counted)
			}
			p := w.plan()
			w.grow("top", counted+1)
			if _, err := p.Apply(t.Context(), w.Client, "r", w.save); !errors.Is(err, tko.ErrConflict) {
				t.Errorf("the error is %v, want an ErrConflict", err)
			}
			if n := len(w.entities()); n != 2+counted {
				t.Errorf("%d deployments are left, want all %d", n, 2+counted)
			}
			equal(t, "inventory", []string{"deployment top"}, names(w.items))
			w.apply()
			if n := len(w.entities()); n != 0 {
				t.Errorf("%d deployments are left after the next plan, want none", n)
			}
		})
	}
}

// A deployment that was created before its ID was saved is charged with its children, too.
func TestChildrenOfPendingDeploymentsCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.apply(w.of(plainDeployment("made"))...)
	w.grow("made", 3)
	w.items = []tko.SourceItem{{Kind: string(tko.KindDeployment), Name: "made", Pending: true}}
	w.policy.Budget = prune.Budget{Count: 3}
	p := w.plan()
	if p.Asks == "" || len(p.Actions) > 0 {
		t.Fatalf("the removal of 4 deployments is within the budget of 3: %v", p.Actions)
	}
	w.policy.Approve = p.Asks
	w.apply()
	if n := len(w.entities()); n != 0 || len(w.items) != 0 {
		t.Errorf("%d deployments are left, and %d items, want none", n, len(w.items))
	}
}

// A removed parent and its removed child don't hinder each other.
func TestParentAndChildAreRemovedTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t, pruning())
	w.apply(w.of(plainDeployment("parent"))...)
	child := plainDeployment("child")
	child.Parent = tko.DeploymentID(w.item(tko.KindDeployment, "parent").ID)
	w.apply(w.of(plainDeployment("parent"), child)...)
	for range 3 { // a conflict is planned again
		p := w.plan()
		if _, err := p.Apply(t.Context(), w.Client, "r", w.save); err == nil {
			break
		} else if !errors.Is(err, tko.ErrConflict) {
			t.Fatalf("the error is %v, want none or an ErrConflict", err)
		}
	}
	if n := len(w.entities()); n != 0 || len(w.items) != 0 {
		t.Errorf("%d deployments are left, and %d items, want none", n, len(w.items))
	}
}

// A counter counts the dry runs of removals by kind, and fails them with err.
type counter struct {
	*world
	err    error
	counts map[tko.Kind]int
}

func (c *counter) RemoveEntity(ctx context.Context, kind tko.Kind, id string, dryRun bool) (tko.Deleted, error) {
	c.counts[kind]++
	if c.err != nil {
		return tko.Deleted{}, c.err
	}
	return c.world.RemoveEntity(ctx, kind, id, dryRun)
}

// Only deployments have descendants: the plan asks for their numbers, once for each one
// that exists. One that is deleted meanwhile has none.
func TestOnlyDescendantsOfDeploymentsAreCounted(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	for name, c := range map[string]struct{ err, want error }{
		"counted":           {nil, nil},
		"deleted meanwhile": {tko.Errorf(tko.ErrNotFound, "deployment"), nil},
		"other errors":      {refused, refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, pruning())
			w.apply(w.of(plainSite("s"), plainDeployment("d"))...)
			w.items = append(w.items, tko.SourceItem{Kind: string(tko.KindDeployment), Name: "never made", Pending: true})
			counting := &counter{w, c.err, map[tko.Kind]int{}}
			p, err := plan.Make(t.Context(), counting, nil, w.items, w.policy)
			if !errors.Is(err, c.want) {
				t.Fatalf("the error is %v, want %v", err, c.want)
			}
			equal(t, "dry runs", map[tko.Kind]int{tko.KindDeployment: 1}, counting.counts)
			if err == nil {
				equal(t, "actions", []string{`delete deployment "d"`, `delete deployment "never made"`, `delete site "s"`}, actions(p.Actions))
			}
		})
	}
}

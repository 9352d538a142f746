package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/gitops/plan/plantest"
	"github.com/tko-orchestrator/tko/internal/prune"
)

// careful is the policy of an inventory that others keep.
func careful(b prune.Budget) plan.Policy { return plan.Policy{Prune: true, Careful: true, Budget: b} }

// lax is a budget that never holds anything.
var lax = prune.Budget{Count: 1000, Percent: 100}

// fromInventory returns manifests as an inventory makes them: with the origin of each part.
func (w *world) fromInventory(puts ...tko.Put) []manifest.Manifest {
	w.Helper()
	all := w.of(puts...)
	for i := range all {
		origins := tko.SourceOrigins{}
		if all[i].Put.Template != "" {
			origins["template"] = "netbox"
		}
		if len(all[i].Put.Package) > 0 {
			origins["package"] = "netbox"
		}
		for key := range all[i].Put.Metadata {
			origins["metadata."+key] = "netbox"
		}
		all[i].Origins = origins
	}
	return all
}

// An inventory's removal waits if it exceeds either limit, and all other changes wait, too.
func TestCarefulRemovalsWaitBeyondEitherLimit(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		budget      prune.Budget
		spent, gone int // of 20
		waits       bool
	}{
		"none":                          {prune.Budget{}, 0, 0, false},
		"none, with a spent budget":     {prune.Budget{}, 9, 0, false},
		"no budget":                     {prune.Budget{}, 0, 1, true},
		"0 percent hold all":            {prune.Budget{Count: 20}, 0, 1, true},
		"both limits":                   {prune.Budget{Count: 2, Percent: 10}, 0, 2, false},
		"above the count":               {prune.Budget{Count: 2, Percent: 100}, 0, 3, true},
		"above the percentage":          {prune.Budget{Count: 20, Percent: 10}, 0, 3, true},
		"with spent ones":               {prune.Budget{Count: 3, Percent: 100}, 2, 1, false},
		"with spent ones, above":        {prune.Budget{Count: 3, Percent: 100}, 3, 1, true},
		"with spent ones, in percent":   {prune.Budget{Count: 20, Percent: 15}, 2, 1, false},
		"with spent ones, more percent": {prune.Budget{Count: 20, Percent: 15}, 3, 1, true},
		"the default of few":            {prune.Careful, 0, 1, false},
		"more than the default":         {prune.Careful, 0, 2, true},
		"all":                           {prune.Careful, 0, 20, true},
	}
	w := newWorld(t, plan.Policy{})
	owned := w.fromInventory(numbered(20, plainSite, "s")...)
	w.apply(owned...)
	for name, test := range tests {
		w.policy = careful(test.budget)
		w.policy.Source, w.policy.Spent = "fleet", test.spent
		changed := w.fromInventory(site("s19", "", "region", "west"))[0]
		revision := append(slices.Clone(owned[min(test.gone, 19):19]), w.fromInventory(plainSite("new"))...)
		others := 1 // the new one
		if test.gone < 20 {
			revision, others = append(revision, changed), 2
		}
		p := w.plan(revision...)
		if waits := p.Asks != ""; waits != test.waits {
			t.Errorf("%s: waits %t, want %t: %q", name, waits, test.waits, p.Messages)
			continue
		}
		if test.waits {
			if len(p.Actions) != 0 || len(p.Held) != test.gone+others || p.Charged != 0 {
				t.Errorf("%s: %d changes are made and %d held, want %d held; %d are charged", name, len(p.Actions), len(p.Held), test.gone+others, p.Charged)
			}
			text := strings.Join(p.Messages, "\n")
			for _, part := range []string{fmt.Sprintf("%d other changes wait", others), fmt.Sprintf("%d of 20 entities would be removed", test.gone), "tko gitops approve fleet " + p.Asks} {
				if !strings.Contains(text, part) {
					t.Errorf("%s: the message is %q, want one with %q", name, text, part)
				}
			}
			if spent := strings.Contains(text, "were removed lately"); spent != (test.spent > 0) {
				t.Errorf("%s: the message is %q with %d spent", name, text, test.spent)
			}
			w.policy.Approve = p.Asks
			p = w.plan(revision...)
			if p.Asks != "" || len(p.Actions) != test.gone+others || p.Charged != 0 {
				t.Errorf("%s: after the approval %v waits, and %d are charged", name, p.Held, p.Charged)
			}
			continue
		}
		if len(p.Actions) != test.gone+others || p.Charged != test.gone {
			t.Errorf("%s: %d changes are made, want %d; %d removals are charged", name, len(p.Actions), test.gone+others, p.Charged)
		}
	}
}

// A removed site at which deployments are waits for an approval, whatever the budget.
func TestCarefulRemovalOfSitesWithDeploymentsWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, careful(lax))
	owned := w.fromInventory(append(numbered(4, plainSite, "s"), template("s02", "1"))...)
	w.apply(owned...)
	w.put(tko.Put{Kind: tko.KindDeployment, Origin: "x", Site: "s02"})
	if p := w.plan(slices.Concat(owned[2:4])...); p.Asks != "" || len(p.Actions) != 3 {
		t.Errorf("the removal of empty sites, and of a template of an occupied one's name, waits: %q", p.Messages)
	}
	w.policy.Prune = false
	if p := w.plan(owned[3:]...); p.Asks != "" || plantest.Changes(p) != 0 {
		t.Errorf("without pruning %v, %v", p.Actions, p.Held)
	}
	w.policy.Prune = true
	p := w.plan(owned[3:]...)
	if text := strings.Join(p.Messages, "\n"); p.Asks == "" || len(p.Actions) > 0 || !strings.Contains(text, `deployments are at site "s02"`) {
		t.Fatalf("the removal of an occupied site: %v, %q", p.Actions, text)
	}
	w.policy.Approve = p.Asks
	if p := w.plan(owned[3:]...); p.Asks != "" || p.Charged != 0 {
		t.Errorf("after the approval: %q, %d are charged", p.Messages, p.Charged)
	}
	if p := w.plan(); p.Asks == "" {
		t.Error("the approval is enough for another removal")
	}
}

// Sites that lose what the inventory gave them wait, as removed ones do. What users and
// templates gave isn't counted.
func TestCarefulLossesWait(t *testing.T) {
	t.Parallel()
	full := tko.Put{Kind: tko.KindSite, ID: "s", Template: "t", Metadata: map[string]string{"a": "1", "b": "2"}, Package: configMap("own", "1")}
	tests := map[string]struct {
		change func(p *tko.Put)
		waits  bool
	}{
		"the template":       {func(p *tko.Put) { p.Template = "" }, true},
		"the package":        {func(p *tko.Put) { p.Package = nil }, true},
		"a key":              {func(p *tko.Put) { p.Metadata = map[string]string{"a": "1"} }, true},
		"all keys":           {func(p *tko.Put) { p.Metadata = nil }, true},
		"another template":   {func(p *tko.Put) { p.Template = "t2" }, false},
		"another package":    {func(p *tko.Put) { p.Package = configMap("own", "2") }, false},
		"another value":      {func(p *tko.Put) { p.Metadata = map[string]string{"a": "1", "b": "3"} }, false},
		"an additional key":  {func(p *tko.Put) { p.Metadata = map[string]string{"a": "1", "b": "2", "c": "3"} }, false},
		"nothing is changed": {func(*tko.Put) {}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, careful(prune.Budget{}))
			w.put(template("t", "1"))
			w.put(template("t2", "1"))
			w.apply(w.fromInventory(full)...)
			changed := full
			test.change(&changed)
			p := w.plan(w.fromInventory(changed)...)
			if waits := p.Asks != ""; waits != test.waits {
				t.Errorf("waits %t, want %t: %q", waits, test.waits, p.Messages)
			}
			if text := strings.Join(p.Messages, "\n"); test.waits && !strings.Contains(text, `1 of 1 sites would lose their template or metadata`) {
				t.Errorf("the message is %q", text)
			}
			if text := strings.Join(p.Messages, "\n"); strings.Contains(text, "other changes wait for the removal") {
				t.Errorf("nothing is removed, and the message is %q", text)
			}
		})
	}
}

// Losses are within the budget like removals, and an approval is for these contents.
func TestCarefulLossesHaveTheBudget(t *testing.T) {
	t.Parallel()
	labelled := func(id string) tko.Put { return site(id, "", "region", "west", "rack", "1") }
	without := func(id string) tko.Put { return site(id, "", "region", "west") }
	for gone, waits := range map[int]bool{0: false, 2: false, 3: true, 6: true} {
		w := newWorld(t, careful(prune.Budget{Count: 2, Percent: 100}))
		w.apply(w.fromInventory(numbered(6, labelled, "s")...)...)
		revision := append(numbered(gone, without, "s"), numbered(6, labelled, "s")[gone:]...)
		p := w.plan(w.fromInventory(revision...)...)
		if (p.Asks != "") != waits {
			t.Errorf("%d of 6 sites lose a key, which waits: %t; want %t", gone, p.Asks != "", waits)
		}
		if !waits {
			continue
		}
		w.policy.Approve = p.Asks
		other := slices.Clone(revision)
		other[0] = plainSite("s00")
		if p := w.plan(w.fromInventory(other...)...); p.Asks == "" || p.Asks == w.policy.Approve {
			t.Errorf("%d of 6: the approval is enough for another loss", gone)
		}
		if p := w.apply(w.fromInventory(revision...)...); p.Asks != "" || len(p.Actions) != gone {
			t.Errorf("%d of 6: after the approval: %q, %v", gone, p.Messages, p.Actions)
		}
	}
}

// More than 20 sites and more than half of them wait if they get other values. More than
// 20 new ones wait if they are more than the existing ones.
func TestCarefulFloodsWait(t *testing.T) {
	t.Parallel()
	region := func(value string) func(string) tko.Put {
		return func(id string) tko.Put { return site(id, "", "region", value) }
	}
	tests := map[string]struct {
		why                   string
		owned, altered, added int
		waits                 bool
	}{
		"20 of 20 altered": {"20 are few", 20, 20, 0, false},
		"21 of 21 altered": {"more than 20, and more than half", 21, 21, 0, true},
		"21 of 42 altered": {"half isn't more than half", 42, 21, 0, false},
		"21 of 41 altered": {"more than half", 41, 21, 0, true},
		"20 new of 1":      {"20 are few", 1, 0, 20, false},
		"21 new of 1":      {"more than those that exist", 1, 0, 21, true},
		"21 new of 21":     {"twice as many isn't more", 21, 0, 21, false},
		"22 new of 21":     {"more than twice as many", 21, 0, 22, true},
		"21 new of 0":      {"the first sites need no approval", 0, 0, 21, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, careful(lax))
			w.apply(w.fromInventory(numbered(test.owned, region("west"), "s")...)...)
			revision := slices.Concat(numbered(test.altered, region("east"), "s"), numbered(test.owned, region("west"), "s")[test.altered:], numbered(test.added, region("west"), "z"))
			p := w.plan(w.fromInventory(revision...)...)
			if waits := p.Asks != ""; waits != test.waits {
				t.Fatalf("waits %t, want %t (%s): %q", waits, test.waits, test.why, p.Messages)
			}
			if !test.waits {
				equal(t, "actions", test.altered+test.added, len(p.Actions))
				return
			}
			equal(t, "actions", 0, len(p.Actions))
			equal(t, "held", test.altered+test.added, len(p.Held))
			w.policy.Approve = p.Asks
			if p := w.plan(w.fromInventory(append(revision, plainSite("zz"))...)...); test.added > 0 && p.Asks == "" {
				t.Error("the approval is enough for one more site")
			}
			if p := w.plan(w.fromInventory(revision...)...); p.Asks != "" || len(p.Held) > 0 {
				t.Errorf("after the approval: %q", p.Messages)
			}
		})
	}
}

// If the server ends while it creates sites, they are known, and don't wait.
func TestCarefulInterruptedCreationGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, careful(lax))
	w.apply(w.fromInventory(plainSite("a"))...)
	revision := append(numbered(25, plainSite, "s"), plainSite("a"))
	for _, s := range revision[:25] {
		w.items = append(w.items, tko.SourceItem{Kind: string(tko.KindSite), Name: s.ID, Pending: true})
	}
	if p := w.plan(w.fromInventory(revision...)...); p.Asks != "" || len(p.Actions) != 25 {
		t.Errorf("it waits: %q", p.Messages)
	}
}

// Renamed sites are removals and new sites, which wait together: the new ones may be the
// same under other IDs.
func TestCarefulRenameWaitsAsAWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, careful(prune.Careful))
	w.apply(w.fromInventory(numbered(3, plainSite, "s")...)...)
	p := w.plan(w.fromInventory(numbered(3, plainSite, "renamed")...)...)
	equal(t, "held", map[string]int{"create site": 3, "delete site": 3}, verbs(p.Held))
	if len(p.Actions) != 0 {
		t.Errorf("%v is not held", p.Actions)
	}
	before := w.entities()
	w.apply(w.fromInventory(numbered(3, plainSite, "renamed")...)...)
	equal(t, "entities", before, w.entities())
	equal(t, "inventory", []string{"site s00", "site s01", "site s02"}, names(w.items))
}

// The message counts each change that isn't the cause once.
func TestCarefulMessageCountsOtherChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, careful(prune.Budget{}))
	labelled := func(id string) tko.Put { return site(id, "", "region", "west", "rack", "1") }
	moved := func(id string) tko.Put { return site(id, "", "region", "east") } // loses one key, and has another value
	w.apply(w.fromInventory(append(numbered(22, labelled, "s"), plainSite("gone"))...)...)
	p := w.plan(w.fromInventory(append(numbered(22, moved, "s"), plainSite("new"))...)...)
	if text := strings.Join(p.Messages, "\n"); !strings.Contains(text, "1 other changes wait for the removal") {
		t.Errorf("the message is %q, want one that counts the new site", text)
	}
	for name, revision := range map[string][]tko.Put{
		"without other changes": numbered(22, moved, "s"),
		"without a removal":     append(numbered(22, moved, "s"), plainSite("gone"), plainSite("new")),
	} {
		p := w.plan(w.fromInventory(revision...)...)
		if text := strings.Join(p.Messages, "\n"); p.Asks == "" || strings.Contains(text, "other changes wait") {
			t.Errorf("%s: the message is %q, want one that counts none", name, text)
		}
	}
}

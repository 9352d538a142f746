package plan_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/plan"
	"github.com/tko-orchestrator/tko/internal/gitops/plan/plantest"
)

// editable is the policy of an inventory of which users may set parts.
func editable(t testing.TB, patterns ...string) plan.Policy {
	t.Helper()
	p := careful(lax)
	for _, text := range patterns {
		pattern, err := tko.ParsePattern(text)
		if err != nil {
			t.Fatal(err)
		}
		p.Editable = append(p.Editable, pattern)
	}
	return p
}

// Where a user sets an editable part, the value takes precedence and stays, also if the
// inventory changes. Other parts are restored.
func TestEditablePartsOfUsersStay(t *testing.T) {
	t.Parallel()
	given := site("s", "t", "region", "west", "contact", "bo")
	tests := map[string]struct {
		patterns []string
		user     tko.Put // what ada makes of it
		next     tko.Put // the next revision of the inventory
		want     string  // the site after that
		message  string  // a part of the message; "" if there is none
	}{
		"nothing is editable": {nil, site("s", "t", "region", "west", "contact", "ada"), given, "t contact=bo region=west", ""},
		"an editable key": {
			[]string{"metadata.contact"},
			site("s", "t", "region", "west", "contact", "ada"), given, "t contact=ada region=west",
			`site "s" keeps metadata.contact "ada" of ada, in place of "bo" of netbox`,
		},
		"another key": {[]string{"metadata.contact"}, site("s", "t", "region", "east", "contact", "bo"), given, "t contact=bo region=west", ""},
		"both": {
			[]string{"metadata.contact"}, site("s", "t", "region", "east", "contact", "ada"), given, "t contact=ada region=west", `keeps metadata.contact "ada"`,
		},
		"a new key": {
			[]string{"metadata.note-*"},
			site("s", "t", "region", "west", "contact", "bo", "note-x", "1", "other", "2"), given,
			"t contact=bo note-x=1 region=west", `site "s" keeps metadata.note-x "1" of ada`,
		},
		"the template": {
			[]string{"template"}, site("s", "t2", "region", "west", "contact", "bo"), given, "t2 contact=bo region=west", `keeps template "t2" of ada, in place of "t" of netbox`,
		},
		"a template that isn't editable": {[]string{"metadata.*"}, site("s", "t2", "region", "west", "contact", "bo"), given, "t contact=bo region=west", ""},
		"the inventory changes": {
			[]string{"metadata.contact"},
			site("s", "t", "region", "west", "contact", "ada"), site("s", "t", "region", "north", "contact", "cy"),
			"t contact=ada region=north", `in place of "cy" of netbox`,
		},
		"the inventory drops the key": {
			[]string{"metadata.contact"}, site("s", "t", "region", "west", "contact", "ada"), site("s", "t", "region", "west"), "t contact=ada region=west", `keeps metadata.contact "ada" of ada`,
		},
		"the inventory agrees": {
			[]string{"metadata.contact"}, site("s", "t", "region", "west", "contact", "ada"), site("s", "t", "region", "west", "contact", "ada"), "t contact=ada region=west", "",
		},
		"a removed key": {[]string{"metadata.contact"}, site("s", "t", "region", "west"), given, "t contact=bo region=west", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, editable(t, test.patterns...))
			w.put(template("t", "1"))
			w.put(template("t2", "1"))
			w.apply(w.fromInventory(given)...)
			w.put(test.user)
			shown := func() string {
				s, err := w.Site(t.Context(), "s", 0)
				if err != nil {
					t.Fatal(err)
				}
				parts := []string{}
				for key, value := range s.Metadata {
					parts = append(parts, key+"="+value)
				}
				slices.Sort(parts)
				return string(s.Template) + " " + strings.Join(parts, " ")
			}
			p := w.apply(w.fromInventory(test.next)...)
			equal(t, "site", test.want, shown())
			text := strings.Join(p.Messages, "\n")
			if (text == "") != (test.message == "") || !strings.Contains(text, test.message) {
				t.Errorf("the messages are %q, want one with %q", text, test.message)
			}
			// It is recorded: the next plan changes nothing, and says the same.
			p = w.plan(w.fromInventory(test.next)...)
			equal(t, "changes after that", 0, plantest.Changes(p))
			equal(t, "messages after that", text, strings.Join(p.Messages, "\n"))
			// If the part isn't editable any more, the value of the inventory is restored.
			w.policy.Editable = nil
			w.apply(w.fromInventory(test.next)...)
			want := []string{string(test.next.Template)}
			for _, key := range []string{"contact", "region"} {
				if value := test.next.Metadata[key]; value != "" {
					want = append(want, key+"="+value)
				}
			}
			equal(t, "site without editable parts", strings.Join(want, " "), shown())
		})
	}
}

// The newest user is named, and removing the key gives the value of the inventory back.
func TestKeptValuesEndWithTheirKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, editable(t, "metadata.*"))
	given := w.fromInventory(site("s", "", "contact", "bo"))
	w.apply(given...)
	w.put(site("s", "", "contact", "ada"))
	w.apply(given...)
	if _, err := w.PutEntity(tko.WithAuthor(t.Context(), tko.Author{Who: "cy"}), site("s", "", "contact", "cy")); err != nil {
		t.Fatal(err)
	}
	if p := w.apply(given...); len(p.Messages) != 1 || !strings.Contains(p.Messages[0], `"cy" of cy, in place of "bo"`) {
		t.Errorf("the messages are %q", p.Messages)
	}
	w.put(site("s", ""))
	p := w.apply(given...)
	equal(t, "messages", 0, len(p.Messages))
	if s, err := w.Site(t.Context(), "s", 0); err != nil || s.Metadata["contact"] != "bo" {
		t.Errorf("the site has %v, %v", s.Metadata, err)
	}
}

// Values of users are found in each revision since the last reconciliation, also of a site
// that was deleted and registered again.
func TestEarlierEditsAreFound(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(w *world){
		"several edits": func(w *world) {
			w.put(site("s", "", "contact", "ada", "region", "west"))
			w.put(site("s", "", "contact", "ada", "region", "east"))
			w.put(site("s", "", "contact", "ada", "region", "north"))
		},
		"registered again": func(w *world) {
			w.remove(tko.KindSite, "s")
			w.put(site("s", "", "contact", "ada", "region", "west"))
		},
	} {
		w := newWorld(t, editable(t, "metadata.contact"))
		given := w.fromInventory(site("s", "", "contact", "bo", "region", "west"))
		w.apply(given...)
		w.put(site("s", "", "contact", "bo", "region", "east"))
		w.apply(given...) // the inventory has a higher revision than a new site
		edit(w)
		w.apply(given...)
		if s, err := w.Site(t.Context(), "s", 0); err != nil || s.Metadata["contact"] != "ada" || s.Metadata["region"] != "west" {
			t.Errorf("%s: the site has %v, %v", name, s.Metadata, err)
		}
	}
}

// A user who writes between plan and Apply loses nothing.
func TestUsersWhoWriteMeanwhileLoseNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, editable(t, "metadata.*"))
	w.apply(w.fromInventory(site("s", "", "contact", "bo"))...)
	p := w.plan(w.fromInventory(site("s", "", "contact", "cy"))...)
	w.put(site("s", "", "contact", "ada"))
	if _, err := p.Apply(t.Context(), w.Client, "r", w.save); !errors.Is(err, tko.ErrConflict) {
		t.Errorf("the error is %v, want an ErrConflict", err)
	}
	w.apply(w.fromInventory(site("s", "", "contact", "cy"))...)
	if s, err := w.Site(t.Context(), "s", 0); err != nil || s.Metadata["contact"] != "ada" {
		t.Errorf("the site has %v, %v", s.Metadata, err)
	}
}

// Messages name ten values that are kept.
func TestKeptValuesAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, editable(t, "metadata.*"))
	given := w.fromInventory(site("s", ""))
	w.apply(given...)
	p := site("s", "")
	p.Metadata = map[string]string{}
	for i := range 12 {
		p.Metadata[fmt.Sprintf("k%02d", i)] = "x"
	}
	w.put(p)
	if made := w.apply(given...); len(made.Messages) != 11 || made.Messages[10] != "and 2 more values of users are kept" {
		t.Errorf("the messages are %q", made.Messages)
	}
}

// The origins of parts are recorded for each item, equal ones once.
func TestOriginsOfPartsAreRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, careful(lax))
	manifests := w.fromInventory(site("a", "", "k", "1"), site("b", "", "k", "2"), site("c", "", "other", "1"), plainSite("none"))
	w.apply(manifests...)
	origins := func() map[string]tko.SourceOrigins {
		found := map[string]tko.SourceOrigins{}
		for _, i := range w.items {
			found[i.Name] = tko.SourceStatus{Origins: w.policy.Origins}.OriginsOf(i)
		}
		return found
	}
	k := tko.SourceOrigins{"metadata.k": "netbox"}
	want := map[string]tko.SourceOrigins{"a": k, "b": k, "c": {"metadata.other": "netbox"}, "none": nil}
	equal(t, "origins", want, origins())
	equal(t, "number of different ones", 2, len(w.policy.Origins))
	// Another origin of the same value is recorded without a write.
	manifests[0].Origins = tko.SourceOrigins{"metadata.k": "contacts"}
	before := w.entities()
	p := w.plan(manifests...)
	w.items, w.policy.Origins = p.Items, p.Origins
	want["a"] = manifests[0].Origins
	equal(t, "origins", want, origins())
	equal(t, "changes", 0, plantest.Changes(p))
	equal(t, "entities", before, w.entities())
}

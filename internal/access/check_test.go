package access_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
)

func TestScopesAreChecked(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for c := 'a'; c <= 'i'; c++ {
		many[string(c)] = "v"
	}
	tests := map[string]struct {
		why   string
		scope access.Scope
		want  string // the error contains it; "": none
	}{
		"everything":             {"the zero value", access.Scope{}, ""},
		"an ID":                  {"one site", access.Scope{SiteID: "emea/1"}, ""},
		"a range":                {"the beginning of IDs", access.Scope{SiteID: "emea/**", TemplateID: "ran:**"}, ""},
		"all IDs":                {"a site, and not none", access.Scope{SiteID: "**"}, ""},
		"an escaped wildcard":    {"IDs may contain *", access.Scope{SiteID: `a\*/**`}, ""},
		"characters of patterns": {"in a range they are literal, as in IDs", access.Scope{SiteID: `a.b+c(d)[e]{f}|^$-_~ü/**`, TemplateID: "a.b"}, ""},
		"one wildcard":           {"an index of IDs has ranges only", access.Scope{SiteID: "emea/*"}, `site-id="emea/*"`},
		"a wildcard inside":      {"likewise", access.Scope{TemplateID: "a**b"}, `template-id="a**b"`},
		"two wildcards":          {"likewise", access.Scope{SiteID: "a**b**"}, `site-id="a**b**"`},
		"a broken escape":        {"it isn't a pattern", access.Scope{SiteID: `a\`}, `ends with \`},
		"a null character":       {"PostgreSQL doesn't store it", access.Scope{SiteID: "a\x00"}, "site-id="},
		"no UTF-8":               {"likewise", access.Scope{TemplateID: "a\xff"}, "not valid UTF-8"},
		"a long ID":              {"no entity has it", access.Scope{SiteID: strings.Repeat("x", 2*tko.MaxIDLength+1)}, "site-id="},
		"an unknown kind":        {"it would never cover anything", access.Scope{Kinds: []tko.Kind{"pod"}}, `unknown kind "pod"`},
		"too many kinds":         {"a caller determines the size of what is stored", access.Scope{Kinds: slices.Repeat([]tko.Kind{tko.KindSite}, 100)}, "100 kinds"},
		"metadata":               {"also with an empty value", access.Scope{Metadata: map[string]string{"k": "v", "l": ""}}, ""},
		"an empty key":           {"no entity has it", access.Scope{Metadata: map[string]string{"": "v"}}, `metadata ""="v"`},
		"a wildcard in metadata": {"scopes compare for equality: it would cover nothing, unnoticed", access.Scope{Metadata: map[string]string{"k": "v*"}}, `metadata "k"="v*"`},
		"long metadata":          {"a caller determines the size of what is stored", access.Scope{Metadata: map[string]string{"k": strings.Repeat("v", 1024)}}, "at most 1024 bytes"},
		"metadata without UTF-8": {"PostgreSQL doesn't store it", access.Scope{Metadata: map[string]string{"k": "\xff"}}, "metadata"},
		"too much metadata":      {"each key costs a query a join", access.Scope{Metadata: many}, "9 metadata keys"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for what, err := range map[string]error{
				"scope":   test.scope.Check(),
				"binding": access.Binding{Subject: "s", Role: access.Viewer, Scope: test.scope}.Check(),
				"policy":  access.Policy{Approvers: 1, Scope: test.scope}.Check(),
			} {
				if test.want == "" && err != nil {
					t.Errorf("%s: %v: %s", what, err, test.why)
				}
				if test.want != "" && (!errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("%s: %v, want an invalid that contains %q: %s", what, err, test.want, test.why)
				}
				if err != nil && len(err.Error()) > 1000 {
					t.Errorf("%s: the error has %d bytes", what, len(err.Error()))
				}
			}
		})
	}
}

func TestScopesAreTextsOfFlags(t *testing.T) {
	t.Parallel()
	for want, scope := range map[string]access.Scope{
		"all":                                {},
		"site-id=emea/**":                    {SiteID: "emea/**"},
		"kind=site|deployment,template-id=a": {Kinds: []tko.Kind{tko.KindSite, tko.KindDeployment}, TemplateID: "a"},
		"site-id=s,template-id=t,a=1,b=2":    {SiteID: "s", TemplateID: "t", Metadata: map[string]string{"b": "2", "a": "1"}},
		"kind=plugin,empty=":                 {Kinds: []tko.Kind{tko.KindPlugin}, Metadata: map[string]string{"empty": ""}},
	} {
		if got := scope.String(); got != want {
			t.Errorf("the scope is %q, want %q", got, want)
		}
		if scope.IsAll() != (want == "all") {
			t.Errorf("the scope %s covers everything: %t", want, scope.IsAll())
		}
	}
}

func TestBindingsAreChecked(t *testing.T) {
	t.Parallel()
	scope := access.Scope{SiteID: "a/**"}
	long := strings.Repeat("x", 1025)
	tests := map[string]struct {
		why     string
		binding access.Binding
		want    string
	}{
		"a subject":          {"the usual one", access.Binding{Subject: "s", Role: access.Viewer}, ""},
		"a group":            {"the usual one", access.Binding{Group: "g", Role: access.Editor, Scope: scope, Reason: "ticket"}, ""},
		"none":               {"it would be for all callers without a name", access.Binding{Role: access.Viewer}, "subject or for a group"},
		"both":               {"it is unclear which of them it is for", access.Binding{Subject: "s", Group: "g", Role: access.Viewer}, "subject or for a group"},
		"a long subject":     {"a caller determines the size of what is stored", access.Binding{Subject: long, Role: access.Viewer}, "too long"},
		"a group, no UTF-8":  {"PostgreSQL doesn't store it", access.Binding{Group: "\xff", Role: access.Viewer}, "not plain text"},
		"an unknown role":    {"the error names those that exist", access.Binding{Subject: "s", Role: "root"}, string(access.Roles()[0])},
		"no role":            {"likewise", access.Binding{Subject: "s"}, "no role"},
		"a long reason":      {"a caller determines the size of what is stored", access.Binding{Subject: "s", Role: access.Viewer, Reason: long}, "1025 bytes"},
		"a reason, no UTF-8": {"PostgreSQL doesn't store it", access.Binding{Subject: "s", Role: access.Viewer, Reason: "\x00"}, "reason"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := test.binding.Check()
			if test.want == "" && err != nil {
				t.Errorf("%v: %s", err, test.why)
			}
			if test.want != "" && (!errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want an invalid that contains %q: %s", err, test.want, test.why)
			}
		})
	}
	for _, role := range access.Roles() { // a scope that can't limit anything would look as if it did
		err := access.Binding{Subject: "s", Role: role, Scope: scope}.Check()
		if limits := slices.ContainsFunc(role.Verbs(), access.Verb.Scoped); limits != (err == nil) || err != nil && !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("the role %s has verbs within a scope: %t; its binding with one: %v", role, limits, err)
		}
	}
}

func TestBindingsAreForTheirSubjectOrGroup(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why     string
		binding access.Binding
		subject string
		groups  []string
		want    bool
	}{
		"its subject":      {"", access.Binding{Subject: "a"}, "a", nil, true},
		"another subject":  {"", access.Binding{Subject: "a"}, "b", []string{"a"}, false},
		"its group":        {"", access.Binding{Group: "g"}, "a", []string{"f", "g"}, true},
		"another group":    {"a subject with the name of a group isn't in it", access.Binding{Group: "g"}, "g", []string{"f"}, false},
		"no name":          {"an anonymous caller has the empty subject", access.Binding{Group: "g"}, "", nil, false},
		"an empty binding": {"neither an anonymous caller, nor one with an empty group, has it", access.Binding{}, "", []string{""}, false},
		"before its end":   {"", access.Binding{Subject: "a", Expires: present.Add(1)}, "a", nil, true},
		"at its end":       {"it is valid until then", access.Binding{Subject: "a", Expires: present}, "a", nil, false},
		"an expired one":   {"", access.Binding{Group: "g", Expires: present.Add(-time.Hour)}, "a", []string{"g"}, false},
	}
	for name, test := range tests {
		if got := test.binding.For(test.subject, test.groups, present); got != test.want {
			t.Errorf("%s: %t, want %t: %s", name, got, test.want, test.why)
		}
	}
}

func TestUnlimitedAdministratorsAreKnown(t *testing.T) {
	t.Parallel()
	unlimited := access.Binding{Subject: "a", Role: access.Admin}
	if !unlimited.IsUnlimitedAdmin() {
		t.Error("an administrator without limits isn't one")
	}
	for what, change := range map[string]func(*access.Binding){
		"with a scope": func(b *access.Binding) { b.Scope.SiteID = "a" },
		"for a time":   func(b *access.Binding) { b.Expires = present },
		"with a group": func(b *access.Binding) { b.Subject, b.Group = "", "g" },
		"another role": func(b *access.Binding) { b.Role = access.Delegated },
	} {
		b := unlimited
		if change(&b); b.IsUnlimitedAdmin() {
			t.Errorf("a binding %s makes an administrator without limits", what)
		}
	}
}

func TestPoliciesAreChecked(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why    string
		policy access.Policy
		want   string
	}{
		"one approver":      {"the usual one", access.Policy{Approvers: 1}, ""},
		"with groups":       {"the usual one", access.Policy{Approvers: 10, Groups: []string{"net", "ops"}, Scope: access.Scope{SiteID: "a/**"}, Reason: "law"}, ""},
		"no approver":       {"it would require nothing", access.Policy{}, "0 approvers"},
		"too many":          {"it would block every approval", access.Policy{Approvers: 11}, "11 approvers"},
		"too many groups":   {"a caller determines the size of what is stored", access.Policy{Approvers: 1, Groups: slices.Repeat([]string{"g"}, 101)}, "groups"},
		"a long group":      {"likewise", access.Policy{Approvers: 1, Groups: []string{strings.Repeat("g", 1025)}}, "group"},
		"an empty group":    {"no caller is in it, so that no caller could approve", access.Policy{Approvers: 1, Groups: []string{"g", ""}}, "group"},
		"a group, no UTF-8": {"PostgreSQL doesn't store it", access.Policy{Approvers: 1, Groups: []string{"\xff"}}, "group"},
		"a long reason":     {"a caller determines the size of what is stored", access.Policy{Approvers: 1, Reason: strings.Repeat("x", 1025)}, "reason"},
		"other kinds":       {"approvals are of deployments", access.Policy{Approvers: 1, Scope: access.Scope{Kinds: []tko.Kind{tko.KindSite}}}, "covers no deployments"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := test.policy.Check()
			if test.want == "" && err != nil {
				t.Errorf("%v: %s", err, test.why)
			}
			if test.want != "" && (!errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want an invalid that contains %q: %s", err, test.want, test.why)
			}
		})
	}
}

func TestPoliciesCoverDeploymentsInTheirScope(t *testing.T) {
	t.Parallel()
	a := access.Attributes{Kind: tko.KindDeployment, ID: "d", Site: "emea/1", Template: "ran", Metadata: map[string]string{"tier": "core"}}
	got := map[string]bool{}
	for _, scope := range []access.Scope{
		{},
		{SiteID: "emea/**"},
		{SiteID: "apac/**"},
		{SiteID: "emea/1", TemplateID: "ran", Metadata: map[string]string{"tier": "core"}},
		{Metadata: map[string]string{"tier": "edge"}},
		{Metadata: map[string]string{"none": ""}},
		{Kinds: []tko.Kind{tko.KindSite}},
		{SiteID: "emea*"},
	} {
		got[scope.String()] = access.Policy{Scope: scope}.Covers(a)
	}
	want := map[string]bool{
		"all": true, "site-id=emea/**": true, "site-id=apac/**": false, "site-id=emea/1,template-id=ran,tier=core": true,
		"tier=edge": false, "none=": false, "kind=site": false, "site-id=emea*": false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("policies that cover a deployment (-want +got)\n%s", diff)
	}
}

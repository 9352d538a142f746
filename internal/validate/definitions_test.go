package validate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/validate"
)

// crdOf returns a CRD of Things whose spec has these properties.
func crdOf(properties string) string {
	return `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, kind: Thing}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {description: a thing, type: object, properties: {spec: {type: object, properties: ` + properties + `}}}}
`
}

func aThing(spec string) string {
	return "{apiVersion: example.com/v1, kind: Thing, metadata: {name: t}, spec: " + spec + "}\n"
}

// Several templates define one kind: a resource is valid if one of their CRDs
// accepts it, in any order of the templates.
func TestAnyRegisteredCRDAccepts(t *testing.T) {
	t.Parallel()
	v := newValidator(t, validate.Options{})
	integer := registered(t, crdOf("{size: {type: integer}}"), "op:v1")[0]
	text := registered(t, crdOf("{size: {type: string}}"), "op:v2", "op:v2-again")[0]
	for _, crds := range [][]tko.CRD{{integer, text}, {text, integer}} {
		for _, complete := range []bool{true, false} {
			ask := func(spec string) []string {
				return lines(t, v.Validate(t.Context(), tko.Validation{Package: decode(t, aThing(spec)), CRDs: crds, Complete: complete}))
			}
			for _, spec := range []string{"{size: 5}", "{size: five}", "{size: 5}"} {
				if wrong := ask(spec); wrong != nil {
					t.Errorf("%s: %v: one of the CRDs accepts it", spec, wrong)
				}
			}
			for _, line := range ask("{size: true, unheard: 1}") {
				for _, name := range []string{`"op:v1"`, `"op:v2"`, `"op:v2-again"`} {
					if !strings.Contains(line, name) {
						t.Errorf("%s: doesn't name template %s, whose CRD refused", line, name)
					}
				}
			}
			if wrong := ask("{size: true, unheard: 1}"); len(wrong) != 1 {
				t.Errorf("%v: want the error of the size; the property that no CRD knows is a warning", wrong)
			}
		}
	}
}

// The message has the errors of the closest CRD, and a limited number of
// template names.
func TestRefusalNamesTheTemplatesOfCRDs(t *testing.T) {
	t.Parallel()
	v := newValidator(t, validate.Options{})
	many := make([]tko.TemplateID, 30)
	for i := range many {
		many[i] = tko.TemplateID(fmt.Sprint("t", i))
	}
	crds := slices.Concat(registered(t, crdOf("{}"), many...), registered(t, crdOf("{size: {type: integer}, color: {type: string}}"), "near"))
	got := lines(t, v.Validate(t.Context(), tko.Validation{Package: decode(t, aThing("{size: five, color: red}")), CRDs: crds}))
	want := []string{`example.com/v1 Thing "t": spec.size: must be an integer, is a string (by the CRD of template "near"; refused by that of templates ` +
		`"t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9" and 20 more, too)`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The package's own CRD decides, even if a registered one accepts.
func TestOwnCRDComesBeforeRegisteredOnes(t *testing.T) {
	t.Parallel()
	v := newValidator(t, validate.Options{})
	p := decode(t, crdOf("{size: {type: integer}}")+"---\n"+aThing("{size: five}"))
	got := lines(t, v.Validate(t.Context(), tko.Validation{Package: p, CRDs: registered(t, crdOf("{size: {type: string}}"), "op:v2"), Complete: true}))
	if diff := cmp.Diff([]string{`example.com/v1 Thing "t": spec.size: must be an integer, is a string`}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Errors that a newer CRD finds in a stored resource don't prevent changes of
// other resources.
func TestStoredResourcesStayValidDespiteNewCRDs(t *testing.T) {
	t.Parallel()
	v := newValidator(t, validate.Options{})
	crds := registered(t, crdOf("{size: {type: integer}, color: {type: string}}"), "newer")
	crds[0].Templates = []tko.TemplateID{"newer"}
	stored := decode(t, aThing("{size: five}"))
	for _, complete := range []bool{true, false} {
		ask := func(spec string, accepted ...tko.AcceptedPackage) []string {
			return lines(t, v.Validate(t.Context(), tko.Validation{Package: decode(t, aThing(spec)), CRDs: crds, Complete: complete, Accepted: accepted}))
		}
		before := tko.AcceptedPackage{Package: stored, Complete: complete}
		if wrong := ask("{size: five, color: red}", before); wrong != nil {
			t.Errorf("complete %t: %v: want no errors, as the resource was stored before", complete, wrong)
		}
		if wrong := ask("{size: five, color: 1}", before); len(wrong) != 1 || !strings.Contains(wrong[0], "spec.color") {
			t.Errorf("complete %t: %v: want the new error", complete, wrong)
		}
		if wrong := ask("{size: five}"); len(wrong) != 1 || !strings.Contains(wrong[0], "spec.size") {
			t.Errorf("complete %t: %v: want the error of the new resource", complete, wrong)
		}
	}
	required := registered(t, strings.Replace(crdOf("{size: {type: integer}}"), "spec: {type: object,", "spec: {type: object, required: [size],", 1), "newer")
	v2 := tko.Validation{Package: decode(t, aThing("{}")), CRDs: required, Complete: true, Accepted: []tko.AcceptedPackage{{Package: decode(t, aThing("{}"))}}}
	if wrong := lines(t, v.Validate(t.Context(), v2)); len(wrong) != 1 {
		t.Errorf("%v: want the missing property, as the stored revision was validated only partially", wrong)
	}
}

const ruledCRD = `{replicas: {type: integer}, minimum: {type: integer, default: 1}, names: {type: array, maxItems: 5, items: {type: string, maxLength: 10, x-kubernetes-validations: [{rule: "self != 'bad'", message: must not be bad}]}}}, ` +
	`x-kubernetes-validations: [{rule: "!has(self.replicas) || self.replicas >= self.minimum", message: must be at least the minimum, fieldPath: .replicas}, {rule: "self == oldSelf", message: never changes}]`

// CEL rules apply to complete validation, with defaults and without rules on
// transitions.
func TestCELRulesApplyToCompleteValidation(t *testing.T) {
	t.Parallel()
	v := newValidator(t, validate.Options{})
	for _, own := range []bool{true, false} {
		suffix := ` (by the CRD of template "op")`
		ask := func(spec string, complete bool) []string {
			r := tko.Validation{Package: decode(t, aThing(spec)), Complete: complete, CRDs: registered(t, crdOf(ruledCRD), "op")}
			if own {
				r.Package, r.CRDs, suffix = decode(t, crdOf(ruledCRD)+"---\n"+aThing(spec)), nil, ""
			}
			return lines(t, v.Validate(t.Context(), r))
		}
		if wrong := ask("{replicas: 3, names: [good]}", true); wrong != nil {
			t.Errorf("own %t: %v", own, wrong)
		}
		if wrong := ask("{replicas: 0, names: [bad]}", false); wrong != nil {
			t.Errorf("own %t: partial validation evaluated rules: %v", own, wrong)
		}
		want := []string{`example.com/v1 Thing "t": spec.names[0]: must not be bad`, `example.com/v1 Thing "t": spec.replicas: must be at least the minimum`}
		got := ask("{replicas: 0, names: [bad]}", true)
		for i := range want {
			want[i] += suffix
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("own %t: (-want +got):\n%s", own, diff)
		}
	}
}

// A rule that doesn't compile is reported at its path, and resources are not
// checked by the CRD.
func TestBrokenRulesAreReportedAtTheirPath(t *testing.T) {
	t.Parallel()
	v := newValidator(t, validate.Options{})
	broken := crdOf(`{size: {type: integer, x-kubernetes-validations: [{rule: "self.no.such"}]}}`)
	got := lines(t, v.Validate(t.Context(), tko.Validation{Package: decode(t, broken+"---\n"+aThing("{size: 1}")), Complete: true}))
	if len(got) != 1 || !strings.Contains(got[0], "spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.size.x-kubernetes-validations[0].rule: can't be compiled") {
		t.Errorf("%v: want the path of the rule", got)
	}
	if err := v.Validate(t.Context(), tko.Validation{Package: decode(t, aThing("{size: 1}")), Complete: true, CRDs: registered(t, broken, "op")}); err != nil {
		t.Errorf("%v: want a broken CRD of a template ignored", err)
	}
}

// The evaluation of rules ends at the cost limit.
func TestRulesEndAtTheCostLimit(t *testing.T) {
	t.Parallel()
	v := newValidator(t, validate.Options{RulesCost: 15_000_000})
	costly := crdOf(`{items: {type: array, items: {type: string}, x-kubernetes-validations: [{rule: "self.all(a, self.all(b, self.all(c, a + b + c != 'x')))"}]}}`)
	items := make([]string, 300)
	for i := range items {
		items[i] = fmt.Sprint("i", i)
	}
	var all strings.Builder
	for i := range 4 {
		all.WriteString("---\n" + strings.Replace(aThing("{items: ["+strings.Join(items, ",")+"]}"), "name: t", fmt.Sprint("name: t", i), 1))
	}
	got := lines(t, v.Validate(t.Context(), tko.Validation{Package: decode(t, all.String()), Complete: true, CRDs: registered(t, costly, "op")}))
	if len(got) != 4 || !strings.Contains(got[0], "cost") {
		t.Errorf("%d findings, the first %.1v: want the cost limit for each resource", len(got), got)
	}
}

// The rules that a package makes the server compile are limited.
func TestCompiledRulesAreLimited(t *testing.T) {
	t.Parallel()
	v := newValidator(t, validate.Options{})
	rules := func(n int, rule string) string {
		return crdOf("{}, x-kubernetes-validations: [" + strings.Repeat("{rule: \""+rule+"\"},", n) + "]")
	}
	var many strings.Builder
	for i := range 600 {
		many.WriteString("---\n" + strings.ReplaceAll(rules(20, fmt.Sprint(i, " == 1")), "things", fmt.Sprint("things", i)))
	}
	for name, test := range map[string]struct{ pkg, want string }{
		"rules of a CRD":     {rules(2001, "true"), "has 2001 rules (x-kubernetes-validations): use at most 2000"},
		"the text of a rule": {rules(1, "true"+strings.Repeat(" ", 40_000)), "of 40004 bytes"},
		"rules of a package": {many.String(), "have 12000 rules (x-kubernetes-validations) together"},
	} {
		got := lines(t, v.Validate(t.Context(), tko.Validation{Package: decode(t, test.pkg), Complete: true}))
		if len(got) == 0 || !strings.Contains(got[0], test.want) {
			t.Errorf("%s: %.300v, want %q", name, got, test.want)
		}
	}
}

// Even if many templates define a kind, a valid resource is checked by few
// CRDs, and the cache stays small.
func TestManyDefinitionsOfOneKindStayCheap(t *testing.T) {
	v := newValidator(t, validate.Options{})
	var crds []tko.CRD
	for i := range 300 {
		crds = append(crds, registered(t, crdOf(fmt.Sprintf("{size: {type: integer, minimum: %d}, big%d: {description: %s, type: string}}", 300-i, i, strings.Repeat("x", 10_000))), tko.TemplateID(strconv.Itoa(i)))...)
	}
	size := 0
	for _, c := range crds {
		size += len(c.Content)
	}
	if size > 300*1000 {
		t.Errorf("300 CRDs occupy %d bytes: descriptions must not be cached", size)
	}
	p := decode(t, aThing("{size: 1}"))
	validateOnce := func() {
		if err := v.Validate(t.Context(), tko.Validation{Package: p, CRDs: crds, Complete: true}); err != nil {
			t.Fatal(err)
		}
	}
	validateOnce() // tries all: the last accepts it
	allocations := testing.AllocsPerRun(10, validateOnce)
	one := tko.Validation{Package: p, CRDs: crds[299:], Complete: true}
	alone := testing.AllocsPerRun(10, func() {
		if err := v.Validate(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > 3*alone+100 {
		t.Errorf("%v allocations with 300 CRDs, %v with one: want about as many", allocations, alone)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := v.Validate(ctx, tko.Validation{Package: decode(t, aThing("{size: none}")), CRDs: crds}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v: want the end of the context to end it", err)
	}
}

// A CRD does not apply to versions of its kind that it doesn't define.
func TestCRDOfAnotherVersionDoesNotApply(t *testing.T) {
	t.Parallel()
	v := newValidator(t, validate.Options{})
	crds := registered(t, strings.Replace(crdOf("{size: {type: integer}}"), "name: v1", "name: v2", 1), "op")
	if err := v.Validate(t.Context(), tko.Validation{Package: decode(t, aThing("{size: five}")), CRDs: crds}); err != nil {
		t.Error(err)
	}
}

// If the package defines the kind itself, in another version, CRDs of templates don't count.
func TestOwnCRDOfAnotherVersionCountsAlone(t *testing.T) {
	t.Parallel()
	v := newValidator(t, validate.Options{})
	own := strings.Replace(crdOf("{size: {type: integer}}"), "name: v1", "name: v2", 1) + "---\n"
	others := registered(t, crdOf("{size: {type: integer}}"), "op")
	for _, complete := range []bool{true, false} {
		if err := v.Validate(t.Context(), tko.Validation{Package: decode(t, own+aThing("{size: five}")), CRDs: others, Complete: complete}); err != nil {
			t.Errorf("complete %t: %v", complete, err)
		}
		if wrong := lines(t, v.Validate(t.Context(), tko.Validation{Package: decode(t, aThing("{size: five}")), CRDs: others, Complete: complete})); len(wrong) != 1 {
			t.Errorf("complete %t: %v: without the own CRD, that of the template counts", complete, wrong)
		}
	}
}

// Values that are filled when a deployment is prepared make a package a blueprint, not an
// invalid one; whatever else is wrong stays an error, and so does a placeholder that is left.
func TestPlaceholdersMakeABlueprint(t *testing.T) {
	t.Parallel()
	v := newValidator(t, validate.Options{})
	crds := registered(t, crdOf("{size: {type: integer}, mode: {type: string, enum: [a, b]}}"), "op")
	workload := func(spec string) string {
		return "{apiVersion: apps/v1, kind: Deployment, metadata: {name: upf}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}, " + spec + "}}\n"
	}
	service := "{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: PLACEHOLDER_PORT, targetPort: PLACEHOLDER_TARGET}]}}\n"
	for name, test := range map[string]struct{ pkg, partial, complete string }{
		"an integer":             {pkg: workload("replicas: PLACEHOLDER_REPLICAS"), complete: "spec.replicas: must be an integer or a string|is a placeholder that nothing has filled"},
		"in a list":              {pkg: service, complete: "spec.ports[0].port"},
		"of a custom resource":   {pkg: aThing("{size: PLACEHOLDER_SIZE}"), complete: "spec.size"},
		"of an enumeration":      {pkg: aThing("{mode: PLACEHOLDER_MODE}"), complete: "spec.mode"},
		"part of a text":         {pkg: aThing("{size: 1/PLACEHOLDER_SIZE}"), complete: "spec.size"},
		"and another wrong type": {pkg: workload("replicas: PLACEHOLDER_REPLICAS, paused: 5"), partial: "spec.paused", complete: "spec.paused"},
		"an unknown property":    {pkg: workload("relicas: PLACEHOLDER_REPLICAS"), partial: "spec.relicas: unknown property", complete: "spec.relicas"},
		"no placeholder":         {pkg: workload("replicas: many"), partial: "spec.replicas", complete: "spec.replicas"},
		"a program":              {pkg: aThing(`{size: "sed\ns/PLACEHOLDER_SIZE/1/"}`), partial: "spec.size", complete: "spec.size"},
	} {
		for complete, want := range map[bool]string{false: test.partial, true: test.complete} {
			got := strings.Join(lines(t, v.Validate(t.Context(), tko.Validation{Package: decode(t, test.pkg), CRDs: crds, Complete: complete})), "; ")
			first, last, _ := strings.Cut(want, "|")
			first, _, _ = strings.Cut(first, " or ")
			if (got == "") != (want == "") || !strings.Contains(got, first) || !strings.Contains(got, last) {
				t.Errorf("%s, complete %t: %q, want %q", name, complete, got, want)
			}
		}
	}
}

// With CRDs of one kind in two templates, an error of the one that knows a field was ignored
// because the other one had never known it: invalid resources were stored.
func TestErrorIsNewIfACRDAcceptedTheEarlierResource(t *testing.T) {
	t.Parallel()
	crds := slices.Concat(
		registered(t, crdOf(`{size: {type: integer, x-kubernetes-validations: [{rule: "self < 10", message: must be small}]}}`), "v1"),
		registered(t, crdOf("{color: {type: string}}"), "v2"),
	)
	for _, reverse := range []bool{false, true} {
		list := slices.Clone(crds)
		if reverse {
			slices.Reverse(list)
		}
		v := newValidator(t, validate.Options{})
		var messages []string
		ask := func(spec string, before ...string) []string {
			r := tko.Validation{Package: decode(t, aThing(spec)), CRDs: list, Complete: true}
			for _, b := range before {
				r.Accepted = append(r.Accepted, tko.AcceptedPackage{Package: decode(t, aThing(b)), Complete: true})
			}
			return lines(t, v.Validate(t.Context(), r))
		}
		for name, test := range map[string]struct {
			why, spec string
			before    []string
			refused   bool
		}{
			"new and wrong":             {"no CRD accepts a text", "{size: text}", nil, true},
			"was valid, and wrong":      {"v1 accepted what it was", "{size: text}", []string{"{size: 5}"}, true},
			"was valid, and breaks":     {"a rule of v1 is broken now", "{size: 50}", []string{"{size: 5}"}, true},
			"was valid by the other":    {"v2 accepted what it was", "{size: text}", []string{"{color: red}"}, true},
			"was never valid":           {"it was stored before there were CRDs", "{size: text, color: 1}", []string{"{size: text, color: 1}"}, false},
			"was never valid, one more": {"the old error doesn't hide a new one", "{size: text, color: 1}", []string{"{size: text, other: 1}"}, true},
			"valid":                     {"v1 accepts it", "{size: 5}", []string{"{size: text, color: 1}"}, false},
		} {
			wrong := ask(test.spec, test.before...)
			if (len(wrong) > 0) != test.refused {
				t.Errorf("%s (%s), reversed %t: %v, want refused %t", name, test.why, reverse, wrong, test.refused)
			}
		}
		messages = append(messages, ask("{size: text}")...)
		if len(messages) != 1 || !strings.Contains(messages[0], `template "v1"`) || !strings.Contains(messages[0], `"v2", too`) {
			t.Errorf("reversed %t: %v, want one message that names both templates, v1 first", reverse, messages)
		}
	}
}

// A property that no CRD of other templates knows is a warning: the package may be written for a
// newer version. One that a CRD knows, and everything else that is wrong, is an error; so is all of
// it by the package's own CRD. The order of the templates doesn't matter.
func TestPropertyThatNoTemplateKnowsIsAWarning(t *testing.T) {
	t.Parallel()
	small := `{size: {type: integer, x-kubernetes-validations: [{rule: "self < 10", message: must be small}]}, in: {type: object, properties: {a: {type: integer}}}}`
	crds := slices.Concat(registered(t, crdOf(small), "a"), registered(t, crdOf("{color: {type: string}}"), "b"))
	for name, test := range map[string]struct {
		spec           string
		own            string
		wrong, warning string
	}{
		"unknown":                     {spec: "{size: 5, later: 1}", warning: `spec.later: unknown property: the CRDs of templates "a", "b" don't have it`},
		"unknown, deep":               {spec: "{size: 5, in: {a: 1, later: 1}}", warning: "spec.in.later: unknown property"},
		"unknown, and a wrong type":   {spec: "{size: text, later: 1}", wrong: "spec.size: must be an integer"},
		"unknown, and a rule":         {spec: "{size: 50, later: 1}", wrong: "must be small"},
		"known elsewhere":             {spec: "{size: 5, color: 1}", wrong: "unknown property"},
		"wrong by the one that knows": {spec: "{size: text}", wrong: "spec.size: must be an integer"},
		"its own CRD":                 {spec: "{size: 5, later: 1}", own: crdOf(small) + "---\n", wrong: "spec.later: unknown property"},
		"known":                       {spec: "{size: 5}"},
	} {
		for _, reverse := range []bool{false, true} {
			list := slices.Clone(crds)
			if reverse {
				slices.Reverse(list)
			}
			v := newValidator(t, validate.Options{})
			for range 2 { // the result may be cached
				var warned []string
				wrong := lines(t, v.Validate(t.Context(), tko.Validation{
					Package: decode(t, test.own+aThing(test.spec)), CRDs: list, Complete: true, Key: name,
					Warn: func(all []tko.Finding) {
						for _, one := range all {
							warned = append(warned, one.String())
						}
					},
				}))
				for what, is := range map[string]struct {
					got  []string
					want string
				}{"errors": {wrong, test.wrong}, "warnings": {warned, test.warning}} {
					if text := strings.Join(is.got, "; "); (text == "") != (is.want == "") || !strings.Contains(text, is.want) {
						t.Errorf("%s, reversed %t: the %s are %q, want %q", name, reverse, what, text, is.want)
					}
				}
			}
		}
	}
}

package validate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/tko-orchestrator/tko/krm"
)

// rulesKey is the key of CEL rules in CRD schemas.
const rulesKey = "x-kubernetes-validations"

// Limits of CEL rules: compiling a rule takes about 1 ms.
const (
	maxRules        = 2000     // of one version of a CRD
	maxPackageRules = 10_000   // of all CRDs in a package
	maxRuleText     = 32 << 10 // bytes of a rule
)

// rules are the CEL rules of one version of a CRD. They are evaluated as the
// API server does on creation: with defaults applied, and without the rules
// that compare with an earlier state.
type rules struct {
	schema    *structuralschema.Structural
	validator *cel.Validator
}

// compileRules compiles the rules of a schema; nil if it has none.
func compileRules(schema any, path []string) (*rules, []issue) {
	switch n, long := countRules(schema); {
	case n == 0:
		return nil, nil
	case n > maxRules:
		return nil, []issue{{path, fmt.Sprintf("has %d rules (%s): use at most %d", n, rulesKey, maxRules)}}
	case long > maxRuleText:
		return nil, []issue{{path, fmt.Sprintf("has a rule (%s) of %d bytes: use at most %d", rulesKey, long, maxRuleText)}}
	}
	s, err := toStructural(schema)
	if err != nil {
		return nil, []issue{{path, fmt.Sprintf("is not a structural schema: %s", err)}}
	}
	c := ruleCompiler{}
	c.node(s, true, path)
	if len(c.issues) > 0 {
		return nil, c.issues
	}
	return &rules{schema: s, validator: cel.NewValidator(s, true, celconfig.PerCallLimit)}, nil
}

// countRules returns the number of rules in a schema, and the length of the
// longest in bytes.
func countRules(v any) (n, longest int) {
	count := func(inner any) {
		more, long := countRules(inner)
		n, longest = n+more, max(longest, long)
	}
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			list, ok := inner.([]any)
			if key != rulesKey || !ok {
				count(inner)
				continue
			}
			n += len(list)
			for _, rule := range list {
				for _, field := range []string{"rule", "messageExpression"} {
					text, _ := dig(rule, field).(string)
					longest = max(longest, len(text))
				}
			}
		}
	case []any:
		for _, inner := range v {
			count(inner)
		}
	}
	return n, longest
}

func toStructural(schema any) (*structuralschema.Structural, error) {
	data, err := json.Marshal(schema)
	if err != nil {
		return nil, err
	}
	var v1 apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(data, &v1); err != nil {
		return nil, err
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&v1, &internal, nil); err != nil {
		return nil, err
	}
	return structuralschema.NewStructural(&internal)
}

// A ruleCompiler finds the rules that don't compile.
type ruleCompiler struct{ issues []issue }

func (c *ruleCompiler) node(s *structuralschema.Structural, isRoot bool, path []string) {
	if len(s.XValidations) > 0 {
		c.compile(s, model.SchemaDeclType(s, isRoot), path)
	}
	if s.Items != nil {
		c.node(s.Items, s.Items.XEmbeddedResource, append(slices.Clone(path), "items"))
	}
	for name, p := range s.Properties {
		c.node(&p, p.XEmbeddedResource, append(slices.Clone(path), "properties", name))
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
		inner := s.AdditionalProperties.Structural
		c.node(inner, inner.XEmbeddedResource, append(slices.Clone(path), "additionalProperties"))
	}
}

func (c *ruleCompiler) compile(s *structuralschema.Structural, declared *apicel.DeclType, path []string) {
	env := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	results, err := cel.Compile(s, declared, celconfig.PerCallLimit, env, cel.StoredExpressionsEnvLoader())
	if err != nil {
		c.issues = append(c.issues, issue{append(slices.Clone(path), rulesKey), fmt.Sprintf("can't be compiled: %s", err)})
		return
	}
	for i, result := range results {
		if result.Error != nil {
			at := append(slices.Clone(path), rulesKey, strconv.Itoa(i), "rule")
			c.issues = append(c.issues, issue{at, "can't be compiled: " + result.Error.Detail})
		}
	}
}

// check adds the errors that the rules find in a resource. budget is the
// remaining cost that rules may have; check reduces it.
func (r *rules) check(ctx context.Context, f *findings, resource krm.Resource, budget *int64) {
	if *budget <= 0 {
		f.add("", "was not checked against the rules of its CRD: the rules of this package exceed the cost limit; make the package smaller")
		return
	}
	object := map[string]any(resource.Clone())
	defaulting.PruneNonNullableNullsWithoutDefaults(object, r.schema)
	defaulting.Default(object, r.schema)
	limit := min(*budget, celconfig.RuntimeCELCostBudget)
	wrong, left := r.validator.Validate(ctx, nil, r.schema, object, nil, limit)
	*budget -= limit - max(left, 0)
	for _, e := range wrong {
		path := e.Field
		if path == "<nil>" {
			path = ""
		}
		reason := e.Detail
		if reason == "" {
			reason = e.Type.String()
		}
		f.add(path, "%s", reason)
	}
}

package kubernetes

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
)

// The limits of an expression of health.
const (
	maxExpression     = 4096    // code points
	maxExpressionCost = 100_000 // units of CEL
)

// healthRules are the compiled rules of a Cluster resource for the health of kinds that
// kstatus doesn't know enough of. nil has none.
type healthRules map[schema.GroupKind]healthRule

type healthRule struct{ current, failed cel.Program } // failed may be nil

// compileHealth compiles the rules. Errors are ErrInvalid, and name the field.
func compileHealth(rules []trigger.HealthRule) (healthRules, error) {
	if len(rules) == 0 {
		return nil, nil
	}
	env, err := cel.NewEnv(
		cel.Variable("object", cel.DynType), cel.Variable("metadata", cel.DynType), cel.Variable("spec", cel.DynType), cel.Variable("status", cel.DynType),
		cel.OptionalTypes(), cel.ParserExpressionSizeLimit(maxExpression), cel.CrossTypeNumericComparisons(true), ext.Strings(),
	)
	if err != nil {
		return nil, fmt.Errorf("make the environment of health expressions: %w", err)
	}
	compiled := healthRules{}
	for i, rule := range rules {
		var to healthRule
		for _, part := range []struct {
			name, text string
			to         *cel.Program
		}{{"current", rule.Current, &to.current}, {"failed", rule.Failed, &to.failed}} {
			if part.text == "" {
				continue
			}
			ast, issues := env.Compile(part.text)
			if err := issues.Err(); err != nil {
				return nil, tko.Errorf(tko.ErrInvalid, "spec.health[%d].%s: %s", i, part.name, bounded(err.Error()))
			}
			if out := ast.OutputType(); out != cel.BoolType && out != cel.DynType {
				return nil, tko.Errorf(tko.ErrInvalid, "spec.health[%d].%s: the expression is a %s: write one that is true or false", i, part.name, out)
			}
			if *part.to, err = env.Program(ast, cel.CostLimit(maxExpressionCost)); err != nil {
				return nil, tko.Errorf(tko.ErrInvalid, "spec.health[%d].%s: %s", i, part.name, bounded(err.Error()))
			}
		}
		compiled[schema.GroupKind{Group: rule.Group, Kind: rule.Kind}] = to
	}
	return compiled, nil
}

// evaluate returns the health of an object that exists.
func (rule healthRule) evaluate(r *unstructured.Unstructured) (health, string) {
	observed, ok, _ := unstructured.NestedInt64(r.Object, "status", "observedGeneration")
	if generation := r.GetGeneration(); ok && observed != generation {
		return inProgress, fmt.Sprintf("its controller has not yet seen generation %d", generation)
	}
	facts := map[string]any{"object": r.Object}
	for _, name := range []string{"metadata", "spec", "status"} {
		facts[name] = map[string]any{}
		if value, ok := r.Object[name]; ok {
			facts[name] = value
		}
	}
	if rule.failed != nil {
		// What the expression can't read is not there yet.
		if failed, err := isTrue(rule.failed, facts); err == nil && failed {
			return failing, "has failed, by the expression of its kind's health"
		}
	}
	switch current, err := isTrue(rule.current, facts); {
	case err != nil:
		return inProgress, "is not healthy yet: " + bounded(err.Error())
	case !current:
		return inProgress, "is not healthy yet, by the expression of its kind's health"
	}
	return healthy, ""
}

func isTrue(p cel.Program, facts map[string]any) (bool, error) {
	value, _, err := p.Eval(facts)
	if err != nil {
		return false, err
	}
	result, ok := value.Value().(bool)
	if !ok {
		return false, fmt.Errorf("the expression of its kind's health is a %s, and not true or false", value.Type())
	}
	return result, nil
}

package inventory

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A record is one element of an inventory, as JSON: maps, lists, strings, int64,
// float64, bool and nil.
type record map[string]any

const (
	maxCost       = 1_000_000 // of an expression's evaluation, in CEL's units
	maxExpression = 10_000    // characters
	maxPackage    = 1 << 20   // bytes of the package of a record
	checkEvery    = 1000      // iterations, between checks of the context
)

// A mapper maps records to sites.
type mapper struct {
	when, id, template, pkg cel.Program // nil if not set
	metadata                map[string]cel.Program
	keys                    []string // of metadata, sorted
}

// newMapper compiles the expressions. The error is an ErrInvalid that names the
// expression.
func newMapper(m Mapping) (*mapper, error) {
	env, err := cel.NewEnv(
		cel.Variable("record", cel.DynType), cel.OptionalTypes(), cel.ParserExpressionSizeLimit(maxExpression),
		cel.CrossTypeNumericComparisons(true), ext.Strings(), ext.Lists(), ext.Math(), ext.Sets(),
	)
	if err != nil {
		return nil, err
	}
	if m.ID == "" {
		return nil, tko.Errorf(tko.ErrInvalid, "map.id is missing: it is an expression such as record.name")
	}
	result := &mapper{metadata: map[string]cel.Program{}, keys: slices.Sorted(maps.Keys(m.Metadata))}
	for field, e := range map[string]struct {
		text string
		to   *cel.Program
	}{"when": {m.When, &result.when}, "id": {m.ID, &result.id}, "template": {m.Template, &result.template}, "package": {m.Package, &result.pkg}} {
		if e.text == "" {
			continue
		}
		if *e.to, err = compile(env, e.text); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "map.%s: %w", field, err)
		}
	}
	for _, key := range result.keys {
		if result.metadata[key], err = compile(env, m.Metadata[key]); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "map.metadata.%s: %w", key, err)
		}
	}
	return result, nil
}

func compile(env *cel.Env, text string) (cel.Program, error) {
	ast, issues := env.Compile(text)
	if err := issues.Err(); err != nil {
		return nil, err
	}
	return env.Program(ast, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(checkEvery))
}

// A Site is what a record becomes.
type Site struct {
	ID       string
	Template string
	Metadata map[string]string
	Package  krm.Package
	// Origins names the origin of each part: "template", "package", and the keys of
	// Metadata after "metadata.".
	Origins map[string]string
	at      string // names the record in messages
}

// site maps a record; ok is false if the mapping leaves it out.
func (m *mapper) site(ctx context.Context, r record) (s Site, ok bool, err error) {
	vars := map[string]any{"record": map[string]any(r)}
	if m.when != nil {
		v, err := eval(ctx, "when", m.when, vars)
		if err != nil {
			return s, false, err
		}
		wanted, isBool := v.Value().(bool)
		if !isBool {
			return s, false, tko.Errorf(tko.ErrInvalid, "map.when is a %s: make it a condition, true or false", v.Type().TypeName())
		}
		if !wanted {
			return s, false, nil
		}
	}
	if s.ID, err = evalText(ctx, "id", m.id, vars); err != nil {
		return s, false, err
	}
	if err := tko.CheckID("site ID", s.ID); err != nil {
		return s, false, tko.Errorf(tko.ErrInvalid, "map.id: %w", err)
	}
	if s.Template, err = evalText(ctx, "template", m.template, vars); err != nil {
		return s, false, err
	}
	if s.Template != "" {
		if err := tko.CheckID("template ID", s.Template); err != nil {
			return s, false, tko.Errorf(tko.ErrInvalid, "map.template: %w", err)
		}
	}
	s.Metadata = map[string]string{}
	for _, key := range m.keys {
		text, err := evalText(ctx, "metadata."+key, m.metadata[key], vars)
		if err != nil {
			return s, false, err
		}
		if text != "" {
			s.Metadata[key] = text
		}
	}
	s.Package, err = m.packageOf(ctx, vars)
	return s, true, err
}

func eval(ctx context.Context, field string, p cel.Program, vars map[string]any) (ref.Val, error) {
	v, _, err := p.ContextEval(ctx, vars)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, tko.Errorf(tko.ErrInvalid, "map.%s: %w", field, err)
	}
	if o, ok := v.(*types.Optional); ok {
		if !o.HasValue() {
			return types.NullValue, nil
		}
		v = o.GetValue()
	}
	return v, nil
}

// evalText evaluates an expression to a text. Numbers and booleans are written as
// text, null and a missing expression as "".
func evalText(ctx context.Context, field string, p cel.Program, vars map[string]any) (string, error) {
	if p == nil {
		return "", nil
	}
	v, err := eval(ctx, field, p, vars)
	if err != nil {
		return "", err
	}
	switch v := v.(type) {
	case types.Null:
		return "", nil
	case types.String, types.Int, types.Uint, types.Double, types.Bool:
		text, ok := v.ConvertToType(types.StringType).Value().(string)
		if ok {
			return strings.TrimSpace(text), nil
		}
	}
	return "", tko.Errorf(tko.ErrInvalid, "map.%s is a %s: make it a text, such as string(…)", field, v.Type().TypeName())
}

func (m *mapper) packageOf(ctx context.Context, vars map[string]any) (krm.Package, error) {
	if m.pkg == nil {
		return nil, nil
	}
	v, err := eval(ctx, "package", m.pkg, vars)
	if err != nil {
		return nil, err
	}
	if v == types.NullValue {
		return nil, nil
	}
	native, err := v.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "map.package: %w", err)
	}
	value, ok := native.(*structpb.Value)
	if !ok || value.GetListValue() == nil {
		return nil, tko.Errorf(tko.ErrInvalid, "map.package is a %s: make it a list of resources", v.Type().TypeName())
	}
	var all krm.Package
	for i, item := range value.GetListValue().GetValues() {
		data, err := json.Marshal(item.AsInterface())
		if err != nil {
			return nil, fmt.Errorf("map.package: %w", err)
		}
		if len(data) > maxPackage {
			return nil, tko.Errorf(tko.ErrInvalid, "map.package: resource %d has %d bytes: use at most %d", i, len(data), maxPackage)
		}
		one, err := krm.Decode(krm.YAML, data, krm.Limits{}) // YAML includes JSON
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "map.package: resource %d: %w", i, err)
		}
		all = append(all, one...)
	}
	return all, nil
}

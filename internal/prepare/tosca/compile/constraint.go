package compile

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/tliron/puccini/normal"
)

// check returns an error for the first constraint of its definition that a value
// violates.
func (r *reader) check(in scope, value any, meta *normal.ValueMeta, depth int) error {
	if meta == nil || value == nil {
		return nil
	}
	if depth > maxDepth {
		return fmt.Errorf("it is nested more than %d deep", maxDepth)
	}
	if err := r.meets(in, value, meta.Validators, depth); err != nil {
		return err
	}
	switch v := value.(type) {
	case []any:
		for i := range v {
			if err := r.check(in, v[i], meta.Element, depth+1); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
	case map[string]any:
		for key, entry := range v {
			if err := r.check(in, key, meta.Key, depth+1); err != nil {
				return fmt.Errorf("key %q: %w", shorten(key), err)
			}
			if err := firstError(r.check(in, entry, meta.Value, depth+1), r.check(in, entry, meta.Fields[key], depth+1)); err != nil {
				return fmt.Errorf("%s: %w", shorten(key), err)
			}
		}
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// meets returns an error for the first of constraints that a value violates.
func (r *reader) meets(in scope, value any, constraints normal.FunctionCalls, depth int) error {
	for _, c := range constraints {
		name := functionOf(c.FunctionCall.Name)
		args, err := r.arguments(in, c.FunctionCall.Arguments, depth)
		if err != nil {
			return fmt.Errorf("its constraint %s: %w", name, err)
		}
		ok, err := meetsOne(name, value, args)
		if err != nil {
			return fmt.Errorf("its constraint %s can't be checked: %w", name, err)
		}
		if !ok {
			return fmt.Errorf("%s violates its constraint: %s %s", shorten(value), name, shorten(args))
		}
	}
	return nil
}

func meetsOne(name string, value any, args []any) (bool, error) {
	switch name {
	case "valid_values":
		for _, a := range args {
			if same(value, a) {
				return true, nil
			}
		}
		return false, nil
	case "in_range":
		return inRange(value, args)
	}
	if len(args) != 1 {
		return false, fmt.Errorf("it has %d arguments, and needs one", len(args))
	}
	switch name {
	case "equal":
		return same(value, args[0]), nil
	case "greater_than", "greater_or_equal", "less_than", "less_or_equal":
		order, err := compare(value, args[0])
		return map[string]bool{
			"greater_than": order > 0, "greater_or_equal": order >= 0, "less_than": order < 0, "less_or_equal": order <= 0,
		}[name], err
	case "length", "min_length", "max_length":
		length, err := lengthOf(value)
		if err != nil {
			return false, err
		}
		order, err := compare(length, args[0])
		return name == "length" && order == 0 || name == "min_length" && order >= 0 || name == "max_length" && order <= 0, err
	case "pattern":
		text, err := textOf(value)
		if err != nil {
			return false, err
		}
		pattern, err := regexp.Compile(`\A(?:` + fmt.Sprint(args[0]) + `)\z`)
		if err != nil {
			return false, fmt.Errorf("write the pattern in the syntax of RE2: %w", err)
		}
		return pattern.MatchString(text), nil
	default:
		return false, errors.New("it isn't known here: use those of TOSCA 1.3 but schema")
	}
}

func inRange(value any, args []any) (bool, error) {
	if len(args) != 2 {
		return false, fmt.Errorf("it has %d arguments, and needs two", len(args))
	}
	lower, upper := value, value
	if s, ok := value.(special); ok && s.parts != nil {
		lower, upper = s.parts[0], s.parts[1]
	}
	if order, err := compare(lower, args[0]); err != nil || order < 0 {
		return false, err
	}
	if args[1] == "UNBOUNDED" {
		return true, nil
	}
	if upper == "UNBOUNDED" {
		return false, nil
	}
	order, err := compare(upper, args[1])
	return order <= 0, err
}

// same reports whether two values are equal. Numbers of different types are equal if
// their values are.
func same(a, b any) bool {
	if order, err := compare(a, b); err == nil {
		return order == 0
	}
	return reflect.DeepEqual(plain(a), plain(b))
}

// compare orders numbers, texts, and specials by their number or text.
func compare(a, b any) (int, error) {
	x, y := orderOf(a), orderOf(b)
	switch x := x.(type) {
	case float64:
		if y, ok := y.(float64); ok {
			switch {
			case x < y:
				return -1, nil
			case x > y:
				return 1, nil
			}
			return 0, nil
		}
	case string:
		if y, ok := y.(string); ok {
			return strings.Compare(x, y), nil
		}
	}
	return 0, fmt.Errorf("%s and %s can't be compared", shorten(a), shorten(b))
}

func orderOf(v any) any {
	if s, ok := v.(special); ok {
		return s.order
	}
	switch value := reflect.ValueOf(v); {
	case value.CanInt():
		return float64(value.Int())
	case value.CanUint():
		return float64(value.Uint())
	case value.CanFloat():
		return value.Float()
	}
	return v
}

func lengthOf(v any) (int, error) {
	switch v := v.(type) {
	case string:
		return utf8.RuneCountInString(v), nil
	case []any:
		return len(v), nil
	case map[string]any:
		return len(v), nil
	}
	return 0, fmt.Errorf("%s has no length", shorten(v))
}

package krmfn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	starlarkjson "go.starlark.net/lib/json"
	starlarkmath "go.starlark.net/lib/math"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"

	"github.com/tko-orchestrator/tko"
)

var starlarkOptions = &syntax.FileOptions{Set: true, While: true, TopLevelControl: true, GlobalReassign: true, Recursion: true}

// starlarkRun runs a program that changes ctx.resource_list, as the function
// of the public catalog does.
func starlarkRun(ctx context.Context, l list) (list, error) {
	source := l.config.Text("data", "source")
	if l.config.Text("kind") == "StarlarkRun" {
		source = l.config.Text("source")
	}
	if source == "" {
		return list{}, tko.Errorf(tko.ErrInvalid, "its source is missing: give it as the property source=PATH, or as a config of kind StarlarkRun with %s=PATH", tko.FunctionConfig)
	}
	items := make([]any, len(l.items))
	for i, r := range l.items {
		items[i] = map[string]any(r)
	}
	document := map[string]any{"apiVersion": listVersion, "kind": listKind, "items": items, "functionConfig": map[string]any(l.config)}
	resources, err := toStarlark(document)
	if err != nil {
		return list{}, err
	}
	predeclared := starlark.StringDict{
		"ctx":    starlarkstruct.FromStringDict(starlark.String("ctx"), starlark.StringDict{"resource_list": resources}),
		"json":   starlarkjson.Module,
		"math":   starlarkmath.Module,
		"struct": starlark.NewBuiltin("struct", starlarkstruct.Make),
	}
	thread := &starlark.Thread{Name: "function", Print: func(_ *starlark.Thread, line string) { fmt.Fprintln(os.Stderr, line) }}
	stop := context.AfterFunc(ctx, func() { thread.Cancel(context.Cause(ctx).Error()) })
	defer stop()
	if _, err := starlark.ExecFileOptions(starlarkOptions, thread, "source", source, predeclared); err != nil {
		return list{}, starlarkError(err)
	}
	value, err := fromStarlark(resources, 0)
	if err != nil {
		return list{}, err
	}
	changed, ok := value.(map[string]any)
	if !ok {
		return list{}, errors.New("ctx.resource_list is no dict any more")
	}
	if l.items, err = decodeItems(changed["items"], 0); err != nil {
		return list{}, fmt.Errorf("ctx.resource_list: %w", err)
	}
	l.raw = changed["results"]
	return l, nil
}

// starlarkError says what went wrong and where.
func starlarkError(err error) error {
	if e, ok := errors.AsType[*starlark.EvalError](err); ok {
		position := ""
		if len(e.CallStack) > 0 {
			for _, frame := range slices.Backward(e.CallStack) {
				if frame.Pos.Filename() == "source" {
					position = frame.Pos.String() + ": "
					break
				}
			}
		}
		return tko.Errorf(tko.ErrInvalid, "%s%s", position, short(e.Msg))
	}
	return tko.Errorf(tko.ErrInvalid, "%s", short(err.Error()))
}

func toStarlark(value any) (starlark.Value, error) {
	switch value := value.(type) {
	case nil:
		return starlark.None, nil
	case bool:
		return starlark.Bool(value), nil
	case int64:
		return starlark.MakeInt64(value), nil
	case float64:
		return starlark.Float(value), nil
	case string:
		return starlark.String(value), nil
	case []any:
		items := make([]starlark.Value, len(value))
		for i, item := range value {
			var err error
			if items[i], err = toStarlark(item); err != nil {
				return nil, err
			}
		}
		return starlark.NewList(items), nil
	case map[string]any:
		d := starlark.NewDict(len(value))
		for _, key := range slices.Sorted(maps.Keys(value)) {
			item, err := toStarlark(value[key])
			if err != nil {
				return nil, err
			}
			if err := d.SetKey(starlark.String(key), item); err != nil {
				return nil, err
			}
		}
		return d, nil
	default:
		return nil, fmt.Errorf("a value is a %T", value)
	}
}

const maxNesting = 200

func fromStarlark(value starlark.Value, depth int) (any, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("ctx.resource_list is nested deeper than %d levels", maxNesting)
	}
	switch value := value.(type) {
	case starlark.NoneType:
		return nil, nil
	case starlark.Bool:
		return bool(value), nil
	case starlark.Int:
		i, ok := value.Int64()
		if !ok {
			return nil, fmt.Errorf("the number %s does not fit 64 bits", short(value.String()))
		}
		return i, nil
	case starlark.Float:
		return float64(value), nil
	case starlark.String:
		return string(value), nil
	case starlark.IterableMapping:
		m := map[string]any{}
		for _, item := range value.Items() {
			key, ok := starlark.AsString(item[0])
			if !ok {
				return nil, fmt.Errorf("a key is %s, not a string", item[0].Type())
			}
			var err error
			if m[key], err = fromStarlark(item[1], depth+1); err != nil {
				return nil, err
			}
		}
		return m, nil
	case starlark.Iterable:
		l := []any{}
		for item := range starlark.Elements(value) {
			converted, err := fromStarlark(item, depth+1)
			if err != nil {
				return nil, err
			}
			l = append(l, converted)
		}
		return l, nil
	default:
		return nil, fmt.Errorf("a value is a %s, which no resource can hold", value.Type())
	}
}

package krmfn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	starlarkjson "go.starlark.net/lib/json"
	starlarkmath "go.starlark.net/lib/math"
	starlarktime "go.starlark.net/lib/time"
	"go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

var starlarkOptions = &syntax.FileOptions{Set: true, While: true, TopLevelControl: true, GlobalReassign: true, Recursion: true}

// starlarkModules are the modules that programs can load.
var starlarkModules = map[string]starlark.StringDict{
	"json.star":  {"json": starlarkjson.Module},
	"krmfn.star": {"krmfn": krmfnModule},
	"math.star":  {"math": starlarkmath.Module},
	"time.star":  {"time": starlarktime.Module},
}

func loadModule(_ *starlark.Thread, name string) (starlark.StringDict, error) {
	module, ok := starlarkModules[name]
	if !ok {
		return nil, fmt.Errorf("module %q: not found: the built-in function has %s", name, strings.Join(slices.Sorted(maps.Keys(starlarkModules)), ", "))
	}
	return module, nil
}

// foreignModule returns a module that a program loads and that is not built in,
// or "". For a program with a syntax error it returns "".
func foreignModule(source string) string {
	file, err := starlarkOptions.Parse("source", source, 0)
	if err != nil {
		return ""
	}
	foreign := ""
	syntax.Walk(file, func(n syntax.Node) bool {
		if load, ok := n.(*syntax.LoadStmt); ok && starlarkModules[load.ModuleName()] == nil && foreign == "" {
			foreign = load.ModuleName()
		}
		return foreign == ""
	})
	return foreign
}

// starlarkSource returns the program of a config, or "".
func starlarkSource(config krm.Resource) string {
	if config.Text("kind") == "StarlarkRun" {
		return config.Text("source")
	}
	return config.Text("data", "source")
}

// krmfnModule has functions that match resources, as the module of the public
// catalog does.
var krmfnModule = &starlarkstruct.Module{
	Name: "krmfn",
	Members: starlark.StringDict{
		"match_gvk": matcher("match_gvk", func(resource starlark.Value, wanted []string) bool {
			return textAt(resource, "apiVersion") == wanted[0] && textAt(resource, "kind") == wanted[1]
		}, "apiVersion", "kind"),
		"match_name": matcher("match_name", func(resource starlark.Value, wanted []string) bool {
			return textAt(resource, "metadata", "name") == wanted[0]
		}, "name"),
		"match_namespace": matcher("match_namespace", func(resource starlark.Value, wanted []string) bool {
			return textAt(resource, "metadata", "namespace") == wanted[0]
		}, "namespace"),
		"match_gvkn": matcher("match_gvkn", func(resource starlark.Value, wanted []string) bool {
			return textAt(resource, "apiVersion") == wanted[0] && textAt(resource, "kind") == wanted[1] && textAt(resource, "metadata", "name") == wanted[2]
		}, "apiVersion", "kind", "name"),
	},
}

// matcher returns a builtin that takes a resource and strings.
func matcher(name string, match func(resource starlark.Value, wanted []string) bool, parameters ...string) *starlark.Builtin {
	return starlark.NewBuiltin(name, func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, kwargs []starlark.Tuple) (starlark.Value, error) {
		var resource starlark.Value
		wanted := make([]string, len(parameters))
		pairs := []any{"resource", &resource}
		for i, parameter := range parameters {
			pairs = append(pairs, parameter, &wanted[i])
		}
		if err := starlark.UnpackArgs(name, args, kwargs, pairs...); err != nil {
			return nil, err
		}
		return starlark.Bool(match(resource, wanted)), nil
	})
}

// textAt returns the string at a path of dicts, or "".
func textAt(value starlark.Value, path ...string) string {
	for _, key := range path {
		m, ok := value.(starlark.Mapping)
		if !ok {
			return ""
		}
		inner, found, err := m.Get(starlark.String(key))
		if err != nil || !found {
			return ""
		}
		value = inner
	}
	text, _ := starlark.AsString(value)
	return text
}

// starlarkRun runs a program that changes ctx.resource_list, as the function of
// the public catalog does.
func starlarkRun(ctx context.Context, l list) (list, error) {
	source := starlarkSource(l.config)
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
	thread := &starlark.Thread{Name: "function", Load: loadModule, Print: func(_ *starlark.Thread, line string) { fmt.Fprintln(os.Stderr, line) }}
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
		return list{}, errors.New("ctx.resource_list is no longer a dict")
	}
	if l.items, err = decodeItems(changed["items"], 0); err != nil {
		return list{}, fmt.Errorf("ctx.resource_list: %w", err)
	}
	l.raw = changed["results"]
	return l, nil
}

// starlarkError returns the message of an error and its position in the
// program.
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

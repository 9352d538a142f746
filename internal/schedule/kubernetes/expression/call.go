package expression

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

var (
	decimalText = regexp.MustCompile(`^[-+]?[0-9]+$`)
	floatText   = regexp.MustCompile(`^[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$`)
)

// functions are the built-in functions that don't use the package. Each has one argument.
var functions = map[string]func(any) (any, error){
	"bool": func(value any) (any, error) { return truth(value), nil }, "len": length, "str": toString, "int": toInt, "float": toFloat,
}

// call calls a built-in function that doesn't use the package.
func call(name string, args []any) (any, error) {
	function, ok := functions[name]
	if !ok {
		return nil, fmt.Errorf("there is no function %q", name)
	}
	if len(args) != 1 {
		return nil, fmt.Errorf("%s takes 1 argument, not %d", name, len(args))
	}
	return function(args[0])
}

func length(value any) (any, error) {
	switch value := value.(type) {
	case string:
		return int64(utf8.RuneCountInString(value)), nil
	case []any:
		return int64(len(value)), nil
	case map[string]any:
		return int64(len(value)), nil
	default:
		return nil, fmt.Errorf("len can't be applied to %s", typeName(value))
	}
}

func toString(value any) (any, error) {
	switch value := value.(type) {
	case nil:
		return "None", nil
	case bool:
		if value {
			return "True", nil
		}
		return "False", nil
	case int64:
		return strconv.FormatInt(value, 10), nil
	case float64:
		return formatFloat(value), nil
	case string:
		return value, nil
	default:
		return nil, fmt.Errorf("str can't be applied to %s", typeName(value))
	}
}

func toInt(value any) (any, error) {
	switch value := value.(type) {
	case bool:
		if value {
			return int64(1), nil
		}
		return int64(0), nil
	case int64:
		return value, nil
	case float64:
		if math.Abs(value) >= 1<<63 && value != -(1<<63) {
			return nil, errInteger
		}
		return int64(value), nil
	case string:
		text := strings.Trim(value, space)
		if !decimalText.MatchString(text) || len(text) > 1000 {
			return nil, errors.New("int is applied to a string that is no integer")
		}
		i, _ := new(big.Int).SetString(text, 10)
		return integer(i)
	default:
		return nil, fmt.Errorf("int can't be applied to %s", typeName(value))
	}
}

func toFloat(value any) (any, error) {
	text, ok := value.(string)
	if !ok {
		if !isNumber(value) {
			return nil, fmt.Errorf("float can't be applied to %s", typeName(value))
		}
		return asFloat(value), nil
	}
	text = strings.Trim(text, space)
	if !floatText.MatchString(text) || len(text) > 1000 {
		return nil, errors.New("float is applied to a string that is no number")
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, errNumber
	}
	return f, nil
}

// methods are the string methods whose arguments are strings.
var methods = map[string]struct {
	least, most int // numbers of arguments
	call        func(s string, args []string) (any, error)
}{
	"upper":        {0, 0, func(s string, _ []string) (any, error) { return mapASCII(s, 'a', 'z', -32), nil }},
	"lower":        {0, 0, func(s string, _ []string) (any, error) { return mapASCII(s, 'A', 'Z', 32), nil }},
	"strip":        {0, 1, func(s string, args []string) (any, error) { return strings.Trim(s, first(args, space)), nil }},
	"lstrip":       {0, 1, func(s string, args []string) (any, error) { return strings.TrimLeft(s, first(args, space)), nil }},
	"rstrip":       {0, 1, func(s string, args []string) (any, error) { return strings.TrimRight(s, first(args, space)), nil }},
	"split":        {0, 1, split},
	"replace":      {2, 2, replace},
	"startswith":   {1, 1, func(s string, args []string) (any, error) { return strings.HasPrefix(s, args[0]), nil }},
	"endswith":     {1, 1, func(s string, args []string) (any, error) { return strings.HasSuffix(s, args[0]), nil }},
	"removeprefix": {1, 1, func(s string, args []string) (any, error) { return strings.TrimPrefix(s, args[0]), nil }},
	"removesuffix": {1, 1, func(s string, args []string) (any, error) { return strings.TrimSuffix(s, args[0]), nil }},
	"find":         {1, 1, find},
	"count":        {1, 1, func(s string, args []string) (any, error) { return int64(strings.Count(s, args[0])), nil }},
}

// method calls a method of a value.
func method(of any, name string, args []any) (any, error) {
	text, allText := texts(args)
	if m, ok := of.(map[string]any); ok {
		switch name {
		case "get":
			return mapGet(m, args)
		case "keys":
			if len(args) > 0 {
				return nil, errors.New("the method keys takes no arguments")
			}
			return checked(anys(slices.Sorted(maps.Keys(m))))
		}
	}
	s, ok := of.(string)
	if ok && name == "join" {
		return join(s, args)
	}
	m, known := methods[name]
	if !ok || !known {
		return nil, fmt.Errorf("%s has no method %q", typeName(of), name)
	}
	if !allText || len(args) < m.least || len(args) > m.most {
		return nil, fmt.Errorf("the method %s has the wrong arguments", name)
	}
	value, err := m.call(s, text)
	if err != nil {
		return nil, err
	}
	return checked(value)
}

func mapGet(m map[string]any, args []any) (any, error) {
	if len(args) < 1 || len(args) > 2 || typeName(args[0]) != "string" {
		return nil, errors.New("the method get takes a key, and what to answer without it")
	}
	key, _ := args[0].(string)
	if value, ok := m[key]; ok {
		return value, nil
	}
	if len(args) == 2 {
		return args[1], nil
	}
	return nil, nil
}

func join(separator string, args []any) (any, error) {
	if len(args) == 1 {
		if list, ok := args[0].([]any); ok {
			if text, ok := texts(list); ok {
				size := len(separator) * max(0, len(text)-1)
				for _, s := range text {
					size += len(s)
				}
				if size > maxString {
					return nil, errString
				}
				return strings.Join(text, separator), nil
			}
		}
	}
	return nil, errors.New("the method join takes a list of strings")
}

func first(args []string, otherwise string) string {
	if len(args) > 0 {
		return args[0]
	}
	return otherwise
}

// mapASCII shifts the characters of a range. It doesn't use Unicode tables, which
// differ between versions.
func mapASCII(s string, from, to, by rune) string {
	return strings.Map(func(c rune) rune {
		if from <= c && c <= to {
			return c + by
		}
		return c
	}, s)
}

func split(s string, args []string) (any, error) {
	var parts []string
	switch {
	case len(args) == 0:
		parts = strings.FieldsFunc(s, func(c rune) bool { return strings.ContainsRune(space, c) })
	case args[0] == "":
		return nil, errors.New("split takes a separator that is not empty")
	default:
		parts = strings.Split(s, args[0])
	}
	return anys(parts), nil
}

func anys(texts []string) []any {
	items := make([]any, len(texts))
	for i, text := range texts {
		items[i] = text
	}
	return items
}

func replace(s string, args []string) (any, error) {
	if len(s)+strings.Count(s, args[0])*(len(args[1])-len(args[0])) > maxString {
		return nil, errString
	}
	return strings.ReplaceAll(s, args[0], args[1]), nil
}

func find(s string, args []string) (any, error) {
	i := strings.Index(s, args[0])
	if i < 0 {
		return int64(-1), nil
	}
	return int64(utf8.RuneCountInString(s[:i])), nil
}

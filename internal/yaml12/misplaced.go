package yaml12

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// An outer is a struct that a document is within, and its path.
type outer struct {
	path string
	of   reflect.Type
}

// Misplaced describes the first field of a JSON document that its struct doesn't have, but a
// struct around it, and where to write it; "" if there is none. into is a pointer to what the
// document is read into.
func Misplaced(data []byte, into any) string {
	var document any
	if json.Unmarshal(data, &document) != nil {
		return ""
	}
	return misplaced(document, reflect.TypeOf(into), "", nil)
}

func misplaced(value any, target reflect.Type, path string, around []outer) string {
	for target != nil && target.Kind() == reflect.Pointer {
		target = target.Elem()
	}
	switch {
	case target == nil || decodesItself(target):
		return ""
	case target.Kind() == reflect.Slice:
		items, _ := value.([]any)
		for i, item := range items {
			if found := misplaced(item, target.Elem(), path+"["+strconv.Itoa(i)+"]", around); found != "" {
				return found
			}
		}
	case target.Kind() == reflect.Struct:
		object, _ := value.(map[string]any)
		return misplacedIn(object, target, path, around)
	}
	return ""
}

func misplacedIn(object map[string]any, target reflect.Type, path string, around []outer) string {
	fields := fieldsOf(target)
	inner := append(slices.Clone(around), outer{path, target})
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if next := fields[strings.ToLower(name)]; next != nil {
			if found := misplaced(object[name], next, join(path, name), inner); found != "" {
				return found
			}
			continue
		}
		for _, o := range slices.Backward(around) {
			if fieldsOf(o.of)[strings.ToLower(name)] != nil {
				within, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, o.path), "."), ".")
				return fmt.Sprintf("unknown field %q in %s: it belongs next to %s, not in it: write it as %s", name, path, within, join(o.path, name))
			}
		}
	}
	return ""
}

// join returns the path of a field.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

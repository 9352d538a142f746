package osmtest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// mayReplace compares the descriptor's file with the stored one, as release 19 does
// for packages that instances use: it refuses most changes. It ignores what was
// merged into the record.
func (u unpacked) mayReplace(kind string, stored map[string][]byte) (response, bool) {
	data, there := stored[u.name]
	if !there {
		return response{}, true // without a stored file there is no comparison
	}
	old, err := readTree(u.name, data)
	if err != nil {
		return badRequest("Error decoding %s: %v", u.name, err), false
	}
	before, after := fixed(kind, old), fixed(kind, u.tree)
	if kind == "vnf" && softwareVersion(old) != softwareVersion(u.tree) {
		return response{}, true
	}
	var d difference
	d.compare("", before, after)
	what := map[string]string{"vnf": "VNF", "ns": "NS"}[kind]
	switch {
	case len(d.values) > 0:
		return unprocessable("Error in validating new descriptor: %s cannot be modified, there are disallowed changes in the %s descriptor.", strings.Join(d.values, " , "), strings.ToLower(what)), false
	case d.others > 0: // its own failure
		return badRequest("%s Descriptor could not be processed with error: 'NoneType' object has no attribute 'keys'.", what), false
	default:
		return response{}, true
	}
}

// softwareVersion returns that of a VNFD in the plain envelope.
func softwareVersion(tree doc) string {
	if inner := mapOf(tree["vnfd"]); len(inner) > 0 {
		tree = inner
	}
	if v := tree["software-version"]; v != nil && v != "" {
		return fmt.Sprint(v)
	}
	return "1.0"
}

// primitives may change at any time.
var primitives = []string{"initial-config-primitive", "config-primitive", "terminate-config-primitive"}

// fixed returns the parts of a descriptor in use that may not change.
func fixed(kind string, tree doc) any {
	tree = mapOf(copyOf(tree))
	if kind == "ns" {
		var inner any = tree
		for len(mapOf(inner)) > 0 && mapOf(inner)["nsd"] != nil {
			inner = mapOf(inner)["nsd"]
		}
		if l := listOf(inner); len(l) > 0 {
			inner = l[0]
		}
		drop(mapOf(mapOf(inner)["ns-configuration"]), primitives...)
		return inner
	}
	if inner := mapOf(tree["vnfd"]); len(inner) > 0 {
		tree = inner
	}
	for _, df := range listOf(tree["df"]) {
		drop(mapOf(df), "scaling-aspect", "healing-aspect")
		operate := mapOf(mapOf(mapOf(df)["lcm-operations-configuration"])["operate-vnf-op-config"])
		for _, config := range listOf(operate["day1-2"]) {
			drop(mapOf(config), primitives...)
		}
	}
	for _, vdu := range listOf(tree["vdu"]) {
		drop(mapOf(vdu), "alarm", "monitoring-parameter")
	}
	return tree
}

func drop(d doc, names ...string) {
	for _, name := range names {
		delete(d, name)
	}
}

// A difference has the differences of two trees.
type difference struct {
	values []string // paths of values that changed
	others int      // elements that were added or removed, or changed their type
}

func (d *difference) compare(at string, before, after any) {
	switch b := before.(type) {
	case doc:
		a, ok := after.(doc)
		if !ok {
			d.others++
			return
		}
		for _, name := range slices.Sorted(maps.Keys(b)) {
			if next, there := a[name]; there {
				d.compare(at+"['"+name+"']", b[name], next)
			} else {
				d.others++
			}
		}
		for name := range a {
			if _, was := b[name]; !was {
				d.others++
			}
		}
	case []any:
		a, ok := after.([]any)
		if !ok {
			d.others++
			return
		}
		for i := range min(len(a), len(b)) {
			d.compare(fmt.Sprintf("%s[%d]", at, i), b[i], a[i])
		}
		if len(a) != len(b) {
			d.others++
		}
	default:
		switch {
		case reflect.DeepEqual(before, after):
		case before == nil || after == nil || reflect.TypeOf(before) != reflect.TypeOf(after):
			d.others++
		default:
			d.values = append(d.values, at)
		}
	}
}

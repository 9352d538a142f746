package relational

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Texts that databases can't store are refused in every filter of a list.
func TestTextsThatCantBeStoredAreRefusedInQueries(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"a\x00b", "a\xffb"} {
		pattern, err := tko.ParsePattern(strings.ToValidUTF8(bad, "\x00")) // others are no patterns
		if err != nil {
			t.Fatal(err)
		}
		list, byKey, inValue := []tko.Pattern{pattern}, map[string]tko.Pattern{bad: {}}, map[string]tko.Pattern{"k": pattern}
		for name, q := range map[string]record.Query{
			"kind": {Kind: tko.Kind(bad)}, "parent": {Parent: bad}, "after": {After: bad}, "origin": {Origin: bad},
			"ids": {IDs: list}, "templates": {Templates: list}, "sites": {Sites: list},
			"metadata": {Metadata: byKey}, "template metadata": {TemplateMetadata: byKey}, "site metadata": {SiteMetadata: byKey}, "labels": {Labels: byKey},
			"metadata values": {Metadata: inValue}, "template metadata values": {TemplateMetadata: inValue}, "site metadata values": {SiteMetadata: inValue}, "label values": {Labels: inValue},
		} {
			if err := checkQuery(&q); !errors.Is(err, tko.ErrInvalid) {
				t.Errorf("%s %q: %v, want an ErrInvalid", name, bad, err)
			}
		}
	}
	if err := checkQuery(&record.Query{Parent: "é", After: "a\nb"}); err != nil {
		t.Error(err)
	}
}

// Queries that may select different records have different keys, whatever field they
// differ in: the marks of one would lead a list of the other astray.
func TestEachFilterOfQueryIsInItsKey(t *testing.T) {
	t.Parallel()
	pattern, err := tko.ParsePattern("a*")
	if err != nil {
		t.Fatal(err)
	}
	yes, no := true, false
	values := map[string][]any{
		"Kind": {tko.KindSite, tko.KindTemplate}, "IDs": {[]tko.Pattern{pattern}}, "Templates": {[]tko.Pattern{pattern}}, "Sites": {[]tko.Pattern{pattern}},
		"Metadata": {map[string]tko.Pattern{"k": pattern}, map[string]tko.Pattern{"k2": pattern}}, "Labels": {map[string]tko.Pattern{"k": pattern}}, "Origin": {"a"},
		"TemplateMetadata": {map[string]tko.Pattern{"k": pattern}}, "SiteMetadata": {map[string]tko.Pattern{"k": pattern}}, "Parent": {"a"},
		"Is":    {map[string]bool{"prepared": true}, map[string]bool{"prepared": false}, map[string]bool{"approved": true}},
		"Since": {map[string]time.Time{"updated": time.UnixMicro(1)}, map[string]time.Time{"updated": time.UnixMicro(2)}}, "Outdated": {&yes, &no}, "CRDs": {true},
	}
	// Marks are of no use with conditions or After; a past state has its own lists; the
	// others don't select. Scopes have keys of their own.
	others := []string{"Scope", "Conditions", "AsOf", "After", "Offset", "Limit", "Fields"}
	keys := map[string]string{queryKey(&record.Query{}): "nothing"}
	for i := range reflect.TypeFor[record.Query]().NumField() {
		field := reflect.TypeFor[record.Query]().Field(i).Name
		if values[field] == nil && !slices.Contains(others, field) {
			t.Errorf("%s is new: decide whether it selects records", field)
		}
		for _, value := range values[field] {
			var q record.Query
			reflect.ValueOf(&q).Elem().Field(i).Set(reflect.ValueOf(value))
			key, name := queryKey(&q), fmt.Sprintf("%s %v", field, value)
			if other, ok := keys[key]; ok {
				t.Errorf("%s has the key of %s: %s", name, other, key)
			}
			keys[key] = name
			if again := queryKey(&q); again != key {
				t.Errorf("%s has two keys", name)
			}
			q.Scope = access.ScopeAll // without it nothing is selected
			if selectsAll(&q) != (field == "Kind") {
				t.Errorf("%s: selects all records of its kind: %t", name, selectsAll(&q))
			}
		}
	}
}

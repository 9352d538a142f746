package wire

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
)

// fill sets each part of a value to one of its own.
func fill(v reflect.Value, n *int) {
	*n++
	switch own := v.Addr().Interface().(type) {
	case *time.Time:
		*own = moment.Add(time.Duration(*n) * time.Second)
		return
	case *time.Duration:
		*own = time.Duration(*n) * time.Second
		return
	case *tko.Stamp:
		*own = stamp1
		return
	case *[]tko.Condition:
		*own = stamp1.Conditions
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint8:
		v.SetUint(uint64(*n % 256))
	case reflect.Float64:
		v.SetFloat(float64(*n) / 8)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), n)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(key, n)
			fill(value, n)
			v.SetMapIndex(key, value)
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field, n)
		}
	default:
		panic("there is no value of a " + v.Type().String())
	}
}

// Every field of each Pair is read as it was written.
func TestPairsKeepEveryField(t *testing.T) {
	if len(differing) < 20 {
		t.Fatalf("there are %d pairs", len(differing))
	}
	for types := range differing {
		t.Run(types.value.Name(), func(t *testing.T) {
			value := reflect.New(types.value)
			n := 0
			fill(value.Elem(), &n)
			switch own := value.Interface().(type) { // what messages don't have
			case *tko.HistoryEntry:
				own.Op = ""
			case *tko.SourceDefinition:
				own.By.Why = ""
			case *tko.Subscription:
				own.By.Why = ""
			case *tko.View:
				own.By.Why = ""
			case *tko.Freeze:
				own.By.Why = ""
			case *tko.Stop:
				own.By.Why = ""
			case *tko.StopStatus:
				own.Stop.By.Why = ""
			}
			fields := pairFields(types)
			message := reflect.New(types.message)
			writeFields(fields, value.Elem(), message.Elem())
			m, ok := reflect.TypeAssert[proto.Message](message)
			if !ok {
				t.Fatalf("%s is not a message", types.message)
			}
			got := reflect.New(types.value)
			readFields(fields, reflect.ValueOf(sent(t, m)).Elem(), got.Elem())
			if diff := cmp.Diff(value.Interface(), got.Interface()); diff != "" {
				t.Errorf("(-written +read):\n%s", diff)
			}
			again := reflect.New(types.value)
			readFields(fields, reflect.New(types.message).Elem(), again.Elem())
			writeFields(fields, again.Elem(), message.Elem()) // an empty message is no fault
		})
	}
}

// Fields whose names differ have the counterparts that the protocol describes.
func TestPairsConnectTheFieldsOfTheProtocol(t *testing.T) {
	author := tko.Author{Who: "who", Why: "why"}
	three := 3
	for want, m := range map[string]proto.Message{
		`{"rolloutId":"id", "command":"verb", "plan":"p", "deploymentId":"d", "wave":"w"}`:                                                                       RolloutCommand.Write(tko.RolloutCommand{ID: "id", Verb: "verb", Plan: "p", Deployment: "d", Wave: "w"}),
		`{"rolloutId":"id", "deploymentId":"d", "siteIdPattern":"s", "after":"a", "maxCount":"7", "group":3}`:                                                    RolloutRows.Write(tko.RolloutRows{ID: "id", Deployment: "d", Site: "s", After: "a", Limit: 7, Group: &three}),
		`{"name":"n", "called":true, "approved":"a", "status":{"url":"u", "attemptedRevision":"tried", "appliedRevision":"done", "asks":"removal"}, "reach":{}}`: Source.Write(tko.Source{Name: "n", Enqueued: true, Approved: "a", Status: tko.SourceStatus{URL: "u", Attempted: "tried", Applied: "done", PendingRemoval: "removal"}}),
		`{"name":"n", "registeredBy":"who", "declaredBy":"parent", "ending":{"confirmed":"3"}}`:                                                                  SourceDefinition.Write(tko.SourceDefinition{Name: "n", By: author, Parent: "parent", Ending: &tko.SourceEnding{Confirmed: 3}}),
		`{"id":"id", "idPatterns":["i"], "metadataPatterns":{"m":"1"}, "templateIdPatterns":["t"], "templateMetadataPatterns":{"t":"2"}, "siteIdPatterns":["s"], "siteMetadataPatterns":{"s":"3"}, "parentDeploymentId":"p"}`: PastSelect.Write(tko.PastSelect{
			ID: "id", IDs: []string{"i"}, Metadata: map[string]string{"m": "1"}, Templates: []string{"t"}, TemplateMetadata: map[string]string{"t": "2"}, Sites: []string{"s"}, SiteMetadata: map[string]string{"s": "3"}, Parent: "p",
		}),
		`{"id":"i", "op":"deleted", "who":"who", "why":"why", "what":"summary"}`: NewHistoryEntry(tko.HistoryEntry{Change: tko.Change{ID: "i", Op: tko.OpStatus, Author: author}, What: tko.PastDeleted, Summary: "summary"}),
		`{"op":"changed"}`: PastGroup.Write(tko.PastGroup{What: "changed"}),
		`{"subject":"s", "displayName":"d", "address":"from"}`:                                          Caller.Write(tko.Caller{Subject: "s", Display: "d", From: "from"}),
		`{"tkoVersion":"v", "defaultPackageFormat":"yaml", "reach":{}}`:                                 About.Write(tko.About{Version: "v", DefaultPackageFormat: "yaml"}),
		`{"deploymentId":"d", "who":"who", "why":"why"}`:                                                OpenModification.Write(tko.OpenModification{Deployment: "d", Author: author}),
		`{"id":"s", "topologyDeploymentId":"d", "siteIds":["a"], "stoppedBy":"who"}`:                    Stop.Write(tko.Stop{ID: "s", Topology: "d", Sites: []string{"a"}, By: author}),
		`{"id":"f", "frozenBy":"who"}`:                                                                  Freeze.Write(tko.Freeze{ID: "f", By: author}),
		`{"keepChanges":"60", "longer":[{"name":"n","keep":"3"}]}`:                                      Retention.Write(tko.Retention{KeepChanges: time.Minute, Longer: []tko.RetentionPolicy{{Name: "n", Keep: 3 * time.Second}}}),
		`{"origins":[{"who":"who", "why":"why", "templateId":"t", "rolloutId":"r", "restoredBy":"u"}]}`: NewBlame(tko.Blame{Origins: []tko.Origin{{Author: author, Template: "t", Rollout: "r", RestoredBy: "u"}}}),
		`{"rollouts":[{"rolloutId":"r"}]}`:                                                              TemplateImpact.Write(tko.TemplateImpact{Rollouts: []tko.ImpactRollout{{ID: "r"}}}),
	} {
		wanted := m.ProtoReflect().New().Interface()
		if err := protojson.Unmarshal([]byte(want), wanted); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wanted, m, protocmp.Transform()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if e, err := HistoryEntry(&tkopb.HistoryEntry{Op: tko.PastDeleted}); err != nil || e.Op != tko.OpDeleted {
		t.Errorf("a deletion: %+v, %v", e, err)
	}
	if e, err := HistoryEntry(&tkopb.HistoryEntry{Op: "created"}); err != nil || e.Op != tko.OpWritten {
		t.Errorf("a creation: %+v, %v", e, err)
	}
}

// Numbers that a type doesn't have become the nearest that it has.
func TestNumbersOfPairsAreLimited(t *testing.T) {
	const far = 1 << 40
	if row := RolloutRow.Write(tko.RolloutRow{Wave: -1, Rank: far, Group: -far}); row.GetWave() != -1 || row.GetRank() != 1<<31-1 || row.GetGroup() != -1<<31 {
		t.Errorf("a row: %v", row)
	}
	if p := RolloutPlan.Write(tko.RolloutPlan{Groups: []tko.RolloutGroup{{Count: far}}}); p.GetGroups()[0].GetCount() != far {
		t.Errorf("a plan: %v", p)
	}
}

func TestUnknownOriginsOfABlameAreOne(t *testing.T) {
	b := Blame(&tkopb.Blame{Origins: []*tkopb.Origin{{Source: "user"}}, Fields: []*tkopb.BlamedField{{Origin: 7}, {Origin: 0}, {Origin: -1}, {Origin: 1}}})
	want := tko.Blame{
		Origins: []tko.Origin{{Source: "user"}, {Source: tko.SourceUnknown}},
		Fields:  []tko.BlamedField{{Origin: 1}, {Origin: 0}, {Origin: 1}, {Origin: 1}},
	}
	if diff := cmp.Diff(want, b); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A field that messages lack is noticed at once, and not lost in silence.
func TestFieldsWithoutACounterpartAreAFault(t *testing.T) {
	type message struct{ A string }
	for name, value := range map[string]reflect.Type{
		"a field of the value":   reflect.TypeFor[struct{ A, B string }](),
		"a field of the message": reflect.TypeFor[struct{ B string }](),
		"another type":           reflect.TypeFor[struct{ A bool }](),
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s has no counterpart, and that is no fault", name)
				}
			}()
			pairFields(pairTypes{value, reflect.TypeFor[message]()})
		}()
	}
}

package entitytest

import (
	"encoding/json"
	"reflect"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// Record returns the stored record of an entity, field by field: each field of the entity and
// of its stamp needs a counterpart.
func Record[E any](e E) record.Record {
	r := record.Record{Metadata: &record.Metadata{}}
	switch own := any(e).(type) {
	case tko.Plugin:
		pluginRecord(&r, own)
		return r
	case tko.Rollout:
		r.Kind = tko.KindRollout
		e := own
		stamp := e.Stamp
		stamp.Conditions = append(stamp.Conditions, tko.Condition{Type: tko.ConditionState, Status: tko.ConditionTrue, Reason: e.State, Message: e.Reason})
		copyFields(&r, reflect.ValueOf(e))
		copyFields(&r, reflect.ValueOf(stamp))
		return r
	case tko.Template:
		r.Kind = tko.KindTemplate
	case tko.Site:
		r.Kind = tko.KindSite
	case tko.Deployment:
		r.Kind = tko.KindDeployment
	}
	copyFields(&r, reflect.ValueOf(e))
	return r
}

func pluginRecord(r *record.Record, p tko.Plugin) {
	r.Key = record.Key{Kind: tko.KindPlugin, ID: p.ID()}
	stored, err := json.Marshal(map[string]any{"executor": p.Executor, "arguments": p.Arguments, "properties": p.Properties, "triggers": triggers(p)})
	if err != nil {
		panic(err)
	}
	r.Plugin = stored
	copyFields(r, reflect.ValueOf(p.Stamp))
}

func triggers(p tko.Plugin) []map[string]string {
	var all []map[string]string
	for _, t := range p.Triggers {
		all = append(all, map[string]string{"group": t.Group, "version": t.Version, "kind": t.Kind})
	}
	return all
}

// renamed are the fields of records whose names differ from those of entities.
var renamed = map[string]string{"ID": "ID", "DeploymentCount": "Count", "TemplateRevision": "Base"}

// apart are fields of entities that aren't fields of records of their own.
var apart = map[string]func(r *record.Record, v reflect.Value){
	"Metadata": func(r *record.Record, v reflect.Value) {
		r.Metadata.Effective, _ = reflect.TypeAssert[map[string]string](v)
	},
	"Package": func(r *record.Record, v reflect.Value) {
		p, _ := reflect.TypeAssert[krm.Package](v)
		r.Digest, r.Package, _ = krm.DigestOf(p)
	},
	"AwaitedTemplate": func(r *record.Record, v reflect.Value) { awaited(r).Template = v.String() },
	"AwaitedSite":     func(r *record.Record, v reflect.Value) { awaited(r).Site = v.String() },
	"LeftOut":         func(*record.Record, reflect.Value) {}, // only servers cut rows
	"State":           func(*record.Record, reflect.Value) {}, // of rollouts: a condition
	"Reason":          func(*record.Record, reflect.Value) {},
}

func awaited(r *record.Record) *record.Awaited {
	if r.Metadata.Awaited == nil {
		r.Metadata.Awaited = &record.Awaited{}
	}
	return r.Metadata.Awaited
}

func copyFields(r *record.Record, from reflect.Value) {
	for field, v := range from.Fields() {
		if field.Name == "Stamp" {
			copyFields(r, v)
			continue
		}
		if set := apart[field.Name]; set != nil {
			set(r, v)
			continue
		}
		name := field.Name
		if renamed[name] != "" {
			name = renamed[name]
		}
		to := reflect.ValueOf(r).Elem().FieldByName(name)
		switch {
		case !to.IsValid():
			panic("records have no field " + name + ": add it there, or here")
		case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String:
			for i := range v.Len() {
				to.Set(reflect.Append(to, reflect.ValueOf(v.Index(i).String())))
			}
		default:
			to.Set(v.Convert(to.Type()))
		}
	}
}

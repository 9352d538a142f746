package webapi

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
)

// openapi responds with the description of the API below /api/v1/.
func (l *live) openapi(w http.ResponseWriter, r *http.Request) {
	q := queryOf(r)
	if q.only(); q.err != nil {
		l.fail(w, r, q.err)
		return
	}
	writeJSON(w, http.StatusOK, description())
}

type object = map[string]any

// A parameter is one of the query of a request.
type parameter struct {
	name, kind, about string
	many              bool
}

// description returns the API in OpenAPI 3.1. Filters are those of [filter.Words], so
// that the description can't differ from what is accepted.
func description() object {
	paths := object{
		"/api/v1/openapi.json": object{"get": operation("This description", nil)},
		"/api/v1/me":           object{"get": operation("The caller, and what they may do somewhere", nil)},
		"/api/v1/stream": object{"get": operation("Changes as server-sent events: open, changes, stale, reset, beat, bye", []parameter{
			{"after", "string", "position to begin after; -1: now", false}, {"newest", "integer", "begin with as many of the newest changes", false}, {"kind", "string", "only this kind", true},
		})},
		"/api/v1/actions": object{"post": object{
			"summary": "Approve or delete; with dryRun count only, else confirm must be that count",
			"requestBody": object{"required": true, "content": object{"application/json": object{"schema": object{
				"type": "object", "required": []string{"verb", "kind"}, "additionalProperties": false,
				"properties": object{
					"verb": object{"enum": []string{"approve", "delete"}}, "kind": object{"enum": kinds}, "ids": object{"type": "array", "maxItems": maxIDs, "items": object{"type": "string"}},
					"filter": object{"type": "string", "description": "filters of a list, as in its query"}, "reason": object{"type": "string", "maxLength": maxReason},
					"dryRun": object{"type": "boolean"}, "confirm": object{"type": "integer"},
				},
			}}}},
		}},
		"/api/v1/rollout/status": object{"get": operation("How far a rollout is, what its deployments wait for, and the commands that its state allows", []parameter{idOfRollout})},
		"/api/v1/rollout/plan":   object{"get": operation("The plan of a rollout, in groups of equal changes", []parameter{idOfRollout})},
		"/api/v1/rollout/rows": object{"get": operation("A page of the deployments of a plan, in the order of their IDs", []parameter{
			idOfRollout,
			{"group", "integer", "only those of a group of the plan, by its index", false},
			{"wave", "integer", "only those of a wave, by its index in the status", false},
			{"kind", "string", "only this kind: Change, Create, Delete, Same, Conflict, Invalid", true},
			{"progress", "string", "only with this progress, such as Waiting or Failed", true},
			{"site", "string", "only of sites that match this pattern", false},
			{"deployment", "string", "only this ID", false},
			{"after", "string", "ID that the page begins after", false},
			{"limit", "integer", "rows, 500 at most, with changes 20", false},
			{"changes", "boolean", "with what changes in the packages", false},
		})},
		"/api/v1/rollout/command": object{"post": object{
			"summary": "Do a command of a rollout: start names the digest of the plan that was reviewed",
			"requestBody": object{"required": true, "content": object{"application/json": object{"schema": object{
				"type": "object", "required": []string{"id", "command"}, "additionalProperties": false,
				"properties": object{
					"id": object{"type": "string"}, "command": object{"enum": []string{"plan", "start", "approve", "pause", "resume", "cancel", "undo", "skip", "waive"}},
					"plan": object{"type": "string", "description": "digest of the plan, or its first 12 characters"}, "skipBlocked": object{"type": "boolean"}, "blind": object{"type": "boolean", "description": "of start: take deployments for healthy whose sites report no health"}, "force": object{"type": "boolean"},
					"anyTime": object{"type": "boolean"}, "deployment": object{"type": "string"}, "reason": object{"type": "string", "maxLength": maxReason},
					"wave":   object{"type": "string", "description": "of approve: name of the wave; without it, the next one, unless one that was approved is in progress"},
					"metric": object{"type": "string", "description": "of waive: the metric to ignore, in place of deployments"},
				},
			}}}},
		}},
		"/api/v1/diff": object{"get": operation("What differs between two moments, in groups of equal differences", append([]parameter{
			{"kind", "string", "deployment, site, template or plugin", false},
			{"from", "string", "moment: position, time, or duration before now", false},
			{"to", "string", "moment; none: now", false},
			{"entity", "string", "only this ID", false},
		}, filtersOf(tko.KindDeployment)...))},
		"/api/v1/history": object{"get": operation("The newest changes of an entity, newest first", []parameter{
			{"kind", "string", "deployment, site, template or plugin", false}, {"id", "string", "ID; TYPE|NAME for plugins", false}, {"limit", "integer", "changes, 200 at most", false},
		})},
		"/api/v1/throughput": object{"get": operation("Changes of deployments by minute: prepared, scheduled, and others", []parameter{
			{"after", "string", "position after which to count; none: the last hour", false},
		})},
		"/api/v1/fleet": object{"get": operation("Numbers of all sites and deployments by state, if the server has them at hand and the caller may read everything; otherwise none", []parameter{
			{"asOf", "string", "moment of the past: position, time, or duration before now", false},
		})},
		"/api/v1/fleet/day": object{"get": operation("Numbers of all deployments over the last day, every five minutes, as far as this server has taken them and the caller may read everything; otherwise none", nil)},
		"/api/v1/wall": object{"get": operation("A picture of all sites: a tile for each in its worst state, in groups; with If-None-Match, 304 if it is the same", []parameter{
			{"by", "string", "key of metadata that groups the sites; none: one that most sites have", false},
			{"tiles", "boolean", "false: the numbers of groups only, without IDs and tiles", false},
			{"places", "boolean", "with the places of sites, from their metadata latitude and longitude", false},
			{"asOf", "string", "moment of the past: position, time, or duration before now", false},
		})},
		"/api/v1/runs": object{"get": operation("The newest runs of plugins in this server's process, newest first", []parameter{
			{"kind", "string", "deployment, site or plugin", false}, {"id", "string", "ID; TYPE|NAME for plugins", false},
		})},
		"/api/v1/views": object{
			"get": operation("The views that are saved for all, and whether the caller may save some", nil),
			"post": object{
				"summary": "Save a view for all, or delete one: the response has all views that there are then",
				"requestBody": object{"required": true, "content": object{"application/json": object{"schema": object{
					"type": "object", "required": []string{"name"}, "additionalProperties": false,
					"properties": object{
						"name": object{"type": "string"}, "address": object{"type": "string", "description": "path and query of a page of the dashboard"},
						"description": object{"type": "string"}, "delete": object{"type": "boolean"},
					},
				}}}},
			},
		},
		"/api/v1/retention": object{"get": operation("Which part of the past can be read, and the time that asOf means", []parameter{
			{"asOf", "string", "moment of the past: position, time, or duration before now", false},
		})},
		"/api/v1/blame": object{"get": operation("Where the values of a package come from", []parameter{
			{"kind", "string", "deployment, site or template", false},
			{"id", "string", "ID", false},
			{"revision", "integer", "earlier revision", false},
			{"field", "string", "only this resource or field", false},
			{"history", "boolean", "all values that the field has had", false},
		})},
	}
	for _, kind := range kinds {
		filters := filtersOf(kind)
		state := parameter{"state", "string", "only entities in this state", false}
		within := parameter{"within", "string", "NAME=VALUE: only entities of this group of a count by NAME; VALUE may be empty", true}
		after := parameter{"after", "string", "ID that the page begins after", false}
		asOf := parameter{"asOf", "string", "moment of the past: position, time, or duration before now", false}
		path := "/api/v1/" + string(kind)
		paths[path] = object{"get": operation("One "+string(kind)+" with its package", []parameter{{"id", "string", "ID; TYPE|NAME for plugins", false}, {"revision", "integer", "earlier revision", false}, asOf})}
		paths[path+"/list"] = object{"get": operation("A page of "+string(kind)+"s in the order of their IDs",
			append([]parameter{after, asOf, state, within, {"reason", "string", "only entities whose state has this reason", false}, {"limit", "integer", "rows, 500 at most", false}}, filters...))}
		paths[path+"/count"] = object{"get": operation("Numbers of "+string(kind)+"s in groups",
			append([]parameter{after, asOf, state, within, {"by", "string", "one or two of " + filter.Groupings(kind) + ", separated by a comma", false}, {"whole", "boolean", "count all in the background", false}}, filters...))}
	}
	components := addResponses(paths)
	return object{
		"openapi": "3.1.0",
		"info":    object{"title": "TKO", "version": "v1", "description": "Pages of lists, counts, single entities, changes and actions. Values of Secrets are never in responses."},
		"paths":   paths, "security": []object{{"token": []string{}}, {}},
		"components": object{"schemas": components, "securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}}},
	}
}

// addResponses adds the responses and the names of all operations to the paths, and returns
// the schemas that they refer to.
func addResponses(paths object) schemas {
	all := schemas{}
	failure := object{"description": "an error, with its reason and remedy", "content": content("application/json", all.of(reflect.TypeFor[errorBody]()))}
	for pattern, route := range new(live).routes() {
		method, path, _ := strings.Cut(pattern, " ")
		success := content("application/json", object{"type": "object"})
		switch {
		case route.response != nil:
			success = content("application/json", all.of(route.response))
		case path == "/api/v1/stream":
			success = content("text/event-stream", all.ofStream())
		}
		methods, _ := paths[path].(object)
		operation, ok := methods[strings.ToLower(method)].(object)
		if !ok {
			continue // a test finds what isn't described
		}
		operation["operationId"] = operationID(path)
		operation["responses"] = object{"200": object{"description": "success", "content": success}, "default": failure}
	}
	return all
}

func content(kind string, schema object) object { return object{kind: object{"schema": schema}} }

// events are the types of the data of the events of a stream that have data, by their names.
var events = map[string]reflect.Type{
	"changes": reflect.TypeFor[changesBody](), "stale": reflect.TypeFor[staleBody](), "reset": reflect.TypeFor[errorBody](), "bye": reflect.TypeFor[byeBody](),
}

// ofStream returns the schema of a stream: a text. OpenAPI 3.1 can't describe events, so the
// types of their data are in an extension.
func (s schemas) ofStream() object {
	data := object{}
	for name, event := range events {
		data[name] = s.of(event)
	}
	return object{"type": "string", "x-events": data}
}

// operationID returns the name of an operation for generated clients: siteList.
func operationID(path string) string {
	words := strings.Split(strings.TrimSuffix(strings.TrimPrefix(path, "/api/v1/"), ".json"), "/")
	for i, word := range words[1:] {
		words[i+1] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}

var idOfRollout = parameter{"id", "string", "ID of a rollout", false}

// filtersOf returns the parameters that select entities of a kind.
func filtersOf(kind tko.Kind) (filters []parameter) {
	for _, word := range filter.Words(kind) {
		filters = append(filters, parameter{word, "string", "filter, as the flag --" + word + " of tko " + string(kind) + " list", filter.IsMany(kind, word)})
	}
	return filters
}

func operation(summary string, parameters []parameter) object {
	list := []object{}
	for _, p := range parameters {
		schema := object{"type": p.kind}
		if p.many {
			schema = object{"type": "array", "items": schema}
		}
		list = append(list, object{"name": p.name, "in": "query", "required": p.name == "id" && !p.many, "description": p.about, "schema": schema})
	}
	return object{"summary": summary, "parameters": list}
}

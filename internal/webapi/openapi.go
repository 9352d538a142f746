package webapi

import (
	"net/http"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/filter"
)

// openapi responds with the description of the API below /api/v1/.
func (l *live) openapi(w http.ResponseWriter, r *http.Request) {
	if r.URL.RawQuery != "" {
		l.fail(w, r, tko.Errorf(tko.ErrInvalid, "this request has no parameters"))
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
		"/api/v1/openapi.json": object{"get": operation("This description", "application/json", nil)},
		"/api/v1/me":           object{"get": operation("The caller, and what they may do somewhere", "application/json", nil)},
		"/api/v1/stream": object{"get": operation("Changes as server-sent events: open, changes, stale, reset, beat, bye", "text/event-stream", []parameter{
			{"after", "integer", "position to begin after; -1: now", false}, {"kind", "string", "only this kind", true},
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
			"responses": responses("application/json"),
		}},
	}
	for _, kind := range kinds {
		var filters []parameter
		for _, word := range filter.Words(kind) {
			filters = append(filters, parameter{word, "string", "filter, as the flag --" + word + " of tko " + string(kind) + " list", word != "parent" && word != "type" && word != "executor"})
		}
		state := parameter{"state", "string", "only entities in this state", false}
		after := parameter{"after", "string", "ID that the page begins after", false}
		path := "/api/v1/" + string(kind)
		paths[path] = object{"get": operation("One "+string(kind)+" with its package", "application/json", []parameter{{"id", "string", "ID; TYPE|NAME for plugins", false}, {"revision", "integer", "earlier revision", false}})}
		paths[path+"/list"] = object{"get": operation("A page of "+string(kind)+"s in the order of their IDs", "application/json",
			append([]parameter{after, state, {"reason", "string", "only entities whose state has this reason", false}, {"limit", "integer", "rows, 500 at most", false}}, filters...))}
		paths[path+"/count"] = object{"get": operation("Numbers of "+string(kind)+"s in groups", "application/json",
			append([]parameter{after, state, {"by", "string", "one or two of state, reason, template, site, metadata.KEY, separated by a comma", false}}, filters...))}
	}
	return object{
		"openapi": "3.1.0",
		"info":    object{"title": "TKO", "version": "v1", "description": "Pages of lists, counts, single entities, changes and actions. Values of Secrets are never in responses."},
		"paths":   paths, "security": []object{{"token": []string{}}, {}},
		"components": object{"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}}},
	}
}

func operation(summary, contentType string, parameters []parameter) object {
	list := []object{}
	for _, p := range parameters {
		schema := object{"type": p.kind}
		if p.many {
			schema = object{"type": "array", "items": schema}
		}
		list = append(list, object{"name": p.name, "in": "query", "required": p.name == "id" && !p.many, "description": p.about, "schema": schema})
	}
	return object{"summary": summary, "parameters": list, "responses": responses(contentType)}
}

func responses(contentType string) object {
	failure := object{"description": "an error, with its reason and remedy", "content": object{"application/json": object{"schema": object{
		"type": "object", "properties": object{"error": object{"type": "string"}},
	}}}}
	return object{"200": object{"description": "success", "content": object{contentType: object{}}}, "default": failure}
}

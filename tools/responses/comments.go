package main

import (
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko/internal/webapi"
	"github.com/tko-orchestrator/tko/tools/generate"
)

// A comment is the description of a field in the OpenAPI of the HTTP API.
type comment struct{ Field, Text string }

// commentsData returns the comments of the fields of responses: they aren't there at run time.
func commentsData(s *generate.Source) (any, error) {
	types := webapi.ResponseTypes()
	var all []comment
	for _, name := range slices.Sorted(maps.Keys(types)) {
		for _, f := range webapi.JSONFields(types[name]) {
			if text := s.Field(f.Of, f.Go); text != "" {
				all = append(all, comment{name + "." + f.Name, text})
			}
		}
	}
	return all, nil
}

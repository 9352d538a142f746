package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/tools/generate"
)

// A service is a table of the page.
type service struct {
	Name    string
	Methods []reference
}

// A reference is a row of the page.
type reference struct {
	Name, Verbs, Kind string
	grpcapi.Right
}

// referenceData returns the methods of each service, by their names.
func referenceData(*generate.Source) (any, error) {
	rights := grpcapi.Rights()
	var all []service
	for _, full := range slices.Sorted(maps.Keys(rights)) {
		name, method, _ := strings.Cut(strings.TrimPrefix(full, "/"), "/")
		if len(all) == 0 || all[len(all)-1].Name != name {
			all = append(all, service{Name: name})
		}
		right := rights[full]
		var verbs []string
		for _, v := range right.Verbs {
			verbs = append(verbs, "`"+string(v)+"`")
		}
		one := &all[len(all)-1]
		one.Methods = append(one.Methods, reference{method, strings.Join(verbs, " or "), string(right.Kind), right})
	}
	return all, nil
}

package main

import (
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/tools/generate"
)

// A detail is a field of [tko.Details].
type detail struct{ Go, Name, Comment string }

// detailsData returns the fields of [tko.Details].
func detailsData(*generate.Source) (any, error) {
	var all []detail
	for _, f := range tko.DetailFields() {
		all = append(all, detail{capitalized(f.Name), f.Name, capitalized(f.Help) + "."})
	}
	return all, nil
}

func capitalized(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

package kubernetes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// MetadataDependsOn is the key of the metadata of a deployment that names what must be
// applied and healthy at its site before it: patterns of the IDs of their templates,
// separated by commas.
const MetadataDependsOn = "tko.nephio.org/depends-on"

// maxDependencies bounds the patterns of a deployment.
const maxDependencies = 20

// dependencies are what a deployment depends on.
type dependencies struct {
	deployments []tko.DeploymentID
	missing     string // a pattern that no deployment at the site matches
	invalid     string // why the metadata is wrong
}

// resolveDependencies finds the deployments that others depend on.
func (rc *reconciliation) resolveDependencies() {
	rc.depends = map[tko.DeploymentID]dependencies{}
	for _, d := range rc.deployments {
		if text, ok := d.Metadata[MetadataDependsOn]; ok {
			rc.depends[d.ID] = rc.dependenciesOf(d.ID, text)
		}
	}
	for id, of := range rc.depends {
		if of.invalid == "" && rc.reaches(id, id, map[tko.DeploymentID]bool{}) {
			of.invalid = "the deployment depends on itself, through others: correct one of them"
			rc.depends[id] = of
		}
		if of.invalid != "" {
			rc.wanted.problems[id] = append(rc.wanted.problems[id], newProblem("metadata "+MetadataDependsOn, true, "%s", of.invalid))
		}
	}
}

func (rc *reconciliation) dependenciesOf(id tko.DeploymentID, text string) (of dependencies) {
	patterns := strings.Split(text, ",")
	if len(patterns) > maxDependencies {
		return dependencies{invalid: fmt.Sprintf("it has %d patterns: use at most %d", len(patterns), maxDependencies)}
	}
	for _, text := range patterns {
		text = strings.TrimSpace(text)
		pattern, err := tko.ParsePattern(text)
		if err != nil || text == "" {
			return dependencies{invalid: fmt.Sprintf("%.200q is no pattern of the ID of a template: correct it", text)}
		}
		found := false
		for _, d := range rc.deployments {
			if d.ID != id && pattern.Match(string(d.Template)) {
				found = true
				if !slices.Contains(of.deployments, d.ID) {
					of.deployments = append(of.deployments, d.ID)
				}
			}
		}
		if !found {
			of.missing = text
		}
	}
	return of
}

// reaches reports whether a deployment depends on another one, also through others.
func (rc *reconciliation) reaches(from, to tko.DeploymentID, seen map[tko.DeploymentID]bool) bool {
	for _, id := range rc.depends[from].deployments {
		if id == to {
			return true
		}
		if !seen[id] {
			seen[id] = true
			if rc.reaches(id, to, seen) {
				return true
			}
		}
	}
	return false
}

// blockDependents marks the deployments that wait for others, with the reason.
func (rc *reconciliation) blockDependents() {
	for id, of := range rc.depends {
		if rc.blocked[id] == "" {
			if why := rc.awaited(of); why != "" {
				rc.blocked[id] = bounded(why)
			}
		}
	}
}

// awaited returns which deployment has to be healthy first, and why it isn't; empty if all
// are.
func (rc *reconciliation) awaited(of dependencies) string {
	switch {
	case of.invalid != "":
		return of.invalid
	case of.missing != "":
		return fmt.Sprintf("it waits for a deployment of a template that matches %q: none is applied at the site", of.missing)
	}
	for _, id := range of.deployments {
		if len(rc.wanted.problems[id]) > 0 {
			return fmt.Sprintf("it waits for deployment %q, which is not applied", id)
		}
		for _, k := range rc.wanted.of[id] {
			if why := rc.unreached(k); why != "" {
				return fmt.Sprintf("it waits for deployment %q: %s: %s", id, k, why)
			}
		}
	}
	return ""
}

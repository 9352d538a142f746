package cli

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/tko-orchestrator/tko"
)

// maxUpgradable is the most templates that one list selects, each with a request.
const maxUpgradable = 1000

// newerVersions returns the newest version of each template that has one, by ID: those of
// a package have equal IDs before the last colon, and semantic versions after it. A
// pre-release is newer only for another pre-release.
func newerVersions(ids []string) map[string]string {
	type found struct {
		id      string
		version *semver.Version
	}
	packages := map[string][]found{}
	for _, id := range ids {
		i := strings.LastIndexByte(id, ':')
		if i < 0 {
			continue
		}
		if v, err := semver.NewVersion(id[i+1:]); err == nil {
			packages[id[:i]] = append(packages[id[:i]], found{id, v})
		}
	}
	newer := map[string]string{}
	for _, versions := range packages {
		slices.SortFunc(versions, func(a, b found) int { return b.version.Compare(a.version) })
		for _, one := range versions {
			for _, other := range versions {
				if !other.version.GreaterThan(one.version) {
					break
				}
				if other.version.Prerelease() == "" || one.version.Prerelease() != "" {
					newer[one.id] = other.id
					break
				}
			}
		}
	}
	return newer
}

// upgradable returns the newest versions of the templates in use that have one, by ID,
// among those that the patterns select.
func upgradable(ctx context.Context, s *session, patterns []string) (map[string]string, error) {
	var ids []string
	collect := func(sel tko.TemplateSelect, o tko.ListOptions, use func(tko.Template)) error {
		return each(ctx, s, func(ctx context.Context) iter.Seq2[tko.Template, error] { return s.Templates(ctx, sel, o) }, func(t tko.Template) error {
			use(t)
			return nil
		})
	}
	if err := collect(tko.TemplateSelect{}, tko.ListOptions{}, func(t tko.Template) { ids = append(ids, string(t.ID)) }); err != nil {
		return nil, err
	}
	newer := newerVersions(ids)
	used := map[string]string{}
	if err := collect(tko.TemplateSelect{IDs: patterns}, tko.ListOptions{Counts: true}, func(t tko.Template) {
		if to := newer[string(t.ID)]; to != "" && t.DeploymentCount > 0 {
			used[string(t.ID)] = to
		}
	}); err != nil {
		return nil, err
	}
	if len(used) > maxUpgradable {
		return nil, tko.Errorf(tko.ErrInvalid, "%d templates that are in use have newer versions: select at most %d with --template-id", len(used), maxUpgradable)
	}
	return used, nil
}

// upgradableIn returns upgradable of the templates of selected deployments; an ErrNotFound if
// there are none.
func upgradableIn(ctx context.Context, s *session, sel tko.DeploymentSelect) (map[string]string, error) {
	newer, err := upgradable(ctx, s, sel.Templates)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Collect(maps.Keys(newer)) {
		one := sel
		one.Templates = append(slices.Clone(sel.Templates), tko.LiteralPattern(id))
		used := false
		first := tko.ListOptions{Window: tko.Window{Max: new(1)}}
		if err := s.eachDeployment(ctx, one, first, func(tko.Deployment) { used = true }); err != nil {
			return nil, err
		}
		if !used {
			delete(newer, id)
		}
	}
	if len(newer) == 0 {
		return nil, tko.Errorf(tko.ErrNotFound, "none of the selected deployments has a template with a newer version: see tko deployment list --upgradable")
	}
	return newer, nil
}

// upgradableDeployments lists the selected deployments whose template has a newer version,
// with that version, in the order of their templates.
func upgradableDeployments(ctx context.Context, s *session, sel tko.DeploymentSelect, window *windowFlag) error {
	newer, err := upgradable(ctx, s, sel.Templates)
	if err != nil {
		return err
	}
	v := deploymentView
	v.row = func(d tko.Deployment) map[string]any {
		row := deploymentView.row(d)
		row["newerTemplateId"] = newer[string(d.Template)]
		return row
	}
	after := slices.IndexFunc(v.columns, func(c column[tko.Deployment]) bool { return c.name == "TEMPLATE" }) + 1
	v.columns = slices.Insert(slices.Clone(v.columns), after, column[tko.Deployment]{name: "NEWER", text: func(d tko.Deployment) string { return newer[string(d.Template)] }})
	if window.offset > 0 {
		return tko.Errorf(errUsage, "--upgradable and --offset can't be used together: use --template-id for parts of the list")
	}
	return list(ctx, s, v, window, func(ctx context.Context) iter.Seq2[tko.Deployment, error] {
		return func(yield func(tko.Deployment, error) bool) {
			for _, id := range slices.Sorted(maps.Keys(newer)) { // one request for each: all patterns of one must match
				one := sel
				one.Templates = append(slices.Clone(sel.Templates), tko.LiteralPattern(id))
				for d, err := range s.Deployments(ctx, one, window.options(s.app)) {
					if !yield(d, err) || err != nil {
						return
					}
				}
			}
		}
	})
}

package catalog

import (
	"context"
	"sync"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// setDerivation sets what the package of a record was made from. A derivation that is too large
// isn't recorded.
func setDerivation(r *record.Record, from derivation.Record) {
	digest, encoded, err := from.Encode()
	if err != nil {
		digest, encoded = record.Digest{}, nil
	}
	r.Derivation, r.Derived = digest, encoded
}

// prepared sets what the package of a change is made from after steps of preparation:
// what changed counts, not what the steps report.
func (s *DeploymentWriter) prepared(ctx context.Context, current record.Record, after *record.Record, pkg krm.Package, steps []tko.PreparationStep) {
	if len(steps) == 0 || current.Derivation == (record.Digest{}) || current.Digest == after.Digest || after.Derivation != current.Derivation {
		return
	}
	after.Derivation, after.Derived = record.Digest{}, nil // if anything fails, it isn't known
	encoded, err := s.store.Derivation(ctx, current.Derivation)
	if err != nil {
		return
	}
	from, err := derivation.Decode(encoded)
	if err != nil {
		return
	}
	before, err := record.PackageOf(current)
	if err != nil {
		return
	}
	rules, err := s.validation.rulesFor(ctx, new(readSet))
	if err != nil {
		return
	}
	next, changed := from.After(before, pkg, rules.types(), func(id krm.Identity) (name string, revision int64) {
		for _, step := range steps {
			if step.Resource == id.String() {
				name = step.Plugin
			}
		}
		return name, rules.preparers[name]
	})
	if !changed {
		after.Derivation = current.Derivation
		return
	}
	setDerivation(after, next)
}

// mergeTypes returns a function that returns how resources merge, with CRDs of
// templates. It decodes them when it is first called.
func mergeTypes(crds []tko.CRD) func() derivation.Types {
	return sync.OnceValue(func() derivation.Types {
		definitions, err := decodeDefinitions(crds)
		if err != nil {
			definitions = nil // their lists are compared as a whole
		}
		return derivation.TypesOf(definitions)
	})
}

func decodeDefinitions(crds []tko.CRD) (krm.Package, error) {
	var all krm.Package
	for _, crd := range crds {
		pkg, err := krm.Decode(record.StoredFormat, crd.Content, krm.Limits{Bytes: record.MaxPackageBytes, Depth: record.MaxPackageDepth, Resources: record.MaxResources})
		if err != nil {
			return nil, err
		}
		all = append(all, pkg...)
	}
	return all, nil
}

package validate

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/yannh/kubeconform/pkg/resource"
	"github.com/yannh/kubeconform/pkg/validator"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// Randomly damaged manifests get the same result as from Kubeconform, and a
// completely valid package is partially valid with any part removed.
func TestResultsEqualKubeconformsOnDamage(t *testing.T) {
	dir := writeSchemas(t)
	k, err := loadKubernetes()
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := validator.New([]string{dir}, validator.Opts{Strict: true, IgnoreMissingSchemas: true, KubernetesVersion: strings.TrimPrefix(k.Version, "v")})
	if err != nil {
		t.Fatal(err)
	}
	ours, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	results := map[bool]int{}
	for _, m := range corpus(t, "good.yaml") {
		p, err := krm.Decode(krm.YAML, []byte(m.text), krm.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			damaged := p.Clone()
			damage(random, map[string]any(damaged[0]))
			if damaged.Check() != nil {
				continue // refused before any schema is used
			}
			data, err := json.Marshal(damaged[0])
			if err != nil {
				t.Fatal(err)
			}
			result := theirs.ValidateResource(resource.Resource{Bytes: data})
			theyDo := result.Status == validator.Valid || result.Status == validator.Skipped
			err = ours.Validate(t.Context(), tko.Validation{Package: damaged, Complete: true})
			if (err == nil) != theyDo {
				t.Errorf("%s\n%s\ngot: %v\nKubeconform: %v", m.why, data, err, result.Err)
			}
			results[theyDo]++

			less := p.Clone()
			removeOne(random, map[string]any(less[0]))
			if less.Check() == nil {
				if err := ours.Validate(t.Context(), tko.Validation{Package: less}); err != nil {
					t.Errorf("%s: with a part removed: %v", m.why, err)
				}
			}
		}
	}
	if results[true] < 300 || results[false] < 300 {
		t.Errorf("too few cases of one result: %v", results)
	}
}

// damage changes one random value.
func damage(random *rand.Rand, v map[string]any) {
	keys := slices.Sorted(maps.Keys(v))
	if len(keys) == 0 {
		v["new"] = "x"
		return
	}
	key := keys[random.IntN(len(keys))]
	if random.IntN(4) > 0 {
		switch inner := v[key].(type) {
		case map[string]any:
			damage(random, inner)
			return
		case []any:
			if len(inner) > 0 {
				if m, ok := inner[random.IntN(len(inner))].(map[string]any); ok {
					damage(random, m)
					return
				}
			}
		}
	}
	if key == "apiVersion" || key == "kind" {
		return
	}
	values := []any{nil, true, int64(1), -1.5, "", "word", []any{}, []any{"a", int64(1), nil}, map[string]any{}, map[string]any{"a": "b"}}
	switch n := random.IntN(len(values) + 2); n {
	case len(values):
		delete(v, key)
	case len(values) + 1:
		v[key+"s"] = v[key]
		delete(v, key)
	default:
		v[key] = values[n]
	}
}

// removeOne removes one random value.
func removeOne(random *rand.Rand, v map[string]any) {
	keys := slices.Sorted(maps.Keys(v))
	if len(keys) == 0 {
		return
	}
	key := keys[random.IntN(len(keys))]
	switch inner := v[key].(type) {
	case map[string]any:
		if random.IntN(4) > 0 {
			removeOne(random, inner)
			return
		}
	case []any:
		if len(inner) > 0 {
			if m, ok := inner[random.IntN(len(inner))].(map[string]any); ok {
				removeOne(random, m)
				return
			}
		}
	}
	if key != "apiVersion" && key != "kind" {
		delete(v, key)
	}
}

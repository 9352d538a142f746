package validate

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/yannh/kubeconform/pkg/resource"
	"github.com/yannh/kubeconform/pkg/validator"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// schemaDir contains the embedded schemas in Kubeconform's layout, written
// once.
var schemaDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "schemas")
	if err != nil {
		panic(err)
	}
	schemaDir = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

var schemasOnce sync.Once

func writeSchemas(t testing.TB) (dir string) {
	t.Helper()
	schemasOnce.Do(func() { writeSchemasTo(t, schemaDir) })
	return schemaDir
}

func writeSchemasTo(t testing.TB, dir string) {
	t.Helper()
	k, err := loadKubernetes()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, k.Version+"-standalone-strict")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, gvk := range k.kindOf {
		if strings.HasSuffix(gvk.Kind, "List") && gvk.Kind != "DeploymentList" {
			continue // packages don't contain them
		}
		document := k.document(name)
		document["$schema"] = "http://json-schema.org/draft-04/schema#"
		data, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		file := variablesOf(gvk, "").ResourceKind + variablesOf(gvk, "").KindSuffix + ".json"
		if err := os.WriteFile(filepath.Join(folder, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

type manifest struct {
	why  string
	text string
}

func corpus(t testing.TB, file string) []manifest {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var all []manifest
	for text := range strings.SplitSeq(string(data), "\n---\n") {
		why, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
		all = append(all, manifest{why, text})
	}
	return all
}

// The results, from the embedded schemas and from the same schemas in files,
// equal those of Kubeconform's strict mode.
func TestResultsEqualKubeconforms(t *testing.T) {
	dir := writeSchemas(t)
	k, err := loadKubernetes()
	if err != nil {
		t.Fatal(err)
	}
	version := strings.TrimPrefix(k.Version, "v")
	theirs, err := validator.New([]string{dir}, validator.Opts{Strict: true, IgnoreMissingSchemas: true, KubernetesVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]*Validator{}
	for name, o := range map[string]Options{
		"embedded": {},
		"folder":   {SchemaLocations: []string{dir}, KubernetesVersion: version},
		"template": {SchemaLocations: []string{filepath.Join(dir, "{{.NormalizedKubernetesVersion}}-standalone{{.StrictSuffix}}", "{{.ResourceKind}}{{.KindSuffix}}.json")}, KubernetesVersion: version},
	} {
		if ours[name], err = New(o); err != nil {
			t.Fatal(err)
		}
	}
	for file, wantValid := range map[string]bool{"good.yaml": true, "bad.yaml": false} {
		for _, m := range corpus(t, file) {
			t.Run(file+"/"+m.why, func(t *testing.T) {
				p, err := krm.Decode(krm.YAML, []byte(m.text), krm.Limits{})
				if err != nil {
					t.Fatal(err)
				}
				result := theirs.ValidateResource(resource.Resource{Bytes: []byte(m.text)})
				theyDo := result.Status == validator.Valid || result.Status == validator.Skipped
				if theyDo != wantValid {
					t.Errorf("Kubeconform's result is valid: %t: %v", theyDo, result.Err)
				}
				for name, v := range ours {
					err := v.Validate(t.Context(), tko.Validation{Package: p, Complete: true})
					if weDo := err == nil; weDo != theyDo {
						t.Errorf("%s: valid: %t, Kubeconform: %t\ngot: %v\nKubeconform: %v", name, weDo, theyDo, err, result.Err)
					}
				}
			})
		}
	}
}

// Every embedded schema compiles, complete and partial, and agrees with
// Kubeconform whether a resource with only its kind is valid.
func TestEverySchemaCompilesAndAgreesWithKubeconform(t *testing.T) {
	k, err := loadKubernetes()
	if err != nil {
		t.Fatal(err)
	}
	dir := writeSchemas(t)
	version := strings.TrimPrefix(k.Version, "v")
	theirs, err := validator.New([]string{dir}, validator.Opts{Strict: true, KubernetesVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	v, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(k.Kinds) < 150 {
		t.Errorf("got only %d kinds", len(k.Kinds))
	}
	for name, gvk := range k.kindOf {
		r := krm.Resource{"apiVersion": gvk.APIVersion(), "kind": gvk.Kind}
		if err := v.Validate(t.Context(), tko.Validation{Package: krm.Package{r}}); err != nil {
			t.Errorf("%s: partial: %v", name, err)
		}
		err := v.Validate(t.Context(), tko.Validation{Package: krm.Package{r}, Complete: true})
		if strings.HasSuffix(gvk.Kind, "List") {
			continue
		}
		data, jsonErr := json.Marshal(r)
		if jsonErr != nil {
			t.Fatal(jsonErr)
		}
		result := theirs.ValidateResource(resource.Resource{Bytes: data})
		if (err == nil) != (result.Status == validator.Valid) {
			t.Errorf("%s: got %v, Kubeconform: %v", name, err, result.Err)
		}
	}
}

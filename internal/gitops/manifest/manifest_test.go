package manifest_test

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

func read(t *testing.T, dir string, files map[string]string) ([]manifest.Manifest, error) {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, content := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(content)}
	}
	return manifest.Read(fsys, dir)
}

const head = "apiVersion: tko.nephio.org/v1alpha1\nkind: "

func TestReadReturnsEntitiesInTheirOrder(t *testing.T) {
	t.Parallel()
	got, err := read(t, "", map[string]string{
		"z.yaml": head + "Deployment\nmetadata: {name: one, labels: {a-002fb: c-002dd, region: eu-west-1, app.kubernetes.io/name: x}}\nspec: {templateId: t, siteId: s, parentDeploymentId: p}\n---\n" +
			head + "Site\nmetadata: {name: lagos-002f1, annotations: {gitops.tko.nephio.org/adopt: 'true', gitops.tko.nephio.org/prune: disabled}}\nspec: {templateId: t}\n",
		"a/b.yml":     head + "Plugin\nmetadata: {name: schedule-007cx}\nspec: {executor: command, arguments: [a, b], properties: {k: v}, triggers: [{group: g, version: v1, kind: K}]}\n",
		"a/t.yaml":    head + "Template\nspec: {templateId: 'demo/x:v1', package: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}]}}\nstatus: {}\n",
		"a/gitops.md": head + "Nonsense\n",
		"list.yaml":   "apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(head, "\n", "\n  ") + "Site\n  metadata: {name: kano, creationTimestamp: null}\n- {apiVersion: v1, kind: ConfigMap}\n",
		"mark.yaml":   "\ufeffapiVersion: tko.nephio.org/v1alpha1\r\nkind: Site\r\nspec: {siteId: windows}\r\n",
		"chart.yaml":  "# about tko.nephio.org/v1alpha1\nkind: {{ .Values.kind }}\nvalue: {{\n",
		"own.yaml":    "apiVersion: tko.nephio.org/v1beta1\nkind: GitOps\nmetadata: {name: fleet}\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []manifest.Manifest{
		{File: "a/b.yml", Name: "schedule|x", Put: tko.Put{Kind: tko.KindPlugin, ID: "schedule|x", Plugin: tko.Plugin{
			Type: "schedule", Name: "x", Executor: "command", Arguments: []string{"a", "b"}, Properties: map[string]string{"k": "v"},
			Triggers: []krm.GVK{{Group: "g", Version: "v1", Kind: "K"}},
		}}},
		{File: "a/t.yaml", Name: "demo/x:v1", Put: tko.Put{Kind: tko.KindTemplate, ID: "demo/x:v1", Package: krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x"}}}}},
		{File: "list.yaml", Name: "kano", Put: tko.Put{Kind: tko.KindSite, ID: "kano"}},
		{File: "z.yaml", Name: "lagos/1", Adopt: true, Keep: true, Put: tko.Put{Kind: tko.KindSite, ID: "lagos/1", Template: "t"}},
		{File: "mark.yaml", Name: "windows", Put: tko.Put{Kind: tko.KindSite, ID: "windows"}},
		{File: "z.yaml", Name: "one", Put: tko.Put{Kind: tko.KindDeployment, Template: "t", Site: "s", Parent: "p", Metadata: map[string]string{"a/b": "c-d", "region": "eu-west-1"}, Marks: &tko.Marks{
			Labels: map[string]string{"app.kubernetes.io/name": "x"}, Annotations: map[string]string{},
		}}},
	}
	digests := map[string]bool{}
	for i := range got {
		digests[got[i].Digest] = true
		got[i].Digest = ""
		if got[i].Put.Marks != nil && got[i].Put.Marks.IsZero() {
			got[i].Put.Marks = nil
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(digests) != 6 {
		t.Errorf("the digests are %v, want 6 different ones", digests)
	}
}

// The digest of a manifest changes with its content only, not with its form.
func TestRolloutHasItsSpecAndTheResourcesOfItsEdits(t *testing.T) {
	t.Parallel()
	got, err := read(t, "", map[string]string{
		"r.yaml": head + "Rollout\nmetadata: {name: smf-v2}\nspec:\n  edits: [{merge: [{apiVersion: v1, kind: ConfigMap, name: c}], select: {templateIdPatterns: [x]}}]\n  package: {resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}]}\n",
	})
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	if p := got[0].Put; p.Kind != tko.KindRollout || p.ID != "smf-v2" || len(p.Package) != 2 || p.Package[0].Text("kind") != "Rollout" {
		t.Errorf("%+v", p)
	} else if _, ok := p.Package[0].Get("spec", "package"); ok {
		t.Error("the Rollout resource has the package")
	}
}

func TestDigestChangesWithTheContent(t *testing.T) {
	t.Parallel()
	digest := func(text string) string {
		t.Helper()
		got, err := read(t, ".", map[string]string{"a.yaml": text})
		if err != nil || len(got) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		return got[0].Digest
	}
	base := digest(head + "Site\nspec: {siteId: s, templateId: t}\n")
	for why, same := range map[string]string{
		"the order of fields": "kind: Site\nspec: {templateId: t, siteId: s}\napiVersion: tko.nephio.org/v1alpha1\n",
		"comments":            "# x\n" + head + "Site\nspec: {siteId: s, templateId: t}\n",
		"annotations of TKO":  head + "Site\nmetadata: {annotations: {gitops.tko.nephio.org/adopt: 'true'}}\nspec: {siteId: s, templateId: t}\n",
	} {
		if digest(same) != base {
			t.Errorf("the digest changed with %s", why)
		}
	}
	for why, other := range map[string]string{
		"template": head + "Site\nspec: {siteId: s, templateId: t2}\n",
		"metadata": head + "Site\nmetadata: {labels: {a: b}}\nspec: {siteId: s, templateId: t}\n",
		"package":  head + "Site\nspec: {siteId: s, templateId: t, package: {resources: [{apiVersion: v1, kind: X}]}}\n",
	} {
		if digest(other) == base {
			t.Errorf("the digest didn't change with the %s", why)
		}
	}
}

func TestReadNamesFileAndRemedyOfInvalidManifests(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ text, want string }{
		"kind":             {head + "Siet\nspec: {siteId: s}\n", "Template, Site, Deployment, Plugin or Rollout"},
		"field":            {head + "Site\nspec: {siteID: s}\n", "unknown field spec.siteID"},
		"root field":       {head + "Site\nsepc: {}\n", `"sepc"`},
		"namespace":        {head + "Site\nmetadata: {namespace: x}\nspec: {siteId: s}\n", "namespace"},
		"no name":          {head + "Site\n", "metadata.name and spec.siteId are both empty"},
		"two names":        {head + "Site\nmetadata: {name: a}\nspec: {siteId: b/c}\n", `"b-002fc"`},
		"alphabet":         {head + "Site\nspec: {siteId: 'a b'}\n", "a b"},
		"number":           {head + "Site\nmetadata: {labels: {a: 1}}\nspec: {siteId: s}\n", "quote it"},
		"package":          {head + "Site\nspec: {siteId: s, package: []}\n", "resources: […]"},
		"resource twice":   {head + "Site\nspec: {siteId: s, package: {resources: [{apiVersion: v1, kind: X}, {apiVersion: v1, kind: X}]}}\n", "X"},
		"adopt":            {head + "Site\nmetadata: {annotations: {gitops.tko.nephio.org/adopt: 'yes'}}\nspec: {siteId: s}\n", `"yes"`},
		"deployment name":  {head + "Deployment\nspec: {siteId: s}\n", "metadata.name"},
		"long name":        {head + "Deployment\nmetadata: {name: " + strings.Repeat("x", 121) + "}\n", "120"},
		"plugin":           {head + "Plugin\nspec: {type: schedule}\n", "spec.pluginId"},
		"plugin type":      {head + "Plugin\nspec: {type: wish, pluginId: x}\n", "wish"},
		"plugin metadata":  {head + "Plugin\nmetadata: {labels: {a: b}}\nspec: {type: schedule, pluginId: x, arguments: [x]}\n", "labels"},
		"trigger":          {head + "Plugin\nspec: {type: schedule, pluginId: x, triggers: [{grope: g}]}\n", "grope"},
		"broken manifest":  {head + "Site\nspec: {\n", "a.yaml"},
		"broken in braces": {"{apiVersion: tko.nephio.org/v1alpha1, kind: Site\n", "a.yaml"},
		"broken in quotes": {"'apiVersion':  'tko.nephio.org/v1alpha1'\nkind: {\n", "a.yaml"},
		"broken as JSON":   {"{\"apiVersion\":\"tko.nephio.org/v1alpha1\",", "a.yaml"},
		"broken list":      {"apiVersion: v1\nkind: List\nitems: [tko.nephio.org]\n", "items[0]"},
		"in LFS":           {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git LFS"},
		"outside":          {"", ""},
		"missing":          {"", ""},
	}
	for name, test := range tests {
		dir := map[string]string{"outside": "../x", "missing": "nowhere"}[name]
		_, err := read(t, dir, map[string]string{"a.yaml": test.text})
		if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), test.want) || dir == "" && !strings.HasPrefix(err.Error(), "a.yaml: ") {
			t.Errorf("%s: the error is %v, want one that contains %q", name, err, test.want)
		}
	}
	_, err := read(t, "", map[string]string{"a.yaml": head + "Siet\n", "b.yaml": head + "Iste\n"})
	if err == nil || !strings.Contains(err.Error(), "a.yaml") || !strings.Contains(err.Error(), "b.yaml") {
		t.Errorf("the error is %v, want one that names both invalid files", err)
	}
}

// What the spec of a rollout may have can be written in a manifest, too: an export that a
// reader refuses is lost.
func TestManifestOfARolloutMayHaveEachFieldOfItsSpec(t *testing.T) {
	t.Parallel()
	for _, field := range append([]string{"package"}, spec.Fields...) {
		files := map[string]string{"r.yaml": head + "Rollout\nmetadata: {name: r}\nspec: {" + field + ": {}}\n"}
		got, err := read(t, "", files)
		if err != nil || len(got) != 1 {
			t.Errorf("spec.%s: %v, %v", field, got, err)
		}
	}
	if _, err := read(t, "", map[string]string{"r.yaml": head + "Rollout\nmetadata: {name: r}\nspec: {undoes: x}\n"}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("spec.undoes, which only TKO sets: %v, want ErrInvalid", err)
	}
}

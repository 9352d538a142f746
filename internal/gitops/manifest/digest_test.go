package manifest_test

import (
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/krm"
)

// The inventories of sources and approvals of removals have digests of earlier versions. A
// digest that changes without its manifest puts everything again, and voids approvals.
func TestDigestOfAManifestIsThatOfEarlierVersions(t *testing.T) {
	t.Parallel()
	const plugin = `{"Type":"","Name":"","Executor":"","Arguments":null,"Properties":null,"Triggers":null,"Stamp":{"UID":"","Revision":0,"Position":0,` +
		`"Created":"0001-01-01T00:00:00Z","Updated":"0001-01-01T00:00:00Z","Who":"","Why":"","Conditions":null,"Steps":null,"LeftOut":null}}`
	const text = `{"Kind":"site","ID":"s","Parent":"","Template":"t","Site":"","Metadata":{"a":"b"},"Package":null,"Plugin":` + plugin +
		`,"Origin":"","Name":"","DryRun":false,"FromTemplate":false,"Revision":0,"RemoveMetadata":null}`
	pkg := krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x"}}}
	content, _, err := krm.DigestOf(pkg)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(append([]byte(text), content[:]...))
	m, err := manifest.Of("f", tko.Put{Kind: tko.KindSite, ID: "s", Template: "t", Metadata: map[string]string{"a": "b"}, Package: pkg})
	if err != nil || m.Digest != hex.EncodeToString(sum[:16]) {
		t.Errorf("the digest is %s, %v, and was %s", m.Digest, err, hex.EncodeToString(sum[:16]))
	}
}

// alwaysDigested are the fields that were digested before fields that aren't set were left out.
// Others need omitempty or omitzero: without it, each new field changes all digests.
var alwaysDigested = "Kind ID Parent Template Site Metadata Package Plugin Origin Name DryRun FromTemplate Revision RemoveMetadata " +
	"Plugin.Type Plugin.Name Plugin.Executor Plugin.Arguments Plugin.Properties Plugin.Triggers Plugin.Stamp"

func TestNewFieldsAreDigestedOnlyIfTheyAreSet(t *testing.T) {
	t.Parallel()
	always := strings.Fields(alwaysDigested)
	known := map[string]bool{}
	for _, name := range always {
		known[name] = true
	}
	n := 0
	var check func(prefix string, typ reflect.Type)
	check = func(prefix string, typ reflect.Type) {
		for f := range typ.Fields() {
			if tag := f.Tag.Get("json"); strings.Contains(tag, "omit") {
				continue
			}
			if f.Anonymous { // JSON has its fields in its place
				check(prefix+f.Name+".", f.Type)
				continue
			}
			n++
			if !known[prefix+f.Name] {
				t.Errorf("tko.Put.%s%s is digested although it isn't set: give it the tag `json:\",omitempty\"`", prefix, f.Name)
			}
		}
	}
	check("", reflect.TypeFor[tko.Put]())
	check("Plugin.", reflect.TypeFor[tko.Plugin]())
	if n != len(always) {
		t.Errorf("%d fields are always digested, want %d", n, len(always))
	}
	for name, change := range map[string]func(*tko.Put){
		"Whole": func(p *tko.Put) { p.Whole = true }, "MadeFrom": func(p *tko.Put) { p.MadeFrom = "00" }, "RemoveMetadata": func(p *tko.Put) { p.RemoveMetadata = []string{"k"} },
	} {
		p := tko.Put{Kind: tko.KindDeployment, Template: "t"}
		before, _ := manifest.Of("f", p)
		change(&p)
		if after, err := manifest.Of("f", p); err != nil || after.Digest == before.Digest {
			t.Errorf("%s doesn't change the digest: %v", name, err)
		}
	}
}

// Marks are no part of the digest: what TKO doesn't act on puts nothing again. Labels without a
// prefix are, and no labels differ from empty ones, as before marks were read.
func TestMarksAreReadAndNotDigested(t *testing.T) {
	t.Parallel()
	read := func(metadata string) manifest.Manifest {
		t.Helper()
		text := "apiVersion: tko.nephio.org/v1alpha1\nkind: Site\nmetadata: " + metadata + "\nspec: {siteId: s}\n"
		all, err := manifest.Read(fstest.MapFS{"s.yaml": {Data: []byte(text)}}, "")
		if err != nil || len(all) != 1 {
			t.Fatalf("%s: %v, %v", metadata, all, err)
		}
		return all[0]
	}
	marked := read(`{labels: {example.com/team: core, region: west}, annotations: {ticket: "1", number: 2, gitops.tko.nephio.org/prune: disabled}}`)
	want := &tko.Marks{Labels: map[string]string{"example.com/team": "core"}, Annotations: map[string]string{"ticket": "1"}}
	if !reflect.DeepEqual(marked.Put.Marks, want) || !reflect.DeepEqual(marked.Put.Metadata, map[string]string{"region": "west"}) {
		t.Errorf("read %+v and %v, want %+v and the metadata", marked.Put.Marks, marked.Put.Metadata, want)
	}
	if plain := read("{labels: {region: west}}"); plain.Digest != marked.Digest {
		t.Error("the digest has marks")
	}
	if none, only := read("{}"), read("{labels: {example.com/team: core}}"); none.Digest == only.Digest || none.Put.Metadata != nil || only.Put.Metadata == nil {
		t.Error("the digest of labels that are all marks isn't that of empty ones")
	}
}

package manifest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
)

func siteNamed(id string) string { return head + "Site\nspec: {siteId: " + id + "}\n" }

// names returns the kind and name of each manifest.
func names(manifests []manifest.Manifest) []string {
	list := []string{}
	for _, m := range manifests {
		list = append(list, string(m.Put.Kind)+" "+m.Name)
	}
	return list
}

// All files below the folder are read, except those that aren't YAML, and those in folders
// whose names begin with a dot.
func TestReadFindsManifestsInFolders(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"root.yaml": siteNamed("root"), "a/b/c/deep.yml": siteNamed("deep"), "a/.file.yaml": siteNamed("dotfile"),
		".git/x.yaml": siteNamed("git"), "a/.hidden/b/x.yaml": siteNamed("hidden"), ".github/x.yaml": siteNamed("github"),
		"a/x.json": siteNamed("json"), "a/x.yaml.bak": siteNamed("backup"), "a/yaml": siteNamed("without-extension"), "empty.yaml": "", "nothing/x.txt": "x",
	}
	for dir, want := range map[string][]string{
		"":        {"site deep", "site dotfile", "site root"},
		".":       {"site deep", "site dotfile", "site root"},
		"/":       {"site deep", "site dotfile", "site root"},
		"a":       {"site deep", "site dotfile"},
		"/a/":     {"site deep", "site dotfile"},
		"./a/b":   {"site deep"},
		"a/../a":  {"site deep", "site dotfile"},
		".github": {"site github"},
		"nothing": {},
	} {
		got, err := read(t, dir, files)
		if diff := cmp.Diff(want, names(got)); diff != "" || err != nil {
			t.Errorf("%q: %v, -want +got:\n%s", dir, err, diff)
		}
	}
	for _, dir := range []string{"..", "../a", "a/../../x", "missing", "root.yaml"} {
		if got, err := read(t, dir, files); !errors.Is(err, tko.ErrInvalid) || len(got) > 0 {
			t.Errorf("%q: %v, %v; want an ErrInvalid, because all entities would be removed", dir, names(got), err)
		}
	}
}

// A file that can't be read is an error: its entities would be removed.
func TestReadRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	denied := errors.New("denied")
	for name, fsys := range map[string]fs.FS{
		"a file":   failing{fstest.MapFS{"a/x.yaml": &fstest.MapFile{Data: []byte(siteNamed("s"))}}, "a/x.yaml", denied},
		"a folder": failing{fstest.MapFS{"a/x.yaml": &fstest.MapFile{Data: []byte(siteNamed("s"))}}, "a", denied},
	} {
		if got, err := manifest.Read(fsys, ""); !errors.Is(err, denied) || len(got) > 0 {
			t.Errorf("%s: %v, %v", name, names(got), err)
		}
	}
	large := siteNamed("s") + "#" + strings.Repeat(" ", 32<<20)
	if _, err := read(t, "", map[string]string{"large.yaml": large}); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "large.yaml has 33") {
		t.Errorf("a large file: %v", err)
	}
	links := fstest.MapFS{"x.yaml": &fstest.MapFile{Data: []byte(siteNamed("s")), Mode: fs.ModeSymlink}}
	if got, err := manifest.Read(links, ""); err != nil || len(got) > 0 {
		t.Errorf("a link: %v, %v", names(got), err)
	}
}

// failing is a file system in which one name can't be opened.
type failing struct {
	fstest.MapFS
	name string
	err  error
}

func (f failing) Open(name string) (fs.File, error) {
	if name == f.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: f.err}
	}
	return f.MapFS.Open(name)
}

func (f failing) ReadFile(name string) ([]byte, error) {
	if name == f.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: f.err}
	}
	return f.MapFS.ReadFile(name)
}

func (f failing) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == f.name {
		return nil, &fs.PathError{Op: "open", Path: name, Err: f.err}
	}
	return f.MapFS.ReadDir(name)
}

// An entity may be in one manifest only, in one file or several. Entities of different kinds
// may have the same name.
func TestReadRefusesEntitiesThatAreTwiceThere(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		files map[string]string
		want  []string // parts of the error; nil: it is valid
	}{
		"kinds":         {map[string]string{"a.yaml": siteNamed("x") + "---\n" + head + "Template\nspec: {templateId: x}\n---\n" + head + "Deployment\nmetadata: {name: x}\n"}, nil},
		"one file":      {map[string]string{"a.yaml": siteNamed("x") + "---\n" + siteNamed("x")}, []string{`a.yaml: site "x" is in a.yaml, too`}},
		"two files":     {map[string]string{"a.yaml": siteNamed("x"), "b.yaml": siteNamed("x")}, []string{`b.yaml: site "x" is in a.yaml, too`}},
		"three files":   {map[string]string{"a.yaml": siteNamed("x"), "b.yaml": siteNamed("x"), "c.yaml": siteNamed("x")}, []string{"b.yaml: ", "c.yaml: "}},
		"two forms":     {map[string]string{"a.yaml": siteNamed("lagos/1"), "b.yaml": head + "Site\nmetadata: {name: lagos-002f1}\n"}, []string{`site "lagos/1" is in a.yaml, too`}},
		"a list":        {map[string]string{"a.yaml": siteNamed("x"), "b.yaml": "apiVersion: v1\nkind: List\nitems: [{apiVersion: tko.nephio.org/v1alpha1, kind: Site, spec: {siteId: x}}]\n"}, []string{"b.yaml: "}},
		"two contents":  {map[string]string{"a.yaml": siteNamed("x"), "b.yaml": head + "Site\nspec: {siteId: x, templateId: t}\n"}, []string{"remove one"}},
		"two pairs":     {map[string]string{"a.yaml": siteNamed("x") + "---\n" + siteNamed("z"), "b.yaml": siteNamed("x") + "---\n" + siteNamed("z")}, []string{`site "x"`, `site "z"`}},
		"case of names": {map[string]string{"a.yaml": siteNamed("x") + "---\n" + siteNamed("X")}, nil},
	}
	for name, test := range tests {
		_, err := read(t, "", test.files)
		if test.want == nil {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		for _, part := range test.want {
			if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the error is %v, want one with %q", name, err, part)
			}
		}
	}
}

// One invalid manifest makes the whole revision invalid, and each problem is named.
func TestReadNamesEachProblem(t *testing.T) {
	t.Parallel()
	_, err := read(t, "", map[string]string{
		"good.yaml": siteNamed("s"), "a.yaml": head + "Siet\n---\n" + head + "Site\nspec: {siteId: 'a b'}\n", "b.yaml": head + "Site\nspec: {",
	})
	for _, part := range []string{`a.yaml: Siet ""`, `a.yaml: Site ""`, "b.yaml: "} {
		if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), part) {
			t.Errorf("the error is %v, want one with %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "good.yaml") {
		t.Errorf("the error names a valid file: %v", err)
	}
}

func TestNamesAndAnnotations(t *testing.T) {
	t.Parallel()
	deployment := func(name string) string { return head + "Deployment\nmetadata: {name: '" + name + "'}\n" }
	annotated := func(key, value string) string {
		return head + "Site\nmetadata: {annotations: {gitops.tko.nephio.org/" + key + ": '" + value + "'}}\nspec: {siteId: s}\n"
	}
	rollout := func(metadata, spec string) string {
		return head + "Rollout\nmetadata: " + metadata + "\nspec: " + spec + "\n"
	}
	for name, test := range map[string]struct {
		text string
		want string // name, and flags
	}{
		"deployment":            {deployment("upf"), "upf false false"},
		"the longest name":      {deployment(strings.Repeat("x", 120)), strings.Repeat("x", 120) + " false false"},
		"visible characters":    {deployment("!~/"), "!~/ false false"},
		"adopt":                 {annotated("adopt", "true"), "s true false"},
		"no adopt":              {annotated("adopt", "false"), "s false false"},
		"prune":                 {annotated("prune", "disabled"), "s false true"},
		"no prune":              {annotated("prune", "enabled"), "s false false"},
		"other annotation":      {annotated("else", "yes"), "s false false"},
		"escaped":               {head + "Site\nmetadata: {name: a-002fb}\n", "a/b false false"},
		"both names":            {head + "Site\nmetadata: {name: a-002fb}\nspec: {siteId: a/b}\n", "a/b false false"},
		"both names, plain":     {head + "Site\nmetadata: {name: a/b}\nspec: {siteId: a/b}\n", "a/b false false"},
		"null":                  {head + "Site\nmetadata: {name: a, labels: null}\nspec: null\n", "a false false"},
		"plugin by its fields":  {head + "Plugin\nspec: {type: schedule, pluginId: x, arguments: [a]}\n", "schedule|x false false"},
		"plugin, both":          {head + "Plugin\nmetadata: {name: schedule-007cx}\nspec: {type: schedule, pluginId: x, arguments: [a]}\n", "schedule|x false false"},
		"rollout by its field":  {rollout("{}", "{rolloutId: r, edits: [{merge: [{apiVersion: v1, kind: ConfigMap, name: c}], select: {templateIdPatterns: [x]}}]}"), "r false false"},
		"rollout by its name":   {rollout("{name: smf-v2}", "{edits: []}"), "smf-v2 false false"},
		"the space of a name":   {deployment("a b"), ""},
		"a control character":   {head + "Deployment\nmetadata: {name: \"a\\u007f\"}\n", ""},
		"not ASCII":             {deployment("lägos"), ""},
		"no name":               {deployment(""), ""},
		"too long":              {deployment(strings.Repeat("x", 121)), ""},
		"an ID":                 {head + "Deployment\nmetadata: {name: a}\nspec: {deploymentId: x}\n", ""},
		"adopt: yes":            {annotated("adopt", "yes"), ""},
		"prune: false":          {annotated("prune", "false"), ""},
		"two names of a plugin": {head + "Plugin\nmetadata: {name: schedule-007cx}\nspec: {type: schedule, pluginId: '', executor: command, arguments: 1}\n", ""},
		"another version":       {"apiVersion: tko.nephio.org/v2\nkind: Site\nspec: {siteId: s}\n", ""},
	} {
		got, err := read(t, "", map[string]string{"a.yaml": test.text})
		if test.want == "" {
			if !errors.Is(err, tko.ErrInvalid) {
				t.Errorf("%s: %v, %v; want an ErrInvalid", name, names(got), err)
			}
			continue
		}
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", name, names(got), err)
			continue
		}
		if text := fmt.Sprint(got[0].Name, " ", got[0].Adopt, " ", got[0].Keep); text != test.want {
			t.Errorf("%s: got %s, want %s", name, text, test.want)
		}
	}
}

// The manifests, their order and their digests don't depend on the files that hold them.
func TestReadDoesNotDependOnFiles(t *testing.T) {
	t.Parallel()
	documents := []string{head + "Plugin\nspec: {type: schedule, pluginId: p, arguments: [x]}\n", head + "Deployment\nmetadata: {name: a}\n", head + "Rollout\nmetadata: {name: r}\nspec: {edits: []}\n"}
	for i := range 6 {
		documents = append(documents, siteNamed(fmt.Sprint("s", i)), fmt.Sprintf("%sTemplate\nspec: {templateId: t%d}\n", head, i))
	}
	digests := func(list []manifest.Manifest) []string {
		texts := []string{}
		for _, m := range list {
			texts = append(texts, string(m.Put.Kind)+" "+m.Name+" "+m.Digest)
		}
		return texts
	}
	one, err := read(t, "", map[string]string{"all.yaml": strings.Join(documents, "---\n")})
	if err != nil {
		t.Fatal(err)
	}
	if got := names(one); got[0] != "plugin schedule|p" || got[1] != "template t0" || got[7] != "site s0" || got[13] != "deployment a" || got[14] != "rollout r" {
		t.Errorf("the order is %v", got)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		r.Shuffle(len(documents), func(i, j int) { documents[i], documents[j] = documents[j], documents[i] })
		files := map[string]string{}
		for _, d := range documents {
			files[fmt.Sprintf("f%d.yaml", r.IntN(4))] += "---\n" + d
		}
		several, err := read(t, "", files)
		if diff := cmp.Diff(digests(one), digests(several)); diff != "" || err != nil {
			t.Fatalf("%v, -one file +several:\n%s", err, diff)
		}
	}
	// What isn't read from a file has the same digest.
	for _, m := range one {
		if same, err := manifest.Of("x", m.Put); err != nil || same.Digest != m.Digest {
			t.Errorf("%s: the digest is %s, %v; want %s", m, same.Digest, err, m.Digest)
		}
	}
}

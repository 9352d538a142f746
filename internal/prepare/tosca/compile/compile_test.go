package compile_test

import (
	"archive/zip"
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/location"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/internal/prepare/tosca"
	"github.com/tko-orchestrator/tko/internal/prepare/tosca/compile"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/krm"
)

const child = "compile-tosca" // argument with which the test's program is the compiler

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == child {
		if err := compile.Main(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const examples = "../../../../examples"

func preparer(local bool) *tosca.Preparer {
	o := guard.Options{Schemes: []string{"http", "https"}, Folders: []string{"/"}, AddressesFlag: "--tosca-local-addresses"}
	if local {
		o.Addresses = guard.LocalNetworks
	}
	g, err := guard.New(o)
	if err != nil {
		panic(err)
	}
	return tosca.New(tosca.Options{Command: []string{os.Args[0], child}, Guard: g})
}

// archive returns the example as a zip archive.
func archive(t *testing.T, dir string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	if err := z.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestTOSCATwinCreatesSameChildren prepares the example topology, and its twin in
// TOSCA from each kind of location: the children are the same.
func TestTOSCATwinCreatesSameChildren(t *testing.T) {
	t.Parallel()
	twin, err := filepath.Abs(filepath.Join(examples, "tosca/cu"))
	if err != nil {
		t.Fatal(err)
	}
	csar := filepath.Join(t.TempDir(), "cu.csar")
	if err := os.WriteFile(csar, archive(t, twin), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(csar))))
	defer server.Close()
	files := httptest.NewServer(http.FileServer(http.Dir(twin)))
	defer files.Close()
	data := network(t)
	want := place(t, data, preparer(true), tko.NewDeployment{Template: "topology/cu:v1"})
	if len(want) != 10 {
		t.Fatalf("the topology has %d children: %v", len(want), want)
	}
	if diff := gocmp.Diff(want, place(t, data, preparer(true), tko.NewDeployment{Template: "topology/cu-tosca:v1"})); diff != "" {
		t.Errorf("the template of the catalog: %s", diff)
	}
	for name, at := range map[string]string{
		"a file":           filepath.Join(twin, "service.yaml"),
		"a file URL":       "file://" + filepath.Join(twin, "service.yaml"),
		"a folder":         twin,
		"an archive":       csar,
		"within one":       csar + "!/service.yaml",
		"an archive's URL": server.URL + "/cu.csar",
		"a file's URL":     files.URL + "/service.yaml",
		"a repository":     gitServer(t, twin) + "#v1!/cu/service.yaml",
	} {
		t.Run(name, func(t *testing.T) {
			pkg := krm.Package{{
				"apiVersion": "topology.nephio.org/v1alpha1", "kind": "TOSCA", "metadata": map[string]any{"name": "cu"},
				"spec": map[string]any{"url": at},
			}}
			got := place(t, data, preparer(true), tko.NewDeployment{Merge: pkg})
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// gitServer serves a repository that has a folder in the commit v1 only.
func gitServer(t *testing.T, folder string) string {
	t.Helper()
	dir := t.TempDir()
	work := filepath.Join(dir, "work")
	run := func(arguments ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=t", "-c", "user.email=t@example.com", "-C", dir}, arguments...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", arguments, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("init", "--quiet", work)
	if err := os.CopyFS(filepath.Join(work, "cu"), os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	run("-C", work, "add", "--all")
	run("-C", work, "commit", "--quiet", "--message=first")
	run("-C", work, "tag", "v1")
	run("-C", work, "rm", "--quiet", "-r", "cu")
	run("-C", work, "commit", "--quiet", "--allow-empty", "--message=second")
	run("clone", "--quiet", "--bare", work, filepath.Join(dir, "repo.git"))
	backend := &cgi.Handler{
		Path: filepath.Join(run("--exec-path"), "git-http-backend"),
		Env: []string{
			"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + dir,
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		},
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body) // whole: the backend loops if a body ends early
		if err != nil {
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		r.TransferEncoding = nil
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	return web.URL + "/repo.git"
}

// network is a data controller with the templates and sites of the examples.
func network(t *testing.T) *catalog.Service {
	t.Helper()
	store, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	validator, err := validate.New(validate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	data := catalog.New(store, validator, catalog.Options{})
	text, err := os.ReadFile(filepath.Join(examples, "catalog.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	type entity struct {
		ID, Template, Package string
		Metadata              map[string]string
	}
	var all struct{ Templates []entity }
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	content := func(e entity) krm.Package {
		if e.Package == "" {
			return nil
		}
		pkg, err := location.Read(t.Context(), filepath.Join(examples, e.Package), location.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range pkg {
			if url := r.Text("spec", "url"); strings.Contains(url, "${CATALOG}") {
				folder, err := filepath.Abs(examples)
				if err != nil {
					t.Fatal(err)
				}
				r.Set(strings.ReplaceAll(url, "${CATALOG}", folder), "spec", "url")
			}
		}
		return pkg
	}
	for _, e := range all.Templates {
		if _, err := data.RegisterTemplate(t.Context(), tko.Template{ID: tko.TemplateID(e.ID), Metadata: e.Metadata, Package: content(e)}); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Open(filepath.Join(examples, "sites.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Fatal(len(rows), " rows: ", err)
	}
	for _, row := range rows[1:] { // site, template, cloud, region
		if _, err := data.RegisterSite(t.Context(), tko.Site{ID: tko.SiteID(row[0]), Template: tko.TemplateID(row[1]), Metadata: map[string]string{"cloud": row[2], "region": row[3]}}); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

// place prepares a topology and returns its children as "template at site", and the
// package without the annotations of its origin.
func place(t *testing.T, data *catalog.Service, compiler prepare.TOSCA, topology tko.NewDeployment) map[string]string {
	t.Helper()
	id, err := data.CreateDeployment(t.Context(), topology)
	if err != nil {
		t.Fatal(err)
	}
	p := prepare.New(data, nil, prepare.Options{TOSCA: compiler})
	result := p.Prepare(t.Context(), tko.WorkItem{Queue: tko.QueuePrepare, Key: string(id)})
	if result.Outcome != tko.WorkDone {
		t.Fatalf("%+v", result)
	}
	children := map[string]string{}
	for d, err := range data.Deployments(t.Context(), tko.DeploymentSelect{Parent: id}, tko.ListOptions{Packages: true}) {
		if err != nil {
			t.Fatal(err)
		}
		site := string(d.Site)
		if strings.HasPrefix(site, "provisioned/") {
			site = describe(t, data, d.Site)
		}
		pkg := d.Package.WithoutDeploymentState()
		for _, r := range pkg {
			for _, a := range []string{krm.AnnotationMerge, krm.AnnotationRename, krm.AnnotationMetadata} {
				r.SetAnnotation(a, "")
			}
		}
		children[fmt.Sprintf("%s at %s", d.Template, site)] = sorted(t, pkg)
	}
	return children
}

// describe returns a provisioned site without its ID.
func describe(t *testing.T, data *catalog.Service, id tko.SiteID) string {
	t.Helper()
	site, err := data.Site(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("a new site of %s in zone %v", site.Template, zone(site.Package))
}

func zone(pkg krm.Package) any {
	for _, r := range pkg {
		if r.GVK().Kind == "Zone" {
			value, _ := r.Get("spec", "zone")
			return value
		}
	}
	return nil
}

func sorted(t *testing.T, pkg krm.Package) string {
	t.Helper()
	slices.SortFunc(pkg, func(a, b krm.Resource) int { return cmp.Compare(a.Identity().String(), b.Identity().String()) })
	text, err := krm.Encode(krm.YAML, pkg)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const version = "tosca_definitions_version: tosca_simple_yaml_1_3\n"

// TestHostileTemplatesAreRefused compiles hostile service templates. The server
// survives and reports the cause.
func TestHostileTemplatesAreRefused(t *testing.T) {
	t.Parallel()
	var bomb strings.Builder
	bomb.WriteString(version + "metadata:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := range 12 {
		fmt.Fprintf(&bomb, "  a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	tests := map[string]struct {
		why   string
		files map[string]string
		says  string
	}{
		"no TOSCA":          {why: "YAML that is something else", files: map[string]string{"s.yaml": "a: b"}, says: "tosca_definitions_version"},
		"no YAML":           {why: "bytes", files: map[string]string{"s.yaml": "\x00{["}, says: "no YAML"},
		"a list":            {why: "bytes", files: map[string]string{"s.yaml": "[a]"}, says: "no YAML map"},
		"nothing to place":  {why: "valid, but without resources", files: map[string]string{"s.yaml": version}, says: "nothing to place"},
		"a missing import":  {why: "named with who imports it", files: map[string]string{"s.yaml": version + "imports: [none.yaml]"}, says: `s.yaml imports "none.yaml": there is no such file`},
		"out of the folder": {why: "the host's files must not be read", files: map[string]string{"s.yaml": version + "imports: [../../../etc/passwd]"}, says: "leads out of"},
		"an absolute path":  {why: "nor so", files: map[string]string{"s.yaml": version + "imports: [/etc/passwd]"}, says: "absolute"},
		"a file URL":        {why: "nor so", files: map[string]string{"s.yaml": version + "imports: ['file:///etc/passwd']"}, says: "relative path, or by http"},
		"a local address":   {why: "nor services of the host", files: map[string]string{"s.yaml": version + "imports: [{url: 'http://127.0.0.1:1/x.yaml'}]"}, says: "--tosca-local-addresses"},
		"by its name":       {why: "names lead to addresses", files: map[string]string{"s.yaml": version + "imports: ['http://localhost:1/x.yaml']"}, says: "--tosca-local-addresses"},
		"a repository":      {why: "it would be another way to fetch", files: map[string]string{"s.yaml": version + "repositories: {r: 'http://127.0.0.1/'}\nimports: [{file: a, repository: r}]"}, says: "names a repository"},
		"a loop":            {why: "files that import each other", files: map[string]string{"s.yaml": version + "imports: [a.yaml]", "a.yaml": version + "imports: [s.yaml]"}, says: "loop"},
		"a bomb":            {why: "few bytes that become very many", files: map[string]string{"s.yaml": bomb.String()}, says: "excessive aliasing"},
		"many mistakes": {
			why: "in the order of the file, the same each time", says: `["a"].oops: unsupported keyname (line 4 of "FOLDER/s.yaml"); topology_template.node_templates["b"].oops: unsupported keyname (line 5 of "FOLDER/s.yaml"); topology_template.node_templates["c"].oops`,
			files: map[string]string{"s.yaml": version + "topology_template:\n  node_templates:\n    a: {type: X, oops: 1}\n    b: {type: X, oops: 1}\n    c: {type: X, oops: 1}\n    d: {type: X, oops: 1}\n"},
		},
		"inputs of inputs": {
			why:   "functions without end",
			files: map[string]string{"s.yaml": version + "topology_template:\n  inputs: {a: {type: string, default: {get_input: a}}}\n  node_templates: {n: {type: Root, properties: {}}}\n"}, says: "",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, content := range test.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			pkg, err := preparer(false).Resources(t.Context(), filepath.Join(dir, "s.yaml"))
			if err == nil || !errors.Is(err, tko.ErrInvalid) && !errors.Is(err, tko.ErrDenied) || !strings.Contains(err.Error(), strings.ReplaceAll(test.says, "FOLDER", dir)) {
				t.Errorf("%s: %d resources, %v", test.why, len(pkg), err)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %s", took)
			}
			if err != nil && len(err.Error()) > 10_000 {
				t.Errorf("the message has %d bytes", len(err.Error()))
			}
		})
	}
}

// TestCompilerCannotOpenFilesOrConnections lets the compiler try
// forbidden operations.
func TestCompilerCannotOpenFilesOrConnections(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"/etc/passwd", "file:///etc/passwd", "http://127.0.0.1:1/a.yaml", "git:https://127.0.0.1:1/a.git!/a.yaml", "zip:file:///etc/passwd!/a"} {
		request, err := json.Marshal(tosca.Request{Root: "/s.yaml", Files: map[string]string{"/s.yaml": version + "imports: ['" + what + "']\n"}})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], child)
		cmd.Stdin = bytes.NewReader(request)
		out, err := cmd.Output()
		if err != nil || !bytes.Contains(out, []byte("too many open files")) {
			t.Errorf("%s: %s, %v", what, out, err)
		}
	}
}

// TestHostileArchivesAreRefused unpacks hostile archives.
func TestHostileArchivesAreRefused(t *testing.T) {
	t.Parallel()
	pack := func(files map[string]string, more func(*zip.Writer)) string {
		name := filepath.Join(t.TempDir(), "a.csar")
		out, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		z := zip.NewWriter(out)
		for name, content := range files {
			w, err := z.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(content)); err != nil {
				t.Fatal(err)
			}
		}
		if more != nil {
			more(z)
		}
		if err := errors.Join(z.Close(), out.Close()); err != nil {
			t.Fatal(err)
		}
		return name
	}
	link := func(z *zip.Writer) {
		h := &zip.FileHeader{Name: "s.yaml"}
		h.SetMode(fs.ModeSymlink | 0o777)
		w, err := z.CreateHeader(h)
		if err == nil {
			_, err = w.Write([]byte("/etc/passwd"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	huge := func(z *zip.Writer) {
		w, err := z.Create("s.yaml")
		for range 40 {
			if err == nil {
				_, err = w.Write(bytes.Repeat([]byte("a: b\n"), 1<<18))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct{ location, says string }{
		"a path out of it":    {pack(map[string]string{"../s.yaml": version}, nil), "leads out of it"},
		"an entry out of it":  {pack(map[string]string{"TOSCA-Metadata/TOSCA.meta": "Entry-Definitions: ../../etc/passwd\n"}, nil), "which is not in it"},
		"two roots":           {pack(map[string]string{"a.yaml": version, "b.yaml": version}, nil), "2 YAML files at its root"},
		"a link":              {pack(nil, link), "contains no .yaml"},
		"a bomb":              {pack(nil, huge), "too large"},
		"an import out of it": {pack(map[string]string{"s.yaml": version + "imports: [../file/etc/passwd]"}, nil), "leads out of"},
		"what isn't there":    {pack(map[string]string{"s.yaml": version}, nil) + "!/t.yaml", `no "t.yaml" in it`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := preparer(false).Resources(t.Context(), test.location)
			if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), test.says) {
				t.Error(err)
			}
		})
	}
}

package helm_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/helm"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/helm/helmtest"
)

func TestParametersBecomeNestedValues(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why        string
		parameters map[string]any
		want       map[string]any
		wantErr    string
	}{
		"none":    {why: "charts have defaults", want: map[string]any{}},
		"dots":    {why: "they lead to values within values", parameters: map[string]any{"a.b.c": "x", "a.b.d": "y"}, want: map[string]any{"a": map[string]any{"b": map[string]any{"c": "x", "d": "y"}}}},
		"escaped": {why: "as helm --set has it", parameters: map[string]any{`a\.b`: "x"}, want: map[string]any{"a.b": "x"}},
		"lists":   {why: "by their index", parameters: map[string]any{"a[1]": "x", "a[0]": int64(1)}, want: map[string]any{"a": []any{int64(1), "x"}}},
		"types": {
			why:        "text stays text, and whole numbers stay whole",
			parameters: map[string]any{"text": "true", "yes": true, "big": int64(1234567890), "part": 1.5, "null": nil, "list": []any{int64(3000000), "a,b=c"}, "map": map[string]any{"n": int64(1000000)}},
			want:       map[string]any{"text": "true", "yes": true, "big": int64(1234567890), "part": 1.5, "null": nil, "list": []any{int64(3000000), "a,b=c"}, "map": map[string]any{"n": int64(1000000)}},
		},
		"within":  {why: "the more exact one wins", parameters: map[string]any{"a": map[string]any{"b": "x", "c": "y"}, "a.b": "z"}, want: map[string]any{"a": map[string]any{"b": "z", "c": "y"}}},
		"no way":  {why: "a text has nothing within", parameters: map[string]any{"a": "x", "a.b": "y"}, wantErr: "spec.parameters.a.b is not a path to a value"},
		"no key":  {why: "a comma would begin another one", parameters: map[string]any{"a,b": "y"}, wantErr: "spec.parameters.a,b is not a path to a value"},
		"too far": {why: "lists are bounded", parameters: map[string]any{"a[99999999]": "y"}, wantErr: "spec.parameters.a[99999999] is not a path to a value"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := helm.Values(test.parameters)
			if test.wantErr != "" {
				if !errors.Is(err, tko.ErrInvalid) || !strings.HasPrefix(err.Error(), test.wantErr) {
					t.Errorf("%s: %v", test.why, err)
				}
				return
			}
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("%s: %v %s", test.why, err, diff)
			}
		})
	}
}

func TestGetResolvesReferences(t *testing.T) {
	t.Parallel()
	server := helmtest.Serve(t)
	archives := map[string][]byte{}
	for _, version := range []string{"1.0.0", "1.2.0", "1.10.0", "2.0.0-beta.1"} {
		archives[version] = helmtest.Archive(t, "web", version, nil)
		server.Add("web", version, archives[version])
	}
	server.Add("only-beta", "1.0.0-beta", archives["1.0.0"])
	folder := t.TempDir()
	for name, data := range map[string][]byte{"web.tgz": archives["1.0.0"]} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	same, err := helm.NewStore(helm.StoreOptions{Folder: folder}).Get(t.Context(), helm.Reference{Chart: "web.tgz"})
	if err != nil {
		t.Fatal(err)
	}
	oci, repository := server.Registry()+"/web", server.Repository()
	tests := map[string]struct {
		why     string
		from    helm.Reference
		want    string // version
		wantErr string
		kind    error
	}{
		"repository":         {why: "the newest that is no pre-release", from: helm.Reference{Chart: "web", Repository: repository}, want: "1.10.0"},
		"version":            {why: "exactly", from: helm.Reference{Chart: "web", Repository: repository + "/", Version: "1.2.0"}, want: "1.2.0"},
		"range":              {why: "the newest in it", from: helm.Reference{Chart: "web", Repository: repository, Version: "~1.2"}, want: "1.2.0"},
		"pre-release":        {why: "if it is named", from: helm.Reference{Chart: "web", Repository: repository, Version: "2.0.0-beta.1"}, want: "2.0.0-beta.1"},
		"URL":                {why: "as it is", from: helm.Reference{Chart: repository + "/web@1.2.0.tgz"}, want: "1.2.0"},
		"registry":           {why: "the newest that is no pre-release", from: helm.Reference{Chart: oci}, want: "1.10.0"},
		"tag":                {why: "as it is", from: helm.Reference{Chart: oci + ":1.2.0"}, want: "1.2.0"},
		"registry, version":  {why: "is the tag", from: helm.Reference{Chart: oci, Version: "1.2.0"}, want: "1.2.0"},
		"registry, range":    {why: "the newest in it", from: helm.Reference{Chart: oci, Version: "^1.0.0"}, want: "1.10.0"},
		"registry, name":     {why: "as a repository", from: helm.Reference{Chart: "web", Repository: server.Registry(), Version: "1.0.0"}, want: "1.0.0"},
		"tag and version":    {why: "one of them is wrong", from: helm.Reference{Chart: oci + ":1.2.0", Version: "1.0.0"}, wantErr: "remove one of them", kind: tko.ErrInvalid},
		"no such version":    {why: "it may come", from: helm.Reference{Chart: "web", Repository: repository, Version: "3.0.0"}, wantErr: `version "3.0.0": not found`},
		"no such tag":        {why: "it may come", from: helm.Reference{Chart: oci, Version: "3.0.0"}, wantErr: `version "3.0.0": not found`},
		"no such chart":      {why: "it may come", from: helm.Reference{Chart: "none", Repository: repository}, wantErr: "the repository has no such chart"},
		"only pre-releases":  {why: "a pre-release must be named", from: helm.Reference{Chart: "only-beta", Repository: repository}, wantErr: "name one in spec.version"},
		"no version":         {why: "it never will be", from: helm.Reference{Chart: "web", Repository: repository, Version: "new"}, wantErr: "is neither a version nor a range", kind: tko.ErrInvalid},
		"no repository":      {why: "it may come", from: helm.Reference{Chart: "web", Repository: server.URL + "/nowhere"}, wantErr: "404"},
		"another scheme":     {why: "only what we know", from: helm.Reference{Chart: "file:///etc/passwd"}, wantErr: "must be a URL that begins with https://", kind: tko.ErrInvalid},
		"repository scheme":  {why: "only what we know", from: helm.Reference{Chart: "x", Repository: "file:///etc"}, wantErr: "must be a URL that begins with https://", kind: tko.ErrInvalid},
		"credentials":        {why: "packages hold none", from: helm.Reference{Chart: "https://u:p@example.com/x.tgz"}, wantErr: "packages hold no secrets", kind: tko.ErrInvalid},
		"URL and repository": {why: "one of them is wrong", from: helm.Reference{Chart: "https://example.com/x.tgz", Repository: repository}, wantErr: "remove spec.repository", kind: tko.ErrInvalid},
		"nothing":            {why: "it must be somewhere", wantErr: "spec.chart: missing", kind: tko.ErrInvalid},
		"link-local":         {why: "clouds keep credentials there", from: helm.Reference{Chart: "http://169.254.169.254/latest"}, wantErr: "169.254.169.254 is local"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := helm.NewStore(helm.StoreOptions{Folder: folder, Guard: loopback(t)}).Get(t.Context(), test.from)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) || errors.Is(err, tko.ErrInvalid) != (test.kind != nil) {
					t.Errorf("%s: %v", test.why, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", test.why, err)
			}
			if test.want == "1.0.0" && c.Digest != same.Digest {
				t.Errorf("the same chart has another digest from elsewhere")
			}
			if diff := cmp.Diff(helm.DigestOf(archives[test.want]), c.Digest); diff != "" {
				t.Errorf("%s: %s", test.why, diff)
			}
		})
	}
}

// Concurrent and later calls share one download.
func TestConcurrentGetsShareOneDownload(t *testing.T) {
	t.Parallel()
	server := helmtest.Serve(t)
	server.Add("web", "1.0.0", helmtest.Archive(t, "web", "1.0.0", nil))
	store := helm.NewStore(helm.StoreOptions{})
	for _, r := range []helm.Reference{{Chart: "web", Repository: server.Repository()}, {Chart: server.Registry() + "/web:1.0.0"}} {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := store.Get(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if _, err := store.Get(t.Context(), r); err != nil {
			t.Error(err)
		}
		if n := server.Asked(); n > 4 {
			t.Errorf("%s: %d requests", r, n)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Get(ctx, helm.Reference{Chart: server.Registry() + "/other"}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the caller's context ended: %v", err)
	}
}

func TestArchiveWithWrongDigestIsRejected(t *testing.T) {
	t.Parallel()
	server := helmtest.Serve(t)
	server.Add("web", "1.0.0", helmtest.Archive(t, "web", "1.0.0", nil))
	server.Lie()
	store := helm.NewStore(helm.StoreOptions{})
	for _, r := range []helm.Reference{{Chart: "web", Repository: server.Repository()}, {Chart: server.Registry() + "/web:1.0.0"}} {
		if _, err := store.Get(t.Context(), r); err == nil {
			t.Errorf("%s was accepted", r)
		}
	}
}

func TestTooLargeChartsAreRejected(t *testing.T) {
	t.Parallel()
	server := helmtest.Serve(t)
	server.Add("large", "1.0.0", make([]byte, 21<<20))
	store := helm.NewStore(helm.StoreOptions{})
	for _, r := range []helm.Reference{{Chart: "large", Repository: server.Repository()}, {Chart: server.Registry() + "/large:1.0.0"}} {
		if _, err := store.Get(t.Context(), r); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "larger than 20 MiB") {
			t.Errorf("%s: %v", r, err)
		}
	}
	bomb := helmtest.Archive(t, "web", "1.0.0", map[string]string{"a": strings.Repeat("a", 65<<20)})
	server.Add("bomb", "1.0.0", bomb)
	c, err := store.Get(t.Context(), helm.Reference{Chart: server.Registry() + "/bomb:1.0.0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := helm.Load(c); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "larger than the maximum size") {
		t.Errorf("a bomb: %v", err)
	}
}

// Charts by path are in the folder, regardless of links and the contents of archives.
func TestChartsByPathStayInFolder(t *testing.T) {
	t.Parallel()
	outside, folder := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, path string) {
		t.Helper()
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
	}
	const metadata = "{apiVersion: v2, name: web, version: 1.0.0}"
	write(filepath.Join(outside, "Chart.yaml"), metadata)
	write(filepath.Join(folder, "releases/v1/web/Chart.yaml"), metadata)
	write(filepath.Join(folder, "releases/v1/web/templates/a.yaml"), "a: b")
	write(filepath.Join(folder, "releases/v1/web/.helmignore"), "*.bak\nsecret/")
	write(filepath.Join(folder, "releases/v1/web/x.bak"), "x")
	write(filepath.Join(folder, "releases/v1/web/secret/x"), "x")
	link("releases/v1", filepath.Join(folder, "current"))
	link(outside, filepath.Join(folder, "out"))
	write(filepath.Join(folder, "leaking/Chart.yaml"), metadata)
	link(filepath.Join(outside, "Chart.yaml"), filepath.Join(folder, "leaking/leak"))
	for name, file := range map[string]string{"up.tgz": "web/../../up", "root.tgz": "web//etc/passwd"} {
		write(filepath.Join(folder, name), string(helmtest.Pack(t, map[string]string{"web/Chart.yaml": metadata, file: "x"})))
	}
	write(filepath.Join(folder, "text.tgz"), "this is no archive")
	write(filepath.Join(folder, "library/Chart.yaml"), "{apiVersion: v2, name: library, version: 1.0.0, type: library}")
	const depends = "{apiVersion: v2, name: depends, version: 1.0.0, dependencies: [{name: web, version: 1.0.0}]}"
	write(filepath.Join(folder, "depends/Chart.yaml"), depends)
	write(filepath.Join(folder, "complete/Chart.yaml"), depends)
	write(filepath.Join(folder, "complete/charts/web/Chart.yaml"), metadata)
	tests := map[string]struct {
		why, path string
		wantErr   string
	}{
		"a folder":            {why: "it is there", path: "releases/v1/web"},
		"a whole path":        {why: "it leads into the folder", path: filepath.Join(folder, "releases/v1/web")},
		"through a link":      {why: "it stays in the folder", path: "current/web"},
		"parent":              {why: "it leads out", path: "../" + filepath.Base(outside), wantErr: "is not below"},
		"parent within":       {why: "it leads out", path: "current/../../x", wantErr: "is not below"},
		"absolute":            {why: "it leads out", path: outside, wantErr: "is not below"},
		"link out":            {why: "it leads out", path: "out", wantErr: "escapes"},
		"link out within":     {why: "it leads out", path: "leaking", wantErr: "escapes"},
		"nothing":             {why: "it may come", path: "nowhere", wantErr: "no such file"},
		"archive leads up":    {why: "a chart's files are in it", path: "up.tgz", wantErr: "illegally"},
		"archive leads away":  {why: "a chart's files are in it", path: "root.tgz", wantErr: "absolute paths"},
		"archive that is not": {why: "it must be one", path: "text.tgz", wantErr: "its archive is invalid"},
		"library":             {why: "there is nothing to install", path: "library", wantErr: "it is a library"},
		"depends":             {why: "nothing else is fetched", path: "depends", wantErr: `the chart "web" that it depends on is not in it`},
		"complete":            {why: "what it depends on is in it", path: "complete"},
		"no chart":            {why: "Chart.yaml is missing", path: "releases", wantErr: "Chart.yaml file is missing"},
	}
	store := helm.NewStore(helm.StoreOptions{Folder: folder})
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := store.Get(t.Context(), helm.Reference{Chart: test.path})
			if err == nil {
				err = helm.Load(c)
			}
			switch {
			case test.wantErr == "" && err != nil:
				t.Errorf("%s: %v", test.why, err)
			case test.wantErr != "" && (err == nil || !strings.Contains(err.Error(), test.wantErr) || strings.Contains(err.Error(), folder)):
				t.Errorf("%s: %v", test.why, err)
			}
		})
	}
	if _, err := helm.NewStore(helm.StoreOptions{}).Get(t.Context(), helm.Reference{Chart: "web"}); err == nil || !strings.Contains(err.Error(), "--charts") {
		t.Errorf("without a folder: %v", err)
	}

	// The digest depends on the chart's content only: not on times or ignored files.
	digest := func() string {
		t.Helper()
		d, err := store.Digest(helm.Reference{Chart: "releases/v1/web"})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	before := digest()
	write(filepath.Join(folder, "releases/v1/web/templates/a.yaml"), "a: b")
	write(filepath.Join(folder, "releases/v1/web/secret/x"), "yy")
	if digest() != before {
		t.Error("another digest of the same chart")
	}
	write(filepath.Join(folder, "releases/v1/web/templates/a.yaml"), "a: other")
	if digest() == before {
		t.Error("the same digest of another chart")
	}
}

// loopback returns a guard that allows loopback addresses.
func loopback(t *testing.T) *guard.Guard {
	t.Helper()
	g, err := guard.New(guard.Options{Addresses: []string{"127.0.0.0/8", "::1"}})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

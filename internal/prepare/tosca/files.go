package tosca

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/location"
)

// The bounds of a service template with its imports.
const (
	maxBytes = 16 << 20
	maxFiles = 500
)

// Schemes are the default schemes of permitted locations.
var Schemes = []string{"file", "http", "https", "git"}

// A fetcher collects the files of one service template.
type fetcher struct {
	schemes []string
	guard   *guard.Guard

	request Request
	bytes   int
	trees   map[string]map[string][]byte // files of archives and repositories, by the prefix of their names in the request
	queue   []string                     // names of files whose imports are to be read
}

// fetch returns the service template at a location with its imports. It reads nothing
// of the files but their imports.
func fetch(ctx context.Context, from string, schemes []string, g *guard.Guard) (Request, error) {
	f := &fetcher{schemes: schemes, guard: g, request: Request{Files: map[string]string{}}, trees: map[string]map[string][]byte{}}
	root, err := f.root(ctx, from)
	if err != nil {
		return Request{}, err
	}
	f.request.Root = root
	for len(f.queue) > 0 {
		name := f.queue[0]
		f.queue = f.queue[1:]
		imports, err := importsOf([]byte(f.request.Files[name]))
		if err != nil {
			return Request{}, tko.Errorf(tko.ErrInvalid, "%s: %w", name, err)
		}
		for _, i := range imports {
			if err := f.load(ctx, name, i); err != nil {
				return Request{}, fmt.Errorf("%s imports %q: %w", name, i, err)
			}
		}
	}
	return f.request, nil
}

// root reads the files at a location, and returns the name of the service template.
func (f *fetcher) root(ctx context.Context, from string) (string, error) {
	base, within, inside := cutWithin(from)
	scheme := schemeOf(base)
	if err := f.allowed(scheme); err != nil {
		return "", err
	}
	base = strings.TrimPrefix(base, "file://")
	if !inside && scheme == "file" && !filepath.IsAbs(base) {
		return "", tko.Errorf(tko.ErrInvalid, "the path %q is not absolute: write an absolute path", base)
	}
	files, err := location.ReadFiles(ctx, base, f.options())
	if err != nil {
		return "", err
	}
	content, single := files[""]
	if !single {
		const tree = "/archive"
		f.trees[tree] = files
		entry, err := entryOf(files, within)
		if err != nil {
			return "", err
		}
		return tree + "/" + entry, f.add(tree+"/"+entry, files[entry])
	}
	if inside {
		return "", tko.Errorf(tko.ErrInvalid, "it is no archive: write the location without !/PATH")
	}
	name := "/file" + path.Clean(filepath.ToSlash(base))
	if scheme != "file" {
		if name, err = nameOf(base); err != nil {
			return "", err
		}
	}
	return name, f.add(name, content)
}

func (f *fetcher) options() location.Options {
	return location.Options{MaxBytes: int64(maxBytes - f.bytes), Takes: takes, Guard: f.guard}
}

// takes reports whether a file of an archive or repository is read.
func takes(name string) bool {
	ext := strings.ToLower(path.Ext(name))
	return ext == ".yaml" || ext == ".yml" || ext == ".meta"
}

func (f *fetcher) allowed(scheme string) error {
	if !slices.Contains(f.schemes, scheme) {
		return tko.Errorf(tko.ErrDenied, "service templates may come from %s, and not from %s: allow it with --tosca-schemes where the preparer is started",
			strings.Join(f.schemes, ", "), scheme)
	}
	return nil
}

func (f *fetcher) add(name string, content []byte) error {
	f.bytes += len(content)
	if f.bytes > maxBytes || len(f.request.Files) >= maxFiles {
		return tko.Errorf(tko.ErrInvalid, "the service template and its imports are too large: use at most %d MiB in %d files", maxBytes>>20, maxFiles)
	}
	f.request.Files[name] = string(content)
	f.queue = append(f.queue, name)
	return nil
}

// load reads an import of a file, unless it is read already.
func (f *fetcher) load(ctx context.Context, from, what string) error {
	if scheme, _, ok := strings.Cut(what, "://"); ok {
		if scheme != "http" && scheme != "https" {
			return tko.Errorf(tko.ErrInvalid, "files are imported by a relative path, or by http and https")
		}
		name, err := nameOf(what)
		if err != nil {
			return err
		}
		return f.loadURL(ctx, name)
	}
	name := path.Join(path.Dir(from), what)
	tree := treeOf(from)
	switch {
	case strings.HasPrefix(what, "/"):
		return tko.Errorf(tko.ErrInvalid, "the path is absolute: write it relative to the file that imports it")
	case !strings.HasPrefix(name, tree+"/"):
		return tko.Errorf(tko.ErrInvalid, "the path leads out of %s", strings.TrimPrefix(tree, "/"))
	}
	if _, ok := f.request.Files[name]; ok {
		return nil
	}
	switch kind, _, _ := strings.Cut(tree[1:], "/"); kind {
	case "file":
		return f.loadFile(name)
	case "archive":
		content, ok := f.trees[tree][strings.TrimPrefix(name, tree+"/")]
		if !ok {
			return tko.Errorf(tko.ErrInvalid, "there is no such file in it")
		}
		return f.add(name, content)
	default:
		return f.loadURL(ctx, name)
	}
}

func (f *fetcher) loadURL(ctx context.Context, name string) error {
	if _, ok := f.request.Files[name]; ok {
		return nil
	}
	scheme, rest, _ := strings.Cut(name[1:], "/")
	if err := f.allowed(scheme); err != nil {
		return err
	}
	files, err := location.ReadFiles(ctx, scheme+"://"+rest, f.options())
	if err != nil {
		return err
	}
	content, ok := files[""]
	if !ok {
		return tko.Errorf(tko.ErrInvalid, "it is an archive: import a file")
	}
	return f.add(name, content)
}

// loadFile reads a file in the service template's folder or a folder below it.
func (f *fetcher) loadFile(name string) error {
	dir := path.Dir(strings.TrimPrefix(f.request.Root, "/file"))
	within, ok := strings.CutPrefix(strings.TrimPrefix(name, "/file"), strings.TrimSuffix(dir, "/")+"/")
	if !ok {
		return tko.Errorf(tko.ErrInvalid, "the path leads out of the folder of the service template")
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(within)
	if errors.Is(err, fs.ErrNotExist) {
		return tko.Errorf(tko.ErrInvalid, "there is no such file")
	}
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxBytes {
		return tko.Errorf(tko.ErrInvalid, "it is no regular file, or too large")
	}
	content, err := root.ReadFile(within)
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	return f.add(name, content)
}

// treeOf returns the prefix that the names of a file's relative imports must have.
func treeOf(name string) string {
	parts := strings.SplitN(name, "/", 4)
	if parts[1] == "http" || parts[1] == "https" {
		return "/" + parts[1] + "/" + parts[2]
	}
	return "/" + parts[1]
}

// nameOf returns the name of the file at a URL.
func nameOf(from string) (string, error) {
	u, err := url.Parse(from)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return "", tko.Errorf(tko.ErrInvalid, "it is no URL of a file: write one without user and fragment")
	}
	if path.Clean(u.Path) != u.Path {
		return "", tko.Errorf(tko.ErrInvalid, "its path isn't plain: write it without .. and //")
	}
	scheme, rest, _ := strings.Cut(from, "://")
	return "/" + scheme + "/" + rest, nil
}

// cutWithin splits a location into an archive or repository and the path within it.
func cutWithin(from string) (base, within string, inside bool) {
	i := strings.LastIndex(from, "!/")
	if i < 0 {
		return from, "", false
	}
	return from[:i], from[i+2:], true
}

// schemeOf returns the scheme of a location: "git" for repositories, "file" for paths.
func schemeOf(base string) string {
	plain, _, _ := strings.Cut(base, "#")
	plain, _, _ = strings.Cut(plain, "?")
	scheme, _, ok := strings.Cut(plain, "://")
	isGit := strings.HasSuffix(strings.TrimSuffix(plain, "/"), ".git") || strings.HasPrefix(base, "git:") || strings.HasPrefix(scheme, "git+")
	host, _, colon := strings.Cut(plain, ":")
	switch {
	case isGit && ok, !ok && colon && strings.Contains(host, "@"), scheme == "ssh" && ok:
		return "git"
	case !ok:
		return "file"
	default:
		return scheme
	}
}

// entryOf returns the name of the service template in an archive: within if not "",
// else the one that TOSCA.meta names, else the only one at its root.
func entryOf(files map[string][]byte, within string) (string, error) {
	if within != "" {
		entry := path.Clean(within)
		if _, ok := files[entry]; !ok {
			return "", tko.Errorf(tko.ErrInvalid, "there is no %q in it", within)
		}
		return entry, nil
	}
	for _, name := range []string{"TOSCA-Metadata/TOSCA.meta", "TOSCA.meta"} {
		for line := range strings.Lines(string(files[name])) {
			key, value, _ := strings.Cut(line, ":")
			if strings.TrimSpace(key) != "Entry-Definitions" {
				continue
			}
			entry := path.Clean(strings.TrimSpace(value))
			if _, ok := files[entry]; !ok || !fs.ValidPath(entry) {
				return "", tko.Errorf(tko.ErrInvalid, "its %s names %q, which is not in it", name, entry)
			}
			return entry, nil
		}
	}
	var entry []string
	for name := range files {
		if !strings.Contains(name, "/") && path.Ext(name) != ".meta" {
			entry = append(entry, name)
		}
	}
	if len(entry) != 1 {
		return "", tko.Errorf(tko.ErrInvalid, "it has no TOSCA-Metadata/TOSCA.meta, and %d YAML files at its root: name the service template with !/PATH", len(entry))
	}
	return entry[0], nil
}

// importsOf returns the imports of a TOSCA file.
func importsOf(content []byte) ([]string, error) {
	var document struct {
		Imports yaml.Node `yaml:"imports"`
	}
	var root yaml.Node
	if err := yaml.Unmarshal(content, &root); err != nil {
		return nil, fmt.Errorf("it is no YAML: %w", err)
	}
	var all any
	if err := root.Decode(&all); err != nil { // among others, if aliases make it very large
		return nil, fmt.Errorf("it is no YAML: %w", err)
	}
	if len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("it is no YAML map, so no TOSCA")
	}
	for i := 0; i+1 < len(root.Content[0].Content); i += 2 {
		if root.Content[0].Content[i].Value == "imports" {
			document.Imports = *plain(root.Content[0].Content[i+1])
		}
	}
	var imports []string
	for _, item := range document.Imports.Content {
		what, err := importOf(plain(item), 0)
		if err != nil {
			return nil, err
		}
		if what != "" {
			imports = append(imports, what)
		}
	}
	return imports, nil
}

// importOf reads one import: a text, a map with its file or URL, or a map of one name
// to either. It returns "" for a profile.
func importOf(item *yaml.Node, depth int) (string, error) {
	if item.Kind == yaml.ScalarNode {
		return item.Value, nil
	}
	if item.Kind != yaml.MappingNode || depth > 1 {
		return "", errors.New("an import is neither a text nor a map")
	}
	var what string
	for i := 0; i+1 < len(item.Content); i += 2 {
		value := plain(item.Content[i+1])
		switch item.Content[i].Value {
		case "file", "url":
			what = value.Value
		case "repository":
			return "", errors.New("an import names a repository: name the file by its URL instead")
		case "profile":
			return "", nil // Puccini has it, or not
		}
	}
	if what == "" && len(item.Content) == 2 {
		return importOf(plain(item.Content[1]), depth+1)
	}
	return what, nil
}

// plain returns the node of an alias, or n.
func plain(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

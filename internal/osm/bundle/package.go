package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/md5" //nolint:gosec // the format of checksums.txt
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
)

const (
	checksums      = "checksums.txt"
	maxPackage     = nbi.MaxPackage // bytes of all its files
	maxPackageFile = 20000          // files
)

// A Package is a VNF or NS package.
type Package struct {
	Kind nbi.Kind
	// ID is the descriptor's id. It must be the one that the descriptor has.
	ID string
	// Files are the files of the package, at any depth; one YAML or JSON file in
	// the root is the descriptor. They are read when they are needed, and must not
	// change until then.
	Files fs.FS
	// Source names the origin of the package in messages, such as a path.
	Source string
}

// Content is the content of a package.
type Content struct {
	Digest     string // of the files; empty if they can't be read
	Descriptor nbi.Descriptor
	Charts     map[string]string // charts with a version, by KDU

	files map[string]file
	name  string         // of the descriptor's file
	tree  map[string]any // of the descriptor, without its envelope
}

type file struct {
	data       []byte
	executable bool
}

// Load reads a package and checks its descriptor.
func (p Package) Load() (Content, error) {
	files, err := p.read()
	if err != nil {
		return Content{}, err
	}
	c := Content{files: files, Digest: digestOf(files)}
	if c.name, err = p.descriptorFile(files); err != nil {
		return Content{}, err
	}
	var kind nbi.Kind
	kind, c.Descriptor, c.tree, err = parseDescriptor(files[c.name].data)
	switch {
	case err != nil:
		return Content{}, p.invalid("%s: %w", c.name, err)
	case kind != p.Kind:
		return Content{}, p.invalid("%s holds a %s, and the package should be of kind %s", c.name, kind.Descriptor(), p.Kind)
	case c.Descriptor.ID != p.ID:
		return Content{}, p.invalid("%s has the id %q, and the package should be %q: make them the same", c.name, c.Descriptor.ID, p.ID)
	}
	for _, k := range c.Descriptor.KDUs {
		if VersionOf(k.Chart) != "" && !strings.Contains(k.Chart, "://") {
			if c.Charts == nil {
				c.Charts = map[string]string{}
			}
			c.Charts[k.Name] = k.Chart
		}
	}
	return c, nil
}

// Pack makes the archive of a package. The same content makes the same bytes. If withoutVersions is true, it removes the
// versions of charts from the descriptor.
func (p Package) Pack(c Content, withoutVersions bool) (nbi.Archive, error) {
	files := c.files
	if withoutVersions && len(c.Charts) > 0 {
		strip := stripVersions
		if path.Ext(c.name) == ".json" {
			strip = stripJSON
		}
		stripped, err := strip(files[c.name].data, c.Charts)
		if err != nil {
			return nbi.Archive{}, p.invalid("%s: %w", c.name, err)
		}
		files = maps.Clone(files)
		files[c.name] = file{data: stripped}
	}
	return p.archive(files)
}

// Key returns the key of the package among those of an OSM: "vnf/ID" or "ns/ID".
func (p Package) Key() string { return Key(p.Kind, p.ID) }

// Key returns the key of a package among those of an OSM: "vnf/ID" or "ns/ID".
func Key(k nbi.Kind, id string) string { return string(k) + "/" + id }

func (p Package) invalid(format string, args ...any) error {
	return tko.Errorf(tko.ErrInvalid, "%s: "+format, append([]any{p.Where()}, args...)...)
}

// Where returns the origin of the package for messages.
func (p Package) Where() string {
	if p.Source != "" {
		return p.Source
	}
	return fmt.Sprintf("%s package %q", p.Kind, p.ID)
}

// read reads the files except a checksums.txt in the root: Pack writes a new one.
func (p Package) read() (map[string]file, error) {
	files := map[string]file{}
	total := 0
	err := fs.WalkDir(p.Files, ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !e.Type().IsRegular() || name == checksums:
			return nil // links are left out, as OSM Ops does
		case len(files) == maxPackageFile:
			return p.invalid("it has more than %d files", maxPackageFile)
		}
		data, err := readBounded(p.Files, name, maxPackage-total)
		if errors.Is(err, errTooMuch) {
			return p.invalid("its files have more than %d MiB", maxPackage>>20)
		}
		if err != nil {
			return err
		}
		total += len(data)
		info, err := e.Info()
		if err != nil {
			return err
		}
		files[name] = file{data: data, executable: info.Mode()&0o111 != 0}
		return nil
	})
	if err != nil && !errors.Is(err, tko.ErrInvalid) {
		err = fmt.Errorf("reading %s: %w", p.Where(), err)
	}
	return files, err
}

var errTooMuch = errors.New("too much")

func readBounded(fsys fs.FS, name string, limit int) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err == nil && len(data) > limit {
		err = errTooMuch
	}
	return data, err
}

// descriptorFile returns the name of the descriptor: the only YAML or JSON file in
// the root.
func (p Package) descriptorFile(files map[string]file) (string, error) {
	var found []string
	for name := range files {
		if !strings.Contains(name, "/") && slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	switch len(found) {
	case 0:
		return "", p.invalid("it has no descriptor: put one YAML file into the package's own folder")
	case 1:
		return found[0], nil
	default:
		return "", p.invalid("%s could all be the descriptor: OSM accepts one YAML or JSON file in the package's own folder, and any number below", strings.Join(found, ", "))
	}
}

func digestOf(files map[string]file) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sum := sha256.Sum256(files[name].data)
		fmt.Fprintf(h, "%q %t %x\n", name, files[name].executable, sum)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// archive makes an archive: sorted, without times and owners, with checksums.txt as
// the last file.
func (p Package) archive(files map[string]file) (nbi.Archive, error) {
	var out, sums bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nbi.Archive{}, err
	}
	w := tar.NewWriter(zip)
	add := func(name string, f file) error {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: p.ID + "/" + name, Size: int64(len(f.data)), Mode: 0o644, Format: tar.FormatPAX, ModTime: time.Unix(0, 0)}
		if f.executable {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err := w.Write(f.data)
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sum := md5.Sum(files[name].data) //nolint:gosec // the format of checksums.txt
		fmt.Fprintf(&sums, "%x\t%s/%s\n", sum, p.ID, name)
		if err := add(name, files[name]); err != nil {
			return nbi.Archive{}, fmt.Errorf("packing %s/%s: %w", p.ID, name, err)
		}
	}
	if err := add(checksums, file{data: sums.Bytes()}); err != nil {
		return nbi.Archive{}, fmt.Errorf("packing %s: %w", p.ID, err)
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		return nbi.Archive{}, fmt.Errorf("packing %s: %w", p.ID, err)
	}
	return nbi.Archive{Name: p.ID + ".tar.gz", Data: out.Bytes()}, nil
}

// stripJSON is [stripVersions] for a descriptor in JSON.
func stripJSON(data []byte, charts map[string]string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	stripTree(tree, charts)
	return json.Marshal(tree)
}

// stripTree removes the versions of charts from a tree.
func stripTree(v any, charts map[string]string) {
	switch t := v.(type) {
	case map[string]any:
		if chart, ok := t["helm-chart"].(string); ok && slices.Contains(slices.Collect(maps.Values(charts)), chart) {
			t["helm-chart"] = Unversioned(chart)
		}
		for _, inner := range t {
			stripTree(inner, charts)
		}
	case []any:
		for _, inner := range t {
			stripTree(inner, charts)
		}
	}
}

// stripVersions removes the versions of charts from a descriptor in YAML, and changes
// nothing else.
func stripVersions(data []byte, charts map[string]string) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, err
	}
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if n.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(n.Content); i += 2 {
				if v := n.Content[i+1]; n.Content[i].Value == "helm-chart" && v.Kind == yaml.ScalarNode && slices.Contains(slices.Collect(maps.Values(charts)), v.Value) {
					v.Value = Unversioned(v.Value)
				}
			}
		}
		for _, child := range n.Content {
			walk(child)
		}
	}
	walk(&root)
	return yaml.Marshal(&root)
}

package osmops

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/osm/bundle"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
	"github.com/tko-orchestrator/tko/internal/secret"
)

const (
	// ConfigFile is the file in the root of a repository for OSM.
	ConfigFile = "osm_ops_config.yaml"
	// PackagesFolder is the folder of packages, directly in the target folder.
	PackagesFolder = "osm-pkgs"

	maxFile     = 4 << 20 // bytes of a file
	maxProblems = 100
)

// A Repository is the content of a revision for OSM.
type Repository struct {
	// ConnectionFile is the file of the connection. An absolute path names a secret
	// outside of the repository (by its base name, where secrets are mounted
	// elsewhere), any other path, slash-separated, a file in the repository.
	ConnectionFile string
	Desired        osm.Desired
	// Warnings are of ignored fields and documents, with file and line.
	Warnings []string
	// Unread has an ErrInvalid, with file and line, for each file of an instance that
	// can't be read. Such an instance isn't desired, but is in Desired.Keep. If its
	// name isn't known, KeepAll is, as the removed instances can't be determined.
	Unread []error
}

// Holds reports whether a revision is for OSM.
func Holds(fsys fs.FS) bool {
	info, err := fs.Stat(fsys, ConfigFile)
	return err == nil && info.Mode().IsRegular()
}

// Read reads a revision. The error joins an ErrInvalid, with the file and the line or
// field, for each problem. An invalid file of an instance is no error: it is in
// [Repository.Unread], and the others are read. Files of packages are read later,
// when they are needed.
func Read(fsys fs.FS) (*Repository, error) {
	r := &reader{fsys: fsys, repository: &Repository{}}
	settings, err := r.config()
	if err != nil {
		return nil, err
	}
	r.repository.ConnectionFile = settings.connection
	root, err := target(fsys, settings.target)
	if err != nil {
		return nil, err
	}
	if err := r.packages(root); err != nil {
		return nil, err
	}
	if len(r.problems) > 0 {
		return nil, errors.Join(r.problems...)
	}
	if err := r.instances(root, settings.extensions); err != nil {
		return nil, err
	}
	return r.repository, nil
}

type reader struct {
	fsys       fs.FS
	repository *Repository
	problems   []error
}

func (r *reader) warn(format string, args ...any) {
	r.repository.Warnings = append(r.repository.Warnings, fmt.Sprintf(format, args...))
}

func (r *reader) problem(err error) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, err)
	}
}

func invalid(format string, args ...any) error { return tko.Errorf(tko.ErrInvalid, format, args...) }

type settings struct {
	target, connection string
	extensions         []string
}

// config reads osm_ops_config.yaml.
func (r *reader) config() (settings, error) {
	data, err := readFile(r.fsys, ConfigFile)
	if errors.Is(err, fs.ErrNotExist) {
		return settings{}, invalid("%s is missing: it belongs into the root of the repository, and names the connection to OSM", ConfigFile)
	}
	if err != nil {
		return settings{}, err
	}
	m, _, err := document(ConfigFile, data)
	if err != nil {
		return settings{}, err
	}
	s := settings{extensions: []string{".osmops.yaml", ".osmops.yml"}}
	if m.has("targetDir") {
		if s.target, err = m.text("targetDir"); err != nil {
			return settings{}, err
		}
		if s.target == "" {
			return settings{}, m.wrong("targetDir", "is blank: name a folder, or leave it out for the root")
		}
	}
	if s.connection, err = m.text("connectionFile"); err != nil {
		return settings{}, err
	}
	if s.connection == "" {
		return settings{}, m.wrong("connectionFile", "is missing: name the file with the connection to OSM")
	}
	if !path.IsAbs(s.connection) {
		clean := path.Clean(s.connection)
		if !fs.ValidPath(clean) {
			return settings{}, m.wrong("connectionFile", "%q is not in the repository", s.connection)
		}
		s.connection = clean
	}
	given, err := m.texts("fileExtensions")
	if err != nil {
		return settings{}, err
	}
	given = slices.DeleteFunc(given, func(e string) bool { return e == "" })
	if len(given) > 0 {
		s.extensions = given
	}
	for _, e := range s.extensions {
		if e != strings.ToLower(e) {
			r.warn("%s:%d: fileExtensions: %q matches no file: names are compared in lower case", ConfigFile, m.line("fileExtensions"), e)
		}
	}
	for _, name := range m.others("targetDir", "connectionFile", "fileExtensions") {
		r.warn("%s:%d: %s is unknown, and ignored", ConfigFile, m.line(name), name)
	}
	return s, nil
}

// target returns the target folder. It is relative to the root, also with a leading
// slash, and must not leave it.
func target(fsys fs.FS, dir string) (string, error) {
	clean := path.Clean(strings.TrimLeft(dir, "/"))
	if dir == "" {
		clean = "."
	}
	if !fs.ValidPath(clean) {
		return "", invalid("%s: targetDir: %q leaves the repository: name a folder inside", ConfigFile, dir)
	}
	info, err := fs.Stat(fsys, clean)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return "", invalid("%s: targetDir: there is no folder %q in the repository", ConfigFile, dir)
	}
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", clean, err)
	}
	return clean, nil
}

// packages finds the packages. The name of a package's folder ends with the kind,
// which must be that of its descriptor.
func (r *reader) packages(root string) error {
	folder := path.Join(root, PackagesFolder)
	entries, err := fs.ReadDir(r.fsys, folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", folder, err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		dir := path.Join(folder, e.Name())
		p := bundle.Package{ID: e.Name(), Source: dir}
		switch {
		case strings.HasSuffix(e.Name(), "_knf"):
			p.Kind = nbi.KindVNF
		case strings.HasSuffix(e.Name(), "_ns"):
			p.Kind = nbi.KindNS
		default:
			r.problem(invalid("%s: the name of a package's folder ends with _knf (VNF) or _ns (NS)", dir))
			continue
		}
		if p.Files, err = fs.Sub(r.fsys, dir); err != nil {
			return fmt.Errorf("reading %s: %w", dir, err)
		}
		r.repository.Desired.Packages = append(r.repository.Desired.Packages, p)
	}
	return nil
}

// instances reads all NsInstance files, ordered by path. Extensions such as .yaml may
// be those of other files, too: those of packages, and ConfigFile.
func (r *reader) instances(root string, extensions []string) error {
	packages := path.Join(root, PackagesFolder) + "/"
	err := fs.WalkDir(r.fsys, root, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		lower := strings.ToLower(e.Name())
		if !e.Type().IsRegular() || !slices.ContainsFunc(extensions, func(ext string) bool { return strings.HasSuffix(lower, ext) }) {
			return nil
		}
		if name == ConfigFile {
			return nil
		}
		return r.instanceFile(name, packages)
	})
	if err != nil {
		return fmt.Errorf("reading %s: %w", root, err)
	}
	return nil
}

// instanceFile reads a file with the extension of instances. In a package it may be of
// another kind.
func (r *reader) instanceFile(name, packages string) error {
	data, err := readFile(r.fsys, name)
	if err != nil && !errors.Is(err, tko.ErrInvalid) {
		return err
	}
	var m mapping
	more := false
	if err == nil {
		m, more, err = document(name, data)
	}
	if rest, inFolder := strings.CutPrefix(name, packages); inFolder && strings.Contains(rest, "/") && !m.isInstance() {
		return nil
	}
	var i osm.Instance
	if err == nil {
		i, err = r.instance(m, more)
	}
	if err != nil {
		r.unread(m, err)
	} else {
		r.repository.Desired.Instances = append(r.repository.Desired.Instances, i)
	}
	return nil
}

// unread records a file that can't be read. The instance that it may belong to is not removed.
func (r *reader) unread(m mapping, err error) {
	if len(r.repository.Unread) < maxProblems {
		r.repository.Unread = append(r.repository.Unread, err)
	}
	name, kind := "", ""
	if m.node != nil {
		name, _ = m.text("name")
		kind, _ = m.text("kind")
	}
	switch {
	case name != "":
		r.repository.Desired.Keep = append(r.repository.Desired.Keep, "instance/"+name)
	case m.node == nil || kind == "" || m.isInstance(): // not if it is of another kind and has no name
		r.repository.Desired.Keep = append(r.repository.Desired.Keep, osm.KeepAll)
	}
}

func (m mapping) isInstance() bool {
	if m.node == nil {
		return false
	}
	kind, err := m.text("kind")
	return err == nil && strings.EqualFold(kind, "NsInstance")
}

// instance reads an NsInstance file.
func (r *reader) instance(m mapping, more bool) (osm.Instance, error) {
	file := m.file
	if more {
		r.warn("%s: only its first document is read: give each instance a file of its own", file)
	}
	i := osm.Instance{Source: file}
	kind, err := m.text("kind")
	if err != nil {
		return i, err
	}
	if !m.isInstance() {
		return i, m.wrong("kind", "is %q: write NsInstance", kind)
	}
	var member string
	for name, into := range map[string]*string{"name": &i.Name, "description": &i.Description, "nsdName": &i.NSD, "vnfName": &member, "vimAccountName": &i.VIM} {
		if *into, err = m.text(name); err != nil {
			return i, err
		}
	}
	for _, name := range []string{"name", "nsdName", "vnfName", "vimAccountName"} {
		if v, _ := m.text(name); v == "" {
			return i, m.wrong(name, "is missing")
		}
	}
	kdu, err := m.inner("kdu")
	if err != nil {
		return i, err
	}
	k := osm.KDU{}
	if k.Name, err = kdu.text("name"); err != nil {
		return i, err
	}
	if k.Name == "" {
		return i, kdu.wrong("name", "is missing")
	}
	if k.Params, err = kdu.params("params"); err != nil {
		return i, err
	}
	i.VNFs = []osm.VNF{{Member: member, KDUs: []osm.KDU{k}}}
	for _, name := range m.others("kind", "name", "description", "nsdName", "vnfName", "vimAccountName", "kdu") {
		r.warn("%s:%d: %s is unknown, and ignored", file, m.line(name), name)
	}
	for _, name := range kdu.others("name", "params") {
		r.warn("%s:%d: kdu.%s is unknown, and ignored", file, kdu.line(name), name)
	}
	return i, nil
}

func readFile(fsys fs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	if len(data) > maxFile {
		return nil, invalid("%s: has more than %d MiB", name, maxFile>>20)
	}
	return data, nil
}

// A mapping is a map in a file, with the lines of its fields.
type mapping struct {
	file, at string
	node     *yaml.Node
}

// document reads the first document of a file. more is true if there are others.
func document(file string, data []byte) (m mapping, more bool, err error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var root yaml.Node
	if err := d.Decode(&root); err != nil {
		if errors.Is(err, io.EOF) {
			return mapping{}, false, invalid("%s: it is empty", file)
		}
		return mapping{}, false, invalid("%s: %s", file, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		return mapping{}, false, invalid("%s:%d: it holds no map", file, root.Line)
	}
	var next yaml.Node
	more = d.Decode(&next) == nil && len(next.Content) > 0 && next.Content[0].Tag != "!!null"
	asWritten(&root)
	m = mapping{file: file, node: root.Content[0]}
	seen := map[string]bool{}
	for i := 0; i+1 < len(m.node.Content); i += 2 {
		name := m.node.Content[i].Value
		if seen[name] {
			return mapping{}, false, invalid("%s:%d: %s is there twice", file, m.node.Content[i].Line, name)
		}
		seen[name] = true
	}
	return m, more, nil
}

func (m mapping) find(name string) (key, value *yaml.Node) { return find(m.node, name, 0) }

// maxMerged is the limit of the depth of merged maps.
const maxMerged = 10

// find finds a field in a map, or else in the maps that are merged into it with <<.
func find(n *yaml.Node, name string, depth int) (key, value *yaml.Node) {
	n = plain(n)
	if n.Kind != yaml.MappingNode || depth > maxMerged {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], plain(n.Content[i+1])
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag != mergeTag {
			continue
		}
		all := []*yaml.Node{n.Content[i+1]}
		if merged := plain(n.Content[i+1]); merged.Kind == yaml.SequenceNode {
			all = merged.Content
		}
		for _, one := range all {
			key, value = find(one, name, depth+1)
			if key != nil {
				return key, value
			}
		}
	}
	return nil, nil
}

const mergeTag = "!!merge"

// plain returns the node that an alias refers to; n itself if it is no alias.
func plain(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func (m mapping) has(name string) bool {
	_, v := m.find(name)
	return v != nil && v.Tag != "!!null"
}

func (m mapping) line(name string) int {
	if k, _ := m.find(name); k != nil {
		return k.Line
	}
	return m.node.Line
}

func (m mapping) wrong(name, format string, args ...any) error {
	return invalid("%s:%d: %s%s %s", m.file, m.line(name), m.at, name, fmt.Sprintf(format, args...))
}

// text returns a field that must be a text, trimmed; empty if it is missing.
func (m mapping) text(name string) (string, error) {
	if !m.has(name) {
		return "", nil
	}
	_, v := m.find(name)
	if v.Kind != yaml.ScalarNode {
		return "", m.wrong(name, "must be a text")
	}
	return strings.TrimSpace(v.Value), nil
}

func (m mapping) texts(name string) ([]string, error) {
	if !m.has(name) {
		return nil, nil
	}
	_, v := m.find(name)
	if v.Kind != yaml.SequenceNode {
		return nil, m.wrong(name, "must be a list of texts")
	}
	var all []string
	for _, e := range v.Content {
		e = plain(e)
		if e.Kind != yaml.ScalarNode {
			return nil, m.wrong(name, "must be a list of texts")
		}
		if e.Tag != "!!null" {
			all = append(all, strings.TrimSpace(e.Value))
		}
	}
	return all, nil
}

func (m mapping) inner(name string) (mapping, error) {
	_, v := m.find(name)
	if v == nil || v.Kind != yaml.MappingNode {
		return mapping{}, m.wrong(name, "is missing, or not a map")
	}
	return mapping{file: m.file, at: m.at + name + ".", node: v}, nil
}

// params returns a field that must be a map of JSON values; nil if it is missing.
func (m mapping) params(name string) (map[string]any, error) {
	if !m.has(name) {
		return nil, nil
	}
	_, v := m.find(name)
	if v.Kind != yaml.MappingNode {
		return nil, m.wrong(name, "must be a map: they are the values of a Helm chart")
	}
	var all map[string]any
	if err := v.Decode(&all); err != nil {
		return nil, m.wrong(name, "%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	plain, err := plainValue(all)
	if err != nil {
		return nil, m.wrong(name, "%s", err)
	}
	all, _ = plain.(map[string]any)
	return all, nil
}

// asWritten makes texts of timestamps.
func asWritten(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!timestamp" {
		n.Tag = "!!str"
	}
	for _, child := range n.Content {
		asWritten(child)
	}
}

// plainValue converts a value of YAML to the types of JSON.
func plainValue(v any) (any, error) {
	switch t := v.(type) {
	case map[string]any:
		for k, e := range t {
			p, err := plainValue(e)
			if err != nil {
				return nil, err
			}
			t[k] = p
		}
		return t, nil
	case map[any]any:
		m := make(map[string]any, len(t))
		for k, e := range t {
			p, err := plainValue(e)
			if err != nil {
				return nil, err
			}
			m[fmt.Sprint(k)] = p
		}
		return m, nil
	case []any:
		for i, e := range t {
			p, err := plainValue(e)
			if err != nil {
				return nil, err
			}
			t[i] = p
		}
		return t, nil
	case float64:
		if math.IsNaN(t) || math.IsInf(t, 0) {
			return nil, errors.New("has a number that JSON can't represent")
		}
		return t, nil
	case nil, bool, int, int64, uint64, string:
		return t, nil
	default:
		return nil, fmt.Errorf("has a value of type %T, which isn't one of JSON", v)
	}
}

func (m mapping) others(known ...string) []string {
	var all []string
	for i := 0; i+1 < len(m.node.Content); i += 2 {
		if name := m.node.Content[i].Value; !slices.Contains(known, name) && m.node.Content[i].Tag != mergeTag {
			all = append(all, name)
		}
	}
	return all
}

// A Connection is the content of a connection file.
type Connection struct {
	Hostname string // host:port
	User     string
	Password secret.Text
	Project  string
	// In addition to OSM Ops:
	Scheme   string // https or http; see Endpoint
	CA       []byte // PEM
	Insecure bool   // accept any certificate
}

var hostname = regexp.MustCompile(`^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?)$`)

// ParseConnection reads a connection file. Errors are ErrInvalid, without values of
// the file.
func ParseConnection(data []byte) (Connection, error) {
	const file = "the connection to OSM"
	var raw yaml.Node
	if err := yaml.Unmarshal(data, &raw); err != nil || len(raw.Content) == 0 || raw.Content[0].Kind != yaml.MappingNode {
		return Connection{}, invalid("%s: it is no YAML map with hostname, user, password and project", file)
	}
	m := mapping{file: file, node: raw.Content[0]}
	var c Connection
	var ca, insecure string
	for name, into := range map[string]*string{
		"hostname": &c.Hostname, "user": &c.User, "project": &c.Project, "scheme": &c.Scheme, "ca": &ca, "insecure": &insecure,
	} {
		var err error
		if *into, err = m.text(name); err != nil {
			return Connection{}, err
		}
	}
	if _, v := m.find("password"); v != nil && v.Kind == yaml.ScalarNode && v.Tag != "!!null" {
		c.Password = secret.Text(v.Value) // not trimmed
	}
	for name, v := range map[string]string{"hostname": c.Hostname, "user": c.User, "password": string(c.Password), "project": c.Project} {
		if v == "" {
			return Connection{}, m.wrong(name, "is missing")
		}
	}
	host, port, err := net.SplitHostPort(c.Hostname)
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if _, numErr := strconv.ParseUint(port, 10, 16); err != nil || numErr != nil || !hostname.MatchString(host) {
		return Connection{}, m.wrong("hostname", "must be host:port")
	}
	if c.Scheme != "" && c.Scheme != "https" && c.Scheme != "http" {
		return Connection{}, m.wrong("scheme", "must be https or http")
	}
	if ca != "" {
		if block, _ := pem.Decode([]byte(ca)); block == nil {
			return Connection{}, m.wrong("ca", "must be certificates in PEM")
		}
		c.CA = []byte(ca)
	}
	switch insecure {
	case "", "false":
	case "true":
		c.Insecure = true
	default:
		return Connection{}, m.wrong("insecure", "must be true or false")
	}
	return c, nil
}

// Endpoint returns the endpoint of a connection. If read is not nil, it reads the
// connection again for each login, so that a changed password is used.
//
// Without a scheme it is https, unless the port is 80, which is plain http.
func (c Connection) Endpoint(read func(ctx context.Context) (Connection, error)) nbi.Endpoint {
	e := nbi.Endpoint{URL: c.Hostname, CA: c.CA, Insecure: c.Insecure, User: c.User, Project: c.Project}
	scheme := c.Scheme
	if scheme == "" && strings.HasSuffix(c.Hostname, ":80") {
		scheme = "http"
	}
	if scheme != "" {
		e.URL = scheme + "://" + c.Hostname
	}
	e.Password = func(ctx context.Context) (secret.Text, error) {
		if read == nil {
			return c.Password, nil
		}
		now, err := read(ctx)
		return now.Password, err
	}
	return e
}

package osmtest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.yaml.in/yaml/v3"
)

// A Package is a package in OSM.
type Package struct {
	ID       string // _id
	Revision int    // counts the archives that were sent
	Edits    int    // counts the descriptors that were merged into it
	Files    map[string][]byte
	Keys     []string // of the descriptor, and OSM's own, sorted
	Record   map[string]any
}

// Package returns a package of a kind ("vnf" or "ns") by its descriptor's id.
func (s *Server) Package(kind, id string) (Package, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.packages[kind] {
		if d["id"] == id {
			admin := mapOf(d["_admin"])
			own := textOf(d["_id"])
			return Package{ID: own, Revision: intOf(admin["revision"]), Edits: intOf(admin["edits"]), Files: maps.Clone(s.sent[own]), Keys: slices.Sorted(maps.Keys(d)), Record: mapOf(copyOf(d))}, true
		}
	}
	return Package{}, false
}

func (s *Server) servePackages(c *call, kind string, rest []string) response {
	all := s.packages[kind]
	content := map[string]string{"vnf": "package_content", "ns": "nsd_content"}[kind]
	osmStyle := strings.HasSuffix(c.parts[2], "_content")
	switch {
	case c.method == http.MethodGet && len(rest) <= 1:
		return s.read(c, rest, &all, "package")
	case c.method == http.MethodGet && len(rest) == 2 && rest[1] == content:
		return s.readArchive(c, kind, rest[0])
	case c.method == http.MethodPost && len(rest) == 0 && osmStyle:
		return s.createPackage(c, kind)
	case c.method == http.MethodPut && len(rest) == 1 && osmStyle:
		return s.editPackage(c, kind, rest[0])
	case c.method == http.MethodPut && len(rest) == 2 && rest[1] == content:
		return s.replacePackage(c, kind, rest[0])
	case c.method == http.MethodDelete && len(rest) == 1:
		return s.deletePackage(c, kind, rest[0])
	default:
		return problem(405, "METHOD_NOT_ALLOWED", "method %s not allowed here", c.method)
	}
}

func (s *Server) createPackage(c *call, kind string) response {
	u, a, ok := unpack(c)
	if !ok {
		return a
	}
	d, a, ok := s.open(kind, u.tree)
	if !ok {
		return a
	}
	for _, other := range s.packages[kind] {
		if other["id"] == d["id"] && visible(other, c.project) {
			return conflict("%s with id '%s' already exists for this project", kind+"d", d["id"])
		}
	}
	if a, ok := s.checkReferences(c, kind, d); !ok {
		return a
	}
	id := uuid.NewString()
	now := seconds(time.Now())
	d["_id"] = id
	d["_admin"] = doc{
		"created": now, "modified": now, "revision": 1, "edits": 0, "onboardingState": "ONBOARDED", "operationalState": "ENABLED", "usageState": "NOT_IN_USE",
		"projects_read": []any{c.project}, "projects_write": []any{c.project},
	}
	d["onboardingState"] = "ONBOARDED"
	s.packages[kind] = append(s.packages[kind], d)
	s.sent[id], s.archives[id] = u.files, c.body
	return response{status: 201, body: doc{"id": id}, location: "/osm/" + strings.Join(c.parts, "/") + "/" + id}
}

// readArchive returns the archive that was sent last.
func (s *Server) readArchive(c *call, kind, id string) response {
	switch accept := c.header.Get("Accept"); {
	case find(s.packages[kind], id, c.project) == nil:
		return missing("Not found any package with filter='{'_id': '%s'}'", id)
	case !strings.Contains(accept, "application/zip") && !strings.Contains(accept, "application/gzip"):
		return problem(406, "NOT_ACCEPTABLE", "provide request header 'Accept' with 'application/zip' or 'text/plain'")
	}
	return response{status: 200, raw: s.archives[id]}
}

// replacePackage replaces the archive, and merges its descriptor into the old one.
func (s *Server) replacePackage(c *call, kind, id string) response {
	old := find(s.packages[kind], id, c.project)
	if old == nil {
		return missing("Not found any package with filter='{'_id': '%s'}'", id)
	}
	u, a, ok := unpack(c)
	if !ok {
		return a
	}
	if s.used(kind, id) { // before anything else is checked
		if a, ok := u.mayReplace(kind, s.sent[id]); !ok {
			return a
		}
	}
	d, problem := descriptor(u.tree, kind)
	if problem != "" {
		return unprocessable("%s", problem)
	}
	if a, ok := s.edit(c, kind, old, d); !ok {
		return a
	}
	admin := mapOf(old["_admin"])
	admin["revision"] = intOf(admin["revision"]) + 1
	s.sent[id], s.archives[id] = u.files, c.body
	return response{status: 204}
}

// editPackage merges a descriptor into that of a package, and leaves its files.
func (s *Server) editPackage(c *call, kind, id string) response {
	old := find(s.packages[kind], id, c.project)
	if old == nil {
		return missing("Not found any package with filter='{'_id': '%s'}'", id)
	}
	if bytes.HasPrefix(c.body, []byte{0x1f, 0x8b}) {
		return badRequest("Error decoding body: it is no YAML")
	}
	tree, a, ok := c.decode()
	if !ok {
		return a
	}
	d, problem := descriptor(tree, kind)
	if problem != "" {
		return unprocessable("%s", problem)
	}
	if a, ok := s.edit(c, kind, old, d); !ok {
		return a
	}
	admin := mapOf(old["_admin"])
	admin["edits"] = intOf(admin["edits"]) + 1
	return response{status: 204}
}

// edit merges a descriptor into a record. A refused one changes nothing.
func (s *Server) edit(c *call, kind string, record, d doc) (response, bool) {
	next := mapOf(copyOf(record))
	merge(next, d)
	if next["id"] != record["id"] {
		return conflict("the id of the descriptor can't change"), false
	}
	if problem := s.checkCharts(next); kind == "vnf" && problem != "" {
		return unprocessable("%s", problem), false
	}
	if a, ok := s.checkReferences(c, kind, next); !ok {
		return a, false
	}
	clear(record)
	maps.Copy(record, next)
	return response{}, true
}

func (s *Server) deletePackage(c *call, kind, id string) response {
	d := find(s.packages[kind], id, c.project)
	if d == nil {
		return missing("Not found any package with filter='{'_id': '%s'}'", id)
	}
	if kind == "vnf" {
		for _, nsd := range s.packages["ns"] {
			if slices.Contains(references(nsd), textOf(d["id"])) {
				return conflict("There is at least one package using this descriptor")
			}
		}
	}
	if s.used(kind, id) {
		return conflict("There is at least one instance using this descriptor")
	}
	s.packages[kind] = slices.DeleteFunc(s.packages[kind], func(other doc) bool { return other["_id"] == id })
	delete(s.sent, id)
	delete(s.archives, id)
	return response{status: 204}
}

// used reports whether an instance uses a package.
func (s *Server) used(kind, id string) bool {
	return slices.ContainsFunc(s.nsrs, func(nsr doc) bool {
		return kind == "ns" && nsr["nsd-id"] == id || kind == "vnf" && slices.Contains(listOf(nsr["vnfd-id"]), any(id))
	})
}

func (s *Server) checkReferences(c *call, kind string, d doc) (response, bool) {
	if kind != "ns" {
		return response{}, true
	}
	for _, id := range references(d) {
		if s.byDescriptorID("vnf", id, c.project) == nil {
			return conflict("Descriptor error at 'vnfd-id'='%s' references a non existing vnfd", id), false
		}
	}
	return response{}, true
}

func (s *Server) byDescriptorID(kind, id, project string) doc {
	for _, d := range s.packages[kind] {
		if d["id"] == id && visible(d, project) {
			return d
		}
	}
	return nil
}

// references returns the VNFDs of an NSD.
func references(nsd doc) []string {
	var all []string
	for _, v := range listOf(nsd["vnfd-id"]) {
		all = append(all, textOf(v))
	}
	for _, p := range profiles(nsd) {
		all = append(all, textOf(p["vnfd-id"]))
	}
	return all
}

func profiles(nsd doc) []doc {
	var all []doc
	for _, df := range listOf(nsd["df"]) {
		for _, p := range listOf(mapOf(df)["vnf-profile"]) {
			all = append(all, mapOf(p))
		}
	}
	return all
}

// unpacked is the content of an archive.
type unpacked struct {
	files map[string][]byte
	name  string // of the descriptor's file
	tree  doc    // of the descriptor
}

// open reads the descriptor of a new package, and checks it.
func (s *Server) open(kind string, tree doc) (d doc, a response, ok bool) {
	d, trouble := descriptor(tree, kind)
	if trouble == "" && kind == "vnf" {
		trouble = s.checkCharts(d)
	}
	if trouble != "" {
		return nil, unprocessable("%s", trouble), false
	}
	return d, response{}, true
}

// unpack reads an archive, with the checks of the server.
func unpack(c *call) (u unpacked, a response, ok bool) {
	if a, ok := c.checksum(); !ok {
		return u, a, false
	}
	switch {
	case !slices.Contains([]string{"application/gzip", "application/zip", "application/octet-stream"}, c.contentType()):
		return u, badRequest("Error decoding body: %q is read as YAML", c.contentType()), false
	case c.header.Get("Content-Filename") == "":
		return u, badRequest("Content-Filename is missing"), false
	}
	zip, err := gzip.NewReader(bytes.NewReader(c.body))
	if err != nil {
		return u, badRequest("file is not a gzip: %v", err), false
	}
	u.files = map[string][]byte{}
	var descriptors []string
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return u, badRequest("file is not a tar: %v", err), false
		}
		parts := strings.Split(h.Name, "/")
		if path.IsAbs(h.Name) || slices.Contains(parts, "..") {
			return u, unprocessable("Absolute path or '..' are not allowed for package descriptor tar.gz"), false
		}
		if len(parts) == 1 && h.Typeflag == tar.TypeReg {
			return u, unprocessable("All files must be inside a dir for package descriptor tar.gz"), false
		}
		data, err := io.ReadAll(io.LimitReader(r, maxBody))
		if err != nil {
			return u, badRequest("file is not a tar: %v", err), false
		}
		u.files[h.Name] = data
		if ext := path.Ext(h.Name); len(parts) == 2 && slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
			descriptors = append(descriptors, h.Name)
		}
	}
	if len(descriptors) != 1 {
		return u, unprocessable("Found %d descriptor files at package descriptor tar.gz: there must be one", len(descriptors)), false
	}
	u.name = descriptors[0]
	if u.tree, err = readTree(u.name, u.files[u.name]); err != nil {
		return u, badRequest("Error decoding %s: %v", u.name, err), false
	}
	return u, response{}, true
}

// readTree reads YAML or JSON.
func readTree(name string, data []byte) (tree doc, err error) {
	read := yaml.Unmarshal
	if path.Ext(name) == ".json" {
		read = json.Unmarshal
	}
	return tree, read(data, &tree)
}

// descriptor removes the envelope of a descriptor.
func descriptor(tree doc, kind string) (d doc, problem string) {
	names := map[string][]string{"vnf": {"vnfd", "etsi-nfv-vnfd:vnfd"}, "ns": {"nsd", "etsi-nfv-nsd:nsd"}}[kind]
	for _, name := range names {
		inner, ok := tree[name]
		if !ok {
			continue
		}
		if m := mapOf(inner); kind == "ns" && m["nsd"] != nil {
			inner = m["nsd"]
		}
		if l := listOf(inner); len(l) == 1 {
			inner = l[0]
		}
		if d := mapOf(inner); textOf(d["id"]) != "" {
			return d, ""
		}
	}
	return nil, fmt.Sprintf("Error in pyangbind validation: '%s' is not a %sd", strings.Join(slices.Sorted(maps.Keys(tree)), ","), kind)
}

var chartName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9._]*)/[a-z0-9]([-a-z0-9._]*)$`)

func (s *Server) checkCharts(d doc) (problem string) {
	if s.options.OldCharts {
		return ""
	}
	for _, k := range listOf(d["kdu"]) {
		chart := textOf(mapOf(k)["helm-chart"])
		if chart != "" && !strings.Contains(chart, "://") && !chartName.MatchString(chart) {
			return fmt.Sprintf("Format error at 'kdu:helm-chart' '%s' is not a valid helm chart", chart)
		}
	}
	return ""
}

// merge merges a descriptor into another one: absent keys stay, null removes, lists are
// replaced.
func merge(into, from doc) {
	for name, v := range from {
		switch was, isMap := into[name].(doc); {
		case v == nil:
			delete(into, name)
		case isMap && mapOf(v) != nil:
			merge(was, mapOf(v))
		default:
			into[name] = v
		}
	}
}

// copyOf copies maps and lists.
func copyOf(v any) any {
	switch t := v.(type) {
	case doc:
		c := make(doc, len(t))
		for name, inner := range t {
			c[name] = copyOf(inner)
		}
		return c
	case []any:
		c := make([]any, len(t))
		for i, inner := range t {
			c[i] = copyOf(inner)
		}
		return c
	default:
		return v
	}
}

func mapOf(v any) doc {
	m, _ := v.(doc)
	return m
}

func listOf(v any) []any {
	l, _ := v.([]any)
	return l
}

func textOf(v any) string {
	s, _ := v.(string)
	return s
}

func intOf(v any) int {
	i, _ := v.(int)
	return i
}

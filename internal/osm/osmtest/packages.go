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

// A Package is what is in OSM.
type Package struct {
	ID       string // _id
	Revision int    // counts the archives that were sent
	Edits    int    // counts the descriptors that were merged into it
	Files    map[string][]byte
	Keys     []string // of the descriptor, and OSM's own, sorted
}

// Package answers a package of a kind ("vnf" or "ns") by its descriptor's id.
func (s *Server) Package(kind, id string) (Package, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.packages[kind] {
		if d["id"] == id {
			admin := mapOf(d["_admin"])
			own := textOf(d["_id"])
			return Package{ID: own, Revision: intOf(admin["revision"]), Edits: intOf(admin["edits"]), Files: maps.Clone(s.sent[own]), Keys: slices.Sorted(maps.Keys(d))}, true
		}
	}
	return Package{}, false
}

func (s *Server) servePackages(c *call, kind string, rest []string) answer {
	all := s.packages[kind]
	content := map[string]string{"vnf": "package_content", "ns": "nsd_content"}[kind]
	osmStyle := strings.HasSuffix(c.parts[2], "_content")
	switch {
	case c.method == http.MethodGet && len(rest) <= 1:
		return s.read(c, rest, &all, "package")
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

func (s *Server) createPackage(c *call, kind string) answer {
	d, files, a, ok := s.unpack(c, kind)
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
	s.sent[id] = files
	return answer{status: 201, body: doc{"id": id}, location: "/osm/" + strings.Join(c.parts, "/") + "/" + id}
}

// replacePackage takes a new archive. The descriptor is merged into the old one.
func (s *Server) replacePackage(c *call, kind, id string) answer {
	old := find(s.packages[kind], id, c.project)
	if old == nil {
		return missing("Not found any package with filter='{'_id': '%s'}'", id)
	}
	d, files, a, ok := s.unpack(c, kind)
	if !ok {
		return a
	}
	if d["id"] != old["id"] {
		return conflict("the id of the descriptor can't change")
	}
	if a, ok := s.checkReferences(c, kind, d); !ok {
		return a
	}
	merge(old, d)
	admin := mapOf(old["_admin"])
	admin["revision"] = intOf(admin["revision"]) + 1
	s.sent[id] = files
	return answer{status: 204}
}

// editPackage merges a descriptor into that of a package.
func (s *Server) editPackage(c *call, kind, id string) answer {
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
	merge(old, d)
	admin := mapOf(old["_admin"])
	admin["edits"] = intOf(admin["edits"]) + 1
	return answer{status: 204}
}

func (s *Server) deletePackage(c *call, kind, id string) answer {
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
	for _, nsr := range s.nsrs {
		vnfds, _ := nsr["vnfd-id"].([]any)
		if kind == "ns" && nsr["nsd-id"] == id || kind == "vnf" && slices.Contains(vnfds, any(id)) {
			return conflict("There is at least one instance using this descriptor")
		}
	}
	s.packages[kind] = slices.DeleteFunc(s.packages[kind], func(other doc) bool { return other["_id"] == id })
	delete(s.sent, id)
	return answer{status: 204}
}

func (s *Server) checkReferences(c *call, kind string, d doc) (answer, bool) {
	if kind != "ns" {
		return answer{}, true
	}
	for _, id := range references(d) {
		if s.byDescriptorID("vnf", id, c.project) == nil {
			return conflict("Descriptor error at 'vnfd-id'='%s' references a non existing vnfd", id), false
		}
	}
	return answer{}, true
}

func (s *Server) byDescriptorID(kind, id, project string) doc {
	for _, d := range s.packages[kind] {
		if d["id"] == id && visible(d, project) {
			return d
		}
	}
	return nil
}

// references are the VNFDs that an NSD names.
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

// unpack reads an archive, as the server checks it.
func (s *Server) unpack(c *call, kind string) (d doc, files map[string][]byte, a answer, ok bool) {
	if a, ok := c.checksum(); !ok {
		return nil, nil, a, false
	}
	switch {
	case !slices.Contains([]string{"application/gzip", "application/zip", "application/octet-stream"}, c.contentType()):
		return nil, nil, badRequest("Error decoding body: %q is read as YAML", c.contentType()), false
	case c.header.Get("Content-Filename") == "":
		return nil, nil, badRequest("Content-Filename is missing"), false
	}
	zip, err := gzip.NewReader(bytes.NewReader(c.body))
	if err != nil {
		return nil, nil, badRequest("file is not a gzip: %v", err), false
	}
	files = map[string][]byte{}
	var descriptors []string
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, badRequest("file is not a tar: %v", err), false
		}
		parts := strings.Split(h.Name, "/")
		if path.IsAbs(h.Name) || slices.Contains(parts, "..") {
			return nil, nil, unprocessable("Absolute path or '..' are not allowed for package descriptor tar.gz"), false
		}
		if len(parts) == 1 && h.Typeflag == tar.TypeReg {
			return nil, nil, unprocessable("All files must be inside a dir for package descriptor tar.gz"), false
		}
		data, err := io.ReadAll(io.LimitReader(r, maxBody))
		if err != nil {
			return nil, nil, badRequest("file is not a tar: %v", err), false
		}
		files[h.Name] = data
		if ext := path.Ext(h.Name); len(parts) == 2 && slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
			descriptors = append(descriptors, h.Name)
		}
	}
	if len(descriptors) != 1 {
		return nil, nil, unprocessable("Found %d descriptor files at package descriptor tar.gz: there must be one", len(descriptors)), false
	}
	var tree doc
	read := yaml.Unmarshal
	if path.Ext(descriptors[0]) == ".json" {
		read = json.Unmarshal
	}
	if err := read(files[descriptors[0]], &tree); err != nil {
		return nil, nil, badRequest("Error decoding %s: %v", descriptors[0], err), false
	}
	d, trouble := descriptor(tree, kind)
	if trouble == "" && kind == "vnf" {
		trouble = s.checkCharts(d)
	}
	if trouble != "" {
		return nil, nil, unprocessable("%s", trouble), false
	}
	return d, files, answer{}, true
}

// descriptor takes a descriptor out of its envelope.
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

// merge merges a descriptor into another one: what is absent stays, null deletes,
// lists are replaced.
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

// Package helmtest provides Helm charts for tests: archives of charts, and a server
// that is a chart repository and a registry at once. Start reading at [Serve].
package helmtest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Archive packs a chart: its Chart.yaml and other files, by their paths in the chart.
func Archive(t testing.TB, name, version string, files map[string]string) []byte {
	t.Helper()
	all := map[string]string{name + "/Chart.yaml": fmt.Sprintf("{apiVersion: v2, name: %s, version: %s}", name, version)}
	for path, text := range files {
		all[name+"/"+path] = text
	}
	return Pack(t, all)
}

// Pack packs files by their paths in an archive.
func Pack(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	w := tar.NewWriter(zip)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: path, Mode: 0o600, Size: int64(len(files[path]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[path])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A Server serves charts: as a repository below /charts, and as a registry with the
// repositories /oci/NAME. It counts requests.
type Server struct {
	*httptest.Server

	mu     sync.Mutex
	charts map[string]map[string][]byte // name, version
	asked  map[string]int
	lies   bool
	user   string // user name that is required; none if empty
	pass   string
}

// Serve starts a server and stops it when the test ends.
func Serve(t testing.TB) *Server {
	t.Helper()
	s := &Server{charts: map[string]map[string][]byte{}, asked: map[string]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// Add adds a version of a chart.
func (s *Server) Add(name, version string, archive []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.charts[name] == nil {
		s.charts[name] = map[string][]byte{}
	}
	s.charts[name][version] = archive
}

// Lie makes the server return archives that differ from those in its index and
// manifests.
func (s *Server) Lie() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lies = true
}

// Require makes the server reject requests without this user and password.
func (s *Server) Require(user, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.user, s.pass = user, password
}

// Asked returns the number of requests since the last call.
func (s *Server) Asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, count := range s.asked {
		n += count
	}
	clear(s.asked)
	return n
}

// Repository returns the URL of the repository.
func (s *Server) Repository() string { return s.URL + "/charts" }

// Registry returns the URL of the registry, with oci:// and without the chart's name.
func (s *Server) Registry() string { return "oci://" + strings.TrimPrefix(s.URL, "http://") + "/oci" }

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.cncf.helm.config.v1+json"
	chartType    = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func manifest(archive []byte) []byte {
	layer := func(kind string, data []byte) map[string]any {
		return map[string]any{"mediaType": kind, "digest": digest(data), "size": len(data)}
	}
	text, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": layer(configType, []byte("{}")), "layers": []any{layer(chartType, archive)},
	})
	if err != nil {
		panic(err)
	}
	return text
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.URL.Path]++
	if user, password, _ := r.BasicAuth(); s.user != "" && (user != s.user || password != s.pass) {
		w.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
		http.Error(w, `{"errors": [{"code": "UNAUTHORIZED"}]}`, http.StatusUnauthorized)
		return
	}
	rest, isRepository := strings.CutPrefix(r.URL.Path, "/charts/")
	name, path, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/oci/"), "/")
	switch {
	case rest == "index.yaml":
		_, _ = w.Write(s.index())
	case isRepository:
		name, version, _ := strings.Cut(strings.TrimSuffix(rest, ".tgz"), "@")
		s.answer(w, s.charts[name][version])
	case path == "tags/list":
		answerJSON(w, map[string]any{"name": name, "tags": slices.Sorted(maps.Keys(s.charts[name]))})
	default:
		s.registry(w, name, path)
	}
}

func (s *Server) registry(w http.ResponseWriter, name, path string) {
	kind, reference, _ := strings.Cut(path, "/")
	for version, archive := range s.charts[name] {
		text := manifest(archive)
		switch {
		case kind == "manifests" && (reference == version || reference == digest(text)):
			w.Header().Set("Content-Type", manifestType)
			w.Header().Set("Docker-Content-Digest", digest(text))
			w.Header().Set("Content-Length", strconv.Itoa(len(text)))
			_, _ = w.Write(text)
			return
		case kind == "blobs" && reference == digest(archive):
			s.answer(w, archive)
			return
		}
	}
	http.Error(w, `{"errors": [{"code": "NOT_FOUND"}]}`, http.StatusNotFound)
}

func (s *Server) answer(w http.ResponseWriter, archive []byte) {
	if archive == nil {
		http.Error(w, "there is none", http.StatusNotFound)
		return
	}
	if s.lies {
		archive = bytes.Clone(archive)
		archive[len(archive)-1] ^= 1
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(archive)))
	_, _ = w.Write(archive)
}

func answerJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

func (s *Server) index() []byte {
	entries := map[string]any{}
	for name, versions := range s.charts {
		var all []any
		for version, archive := range versions {
			all = append(all, map[string]any{
				"name": name, "version": version, "urls": []string{name + "@" + version + ".tgz"}, "digest": strings.TrimPrefix(digest(archive), "sha256:"),
			})
		}
		entries[name] = all
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "entries": entries})
	if err != nil {
		panic(err)
	}
	return text
}

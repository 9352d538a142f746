package webapi

import (
	"bytes"
	"compress/gzip"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
)

// policy is the Content-Security-Policy of the dashboard: only its own scripts and
// styles, no frames, no other hosts.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"

// views are the first parts of the addresses of the dashboard's views. They all have the same page.
var views = []string{"", "deployments", "sites", "templates", "plugins", "rollouts", "matrix", "changes", "login"}

type asset struct {
	body        []byte
	compressed  func() []byte // by the first request that wants it: most servers never have one
	contentType string
	cache       string
}

// compress returns bytes as gzip has them.
func compress(body []byte) []byte {
	var buffer bytes.Buffer
	zip, _ := gzip.NewWriterLevel(&buffer, gzip.BestCompression) // fails for unknown levels only
	_, _ = zip.Write(body)                                       // a buffer takes everything
	_ = zip.Close()
	return buffer.Bytes()
}

// NewAssets makes the handler of the dashboard's files: index.html for all views, and
// what is below assets/. The files have no data, so they need no identity.
func NewAssets(files fs.FS) (http.Handler, error) {
	all := map[string]asset{}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		a := asset{body: body, contentType: mime.TypeByExtension(path.Ext(name)), cache: "no-store"}
		if strings.HasPrefix(name, "assets/") { // names contain a hash of the contents
			a.cache = "public, max-age=31536000, immutable"
		}
		a.compressed = sync.OnceValue(func() []byte { return compress(body) })
		all[name] = a
		return nil
	})
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			writeJSON(w, http.StatusMethodNotAllowed, errorBody{"the dashboard is only read: use GET"})
			return
		}
		name := strings.TrimPrefix(r.URL.Path, "/")
		if first, _, _ := strings.Cut(name, "/"); slices.Contains(views, first) {
			name = "index.html"
		}
		a, ok := all[name]
		if !ok {
			writeJSON(w, http.StatusNotFound, errorBody{"there is no such page: the dashboard begins at /"})
			return
		}
		h := w.Header()
		h.Set("Content-Type", a.contentType)
		h.Set("Cache-Control", a.cache)
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Vary", "Accept-Encoding")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			_, _ = w.Write(a.compressed())
			return
		}
		_, _ = w.Write(a.body) // an error means that the client has disconnected
	}), nil
}

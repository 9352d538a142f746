package tko

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko/krm"
)

// ViewKind is the kind of the manifests of views, whose API version is [SourceAPIVersion].
const ViewKind = "View"

// A View is a saved view of the dashboards: a page, and what it shows there. All who may read
// anything read all views.
type View struct {
	Name string `json:"name"`
	// Path is the path of a page of the web dashboard, such as /deployments.
	Path string `json:"path"`
	// Query has what the page shows, as in its address: filters, columns and the moment.
	Query       string `json:"query,omitempty"`
	Description string `json:"description,omitempty"`

	// Parent is the GitOps source whose repository declares it; "" if a user saved it. Set by
	// the catalog.
	Parent  string    `json:"parent,omitempty"`
	By      Author    `json:"by,omitzero"`      // set by the catalog: who changed it last
	Created time.Time `json:"created,omitzero"` // set by the catalog
	Updated time.Time `json:"updated,omitzero"` // set by the catalog
	// Problem says why the view no longer shows what it did, and what to do; "" if it does. Set
	// by the catalog.
	Problem string `json:"-"`
}

// A viewSpec is the spec of the manifest of a view.
type viewSpec struct {
	Path        string `json:"path"`
	Query       string `json:"query,omitempty"`
	Description string `json:"description,omitempty"`
}

// Address returns the address of the view below that of the server.
func (v View) Address() string {
	if v.Query == "" {
		return v.Path
	}
	return v.Path + "?" + v.Query
}

// Same reports whether two views show the same.
func (v View) Same(other View) bool {
	return v.Name == other.Name && v.Path == other.Path && v.Query == other.Query && v.Description == other.Description && v.Parent == other.Parent
}

// A RegisteredView is the result of saving a view.
type RegisteredView struct {
	Name    string
	Created bool
	Changed bool
}

// IsView reports whether a resource is the manifest of a view.
func IsView(r krm.Resource) bool {
	gvk := r.GVK()
	return gvk.Group == "tko.nephio.org" && gvk.Kind == ViewKind
}

// ViewOf reads a manifest. The server checks what it shows. The error is an ErrInvalid.
func ViewOf(r krm.Resource) (View, error) {
	spec, err := declaredSpec(r, IsView(r), ViewKind)
	if err != nil {
		return View{}, err
	}
	return viewOf(r.Name(), spec)
}

func viewOf(name string, spec []byte) (View, error) {
	var s viewSpec
	decoder := json.NewDecoder(bytes.NewReader(spec))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return View{}, Errorf(ErrInvalid, "view %q: its spec: %s: use path, query and description, which are texts", name, strings.TrimPrefix(err.Error(), "json: "))
	}
	return View{Name: name, Path: s.Path, Query: s.Query, Description: s.Description}, nil
}

// ViewAt returns a view of an address: a link to a page, with or without the server, or its
// path. The error is an ErrInvalid.
func ViewAt(name, address string) (View, error) {
	u, err := url.Parse(address)
	if err != nil || u.Opaque != "" || u.Host != "" && u.Scheme != "https" && u.Scheme != "http" {
		return View{}, Errorf(ErrInvalid, "%.200q is not an address of a page: copy it from the browser, or write a path such as /deployments?state=failing", address)
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	return View{Name: name, Path: path, Query: u.RawQuery}, nil
}

// Declared returns a view as a repository declares it, among its sources.
func (v View) Declared() (SourceDefinition, error) {
	spec, err := json.Marshal(viewSpec{v.Path, v.Query, v.Description})
	return SourceDefinition{Kind: ViewKind, Name: v.Name, Spec: spec}, err
}

// UndeclaredView begins the names of views among [DeclaredSources.Kept].
const UndeclaredView = "view/"

// IsView reports whether a definition that a repository declares is that of a view.
func (d SourceDefinition) IsView() bool { return d.Kind == ViewKind }

// View returns the view that a repository declares.
func (d SourceDefinition) View() (View, error) { return viewOf(d.Name, d.Spec) }

// Manifest returns the manifest of a view.
func (v View) Manifest() (krm.Resource, error) {
	spec := map[string]any{"path": v.Path}
	for name, text := range map[string]string{"query": v.Query, "description": v.Description} {
		if text != "" {
			spec[name] = text
		}
	}
	return declaredManifest(ViewKind, v.Name, spec), nil
}

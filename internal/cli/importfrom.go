package cli

import (
	"context"
	"errors"
	"iter"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
)

// fromFlag is another server, whose entities are imported.
type fromFlag struct {
	address, context string
	suspend          bool
}

func (f *fromFlag) flags(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "from", "", "`HOST:PORT` of another server, in plain text, from which all entities are copied")
	flags.StringVar(&f.context, "from-context", "", "`name` of the context of that server, with its TLS and credentials")
	flags.BoolVar(&f.suspend, "suspend", true, "with --from: create sites suspended, so that nothing is applied before tko site resume")
}

func (f *fromFlag) given() bool { return f.address != "" || f.context != "" }

// connect prepares the connection to the other server.
func (f *fromFlag) connect(to *session) (*session, error) {
	a := to.app
	if f.address != "" && f.context != "" {
		return nil, tko.Errorf(errUsage, "--from and --from-context can't be used together: use one")
	}
	t := target{network: to.target.network, format: krm.CBOR, address: f.address}
	if f.context != "" {
		file, err := readContexts()
		if err != nil {
			return nil, err
		}
		c, ok := file.Contexts[f.context]
		if !ok {
			return nil, tko.Errorf(errUsage, "there is no context %q: see tko context list", f.context)
		}
		t.address = c.Address
		if c.TLS || c.CA != "" || c.Cert != "" || c.ServerName != "" {
			t.tls = &client.TLS{CA: c.CA, Cert: c.Cert, Key: c.Key, ServerName: c.ServerName}
		}
		switch {
		case c.TokenFile != "":
			t.token = &tokenSource{client.TokenFile(c.TokenFile)}
		case hasLogin(f.context):
			t.token = &tokenSource{func(ctx context.Context) (string, error) { return loginToken(ctx, f.context) }}
		}
	}
	if _, _, err := net.SplitHostPort(t.address); err != nil {
		return nil, tko.Errorf(errUsage, "the address %q of the other server is not HOST:PORT: correct it", t.address)
	}
	if t.address == to.target.address {
		return nil, tko.Errorf(errUsage, "the other server, %s, is the one to import into: name that one with --grpc-address", t.address)
	}
	srv, err := a.dial(t)
	if err != nil {
		return nil, tko.Errorf(errUsage, "connect to %s: %w", t.address, err)
	}
	a.closers = append(a.closers, srv)
	return &session{server: srv, app: a, target: t}, nil
}

// A copier copies the entities of one server to another.
type copier struct {
	from, to *session
	suspend  bool
	ids      *knownIDs                            // deployments that both servers have, by their ID at from
	inherit  map[tko.TemplateID]map[string]string // metadata of templates
	marks    map[tko.Kind]map[string]tko.EntityMarks
}

// knownIDs are IDs of deployments by other ones. They are safe for concurrent use.
type knownIDs struct {
	mutex sync.Mutex
	byID  map[tko.DeploymentID]tko.DeploymentID
}

func newIDs() *knownIDs { return &knownIDs{byID: map[tko.DeploymentID]tko.DeploymentID{}} }

func (k *knownIDs) of(id tko.DeploymentID) (known tko.DeploymentID, ok bool) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	known, ok = k.byID[id]
	return known, ok
}

func (k *knownIDs) set(id, known tko.DeploymentID) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.byID[id] = known
}

// plan finds what to copy, in the order in which it can be written, without packages, which
// may be large. It changes nothing.
func (c *copier) plan(ctx context.Context) (steps []step, err error) {
	if err := c.readMarks(ctx); err != nil {
		return nil, err
	}
	var manifests []Manifest
	addAll := func(kind tko.Kind, ids []string) {
		for _, id := range ids {
			manifests = append(manifests, Manifest{File: c.from.target.address, Name: id, Put: tko.Put{Kind: kind, ID: id}})
		}
	}
	named := map[string]bool{} // deployments that rows of templates and sites name, if the server sends them
	templates, err := collect(ctx, c.from, func(ctx context.Context) iter.Seq2[tko.Template, error] {
		return c.from.Templates(ctx, tko.TemplateSelect{}, tko.ListOptions{})
	}, func(t tko.Template) string {
		c.inherit[t.ID] = t.Metadata
		for _, id := range t.Deployments {
			named[string(id)] = true
		}
		return string(t.ID)
	})
	if err != nil {
		return nil, err
	}
	addAll(tko.KindTemplate, templates)
	plugins, err := collect(ctx, c.from, func(ctx context.Context) iter.Seq2[tko.Plugin, error] {
		return c.from.Plugins(ctx, tko.PluginSelect{}, tko.ListOptions{})
	}, tko.Plugin.ID)
	if err != nil {
		return nil, err
	}
	addAll(tko.KindPlugin, plugins)
	sites, err := collect(ctx, c.from, func(ctx context.Context) iter.Seq2[tko.Site, error] {
		return c.from.Sites(ctx, tko.SiteSelect{}, tko.ListOptions{})
	}, func(s tko.Site) string {
		for _, id := range s.Deployments {
			named[string(id)] = true
		}
		return string(s.ID)
	})
	if err != nil {
		return nil, err
	}
	addAll(tko.KindSite, sites)
	parents := map[string]string{}
	deployments, err := collect(ctx, c.from, func(ctx context.Context) iter.Seq2[tko.Deployment, error] {
		return c.from.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{})
	}, func(d tko.Deployment) string {
		parents[string(d.ID)] = string(d.Parent)
		return string(d.ID)
	})
	if err = c.complete(named, deployments, err); err != nil {
		return nil, err
	}
	addAll(tko.KindDeployment, parentsFirst(deployments, parents))
	for i := range manifests {
		if p := &manifests[i].Put; p.Kind == tko.KindDeployment {
			p.Parent = tko.DeploymentID(parents[p.ID])
		}
	}
	if len(manifests) == 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "the server at %s lists no templates, plugins, sites or deployments: nothing is imported; compare with its own lists, or check the address", c.from.target.address)
	}
	return planAll(c.to, manifests, func(m Manifest, coming *coming) (step, error) {
		one := step{Manifest: m}
		p, known, err := c.read(ctx, m.Put.Kind, m.Put.ID, true)
		if err == nil && !known {
			one.verb, one.Put.Revision, err = c.check(ctx, p, coming)
		}
		if one.verb != "create" {
			coming.isThere(m) // what will be updated can be referred to
		}
		return one, err
	})
}

// readMarks reads the marks of all kinds, unless the other server has none.
func (c *copier) readMarks(ctx context.Context) error {
	c.marks = map[tko.Kind]map[string]tko.EntityMarks{}
	for _, kind := range []tko.Kind{tko.KindTemplate, tko.KindPlugin, tko.KindSite, tko.KindDeployment} {
		marks, err := c.from.marks(ctx, kind)
		if errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
		if err != nil {
			return err
		}
		c.marks[kind] = marks
	}
	return nil
}

// marksOf returns the marks of an entity; nil if it has none.
func (c *copier) marksOf(kind tko.Kind, id string) *tko.Marks {
	found, ok := c.marks[kind][id]
	if !ok || found.Marks.IsZero() {
		return nil
	}
	return &found.Marks
}

// complete returns an error if the list of deployments, which was read without err, lacks
// some that the lists of templates and sites name: it is not all that there is.
func (c *copier) complete(named map[string]bool, deployments []string, err error) error {
	if err != nil {
		return err
	}
	total := len(named)
	for _, id := range deployments {
		delete(named, id)
	}
	if missing := len(named); missing > 0 {
		return tko.Errorf(tko.ErrInvalid, "the server at %s lists %d deployments, and its templates and sites name %d others of %d, such as %q: the list is incomplete, or deployments were deleted meanwhile: try again",
			c.from.target.address, len(deployments), missing, total, slices.Min(slices.Collect(maps.Keys(named))))
	}
	return nil
}

// collect returns the IDs of a list.
func collect[T any](ctx context.Context, s *session, list func(context.Context) iter.Seq2[T, error], id func(T) string) (ids []string, err error) {
	err = each(ctx, s, list, func(item T) error {
		ids = append(ids, id(item))
		return nil
	})
	return ids, err
}

// parentsFirst sorts deployments so that each comes after its parent.
func parentsFirst(ids []string, parents map[string]string) []string {
	depths := map[string]int{}
	for _, id := range ids {
		depth := 0
		for up := parents[id]; up != "" && depth <= len(parents); up = parents[up] {
			depth++
		}
		depths[id] = depth
	}
	slices.SortStableFunc(ids, func(a, b string) int { return depths[a] - depths[b] })
	return ids
}

// read reads an entity as it is to be written. known reports that the other server has it
// already, and that it is never changed: a deployment. If planning, parents need not have
// been copied yet.
func (c *copier) read(ctx context.Context, kind tko.Kind, id string, planning bool) (p tko.Put, known bool, err error) {
	if kind == tko.KindPlugin {
		typ, name, _ := strings.Cut(id, "|")
		plugin, err := call(ctx, c.from, func(ctx context.Context) (tko.Plugin, error) { return c.from.Plugin(ctx, typ, name) })
		plugin.Stamp = tko.Stamp{}
		return tko.Put{Kind: kind, ID: id, Plugin: plugin, Marks: c.marksOf(kind, id)}, false, err
	}
	if p, err = c.from.whole(ctx, kind, id); err != nil {
		return p, false, err
	}
	p.Revision, p.Marks = 0, c.marksOf(kind, id)
	switch {
	case kind == tko.KindSite && c.suspend && p.Metadata[tko.MetadataSuspend] == "":
		there, err := call(ctx, c.to, func(ctx context.Context) (tko.Site, error) { return c.to.Site(ctx, tko.SiteID(id), 0) })
		suspended, has := there.Metadata[tko.MetadataSuspend]
		switch {
		case err != nil && !errors.Is(err, tko.ErrNotFound):
			return p, false, err
		case p.Metadata == nil:
			p.Metadata = map[string]string{}
		}
		if err != nil {
			p.Metadata[tko.MetadataSuspend] = "true"
		} else if has { // as it is: an administrator may have resumed it
			p.Metadata[tko.MetadataSuspend] = suspended
		}
	case kind == tko.KindDeployment:
		_, err := call(ctx, c.to, func(ctx context.Context) (tko.Deployment, error) {
			return c.to.Deployment(ctx, tko.DeploymentID(id), 0)
		})
		if err == nil { // both are one server, or have one origin
			c.ids.set(tko.DeploymentID(id), tko.DeploymentID(id))
			return p, true, nil
		}
		if !errors.Is(err, tko.ErrNotFound) {
			return p, false, err
		}
		p.ID, p.Origin = "", "import/"+id
		inherited := c.inherit[p.Template]
		maps.DeleteFunc(p.Metadata, func(key, value string) bool { return inherited[key] == value })
		if p.Parent != "" {
			parent, ok := c.ids.of(p.Parent)
			if !ok && !planning {
				return p, false, tko.Errorf(tko.ErrInvalid, "deployment %q: its parent %q was not copied: it may have been deleted meanwhile, start again", id, p.Parent)
			}
			p.Parent = parent
		}
		try := p
		try.DryRun, try.Template, try.Site, try.Parent = true, "", "", ""
		try.Package = nil
		r, err := c.to.put(ctx, try)
		if err != nil || r.Created {
			return p, false, err
		}
		c.ids.set(tko.DeploymentID(id), tko.DeploymentID(r.ID))
		return p, true, nil
	}
	return p, false, nil
}

// check returns what the write of an entity would do, and the revision that an update
// replaces. What the entity refers to may be copied before it.
func (c *copier) check(ctx context.Context, p tko.Put, coming *coming) (verb string, replaces int64, err error) {
	if p.Kind == tko.KindDeployment {
		return "create", 0, nil // it was validated by the other server; its template is not there yet
	}
	p.DryRun = true
	if coming.has(tko.KindTemplate, string(p.Template)) {
		p.Template = ""
	}
	r, err := c.to.put(ctx, p)
	switch {
	case err != nil:
		return "", 0, err
	case r.Created:
		return "create", 0, nil
	case r.Changed:
		return "update", r.Revision, nil
	}
	return "", 0, nil
}

// apply copies an entity.
func (c *copier) apply(ctx context.Context, one step) error {
	p, known, err := c.read(ctx, one.Put.Kind, one.Put.ID, false)
	if err != nil || known {
		return err
	}
	p.Revision = one.Put.Revision
	r, err := c.to.put(ctx, p)
	if err == nil && one.Put.Kind == tko.KindDeployment {
		c.ids.set(tko.DeploymentID(one.Name), tko.DeploymentID(r.ID))
	}
	return err
}

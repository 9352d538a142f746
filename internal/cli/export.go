package cli

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/field"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/kubename"
)

// exportedKinds are the kinds in the order in which they are imported.
var exportedKinds = []tko.Kind{tko.KindPlugin, tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindRollout, KindSource, tko.KindSubscription, KindView}

// exportFlags select what is exported.
type exportFlags struct {
	kinds            []string
	ids              []string
	metadata         map[string]string
	templates, sites []string
}

// selected returns the kinds to export. A filter that a kind doesn't have leaves it
// out, unless it was named.
func (f *exportFlags) selected() ([]tko.Kind, error) {
	used := map[string]bool{"id": len(f.ids) > 0, "metadata": len(f.metadata) > 0, "template-id": len(f.templates) > 0, "site-id": len(f.sites) > 0}
	for _, name := range f.kinds {
		if !slices.Contains(exportedKinds, tko.Kind(name)) {
			return nil, tko.Errorf(errUsage, "--kind %s: use plugin, template, site, deployment, rollout, source, subscription or view", name)
		}
	}
	var kinds []tko.Kind
	for _, kind := range exportedKinds {
		named := slices.Contains(f.kinds, string(kind))
		if len(f.kinds) > 0 && !named {
			continue
		}
		fits := true
		for flag, given := range used {
			if given && (isDeclaredKind(kind) || !slices.Contains(filter.Words(kind), flag)) {
				fits = false
				if named {
					return nil, tko.Errorf(errUsage, "--%s can't select a %s: leave one of them out", flag, kind)
				}
			}
		}
		if fits {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		return nil, tko.Errorf(errUsage, "no kind has all these filters: leave one out")
	}
	return kinds, nil
}

// isDeclaredKind reports whether a kind is declared and is no entity: of GitOps sources,
// subscriptions and views.
func isDeclaredKind(kind tko.Kind) bool {
	return kind == KindSource || kind == tko.KindSubscription || kind == KindView
}

func (a *app) exportCommand() *cobra.Command {
	var flags exportFlags
	cmd := &cobra.Command{
		Use: "export FOLDER|FILE.tar|-", Short: "Write entities as plain KRM manifests",
		Long: `Write plugins, templates, sites, deployments, rollouts, registered GitOps sources, subscriptions and
views as plain KRM manifests, one file for each, into a new folder, a tar file, or the standard output (-, as tar). The
manifests are those of GitOps sources and of kubectl: tko import, a GitOps source or kubectl apply
can create the entities elsewhere.

A manifest has what users decide, not what TKO derives: no history, conditions, rights, freezes or
audit records, which are in backups (tko backup). Deployments are written without the marks of
preparation and approval; children that preparers make are left out, because preparers make them
again. Metadata and resources of a template that were removed, and the revision of the template
that a deployment was made from, are annotations of its manifest. Earlier revisions of templates are
in the folder .revisions, which only tko import reads. Rollouts are written without their plans and
progress, so an imported one is planned again and waits for its start. Those that TKO makes itself
(undos, and rollouts of placements and sources) and sources, subscriptions and views that others declare
are left out. A subscription that is imported sends to the same destination: set suspend in that of a
copy.
Labels with a prefix and annotations that kubectl or manifests set are written, without those that
kubectl keeps for itself and those that TKO reads; owner references are not. Sources are written
without the files of their credentials. Who imports an entity owns it: controllers derive from it as that
subject.

The last lines name what was left out, with its number. The exit code is 9 if something of it is
lost elsewhere, such as values of Secrets without the right to read them.`,
		Example: "  tko export ./fleet\n  tko export --kind site --metadata region=emea emea.tar",
		Args:    arguments(1, 1), ValidArgsFunction: fileNames,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			kinds, err := flags.selected()
			if err != nil {
				return err
			}
			x := &exporter{s: s, flags: &flags, kinds: kinds, bases: bases{s: s}, templates: map[tko.TemplateID]bool{}, deployments: map[tko.DeploymentID]bool{}, earlier: map[tko.TemplateID]map[int64]bool{}}
			if err := a.export(ctx, x, args[0]); err != nil {
				return err
			}
			a.notice("exported %s", count(x.n, "entity", "entities"))
			return a.report(&x.left)
		}),
	}
	f := cmd.Flags()
	f.StringSliceVar(&flags.kinds, "kind", nil, "`kind`: plugin, template, site, deployment, rollout, source, subscription or view; may be repeated (default: all)")
	patterns(f, &flags.ids, "id", "", "the ID of a template, site or rollout")
	metadataPatterns(f, &flags.metadata, "metadata", "m", "")
	patterns(f, &flags.templates, "template-id", "", "the template's ID")
	patterns(f, &flags.sites, "site-id", "", "the site's ID")
	return cmd
}

// export writes manifests to a place that appears when it is complete.
func (a *app) export(ctx context.Context, x *exporter, to string) (err error) {
	if to == "-" || strings.HasSuffix(to, ".tar") {
		err = archive.NewFile(to, a.streams.Out, func(w io.Writer) error {
			out := tar.NewWriter(w)
			x.put = func(name string, data []byte) error {
				err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: int64(len(data)), Format: tar.FormatPAX})
				if err == nil {
					_, err = out.Write(data)
				}
				return err
			}
			if err := x.all(ctx); err != nil {
				return err
			}
			return out.Close()
		})
		return err
	}
	if entries, err := os.ReadDir(to); err == nil && len(entries) > 0 {
		return tko.Errorf(tko.ErrInvalid, "the folder %s is not empty: choose another name", to)
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	partial, err := os.MkdirTemp(filepath.Dir(filepath.Clean(to)), filepath.Base(to)+".partial-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(partial)
		}
	}()
	x.put = func(name string, data []byte) error {
		full := filepath.Join(partial, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			return err
		}
		return os.WriteFile(full, data, 0o600)
	}
	if err := x.all(ctx); err != nil {
		return err
	}
	return os.Rename(partial, to)
}

// An exporter writes one export.
type exporter struct {
	s         *session
	flags     *exportFlags
	kinds     []tko.Kind
	put       func(name string, data []byte) error
	bases     bases
	n         int // entities that were written
	left      leftOut
	me        string // subject of the caller
	ownerless bool   // the server knows no owners

	templates   map[tko.TemplateID]bool // that were written
	deployments map[tko.DeploymentID]bool
	earlier     map[tko.TemplateID]map[int64]bool // revisions that deployments were made from
	marks       map[string]tko.EntityMarks        // of the kind that is written, by ID
}

// write writes the manifest of an entity below a folder. The entity is p, whose other parts are
// in spec.
func (x *exporter) write(folder, kind, name string, p tko.Put, spec map[string]any) error {
	file, err := kubename.Escape(name)
	if err != nil {
		return err
	}
	m := krm.Resource{"apiVersion": entityVersion, "kind": kind, "metadata": map[string]any{"name": file}, "spec": spec}
	annotations, err := p.ManifestAnnotations()
	if err != nil {
		return err
	}
	for key, value := range annotations {
		m.SetAnnotation(key, value)
	}
	labels, err := exportedLabels(p.Metadata)
	if err != nil {
		return fmt.Errorf("%s %q: %w", kind, name, err)
	}
	if p.Marks != nil {
		for label, value := range p.Marks.Labels {
			labels[label] = value
		}
		for name, value := range p.Marks.Annotations {
			m.Set(value, "metadata", "annotations", name)
		}
	}
	if len(labels) > 0 {
		m.Set(labels, "metadata", "labels")
	}
	if hasRedacted(p.Package) {
		x.left.add(true, "values of Secrets, for which you lack the right to read them", strings.ToLower(kind)+" "+name)
	}
	data, err := krm.Encode(krm.YAML, krm.Package{m})
	if err != nil {
		return err
	}
	return x.put(path.Join(folder, strings.ToLower(kind)+"s", file+".yaml"), data)
}

// one writes the manifest of an entity of the export.
func (x *exporter) one(kind, name string, p tko.Put, spec map[string]any) error {
	x.n++
	p.Marks = x.marksOf(strings.ToLower(kind), name)
	return x.write("", kind, name, p, spec)
}

// readMarks reads the marks of the entities of a kind. Servers before them list none.
func (x *exporter) readMarks(ctx context.Context, kind tko.Kind) error {
	marks, err := x.s.marks(ctx, kind)
	if errors.Is(err, errors.ErrUnsupported) {
		x.left.add(true, "labels with a prefix and annotations of the kinds of entities of which the server lists none", string(kind)+"s")
		return nil
	}
	x.marks = marks
	return err
}

// marksOf returns the marks of an entity of the kind that is written, and notes those that are
// lost.
func (x *exporter) marksOf(kind, id string) *tko.Marks {
	found := x.marks[id]
	if found.OwnerReferences > 0 {
		x.left.add(true, "owner references to objects that only the Kubernetes API of this server has", kind+" "+id)
	}
	for name, value := range found.Marks.Annotations {
		if krm.MayBeRedacted([]byte(value)) {
			x.left.add(true, "annotations with values of Secrets, for which you lack the right to read them", kind+" "+id)
			delete(found.Marks.Annotations, name)
		}
	}
	return &found.Marks
}

// all writes the file of each selected entity.
func (x *exporter) all(ctx context.Context) (err error) {
	s, flags, options := x.s, x.flags, tko.ListOptions{Packages: true}
	me, err := call(ctx, s, s.WhoAmI)
	if err != nil {
		return err
	}
	x.me = me.Subject
	for _, kind := range x.kinds {
		if !isDeclaredKind(kind) {
			if err := x.readMarks(ctx, kind); err != nil {
				return err
			}
		}
		switch kind {
		case tko.KindPlugin:
			err = each(ctx, s, func(ctx context.Context) iter.Seq2[tko.Plugin, error] {
				return s.Plugins(ctx, tko.PluginSelect{}, tko.ListOptions{})
			}, func(p tko.Plugin) error {
				return x.one("Plugin", p.ID(), tko.Put{}, field.Spec(tko.KindPlugin, tko.Put{Plugin: p}))
			})
		case tko.KindTemplate:
			sel := tko.TemplateSelect{IDs: flags.ids, Metadata: flags.metadata}
			err = each(ctx, s, func(ctx context.Context) iter.Seq2[tko.Template, error] { return s.Templates(ctx, sel, options) }, func(t tko.Template) error {
				x.templates[t.ID] = true
				return x.template("", t)
			})
		case tko.KindSite:
			sel := tko.SiteSelect{IDs: flags.ids, Templates: flags.templates, Metadata: flags.metadata}
			err = each(ctx, s, func(ctx context.Context) iter.Seq2[tko.Site, error] { return s.Sites(ctx, sel, options) }, func(one tko.Site) error {
				return x.site(ctx, one)
			})
		case tko.KindDeployment:
			sel := tko.DeploymentSelect{Templates: flags.templates, Sites: flags.sites, Metadata: flags.metadata}
			err = each(ctx, s, func(ctx context.Context) iter.Seq2[tko.Deployment, error] { return s.Deployments(ctx, sel, options) }, func(d tko.Deployment) error {
				return x.deployment(ctx, d)
			})
		case tko.KindRollout:
			sel := tko.RolloutSelect{IDs: flags.ids, Metadata: flags.metadata}
			err = each(ctx, s, func(ctx context.Context) iter.Seq2[tko.Rollout, error] { return s.Rollouts(ctx, sel, options) }, func(r tko.Rollout) error {
				if spec := exportedRollout(r); spec != nil {
					if err := x.owner(ctx, tko.KindRollout, string(r.ID)); err != nil {
						return err
					}
					return x.one("Rollout", string(r.ID), tko.Put{Metadata: r.Metadata, Package: r.Package}, spec)
				}
				x.left.add(false, "rollouts that TKO made", string(r.ID))
				return nil
			})
		case KindSource:
			err = x.sources(ctx)
		case tko.KindSubscription:
			err = x.subscriptions(ctx)
		case KindView:
			err = x.views(ctx)
		}
		if err != nil {
			return err
		}
	}
	return x.revisions(ctx)
}

func (x *exporter) template(folder string, t tko.Template) error {
	put := entities.Template(t).Put
	if err := carry(&put, nil); err != nil {
		return err
	}
	spec := field.Spec(tko.KindTemplate, put)
	if folder != "" {
		return x.write(folder, "Template", string(t.ID), put, spec)
	}
	return x.one("Template", string(t.ID), put, spec)
}

func (x *exporter) site(ctx context.Context, one tko.Site) error {
	put := entities.Site(one).Put
	from := &basis{}
	if one.Template != "" {
		var err error
		if from, err = x.bases.of(ctx, one.Template, 0); err != nil {
			return err
		}
	}
	if from.missing {
		put.Whole = true
		x.left.add(true, "sites whose template can't be read, so that keys of its metadata may come back", string(one.ID))
	}
	if err := carry(&put, from); err != nil {
		return err
	}
	put.Template = cmp.Or(one.Template, one.AwaitedTemplate)
	if one.AwaitedTemplate != "" {
		if err := x.owner(ctx, tko.KindSite, string(one.ID)); err != nil {
			return err
		}
	}
	return x.one("Site", string(one.ID), put, field.Spec(tko.KindSite, put))
}

func (x *exporter) deployment(ctx context.Context, d tko.Deployment) error {
	switch {
	case isMade(d):
		x.left.add(false, "children that preparers make again", string(d.ID))
		return nil
	case d.Parent != "" && !x.deployments[d.Parent]:
		x.left.add(true, "children whose parents are not in the export", string(d.ID))
		return nil
	}
	x.deployments[d.ID] = true
	if err := x.owner(ctx, tko.KindDeployment, string(d.ID)); err != nil {
		return err
	}
	put := tko.Put{Parent: d.Parent, Template: d.Template, Metadata: d.Metadata, Package: exportedPackage(d.Package)}
	from := &basis{}
	if d.Template != "" {
		now, err := x.bases.of(ctx, d.Template, 0)
		if err != nil {
			return err
		}
		from = now
		switch current := now.template.Stamp.Revision; {
		case d.TemplateRevision == 0 || now.missing:
			put.Whole, put.MadeFrom = true, unrecorded
		case d.TemplateRevision != current:
			if from, err = x.bases.of(ctx, d.Template, d.TemplateRevision); err != nil {
				return err
			}
			put.Whole, put.MadeFrom = true, from.digest
			if from.missing {
				put.MadeFrom = unrecorded
				x.left.add(true, "revisions of templates that are no longer retained, from which deployments were made", string(d.ID))
			} else {
				if x.earlier[d.Template] == nil {
					x.earlier[d.Template] = map[int64]bool{}
				}
				x.earlier[d.Template][d.TemplateRevision] = true
			}
		}
	}
	if err := carry(&put, from); err != nil {
		return err
	}
	put.Template, put.Site = cmp.Or(d.Template, d.AwaitedTemplate), cmp.Or(d.Site, d.AwaitedSite)
	return x.one("Deployment", string(d.ID), put, field.Spec(tko.KindDeployment, put))
}

// owner counts an entity that belongs to another subject: who imports it is its owner, as
// whom controllers derive from it elsewhere.
func (x *exporter) owner(ctx context.Context, kind tko.Kind, id string) error {
	if x.ownerless {
		return nil
	}
	o, err := call(ctx, x.s, func(ctx context.Context) (*tkopb.Owner, error) { return x.s.Access().Owner(ctx, kind, id) })
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		x.ownerless = true
		return nil
	case errors.Is(err, tko.ErrNotFound), errors.Is(err, tko.ErrInvalid): // it was deleted meanwhile, or waits no longer
		return nil
	case err != nil:
		return err
	}
	if owner := otherOwner(o, x.me); owner != "" {
		x.left.add(true, "owners, which are those who import then (tko access own)", fmt.Sprintf("%s of %s %s", owner, kind, id))
	}
	return nil
}

// otherOwner returns the owner of an entity, unless it has none or belongs to the caller.
func otherOwner(o *tkopb.Owner, caller string) string {
	switch {
	case o.GetSubject() != "" && o.GetSubject() != tko.OwnerUnowned && o.GetSubject() != caller:
		return o.GetSubject()
	case o.GetSubject() == "" && len(o.GetGroups()) > 0:
		return "group " + o.GetGroups()[0]
	}
	return ""
}

// sources writes the registered GitOps sources, without those that others declare.
func (x *exporter) sources(ctx context.Context) error {
	definitions, err := x.s.definitions(ctx)
	if errors.Is(err, tko.ErrDenied) && !slices.Contains(x.flags.kinds, string(KindSource)) {
		x.left.add(true, "registered GitOps sources, for which you lack the right to read them", "all")
		return nil
	}
	if err != nil {
		return err
	}
	for _, d := range definitions {
		if d.Parent != "" || d.Ending != nil {
			x.left.add(false, "sources that other sources declare, or that are being deleted", d.Name)
			continue
		}
		if err := x.owner(ctx, KindSource, d.Name); err != nil {
			return err
		}
		if err := x.declared("sources", d.Name, d); err != nil {
			return err
		}
	}
	return nil
}

// subscriptions writes the subscriptions, without those that sources declare. Servers before them
// have none.
func (x *exporter) subscriptions(ctx context.Context) error {
	all, err := call(ctx, x.s, x.s.Subscriptions)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case errors.Is(err, tko.ErrDenied) && !slices.Contains(x.flags.kinds, string(tko.KindSubscription)):
		x.left.add(true, "subscriptions, for which you lack the right to read them", "all")
		return nil
	case err != nil:
		return err
	}
	for _, one := range all {
		if one.Parent != "" {
			x.left.add(false, "subscriptions that sources declare", one.Name)
			continue
		}
		if err := x.owner(ctx, tko.KindSubscription, one.Name); err != nil {
			return err
		}
		if err := x.declared("subscriptions", one.Name, one); err != nil {
			return err
		}
	}
	return nil
}

// views writes the saved views, without those that sources declare. Servers before them have
// none.
func (x *exporter) views(ctx context.Context) error {
	all, err := call(ctx, x.s, x.s.Views)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil
	case errors.Is(err, tko.ErrDenied) && !slices.Contains(x.flags.kinds, string(KindView)):
		x.left.add(true, "views, for which you lack the right to read them", "all")
		return nil
	case err != nil:
		return err
	}
	for _, one := range all {
		if one.Parent != "" {
			x.left.add(false, "views that sources declare", one.Name)
			continue
		}
		if err := x.declared("views", one.Name, one); err != nil {
			return err
		}
	}
	return nil
}

// declared writes the manifest of what is declared and is no entity.
func (x *exporter) declared(folder, name string, of manifester) error {
	m, err := of.Manifest()
	if err != nil {
		return err
	}
	data, err := krm.Encode(krm.YAML, krm.Package{m})
	if err != nil {
		return err
	}
	file, err := kubename.Escape(name)
	if err != nil {
		return err
	}
	x.n++
	return x.put(path.Join(folder, file+".yaml"), data)
}

// revisions writes the earlier revisions of the exported templates that deployments were made
// from.
func (x *exporter) revisions(ctx context.Context) error {
	for _, id := range slices.Sorted(maps.Keys(x.earlier)) {
		for i, revision := range slices.Sorted(maps.Keys(x.earlier[id])) {
			from, err := x.bases.of(ctx, id, revision)
			if err != nil {
				return err
			}
			if !x.templates[id] {
				x.left.add(true, "earlier revisions of templates that are not in the export, from which deployments were made", fmt.Sprintf("%s (revision %d)", id, revision))
				continue
			}
			if err := x.template(path.Join(revisionsFolder, strconv.Itoa(i)), from.template); err != nil {
				return err
			}
		}
	}
	return nil
}

// exportedRollout returns the spec of a rollout's manifest; nil if TKO made the rollout.
func exportedRollout(r tko.Rollout) map[string]any {
	for _, made := range []string{"placement/", "gitops/"} {
		if strings.HasPrefix(string(r.ID), made) {
			return nil
		}
	}
	spec, others := map[string]any{}, krm.Package{}
	for _, one := range r.Package {
		own, ok := one["spec"].(map[string]any)
		if one.GVK() != krm.ParseGVK(entityVersion, "Rollout") || !ok {
			others = append(others, one)
			continue
		}
		maps.Copy(spec, own)
	}
	if spec["undoes"] != nil {
		return nil
	}
	spec["rolloutId"] = string(r.ID)
	if len(others) > 0 {
		spec["package"] = field.Spec(tko.KindRollout, tko.Put{Package: others})["package"]
	}
	return spec
}

// exportedPackage returns the resources of a deployment's package without the marks of
// preparation and approval, and without its Deployment resource unless
// that has a user's annotations.
func exportedPackage(p krm.Package) krm.Package {
	var resources krm.Package
	for _, r := range p {
		r = r.Clone()
		r.SetAnnotation(krm.AnnotationPrepared, "")
		r.SetAnnotation(krm.AnnotationApproved, "")
		if gvk := r.GVK(); gvk.Group == "deployment.nephio.org" && gvk.Kind == "Deployment" {
			if r.Annotation(krm.AnnotationApprove) == "" && r.Annotation(krm.AnnotationPrepare) == "" {
				continue
			}
			delete(r, "spec")
		}
		resources = append(resources, r)
	}
	return resources
}

// exportedLabels returns metadata as labels: as they are if that is what a reader makes
// of them, and escaped otherwise.
func exportedLabels(metadata map[string]string) (map[string]any, error) {
	labels := map[string]any{}
	for key, value := range metadata {
		label, text := key, value
		if k, v, _ := kubename.Metadata(key, value); k != key || v != value {
			var err error
			if label, err = kubename.Escape(key); err != nil {
				return nil, fmt.Errorf("metadata %q: %w", key, err)
			}
			if value != "" {
				if text, err = kubename.Escape(value); err != nil {
					return nil, fmt.Errorf("metadata %q: %w", key, err)
				}
			}
		}
		labels[label] = text
	}
	return labels, nil
}

package cli

import (
	"archive/tar"
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
	"strings"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/kubename"
)

// exportedKinds are the kinds in the order in which they are imported.
var exportedKinds = []tko.Kind{tko.KindPlugin, tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindRollout}

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
			return nil, tko.Errorf(errUsage, "--kind %s: use plugin, template, site, deployment or rollout", name)
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
			if given && !slices.Contains(filter.Words(kind), flag) {
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

func (a *app) exportCommand() *cobra.Command {
	var flags exportFlags
	cmd := &cobra.Command{
		Use: "export FOLDER|FILE.tar|-", Short: "Write entities as plain KRM manifests",
		Long: `Write plugins, templates, sites, deployments and rollouts as plain KRM manifests, one file for each,
into a new folder, a tar file, or the standard output (-, as tar). The manifests are those of GitOps
sources and of kubectl: tko import, a GitOps source or kubectl apply can create the entities
elsewhere.

A manifest has what users decide, not what TKO derives: no history, conditions, rights or audit
records, which are in backups (tko backup). Deployments are written without their children, which
preparers create again, and without the marks of preparation and approval. Rollouts are written
without their plans and progress, so an imported one is planned again and waits for its start. Those
that TKO makes itself (undos, and rollouts of placements and sources) are left out.`,
		Example: "  tko export ./fleet\n  tko export --kind site --metadata region=emea emea.tar",
		Args:    arguments(1, 1), ValidArgsFunction: fileNames,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			kinds, err := flags.selected()
			if err != nil {
				return err
			}
			n, err := a.export(ctx, s, args[0], kinds, &flags)
			if err == nil {
				a.notice("exported %s", count(n, "entity", "entities"))
			}
			return err
		}),
	}
	f := cmd.Flags()
	f.StringSliceVar(&flags.kinds, "kind", nil, "`kind`: plugin, template, site, deployment or rollout; may be repeated (default: all)")
	patterns(f, &flags.ids, "id", "", "the ID of a template, site or rollout")
	metadataPatterns(f, &flags.metadata, "metadata", "m", "")
	patterns(f, &flags.templates, "template-id", "", "the template's ID")
	patterns(f, &flags.sites, "site-id", "", "the site's ID")
	return cmd
}

// export writes manifests to a place that appears when it is complete.
func (a *app) export(ctx context.Context, s *session, to string, kinds []tko.Kind, flags *exportFlags) (n int, err error) {
	if to == "-" || strings.HasSuffix(to, ".tar") {
		err = archive.NewFile(to, a.streams.Out, func(w io.Writer) error {
			out := tar.NewWriter(w)
			n, err = exportAll(ctx, s, kinds, flags, func(name string, data []byte) error {
				err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: int64(len(data)), Format: tar.FormatPAX})
				if err == nil {
					_, err = out.Write(data)
				}
				return err
			})
			if err != nil {
				return err
			}
			return out.Close()
		})
		return n, err
	}
	if entries, err := os.ReadDir(to); err == nil && len(entries) > 0 {
		return 0, tko.Errorf(tko.ErrInvalid, "the folder %s is not empty: choose another name", to)
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	partial, err := os.MkdirTemp(filepath.Dir(filepath.Clean(to)), filepath.Base(to)+".partial-")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(partial)
		}
	}()
	n, err = exportAll(ctx, s, kinds, flags, func(name string, data []byte) error {
		full := filepath.Join(partial, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			return err
		}
		return os.WriteFile(full, data, 0o600)
	})
	if err != nil {
		return n, err
	}
	return n, os.Rename(partial, to)
}

// exportAll passes the file of each selected entity to put.
func exportAll(ctx context.Context, s *session, kinds []tko.Kind, flags *exportFlags, put func(name string, data []byte) error) (n int, err error) {
	write := func(kind, name string, metadata map[string]string, spec map[string]any) error {
		file, err := kubename.Escape(name)
		if err != nil {
			return err
		}
		m := krm.Resource{"apiVersion": entityVersion, "kind": kind, "metadata": map[string]any{"name": file}, "spec": spec}
		if len(metadata) > 0 {
			labels, err := exportedLabels(metadata)
			if err != nil {
				return fmt.Errorf("%s %q: %w", kind, name, err)
			}
			m.Set(labels, "metadata", "labels")
		}
		data, err := krm.Encode(krm.YAML, krm.Package{m})
		if err != nil {
			return err
		}
		n++
		return put(path.Join(strings.ToLower(kind)+"s", file+".yaml"), data)
	}
	options := tko.ListOptions{Packages: true}
	for _, kind := range kinds {
		switch kind {
		case tko.KindPlugin:
			err = each(ctx, s, func(ctx context.Context) iter.Seq2[tko.Plugin, error] {
				return s.Plugins(ctx, tko.PluginSelect{}, tko.ListOptions{})
			}, func(p tko.Plugin) error {
				return write("Plugin", p.ID(), nil, pluginSpec(p))
			})
		case tko.KindTemplate:
			sel := tko.TemplateSelect{IDs: flags.ids, Metadata: flags.metadata}
			err = each(ctx, s, func(ctx context.Context) iter.Seq2[tko.Template, error] { return s.Templates(ctx, sel, options) }, func(t tko.Template) error {
				return write("Template", string(t.ID), t.Metadata, map[string]any{"package": exportedPackage(t.Package, false)})
			})
		case tko.KindSite:
			sel := tko.SiteSelect{IDs: flags.ids, Templates: flags.templates, Metadata: flags.metadata}
			err = each(ctx, s, func(ctx context.Context) iter.Seq2[tko.Site, error] { return s.Sites(ctx, sel, options) }, func(one tko.Site) error {
				spec := map[string]any{"package": exportedPackage(one.Package, false)}
				setText(spec, "templateId", string(one.Template))
				return write("Site", string(one.ID), one.Metadata, spec)
			})
		case tko.KindDeployment:
			sel := tko.DeploymentSelect{Templates: flags.templates, Sites: flags.sites, Metadata: flags.metadata}
			err = each(ctx, s, func(ctx context.Context) iter.Seq2[tko.Deployment, error] { return s.Deployments(ctx, sel, options) }, func(d tko.Deployment) error {
				if d.Parent != "" {
					return nil
				}
				spec := map[string]any{"package": exportedPackage(d.Package, true)}
				setText(spec, "templateId", string(d.Template))
				setText(spec, "siteId", string(d.Site))
				return write("Deployment", string(d.ID), d.Metadata, spec)
			})
		case tko.KindRollout:
			sel := tko.RolloutSelect{IDs: flags.ids, Metadata: flags.metadata}
			err = each(ctx, s, func(ctx context.Context) iter.Seq2[tko.Rollout, error] { return s.Rollouts(ctx, sel, options) }, func(r tko.Rollout) error {
				if spec := exportedRollout(r); spec != nil {
					return write("Rollout", string(r.ID), r.Metadata, spec)
				}
				return nil
			})
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
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
		spec["package"] = exportedPackage(others, false)
	}
	return spec
}

func pluginSpec(p tko.Plugin) map[string]any {
	spec := map[string]any{"type": p.Type, "pluginId": p.Name}
	setText(spec, "executor", p.Executor)
	if len(p.Arguments) > 0 {
		spec["arguments"] = listValue(p.Arguments)
	}
	if len(p.Properties) > 0 {
		spec["properties"] = metadataValue(p.Properties)
	}
	if len(p.Triggers) > 0 {
		spec["triggers"] = triggersValue(p)
	}
	return spec
}

// exportedPackage returns the resources of a package; those of a deployment without
// the marks of preparation and approval, and without its Deployment resource unless
// that has a user's annotations.
func exportedPackage(p krm.Package, deployment bool) map[string]any {
	resources := []any{}
	for _, r := range p {
		if deployment {
			r = r.Clone()
			r.SetAnnotation(krm.AnnotationPrepared, "")
			r.SetAnnotation(krm.AnnotationApproved, "")
			if gvk := r.GVK(); gvk.Group == "deployment.nephio.org" && gvk.Kind == "Deployment" {
				if r.Annotation(krm.AnnotationApprove) == "" && r.Annotation(krm.AnnotationPrepare) == "" {
					continue
				}
				delete(r, "spec")
			}
		}
		resources = append(resources, map[string]any(r))
	}
	return map[string]any{"resources": resources}
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

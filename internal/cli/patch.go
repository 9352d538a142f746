package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

func (a *app) patchCommand() *cobra.Command {
	var text, file string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "patch KIND ID",
		Short: "Change fields of resources in the package of a template, site or deployment",
		Long: `Change fields of resources in the package of a template, site or deployment. The patch is
YAML or JSON: each document names a resource of the package with apiVersion, kind and
metadata.name (and metadata.namespace, if it has one), and has the fields to change. Maps are
merged by key, lists and other values are replaced, and null removes a field (a JSON merge
patch). A deployment that changes is prepared again.

If one document is wrong, nothing is changed. Changes that other clients make at the same time
are kept. A second, equal patch changes nothing.`,
		Example: `  tko patch deployment "$id" --patch '{apiVersion: apps/v1, kind: Deployment, metadata: {name: upf}, spec: {replicas: 3}}'
  tko patch site lagos/1 --patch-file patch.yaml --dry-run`,
		Args: arguments(2, 2), ValidArgsFunction: a.completeKindAndID,
	}
	cmd.Flags().StringVar(&text, "patch", "", "`patch` as YAML or JSON")
	cmd.Flags().StringVar(&file, "patch-file", "", "`file` with the patch, or - for stdin")
	dryRunFlag(cmd.Flags(), &dryRun)
	cmd.RunE = a.run(func(ctx context.Context, s *session, args []string) error {
		patches, err := a.readPatches(text, file)
		if err != nil {
			return err
		}
		kind, id := tko.Kind(args[0]), args[1]
		var changes []string
		r, err := s.change(ctx, kind, id, dryRun, func(p *tko.Put) (bool, error) {
			patched, err := applyPatches(p.Package, patches)
			if err != nil {
				return false, tko.Errorf(tko.ErrInvalid, "%s %q %w", kind, id, err)
			}
			changes = slices.Collect(p.Package.Changes(patched))
			if len(changes) == 0 {
				return false, nil
			}
			if kind == tko.KindDeployment {
				patched = unprepared(p.Package, patched)
			}
			p.Package = patched
			return true, nil
		})
		if err != nil {
			return err
		}
		return s.changed(kind, id, r, changes, dryRun)
	})
	return cmd
}

// readPatches reads the documents of a patch.
func (a *app) readPatches(text, file string) (krm.Package, error) {
	data := []byte(text)
	switch {
	case (text == "") == (file == ""):
		return nil, tko.Errorf(errUsage, "give the patch with --patch or --patch-file")
	case file != "":
		var err error
		if data, err = a.readInput(file, applyInput); err != nil {
			return nil, err
		}
	}
	patches, err := krm.Decode(krm.YAML, data, krm.Limits{})
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the patch: %w", err)
	}
	if len(patches) == 0 {
		return nil, tko.Errorf(errUsage, "the patch has no resources: name one with apiVersion, kind and metadata.name")
	}
	return patches, nil
}

// applyPatches returns a package with patched resources. The error completes a sentence
// about the entity.
func applyPatches(pkg, patches krm.Package) (krm.Package, error) {
	patched := slices.Clone(pkg)
	for _, patch := range patches {
		at := slices.IndexFunc(patched, func(r krm.Resource) bool { return r.Identity() == patch.Identity() })
		if at < 0 {
			var has []string
			for _, r := range pkg {
				if r.GVK() == patch.GVK() || r.Name() == patch.Name() {
					has = append(has, r.Identity().String())
				}
			}
			if len(has) > 0 && len(has) <= applyDetails {
				return nil, fmt.Errorf("has no %s in its package; it has %s: correct the patch", patch.Identity(), strings.Join(has, ", "))
			}
			return nil, fmt.Errorf("has no %s in its package: correct the patch, or add the resource with tko apply", patch.Identity())
		}
		patched[at] = krm.Resource(mergePatch(patched[at], patch))
	}
	return patched, nil
}

// mergePatch returns a JSON merge patch (RFC 7396) of a map, and shares unchanged parts
// with it.
func mergePatch(base, patch map[string]any) map[string]any {
	merged := maps.Clone(base)
	if merged == nil {
		merged = map[string]any{}
	}
	for key, value := range patch {
		switch v := value.(type) {
		case nil:
			delete(merged, key)
		case map[string]any:
			before, _ := merged[key].(map[string]any)
			merged[key] = mergePatch(before, v)
		default:
			merged[key] = value
		}
	}
	return merged
}

func byIdentity(pkg krm.Package) map[krm.Identity]krm.Resource {
	all := map[krm.Identity]krm.Resource{}
	for _, r := range pkg {
		all[r.Identity()] = r
	}
	return all
}

// unprepared returns the changed package of a deployment without the marks of preparation
// of what differs from the one before, so that it is prepared again.
func unprepared(before, after krm.Package) krm.Package {
	was := byIdentity(before)
	after = slices.Clone(after)
	for i, r := range after {
		old, ok := was[r.Identity()]
		if ok && !differ(old, r) && r.GVK() != krm.DeploymentGVK {
			continue
		}
		after[i] = r.Clone()
		after[i].SetAnnotation(krm.AnnotationPrepared, "")
	}
	return after
}

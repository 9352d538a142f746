package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/location"
	"github.com/tko-orchestrator/tko/krm"
)

// toolFlag is a package of another tool, which is imported as a template. kubectl and helm
// read it, with the user's own access to the cluster.
type toolFlag struct {
	helm, kustomize, live, porch   string // which tool: one of them
	template                       string
	namespace, kubeconfig, cluster string
	secrets                        bool
}

func (f *toolFlag) flags(flags *pflag.FlagSet) {
	flags.StringVar(&f.helm, "helm", "", "Helm `release` to import as a template: what it was installed with, by helm get manifest")
	flags.StringVar(&f.kustomize, "kustomize", "", "kustomization to import as a template: a `folder` or an address that kubectl kustomize reads")
	flags.StringVar(&f.live, "live", "", "`namespace` of a running cluster to import as a template: the objects that users made there")
	flags.StringVar(&f.porch, "porch", "", "`name` of a Porch package revision to import as a template")
	flags.StringVar(&f.template, "template", "", "`ID` of the template, with --helm, --kustomize, --live or --porch")
	flags.StringVar(&f.namespace, "namespace", "", "`namespace` of the Helm release or the package revision (default: that of the kubeconfig)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file` for kubectl and helm (default: theirs)")
	flags.StringVar(&f.cluster, "kube-context", "", "`name` of the context in the kubeconfig (default: the current one)")
	flags.BoolVar(&f.secrets, "secrets", false, "import Secrets, too, with their values: otherwise they are left out")
}

// named returns the flag that names the package; empty if none does.
func (f *toolFlag) named() (name string, err error) {
	for flag, value := range map[string]string{"--helm": f.helm, "--kustomize": f.kustomize, "--live": f.live, "--porch": f.porch} {
		switch {
		case value == "":
		case name != "":
			return "", tko.Errorf(errUsage, "%s and %s can't be used together: import one after the other", min(name, flag), max(name, flag))
		case strings.HasPrefix(value, "-"):
			return "", tko.Errorf(errUsage, "%s %q is no name: correct it", flag, value)
		default:
			name = flag
		}
	}
	switch {
	case name == "" && (f.template != "" || f.namespace != "" || f.kubeconfig != "" || f.cluster != "" || f.secrets):
		return "", tko.Errorf(errUsage, "--template, --namespace, --kubeconfig, --kube-context and --secrets need --helm, --kustomize, --live or --porch")
	case name != "" && f.template == "":
		return "", tko.Errorf(errUsage, "name with --template the ID of the template that %s becomes", name)
	}
	return name, nil
}

// plan reads the package and returns the step that makes the template from it.
func (f *toolFlag) plan(ctx context.Context, s *session) ([]step, error) {
	if err := expectID("template ID", f.template); err != nil {
		return nil, err
	}
	all, from, err := f.read(ctx)
	if err == nil {
		all, err = withoutLists(all)
	}
	if err != nil {
		return nil, err
	}
	pkg, left := f.clean(all)
	for _, line := range left {
		s.app.notice("%s", line)
	}
	if len(pkg) == 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "%s has no resources to import: check its name and namespace", from)
	}
	put := tko.Put{Kind: tko.KindTemplate, ID: f.template}
	if was, err := s.whole(ctx, tko.KindTemplate, f.template); err == nil {
		put.Details, put.Metadata, put.Revision = was.Details, was.Metadata, was.Revision
	} else if !errors.Is(err, tko.ErrNotFound) {
		return nil, err
	}
	put.Package = pkg
	one, err := planOne(ctx, s, Manifest{File: from, Name: f.template, Put: put}, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: template %q: %w", from, f.template, err)
	}
	return []step{one}, nil
}

// read runs the tool, and returns the resources that it prints, and where they come from.
func (f *toolFlag) read(ctx context.Context) (pkg krm.Package, from string, err error) {
	switch {
	case f.helm != "":
		from = fmt.Sprintf("Helm release %q", f.helm)
		pkg, err = f.resources(ctx, "helm", append(f.access("--kube-context"), "get", "manifest", f.helm)...)
	case f.kustomize != "":
		from = fmt.Sprintf("kustomization %q", f.kustomize)
		pkg, err = f.resources(ctx, "kubectl", "kustomize", f.kustomize)
	case f.porch != "":
		from = fmt.Sprintf("package revision %q", f.porch)
		pkg, err = f.readPorch(ctx)
	default:
		from = fmt.Sprintf("namespace %q", f.live)
		pkg, err = f.readLive(ctx)
	}
	if err != nil {
		return nil, from, fmt.Errorf("%s: %w", from, err)
	}
	return pkg, from, nil
}

// access returns the flags of kubectl or helm for the cluster and the namespace.
func (f *toolFlag) access(contextFlag string) []string {
	var flags []string
	for _, flag := range [][2]string{{"--kubeconfig", f.kubeconfig}, {contextFlag, f.cluster}, {"--namespace", f.namespace}} {
		if flag[1] != "" {
			flags = append(flags, flag[0]+"="+flag[1])
		}
	}
	return flags
}

// readLive reads the objects of a namespace, of all kinds that clients can create.
func (f *toolFlag) readLive(ctx context.Context) (krm.Package, error) {
	access := append(f.access("--context"), "--namespace="+f.live)
	text, err := runTool(ctx, "kubectl", append(access, "api-resources", "--verbs=list,create", "--namespaced", "--output=name")...)
	if err != nil {
		return nil, err
	}
	kinds := slices.DeleteFunc(strings.Fields(string(text)), func(kind string) bool {
		name, group, _ := strings.Cut(kind, ".")
		return name == "events" || name == "endpoints" || name == "endpointslices" || name == "leases" || name == "controllerrevisions" || strings.HasSuffix(group, "tko.nephio.org")
	})
	if len(kinds) == 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "the cluster has no kinds that can be listed")
	}
	return f.resources(ctx, "kubectl", append(access, "get", strings.Join(kinds, ","), "--output=yaml")...)
}

// readPorch reads the files of a package revision, as a folder is read.
func (f *toolFlag) readPorch(ctx context.Context) (krm.Package, error) {
	revision, err := f.resources(ctx, "kubectl", append(f.access("--context"), "get", "packagerevisionresources.porch.kpt.dev", f.porch, "--output=yaml")...)
	if err != nil {
		return nil, err
	}
	if len(revision) != 1 {
		return nil, tko.Errorf(tko.ErrInvalid, "kubectl returned %d package revisions", len(revision))
	}
	value, _ := revision[0].Get("spec", "resources")
	files, _ := value.(map[string]any)
	folder, err := os.MkdirTemp("", "tko-import-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // nothing depends on it
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // the files are closed
	for name, content := range files {
		text, ok := content.(string)
		if !ok || !filepath.IsLocal(filepath.FromSlash(name)) {
			return nil, tko.Errorf(tko.ErrInvalid, "the file %.100q is no text, or leads out of the package", name)
		}
		if err := root.MkdirAll(filepath.Dir(filepath.FromSlash(name)), 0o700); err != nil {
			return nil, err
		}
		if err := root.WriteFile(filepath.FromSlash(name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return location.Read(ctx, folder, location.Options{})
}

// resources runs a tool that prints resources.
func (f *toolFlag) resources(ctx context.Context, program string, args ...string) (krm.Package, error) {
	text, err := runTool(ctx, program, args...)
	if err != nil {
		return nil, err
	}
	return location.ReadStream(ctx, bytes.NewReader(text), program, location.Options{})
}

// withoutLists returns the resources with lists replaced by their items, also those in
// lists: a Secret in a list is a Secret.
func withoutLists(all krm.Package) (flat krm.Package, err error) {
	for _, r := range all {
		if r.GVK() != (krm.GVK{Version: "v1", Kind: "List"}) {
			flat = append(flat, r)
			continue
		}
		items, err := r.Items()
		if err == nil {
			items, err = withoutLists(items)
		}
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "%w", err)
		}
		flat = append(flat, items...)
	}
	return flat, nil
}

// runTool runs a program of the user, and returns its output.
func runTool(ctx context.Context, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...) //nolint:gosec // kubectl or helm, with the flags of the user
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, tko.Errorf(errUsage, "%s is not installed: it reads what is imported", program)
	case err != nil:
		text := strings.TrimSpace(errs.String())
		return nil, fmt.Errorf("%s failed: %w: %s", program, err, text[:min(len(text), 2000)])
	}
	return out, nil
}

// What the API server and controllers set in objects of any kind.
var (
	liveMetadata    = []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"}
	liveAnnotations = []string{"kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision", "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller"}
)

// clean returns the resources without what the cluster set, and without those that users
// didn't make; left has a line for each sort of the latter.
func (f *toolFlag) clean(all krm.Package) (pkg krm.Package, left []string) {
	reasons := map[string][]string{}
	for _, r := range all {
		if why := f.omitted(r); why != "" {
			reasons[why] = append(reasons[why], r.Identity().String())
			continue
		}
		pkg = append(pkg, cleaned(r))
	}
	for why, names := range reasons {
		slices.Sort(names)
		more := ""
		if len(names) > applyDetails {
			more = fmt.Sprintf(" and %d more", len(names)-applyDetails)
		}
		left = append(left, fmt.Sprintf("left out, because %s: %s%s", why, strings.Join(names[:min(len(names), applyDetails)], ", "), more))
	}
	slices.Sort(left)
	return pkg, left
}

// omitted returns why a resource is not imported; empty if it is.
func (f *toolFlag) omitted(r krm.Resource) string {
	owners, _ := r.Get("metadata", "ownerReferences")
	owned, _ := owners.([]any)
	_, applied := labelsIn(r)["tko.nephio.org/deployment"]
	gvk := r.GVK()
	secret := gvk.Group == "" && gvk.Kind == "Secret"
	kind := r.Text("type")
	switch {
	case len(owned) > 0:
		return "controllers made them"
	case applied:
		return "TKO applied them already"
	case secret && (kind == "helm.sh/release.v1" || kind == "kubernetes.io/service-account-token"):
		return "the cluster made them"
	case f.live != "" && gvk.Group == "" && (gvk.Kind == "ConfigMap" && r.Name() == "kube-root-ca.crt" || gvk.Kind == "ServiceAccount" && r.Name() == "default"):
		return "the cluster made them"
	case secret && !f.secrets:
		return "they are secret (--secrets imports them)"
	}
	return ""
}

func labelsIn(r krm.Resource) map[string]any {
	value, _ := r.Get("metadata", "labels")
	labels, _ := value.(map[string]any)
	return labels
}

// cleaned returns a copy without what the cluster set.
func cleaned(r krm.Resource) krm.Resource {
	r = r.Clone()
	delete(r, "status")
	if metadata, ok := r["metadata"].(map[string]any); ok {
		for _, name := range liveMetadata {
			delete(metadata, name)
		}
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			for _, name := range liveAnnotations {
				delete(annotations, name)
			}
			if len(annotations) == 0 {
				delete(metadata, "annotations")
			}
		}
	}
	spec, _ := r["spec"].(map[string]any)
	gvk := r.GVK()
	switch {
	case gvk.Group == "" && gvk.Kind == "Service" && spec["clusterIP"] != "None":
		delete(spec, "clusterIP")
		delete(spec, "clusterIPs")
	case gvk.Group == "" && gvk.Kind == "PersistentVolumeClaim":
		delete(spec, "volumeName")
	case gvk.Group == "" && gvk.Kind == "ServiceAccount":
		delete(r, "secrets")
	case gvk.Group == "batch" && gvk.Kind == "Job" && spec["manualSelector"] != true:
		delete(spec, "selector")
		for _, labels := range []map[string]any{labelsIn(r), labelsIn(krm.Resource(asMap(spec["template"])))} {
			for _, name := range []string{"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"} {
				delete(labels, name)
			}
		}
	}
	return r
}

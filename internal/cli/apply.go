package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/kubename"
)

const (
	applyUnasked = 50      // changes up to this number need no confirmation
	applyInput   = 1 << 30 // bytes of one file
	applyDetails = 20      // lines that are shown for one entity
)

// appliedKinds are the kinds in the order in which they are applied.
var appliedKinds = exportedKinds

// A step is what an apply or import does with a manifest.
type step struct {
	Manifest
	verb    string           // create, update; "": nothing
	id      tko.DeploymentID // of an existing deployment that the step changes
	there   tko.DeploymentID // of an existing deployment that the step leaves as it is
	details []string         // what changes
	unknown string           // what could not be compared, and why; "": nothing
}

// unknownIn returns the number of steps of which something could not be compared.
func unknownIn(steps []step) (n int) {
	for _, step := range steps {
		if step.unknown != "" {
			n++
		}
	}
	return n
}

// errIncomplete reports that not everything could be compared.
var errIncomplete = errors.New("not everything could be compared")

// confirmChanges returns an error unless changes are confirmed: by their number, as in [tko.Consents], by a user
// at the terminal, or because there are at most as many as need no confirmation.
func (a *app) confirmChanges(changes, confirm, unasked int) error {
	switch {
	case confirm > 0 && !tko.Consents(confirm, changes):
		return tko.Errorf(errUsage, "--confirm %d, and there are %d changes: look at them (--dry-run), and confirm their number", confirm, changes)
	case confirm > 0 || changes <= unasked:
	case !a.interactive && unasked > 0:
		return tko.Errorf(errUsage, "nothing was changed: more than %d changes are confirmed with --confirm %d", unasked, changes)
	case !a.interactive:
		return tko.Errorf(errUsage, "nothing was changed: confirm the changes with --confirm %d", changes)
	case !a.ask("This will make %s. Continue?", count(changes, "change", "changes")):
		return errNotConfirmed
	}
	return nil
}

const applyHelp = `A manifest is what GitOps sources, tko export and kubectl use: Template, Site,
Deployment and Plugin of tko.nephio.org/v1alpha1, in files of any number of documents, or a List.

What a manifest of a template, site or rollout names becomes as it says. Labels, the template
and resources of the package that it doesn't name stay if others set them, and are removed if
an earlier apply named them (of the same --manager). Plugins become what the manifest says.
The metadata.name of a
Deployment identifies it, as with kubectl apply: the first time, it is created; later,
the resources of the manifest are merged into its package, and what changed is prepared
again. What a manifest doesn't mention stays. A different template, site, parent or label
of an existing deployment is refused. No entity is ever deleted.

Manifests of GitOps sources (GitOpsSource, Inventory, Catalog) are registered last, all of them or
none, as tko gitops source register does, with the same right; then those of subscriptions
(Subscription), as tko subscription register does, and of views (View), as tko view register does.`

func (a *app) applyCommand() *cobra.Command {
	var files []string
	var dryRun, exitCode bool
	var confirm int
	var manager string
	cmd := &cobra.Command{
		Use:   "apply -f FILE|FOLDER|-",
		Short: "Create or update entities from manifests",
		Long: `Create or update entities from manifests.

` + applyHelp + `

All manifests are checked first, by the server: if one is wrong, nothing is changed. More
than 50 changes need a confirmation: at a terminal the command asks; otherwise it needs
--confirm COUNT with the number of changes. An interrupted apply continues with the
same command.

With --dry-run, the server says what the apply would do. With --exit-code as well, the exit
code is 0 if nothing would change, 7 if something would, and 9 if not everything could be
compared: such as a site whose template comes with the same apply.`,
		Example: `  tko apply -f ./fleet --dry-run
  tko apply -f site.yaml -f deployment.yaml
  kustomize build . | tko apply -f -`,
		Args: arguments(0, 0),
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			steps, err := a.planApply(ctx, s, files, manager)
			if err != nil {
				return err
			}
			changes := a.showSteps(steps, dryRun)
			switch {
			case dryRun:
				a.notice("would make %s, %d unchanged", count(changes, "change", "changes"), len(steps)-changes)
				if exitCode {
					return foundIn(steps, changes)
				}
				return nil
			case changes == 0:
				a.notice("nothing to change, %d unchanged", len(steps))
				return nil
			}
			if err := a.confirmChanges(changes, confirm, applyUnasked); err != nil {
				return err
			}
			if confirm > 0 || changes > applyUnasked {
				ctx = tko.WithConfirmation(ctx, changes)
			}
			done, err := applyAll(s, steps, importer(ctx, s, steps))
			if err == nil {
				a.notice("made %s, %d unchanged", count(done, "change", "changes"), len(steps)-done)
			}
			return err
		}),
	}
	fileFlag(cmd, &files)
	dryRunFlag(cmd.Flags(), &dryRun)
	managerFlag(cmd.Flags(), &manager)
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "with --dry-run: exit code 7 if something would change, 9 if not everything could be compared")
	cmd.Flags().IntVar(&confirm, "confirm", 0, "`number` of changes to make, an upper bound: a lower one is refused, and one that is higher by more than a tenth and 100")
	return cmd
}

// diffFiles returns the function that compares manifests with the server.
func (a *app) diffFiles(files *[]string, manager *string) func(*cobra.Command, []string) error {
	return a.run(func(ctx context.Context, s *session, _ []string) error {
		steps, err := a.planApply(ctx, s, *files, *manager)
		if err != nil {
			return err
		}
		return foundIn(steps, a.showSteps(steps, true))
	})
}

// foundIn returns the error for the exit code of a comparison.
func foundIn(steps []step, changes int) error {
	switch n := unknownIn(steps); {
	case n > 0:
		return fmt.Errorf("%w: %s, see the lines that begin with ?", errIncomplete, count(n, "manifest", "manifests"))
	case changes > 0:
		return errChanges
	}
	return nil
}

// DefaultManager is the manager of manifests that tko apply -f applies.
const DefaultManager = "tko-apply"

func managerFlag(flags *pflag.FlagSet, manager *string) {
	flags.StringVar(manager, "manager", DefaultManager, "`name` under which the server remembers what was applied: only that is removed when manifests no longer name it")
}

func fileFlag(cmd *cobra.Command, files *[]string) {
	cmd.Flags().StringArrayVarP(files, "filename", "f", nil, "`file` or folder of manifests, or - for stdin (may be repeated)")
	complete(cmd, "filename", fileNames)
}

// showSteps prints the changes, and returns their number. With --quiet it prints only those
// that are the result of the command, and not merely begun.
func (a *app) showSteps(steps []step, result bool) (changes int) {
	colors := map[string]string{"create": "\x1b[32m", "update": "\x1b[33m"}
	for _, step := range steps {
		if step.verb == "" {
			continue
		}
		changes++
		if a.globals.quiet && !result {
			continue
		}
		fmt.Fprintln(a.out, a.paint(a.streams.Out, colors[step.verb], fmt.Sprintf("%s %s %s", step.verb, step.Put.Kind, printable.Text(step.Name))))
		if step.unknown != "" {
			fmt.Fprintln(a.out, "  ? not compared: "+printable.Text(step.unknown))
		}
		if !result {
			continue
		}
		for i, detail := range step.details {
			if i == applyDetails {
				fmt.Fprintf(a.out, "    and %s\n", count(len(step.details)-i, "more change", "more changes"))
				break
			}
			fmt.Fprintln(a.out, "    "+cut(printable.Text(detail), a.width()))
		}
	}
	return changes
}

// readManifests reads the manifests of all files, in the order in which they can
// be applied.
func (a *app) readManifests(files []string) ([]Manifest, error) {
	if len(files) == 0 {
		return nil, tko.Errorf(errUsage, "no manifests: name a file or folder with -f, or - for stdin")
	}
	var all []Manifest
	for i, file := range files {
		if file == "" || slices.Contains(files[:i], file) {
			return nil, tko.Errorf(errUsage, "-f %q is empty or given twice: leave it out", file)
		}
		found, err := a.readFile(file)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, tko.Errorf(tko.ErrInvalid, "%s has no manifests of the group tko.nephio.org: a package of other resources is registered with tko template register or tko site register", file)
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(a, b Manifest) int {
		return slices.Index(appliedKinds, a.Put.Kind) - slices.Index(appliedKinds, b.Put.Kind)
	})
	seen := map[string]string{}
	for _, m := range all {
		key := string(m.Put.Kind) + " " + m.Name
		if before, ok := seen[key]; ok {
			return nil, tko.Errorf(tko.ErrInvalid, "%s: %s %q is in %s, too: remove one", m.File, m.Put.Kind, m.Name, before)
		}
		seen[key] = m.File
	}
	return all, nil
}

// readFile reads the manifests of a folder, a file or stdin. A file may have any
// name.
func (a *app) readFile(file string) ([]Manifest, error) {
	folder := file
	if info, err := os.Stat(file); file == "-" || err == nil && !info.IsDir() {
		data, err := a.readInput(file, applyInput+1)
		if err != nil {
			return nil, err
		}
		if len(data) > applyInput {
			return nil, tko.Errorf(tko.ErrInvalid, "%s has more than %d bytes: use several files", file, applyInput)
		}
		if folder, err = os.MkdirTemp("", "tko-apply-"); err != nil {
			return nil, err
		}
		defer func() { _ = os.RemoveAll(folder) }()
		name := "stdin.yaml"
		if file != "-" {
			name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)) + ".yaml"
		}
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // it was only read
	return a.planner.ReadManifests(root.FS(), true)
}

// readInput reads a file, or stdin if it is "-", up to a number of bytes.
func (a *app) readInput(file string, most int64) ([]byte, error) {
	in := a.streams.In
	if file != "-" {
		f, err := os.Open(file) //nolint:gosec // the user names the file
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "%w", err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, most))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return data, nil
}

// planApply checks all manifests on the server.
func (a *app) planApply(ctx context.Context, s *session, files []string, manager string) ([]step, error) {
	manifests, err := a.readManifests(files)
	if err != nil {
		return nil, err
	}
	first := len(manifests) // of the sources
	if i := slices.IndexFunc(manifests, Manifest.isDeclared); i >= 0 {
		first = i
	}
	entities, err := sortParents(manifests[:first])
	if err != nil {
		return nil, err
	}
	for i := range entities {
		if p := &entities[i].Put; p.Kind != tko.KindDeployment {
			p.Manager = manager
		}
	}
	steps, wrong := planAll(s, entities, func(m Manifest, coming *coming) (step, error) { return planManifest(ctx, s, m, coming) })
	if wrong != nil && steps == nil {
		return nil, wrong
	}
	sources, err := planDeclared(ctx, s, manifests[first:])
	return append(steps, sources...), errors.Join(wrong, err)
}

// tryPut checks an entity on the server, without writing it. Entities that are coming may be
// referred to: unchecked reports that it leaves such a template out.
func tryPut(ctx context.Context, s *session, p tko.Put, coming *coming) (r tko.PutResult, unchecked bool, err error) {
	p.DryRun = true
	if coming.has(tko.KindTemplate, string(p.Template)) {
		p.Template, unchecked = "", true
		p.MadeFrom = ""
	}
	if coming.has(tko.KindSite, string(p.Site)) {
		p.Site = ""
	}
	if p.Kind == tko.KindDeployment && coming.has(tko.KindDeployment, string(p.Parent)) {
		p.Parent = ""
	}
	r, err = s.put(ctx, p)
	return r, unchecked, err
}

// put writes an entity, or checks it.
func (s *session) put(ctx context.Context, p tko.Put) (tko.PutResult, error) {
	return call(ctx, s, func(ctx context.Context) (tko.PutResult, error) { return s.PutEntity(ctx, p) })
}

// planManifest checks one manifest on the server. References to entities of the
// same apply need not exist yet.
func planManifest(ctx context.Context, s *session, m Manifest, coming *coming) (step, error) {
	step := step{Manifest: m}
	if m.Put.Kind == tko.KindDeployment {
		step.Put.Name = m.Name
		d, found, err := namedDeployment(ctx, s, m.Name)
		if err != nil {
			return step, err
		}
		if found {
			step.id, step.there = d.ID, d.ID
			return step, step.compare(ctx, s, d)
		}
		if isID(m.Name) {
			step.Put.Name, step.Put.Origin = "", importOrigin(m.Name)
		}
	}
	r, unchecked, err := tryPut(ctx, s, step.Put, coming)
	switch {
	case err != nil:
		return step, err
	case r.Created:
		step.verb = "create"
	case r.Changed, unchecked:
		step.verb, step.details = "update", r.Changes
		if unchecked {
			step.unknown = fmt.Sprintf("what template %q gives it, because the template changes with the same apply", m.Put.Template)
		}
		if !r.Managed { // of an older server, which removes all that the manifest doesn't name
			step.Put.Manager, step.details = "", nil
			return step, step.describe(ctx, s)
		}
	}
	return step, nil
}

// isID reports whether the name of a deployment's manifest is an ID that TKO made.
func isID(name string) bool { return idForm.MatchString(string(nameID(name))) }

var idForm = regexp.MustCompile(`^[0-9A-Za-z]{27}$`)

// importOrigin identifies the deployment that was created from the manifest of an export.
func importOrigin(name string) string { return "import/" + name }

// namedDeployment finds the deployment that a manifest names: by its ID, or by its
// name in Kubernetes.
func namedDeployment(ctx context.Context, s *session, name string) (d tko.Deployment, found bool, err error) {
	id, err := kubename.Unescape(name)
	if err != nil {
		id = name
	}
	get := func(id string) (tko.Deployment, bool, error) {
		d, err := s.deployment(ctx, tko.DeploymentID(id), 0)
		if errors.Is(err, tko.ErrNotFound) || errors.Is(err, tko.ErrInvalid) {
			return d, false, nil
		}
		return d, err == nil, err
	}
	if d, found, err = get(id); found || err != nil {
		return d, found, err
	}
	try := tko.Put{Kind: tko.KindDeployment, Name: name, DryRun: true}
	if isID(name) { // the manifest is that of an export
		try.Name, try.Origin = "", importOrigin(name)
	}
	r, err := s.put(ctx, try)
	if err != nil || r.Created {
		return d, false, err
	}
	return get(r.ID)
}

// compare finds the changes of an existing deployment, and checks them on the
// server.
func (step *step) compare(ctx context.Context, s *session, d tko.Deployment) error {
	for _, field := range []struct{ name, is, wanted string }{
		{"spec.templateId", string(d.Template), string(step.Put.Template)},
		{"spec.siteId", string(d.Site), string(step.Put.Site)},
		{"spec.parentDeploymentId", string(d.Parent), string(step.Put.Parent)},
	} {
		if field.wanted != "" && field.wanted != field.is && (field.name != "spec.parentDeploymentId" || !isID(step.Name)) { // of an export: its parent has another ID here
			return tko.Errorf(tko.ErrInvalid, "%s is %q, and that of the existing deployment %s is %q: create another deployment, with another name", field.name, field.wanted, d.ID, field.is)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(step.Put.Metadata)) {
		if wanted := step.Put.Metadata[key]; d.Metadata[key] != wanted {
			return tko.Errorf(tko.ErrInvalid, "the label %s is %q, and that of the existing deployment %s is %q: labels of existing deployments are changed with tko label and kubectl label", key, wanted, d.ID, d.Metadata[key])
		}
	}
	merged, changes, err := mergeInto(d.Package, step.Put.Package)
	if err != nil || len(changes) == 0 {
		return err
	}
	step.verb, step.details = "update", changes
	try := tko.Put{Kind: tko.KindDeployment, ID: string(d.ID), Parent: d.Parent, Template: d.Template, Site: d.Site, Metadata: d.Metadata, Package: merged, DryRun: true}
	_, err = s.put(ctx, try)
	return err
}

// mergeInto merges a manifest's resources into the package of a deployment, and
// returns what changes. What changes is prepared again.
func mergeInto(pkg, resources krm.Package) (merged krm.Package, changes []string, err error) {
	was := byIdentity(pkg)
	// What preparation added to a resource stays: without this, each apply would undo
	// it, and prepare again.
	deep := slices.Clone(resources)
	for i, r := range deep {
		if _, there := was[r.Identity()]; there && r.Annotation(krm.AnnotationMerge) == "" {
			deep[i] = r.Clone()
			deep[i].SetAnnotation(krm.AnnotationMerge, krm.Override)
		}
	}
	if merged, err = krm.Merge(pkg, deep); err != nil {
		return nil, nil, tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	merged = slices.Clone(merged)
	for i, r := range merged {
		if before, there := was[r.Identity()]; there && before.Annotation(krm.AnnotationMerge) != r.Annotation(krm.AnnotationMerge) {
			merged[i] = r.Clone()
			merged[i].SetAnnotation(krm.AnnotationMerge, before.Annotation(krm.AnnotationMerge))
		}
	}
	changes = slices.Collect(pkg.Changes(merged))
	if len(changes) == 0 {
		return pkg, nil, nil
	}
	return unprepared(pkg, merged), changes, nil
}

func differ(a, b krm.Resource) bool {
	for range krm.Differences(a, b) {
		return true
	}
	return false
}

// describe finds the differences of an existing template, site or plugin from its
// manifest.
func (step *step) describe(ctx context.Context, s *session) error {
	step.verb = "update"
	if step.Put.Kind != tko.KindTemplate && step.Put.Kind != tko.KindSite {
		return nil
	}
	e, err := s.entity(ctx, step.Put.Kind, step.Put.ID, 0)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(e.Metadata)) {
		if _, named := step.Put.Metadata[key]; !named {
			step.details = append(step.details, fmt.Sprintf("metadata.labels.%s: %q removed, unless a template or the package gives it", key, e.Metadata[key]))
		}
	}
	if e.Template != step.Put.Template {
		step.details = append(step.details, fmt.Sprintf("spec.templateId: %q → %q", e.Template, step.Put.Template))
	}
	for _, f := range tko.DetailFields() {
		if is, will := *f.In(&e.Details), *f.In(&step.Put.Details); is != will {
			step.details = append(step.details, fmt.Sprintf("spec.%s: %q → %q", f.Name, is, will))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(step.Put.Metadata)) {
		if is, ok := e.Metadata[key]; !ok || is != step.Put.Metadata[key] {
			step.details = append(step.details, fmt.Sprintf("metadata.labels.%s: %q → %q", key, is, step.Put.Metadata[key]))
		}
	}
	if step.Put.Template == "" { // otherwise the server merges the package into the template's
		step.details = slices.AppendSeq(step.details, e.Package.Changes(step.Put.Package))
	}
	return nil
}

func applyOne(ctx context.Context, s *session, step step) error {
	if step.id == "" {
		_, err := s.put(ctx, step.Put)
		return err
	}
	return modify(ctx, s, step.id, func(pkg krm.Package) (krm.Package, error) {
		merged, _, err := mergeInto(pkg, step.Put.Package)
		return merged, err
	})
}

// modify changes the package of a deployment under a modification, which is
// cancelled if the change fails.
func modify(ctx context.Context, s *session, id tko.DeploymentID, change func(krm.Package) (krm.Package, error)) error {
	m, err := call(ctx, s, func(ctx context.Context) (tko.Modification, error) { return s.StartModification(ctx, id) })
	if err != nil {
		return err
	}
	pkg, err := change(m.Package)
	if err == nil {
		err = s.do(ctx, func(ctx context.Context) error {
			_, _, err := s.EndModification(ctx, m.Token, pkg)
			return err
		})
	}
	if err == nil {
		return nil
	}
	cancelled := s.do(context.WithoutCancel(ctx), func(ctx context.Context) error { return s.CancelModification(ctx, m.Token) })
	if errors.Is(cancelled, tko.ErrNotFound) { // it has ended
		cancelled = nil
	}
	return errors.Join(err, cancelled)
}

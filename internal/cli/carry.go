package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// errLeftOut reports that an export or import could not carry everything.
var errLeftOut = errors.New("not everything was carried over")

// leftNames is the number of entities that are named for each reason.
const leftNames = 5

// A leftOut counts what an export or import leaves out, by the reason. Lost is what no
// other part of the export makes again.
type leftOut struct {
	reasons []string // in the order in which they were met
	count   map[string]int
	names   map[string][]string
	lost    map[string]bool
}

// add notes an entity. The reason is the end of a sentence about several entities.
func (l *leftOut) add(lost bool, reason, name string) {
	if l.count == nil {
		l.count, l.names, l.lost = map[string]int{}, map[string][]string{}, map[string]bool{}
	}
	if l.count[reason] == 0 {
		l.reasons = append(l.reasons, reason)
	}
	l.count[reason]++
	l.lost[reason] = lost
	if len(l.names[reason]) < leftNames {
		l.names[reason] = append(l.names[reason], name)
	}
}

// report prints what was left out. The error is errLeftOut if something is lost.
func (a *app) report(l *leftOut) (err error) {
	for _, reason := range l.reasons {
		names := strings.Join(l.names[reason], ", ")
		if more := l.count[reason] - len(l.names[reason]); more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		what := "not carried over"
		if !l.lost[reason] {
			what = "left out"
		}
		a.notice("%s: %s: %s", fmt.Sprintf("%s: %d", what, l.count[reason]), reason, names)
		if l.lost[reason] {
			err = errLeftOut
		}
	}
	return err
}

// revisionsFolder holds the earlier revisions of templates that deployments were made from, in
// a folder for each: 0 is the earliest one of each template. Readers other than tko import skip
// it, because its name begins with a dot.
const revisionsFolder = ".revisions"

// unrecorded is [tko.Put.MadeFrom] of a deployment of which it isn't known: no revision has it.
var unrecorded = strings.Repeat("0", 2*sha256.Size)

// A basis is a revision of a template that entities were made from.
type basis struct {
	template tko.Template
	digest   string
	missing  bool // it isn't retained, or the caller may not read it
}

// bases reads revisions of templates, each once.
type bases struct {
	s    *session
	read map[tko.TemplateID]map[int64]*basis // 0: the present one
}

func (b *bases) of(ctx context.Context, id tko.TemplateID, revision int64) (*basis, error) {
	if found := b.read[id][revision]; found != nil {
		return found, nil
	}
	t, err := call(ctx, b.s, func(ctx context.Context) (tko.Template, error) { return b.s.Template(ctx, id, revision) })
	found := &basis{template: t}
	switch {
	case errors.Is(err, tko.ErrNotFound), errors.Is(err, tko.ErrGone), errors.Is(err, tko.ErrDenied):
		found.missing = true
	case err != nil:
		return nil, err
	default:
		if found.digest, err = tko.RevisionDigest(t.Package, t.Metadata); err != nil {
			return nil, err
		}
	}
	if b.read == nil {
		b.read = map[tko.TemplateID]map[int64]*basis{}
	}
	if b.read[id] == nil {
		b.read[id] = map[int64]*basis{}
	}
	b.read[id][revision] = found
	return found, nil
}

// carry sets what the manifest of an entity states in addition to its package and labels, so
// that an import makes the same one from the template.
func carry(put *tko.Put, from *basis) error {
	if put.Template == "" || from == nil {
		from = &basis{}
	}
	inherited := put.Package.MetadataWith(from.template.Metadata, nil)
	for _, key := range slices.Sorted(maps.Keys(inherited)) {
		if _, has := put.Metadata[key]; !has {
			put.RemoveMetadata = append(put.RemoveMetadata, key)
		}
	}
	if put.Template == "" || put.Whole {
		return nil
	}
	merged, err := krm.Merge(from.template.Package, put.Package)
	if err != nil {
		put.Whole = true // the server checks it
		return nil       //nolint:nilerr // and reports the error
	}
	is, _, err := krm.DigestOf(put.Package)
	if err != nil {
		return err
	}
	would, _, err := krm.DigestOf(merged)
	put.Whole = is != would
	return err
}

// marks returns the marks of the entities of a kind, by ID. The error is [errors.ErrUnsupported] if
// the server has none.
func (s *session) marks(ctx context.Context, kind tko.Kind) (map[string]tko.EntityMarks, error) {
	all := map[string]tko.EntityMarks{}
	err := each(ctx, s, func(ctx context.Context) iter.Seq2[tko.EntityMarks, error] { return s.Marks(ctx, kind) }, func(m tko.EntityMarks) error {
		all[m.ID] = m
		return nil
	})
	return all, err
}

// checkMarks notes the marks that a server which has none loses.
func checkMarks(ctx context.Context, s *session, manifests []Manifest, left *leftOut) {
	var marked []string
	for _, m := range manifests {
		if m.Put.Marks != nil && !m.Put.Marks.IsZero() {
			marked = append(marked, string(m.Put.Kind)+" "+m.Name)
		}
	}
	if len(marked) == 0 {
		return
	}
	if _, err := s.marks(ctx, tko.KindPlugin); !errors.Is(err, errors.ErrUnsupported) { // other errors are reported by what needs them
		return
	}
	for _, name := range marked {
		left.add(true, "labels with a prefix and annotations, which this server doesn't keep for manifests", name)
	}
}

// isMade reports whether a preparer made a deployment for its parent. Other children are those
// of users and sources.
func isMade(d tko.Deployment) bool {
	return d.Parent != "" && d.Origin != "" && !strings.HasPrefix(d.Origin, "named/")
}

// hasRedacted reports whether a package has values of Secrets that the caller may not read.
func hasRedacted(p krm.Package) bool {
	_, encoded, err := krm.DigestOf(p)
	return err == nil && krm.MayBeRedacted(encoded)
}

// earlierRevisions reads the earlier revisions of templates in an export, each with its
// digest, those of a template in their order.
func (a *app) earlierRevisions(tree fs.FS) (map[tko.TemplateID][]earlier, error) {
	entries, err := fs.ReadDir(tree, revisionsFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil || !e.IsDir() {
			return nil, tko.Errorf(tko.ErrInvalid, "%s/%s: not a folder of an export: remove it", revisionsFolder, e.Name())
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	all := map[tko.TemplateID][]earlier{}
	for _, n := range numbers {
		folder := path.Join(revisionsFolder, strconv.Itoa(n))
		below, err := fs.Sub(tree, folder)
		if err != nil {
			return nil, err
		}
		manifests, err := a.planner.ReadManifests(below, false)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		for _, m := range manifests {
			if m.Put.Kind != tko.KindTemplate {
				return nil, tko.Errorf(tko.ErrInvalid, "%s/%s: only templates have earlier revisions in an export: remove it", folder, m.File)
			}
			digest, err := digestOfPut(m.Put)
			if err != nil {
				return nil, err
			}
			m.File = path.Join(folder, m.File)
			all[tko.TemplateID(m.Put.ID)] = append(all[tko.TemplateID(m.Put.ID)], earlier{m, digest})
		}
	}
	return all, nil
}

// An earlier is the manifest of an earlier revision of a template.
type earlier struct {
	Manifest

	digest string
}

// digestOfPut returns the digest of the revision that the Put of a template writes.
func digestOfPut(p tko.Put) (string, error) {
	return tko.RevisionDigest(p.Package, p.Package.MetadataWith(nil, p.Metadata))
}

// withEarlier returns the steps with those that write earlier revisions of new templates,
// before them, and the digests of all revisions that the templates will have, by their IDs.
func withEarlier(ctx context.Context, b *bases, steps []step, all map[tko.TemplateID][]earlier) ([]step, map[tko.TemplateID]map[string]bool, error) {
	var result []step
	coming := map[tko.TemplateID]map[string]bool{}
	for _, one := range steps {
		if one.Put.Kind != tko.KindTemplate {
			result = append(result, one)
			continue
		}
		id := tko.TemplateID(one.Put.ID)
		will, err := digestOfPut(one.Put)
		if err != nil {
			return nil, nil, err
		}
		coming[id] = map[string]bool{will: true}
		list := all[id]
		if one.verb != "create" { // an interrupted import continues with what is left
			now, err := b.of(ctx, id, 0)
			if err != nil {
				return nil, nil, err
			}
			at := slices.IndexFunc(list, func(e earlier) bool { return e.digest == now.digest })
			if at < 0 || one.verb == "" {
				list = nil
			} else {
				list = list[at+1:]
			}
		}
		verb := one.verb
		for _, e := range list {
			coming[id][e.digest] = true
			result = append(result, step{Manifest: e.Manifest, verb: verb})
			verb = "update"
		}
		if len(list) > 0 {
			one.verb, one.Put.Revision = verb, 0
		}
		result = append(result, one)
	}
	return result, coming, nil
}

// lookedUp is the number of revisions of a template among which that of a deployment is looked
// up: as many as the server does.
const lookedUp = 200

// isKnown reports whether a template has a retained revision with a digest.
func (b *bases) isKnown(ctx context.Context, id tko.TemplateID, digest string) (bool, error) {
	now, err := b.of(ctx, id, 0)
	if err != nil || now.missing {
		return false, err
	}
	newest := now.template.Stamp.Revision
	for revision := newest; revision > max(0, newest-lookedUp); revision-- {
		found, err := b.of(ctx, id, revision)
		if err != nil || !found.missing && found.digest == digest {
			return err == nil, err
		}
	}
	return false, nil
}

// sortParents returns the manifests with each deployment after its parent. The name of a
// deployment's manifest is the ID that its children name.
func sortParents(manifests []Manifest) ([]Manifest, error) {
	byID := map[tko.DeploymentID]int{}
	for i, m := range manifests {
		if m.Put.Kind == tko.KindDeployment {
			byID[nameID(m.Name)] = i
		}
	}
	var sorted []Manifest
	state := make([]int, len(manifests)) // 1: its parents come first, 2: in the result
	var visit func(i int) error
	visit = func(i int) error {
		switch state[i] {
		case 1:
			return tko.Errorf(tko.ErrInvalid, "%s: deployment %q is its own ancestor: correct spec.parentDeploymentId", manifests[i].File, manifests[i].Name)
		case 2:
			return nil
		}
		state[i] = 1
		if parent, ok := byID[manifests[i].Put.Parent]; ok && manifests[i].Put.Parent != "" {
			if err := visit(parent); err != nil {
				return err
			}
		}
		state[i] = 2
		sorted = append(sorted, manifests[i])
		return nil
	}
	for i := range manifests {
		if err := visit(i); err != nil {
			return nil, err
		}
	}
	return sorted, nil
}

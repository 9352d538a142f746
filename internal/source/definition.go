package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// The limits of definitions of GitOps sources.
const (
	maxSourceDefinitions = 1000
	maxDefinition        = 64 << 10 // bytes
	maxDetail            = 1000     // bytes of one in the audit log
	maxAllDefinitions    = 2 << 20  // bytes of all of them
)

// RegisterSources registers definitions of GitOps sources: all of them, or none. With
// dryRun nothing is changed. A name that the role gitops has from its own settings, or
// from Flux, is an ErrConflict, unless the definition takes it over.
func (s *Keeper) RegisterSources(ctx context.Context, definitions []tko.SourceDefinition, dryRun bool) ([]tko.RegisteredSource, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Define)
	if err != nil {
		return nil, err
	}
	if len(definitions) == 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "there are no sources: give manifests of the kinds %s", strings.Join(tko.SourceKinds, ", "))
	}
	definitions, taken, err := s.checkSources(ctx, definitions, "")
	if err != nil {
		return nil, err
	}
	owns := rights.OwnerOf(c.Identity)
	decide := func(book *rights.Book) (registration, error) { return registerSources(book, definitions, taken, owns) }
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return nil, err
	}
	if err := s.permitSourceCredentials(ctx, c, book, definitions); err != nil {
		return nil, err
	}
	if r, err := decide(book); err != nil || dryRun || len(r.Put) == 0 {
		return r.results, err
	}
	r, err := rights.ChangeRules(ctx, s.rights, c, decide)
	if err != nil {
		return nil, err
	}
	var changed []string
	for _, one := range r.results {
		if one.Changed {
			changed = append(changed, one.Name)
		}
	}
	return r.results, s.store.EnqueueWork(ctx, tko.QueueGitOps, changed, false)
}

// A registration is the decision about sources that are registered.
type registration struct {
	rights.Change

	results []tko.RegisteredSource
}

// registerSources returns how definitions change the rules; taken has the names that sources have
// which aren't registered.
func registerSources(b *rights.Book, definitions []tko.SourceDefinition, taken map[string]bool, owns record.Owner) (r registration, err error) {
	for _, d := range definitions {
		result, err := defineSource(b, &d, taken[d.Name])
		if err != nil {
			return r, err
		}
		r.results = append(r.results, result)
		if !result.Changed {
			continue
		}
		if err := r.Write(record.RuleSource, d.Name, d, describeDefinition("registered", d)); err != nil {
			return r, err
		}
	}
	if err := fitSources(b, r.Put); err != nil || owns.IsZero() {
		return r, err
	}
	for _, one := range r.Put { // who changes a source owns it
		rule, err := rights.OwnerRule(one.ID, owns)
		if err != nil {
			return r, err
		}
		r.Put = append(r.Put, rule)
	}
	return r, nil
}

func describeDefinition(verb string, d tko.SourceDefinition) audit.Record {
	return audit.Record{Kind: record.RuleSource, ID: d.Name, Op: verb, Detail: printable.Short(fmt.Sprintf("%s %s", d.Kind, d.Spec), maxDetail), Why: d.By.Why}
}

// checkSources returns the definitions, completed and checked, and which of their names
// other sources have that aren't registered.
func (s *Keeper) checkSources(ctx context.Context, definitions []tko.SourceDefinition, parent string) ([]tko.SourceDefinition, map[string]bool, error) {
	now := time.Now().UTC().Truncate(time.Second)
	definitions = slices.Clone(definitions)
	seen := map[string]bool{}
	var wrong []error
	for i := range definitions {
		d := &definitions[i]
		d.By, d.Created, d.Updated, d.Ending, d.Parent, d.Undeclared = rights.Author(ctx), now, now, nil, parent, false
		if err := s.checkDefinition(d); err != nil {
			wrong = append(wrong, err)
		} else if seen[d.Name] {
			wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "source %q is there twice: remove one", d.Name))
		}
		seen[d.Name] = true
	}
	if len(wrong) > 0 {
		return nil, nil, tko.Errorf(tko.ErrInvalid, "%w", errors.Join(wrong...))
	}
	taken, err := s.takenNames(ctx, definitions)
	return definitions, taken, err
}

// checkDefinition completes a definition and checks it. The error is an ErrInvalid.
func (s *Keeper) checkDefinition(d *tko.SourceDefinition) error {
	if err := checkSourceName(d.Name); err != nil {
		return err
	}
	fail := func(format string, args ...any) error {
		return tko.Errorf(tko.ErrInvalid, "source %q: %w", d.Name, tko.Errorf(tko.ErrInvalid, format, args...))
	}
	switch {
	case !slices.Contains(tko.SourceKinds, d.Kind):
		return fail("there is no kind %.40q: use %s", d.Kind, strings.Join(tko.SourceKinds, ", "))
	case strings.HasPrefix(d.Name, "site:"):
		return fail("names that begin with site: are reserved: use another")
	case len(d.Spec) > maxDefinition:
		return fail("its spec has %d bytes: use at most %d, or the file of --gitops-sources", len(d.Spec), maxDefinition)
	case s.settings.CheckSource == nil:
		return fail("this server can't check sources: register them at another one")
	}
	var spec bytes.Buffer
	if err := json.Compact(&spec, d.Spec); err != nil {
		return fail("its spec is no JSON: %w", err)
	}
	d.Spec = spec.Bytes()
	return s.settings.CheckSource(*d)
}

// takenNames returns the names that sources have which aren't registered: the role gitops
// has them from its settings, or from Flux, or had them once.
func (s *Keeper) takenNames(ctx context.Context, definitions []tko.SourceDefinition) (map[string]bool, error) {
	taken := map[string]bool{}
	for _, d := range definitions {
		source, err := s.store.Source(ctx, d.Name)
		if err != nil && !errors.Is(err, tko.ErrNotFound) {
			return nil, err
		}
		taken[d.Name] = err == nil && !source.Status.Registered
	}
	return taken, nil
}

// defineSource completes a definition, in place of the one with its name.
func defineSource(b *rights.Book, d *tko.SourceDefinition, taken bool) (tko.RegisteredSource, error) {
	result := tko.RegisteredSource{Name: d.Name, Changed: true}
	before, exists := b.Definition(d.Name)
	switch {
	case !exists && taken && d.Parent != "":
		return result, tko.Errorf(tko.ErrConflict, "source %q: the role gitops has, or had, one of this name in its own settings, or from Flux: use another name", d.Name)
	case !exists && taken && !d.TakeOver:
		return result, tko.Errorf(tko.ErrConflict, "source %q: the role gitops has it from its own settings, or from Flux: use another name. If it was removed there, take over its entities with --take-over", d.Name)
	case !exists:
		result.Created = true
		return result, nil
	case before.Ending != nil:
		return result, tko.Errorf(tko.ErrConflict, "source %q is being deleted: wait for the end of that, as tko gitops source list shows", d.Name)
	case before.Kind != d.Kind:
		return result, tko.Errorf(tko.ErrInvalid, "source %q is of the kind %s: delete it first, or use another name", d.Name, before.Kind)
	}
	if err := own(d, before); err != nil {
		return result, err
	}
	d.Created = before.Created
	result.Changed = !d.Same(before)
	if !result.Changed {
		*d = before
	}
	return result, nil
}

// own checks that a definition may take the place of another one, and completes it. The
// error is an ErrConflict.
func own(d *tko.SourceDefinition, before tko.SourceDefinition) error {
	switch {
	case before.Parent == d.Parent:
		d.TakeOver = d.TakeOver || before.TakeOver
	case d.Parent != "" && before.Parent == "":
		return tko.Errorf(tko.ErrConflict, "source %q: it is registered already, by %s: use another name, or delete that one first (tko gitops source delete %s --keep)", d.Name, before.By.Who, d.Name)
	case d.Parent != "":
		return tko.Errorf(tko.ErrConflict, "source %q: the repository of source %q declares it, or did: use another name, or remove it there and delete it (tko gitops source delete %s --keep)", d.Name, before.Parent, d.Name)
	case !before.Undeclared && !d.TakeOver:
		return tko.Errorf(tko.ErrConflict, "source %q: the repository of source %q declares it: change its manifest there. If that source is gone, take it over with --take-over", d.Name, before.Parent)
	default:
		d.TakeOver = before.TakeOver // it isn't from settings
	}
	return nil
}

// totalOf returns the number and the bytes of the definitions of a kind after some are put.
func totalOf[D any](kind string, put []record.AccessRule, stored []D, of func(D) (name string, spec []byte)) (n, size int) {
	isOf := func(name string) func(record.AccessRule) bool {
		return func(r record.AccessRule) bool { return r.Kind == kind && (name == "" || r.ID == name) }
	}
	for _, d := range stored {
		if name, text := of(d); !slices.ContainsFunc(put, isOf(name)) {
			n, size = n+1, size+len(text)
		}
	}
	for _, r := range put {
		if isOf("")(r) {
			n, size = n+1, size+len(r.Doc)
		}
	}
	return n, size
}

// fitSources returns an ErrInvalid if there would be too many definitions.
func fitSources(b *rights.Book, put []record.AccessRule) error {
	n, size := totalOf(record.RuleSource, put, b.Sources, func(d tko.SourceDefinition) (string, []byte) { return d.Name, d.Spec })
	if n > maxSourceDefinitions || size > maxAllDefinitions {
		return tko.Errorf(tko.ErrInvalid, "there would be %d registered sources of %d bytes: use at most %d of %d bytes, and the file of --gitops-sources for others", n, size, maxSourceDefinitions, maxAllDefinitions)
	}
	return nil
}

// SourceDefinitions returns the registered sources by name, or none if the version is
// known. It needs the right inspect.
func (s *Keeper) SourceDefinitions(ctx context.Context, known int64) (tko.SourceDefinitions, error) {
	ctx, _, err := s.rights.Enter(ctx, "", access.Inspect)
	if err != nil {
		return tko.SourceDefinitions{}, err
	}
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return tko.SourceDefinitions{}, err
	}
	all := tko.SourceDefinitions{Version: book.Version}
	if known == 0 || known != book.Version {
		all.All = slices.Clone(book.Sources)
	}
	return all, nil
}

// DeleteSource begins to delete the definition of a source, which the role gitops
// completes; with keep, the entities stay. Otherwise their number must be confirmed:
// see [tko.WithConfirmation]. A definition that was never applied is gone at once.
func (s *Keeper) DeleteSource(ctx context.Context, name string, keep bool) error {
	if err := checkSourceName(name); err != nil {
		return err
	}
	ctx, c, err := s.rights.Enter(ctx, "", access.Define)
	if err != nil {
		return err
	}
	source, err := s.store.Source(ctx, name)
	known := err == nil
	if err != nil && !errors.Is(err, tko.ErrNotFound) {
		return err
	}
	by, now := rights.Author(ctx), time.Now().UTC().Truncate(time.Second)
	_, err = rights.ChangeRules(ctx, s.rights, c, func(book *rights.Book) (change rights.Change, err error) {
		d, exists := book.Definition(name)
		rec := audit.Record{Kind: record.RuleSource, ID: name, Op: "deleted", Why: by.Why}
		switch {
		case !exists && known && !source.Status.Registered:
			return change, tko.Errorf(tko.ErrInvalid, "source %q isn't registered: the role gitops has it from its own settings, or from Flux: remove it there", name)
		case !exists:
			return change, tko.Errorf(tko.ErrNotFound, "source %q: not registered", name)
		case d.Parent != "" && !d.Undeclared:
			return change, tko.Errorf(tko.ErrInvalid, "the repository of source %q declares source %q: remove its manifest there. If that source is gone, take this one over first: tko gitops source register --take-over", d.Parent, name)
		case !known || !source.Status.Registered && !d.TakeOver:
			rec.Detail = "never applied"
			change.EraseSource(book, name)
			change.Records = []audit.Record{rec}
			return change, nil
		}
		confirmed, err := deletable(ctx, d, len(source.Status.Items), keep)
		if err != nil {
			return change, err
		}
		d.Ending = &tko.SourceEnding{Keep: keep, Confirmed: confirmed}
		d.Updated, d.By = now, by
		rec.Detail = fmt.Sprintf("with %d entities", confirmed)
		if keep {
			rec.Detail = fmt.Sprintf("%d entities are kept", len(source.Status.Items))
		}
		return change, change.Write(record.RuleSource, name, d, rec)
	})
	if err != nil {
		return err
	}
	return s.store.EnqueueWork(ctx, tko.QueueGitOps, []string{name}, false)
}

// deletable returns the confirmed number of entities of a source that may be deleted with
// it. The error is an ErrInvalid.
func deletable(ctx context.Context, d tko.SourceDefinition, owned int, keep bool) (int, error) {
	confirmed, ok := tko.ConfirmationOf(ctx)
	if keep || owned == 0 {
		if ok && confirmed != owned {
			return 0, tko.Errorf(tko.ErrInvalid, "source %q: %d entities were confirmed, and none would be deleted: leave --confirm out", d.Name, confirmed)
		}
		return 0, nil
	}
	var spec struct {
		Prune *bool `json:"prune"`
	}
	if err := json.Unmarshal(d.Spec, &spec); err != nil {
		return 0, fmt.Errorf("the definition of source %q: %w", d.Name, err)
	}
	switch {
	case d.Kind == tko.SourceKindCatalog:
		return 0, tko.Errorf(tko.ErrInvalid, "source %q is a catalog, whose %d templates are never deleted with it: use --keep", d.Name, owned)
	case spec.Prune != nil && !*spec.Prune:
		return 0, tko.Errorf(tko.ErrInvalid, "source %q has prune: false, so that its %d entities are never deleted: use --keep", d.Name, owned)
	case !ok:
		return 0, tko.Errorf(tko.ErrInvalid, "source %q owns %d entities, which would be deleted with it: nothing was changed; keep them with --keep, or confirm %d to delete them (--confirm=%d)", d.Name, owned, owned, owned)
	case !tko.Consents(confirmed, owned):
		return 0, tko.Errorf(tko.ErrInvalid, "source %q owns %d entities, but %d were confirmed: nothing was changed; confirm %d to delete them (--confirm=%d), or use --keep", d.Name, owned, confirmed, owned, owned)
	}
	return confirmed, nil
}

// endDefinition removes the definition of a source that is being deleted, after the role
// gitops removed the source.
func (s *Keeper) endDefinition(ctx context.Context, c *rights.Caller, name string) error {
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return err
	}
	if d, exists := book.Definition(name); !exists || d.Ending == nil {
		return nil
	}
	_, err = rights.ChangeRules(ctx, s.rights, c, func(book *rights.Book) (rights.Change, error) {
		change := rights.Change{Records: []audit.Record{{Kind: record.RuleSource, ID: name, Op: "removed"}}}
		if d, exists := book.Definition(name); exists && d.Ending != nil {
			change.EraseSource(book, name)
		}
		return change, nil
	})
	return err
}

// permitSourceCredentials is [rights.Authorizer.PermitCredentials] for definitions of GitOps sources.
func (s *Keeper) permitSourceCredentials(ctx context.Context, c *rights.Caller, book *rights.Book, definitions []tko.SourceDefinition) error {
	if s.settings.Access == rights.Off || s.settings.SourceUses == nil || c.Lends() {
		return nil
	}
	for _, d := range definitions {
		uses := slices.DeleteFunc(s.settings.SourceUses(d), s.settings.Leash.Declares)
		if before, exists := book.Definition(d.Name); exists && len(uses) > 0 {
			uses = rights.Without(uses, s.settings.SourceUses(before))
		}
		if err := s.rights.RefuseUses(ctx, c, tko.KindSource, d.Name, uses); err != nil {
			return err
		}
	}
	return nil
}

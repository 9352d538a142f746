package osm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm/bundle"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
)

// ordered returns the desired packages, VNF packages first, as NS packages refer to
// them.
func (d Desired) ordered() []bundle.Package {
	all := slices.Clone(d.Packages)
	slices.SortStableFunc(all, func(a, b bundle.Package) int {
		return cmp.Or(strings.Compare(string(b.Kind), string(a.Kind)), strings.Compare(a.ID, b.ID))
	})
	return all
}

// A packageStep is the next step of a package.
type packageStep struct {
	bundle.Package
	content bundle.Content
	id      string // OSM's; empty if OSM doesn't have it
	there   nbi.PackageRecord
	action  string // empty if the package is ready
	reason  string
	unknown bool     // OSM has it, and its content isn't known
	held    *Failure // the last refusal, while its pause isn't over
}

// comparePackages returns the next steps of all packages. It makes requests only if a
// package differs from the state.
func (w *run) comparePackages(ctx context.Context) ([]packageStep, error) {
	state := w.ledger.state().Packages
	var steps []packageStep
	same := true
	ids := map[nbi.Kind][]string{}
	for _, p := range w.desired.ordered() {
		s := packageStep{Package: p, content: w.local.contents[p.Key()], id: state[p.Key()].ID}
		if f := state[p.Key()].Failed; f != nil && f.Digest == s.content.Digest && w.pauseOf(f) > 0 {
			s.held = f
		}
		if s.content.Digest != "" && s.held == nil && state[p.Key()].Digest != s.content.Digest {
			same = false
		}
		steps = append(steps, s)
		ids[p.Kind] = append(ids[p.Kind], p.ID)
	}
	if same {
		return steps, nil
	}
	there := map[string]nbi.PackageRecord{}
	for _, kind := range []nbi.Kind{nbi.KindVNF, nbi.KindNS} {
		for _, q := range split("id", ids[kind]) {
			found, err := w.Client.Packages(ctx, kind, q)
			if err != nil {
				return steps, fmt.Errorf("listing the %s packages: %w", kind, err)
			}
			for _, r := range found {
				there[bundle.Key(kind, r.Descriptor.ID)] = r
			}
		}
	}
	for i := range steps {
		s := &steps[i]
		was := state[s.Key()]
		s.id, s.there = there[s.Key()].ID, there[s.Key()]
		switch {
		case s.held != nil:
		case s.id == "" && was.ID != "":
			s.action, s.reason = ActionCreate, "it was removed from OSM"
		case s.id == "":
			s.action, s.reason = ActionCreate, "it isn't there"
		case was.Digest == "":
			s.action, s.reason, s.unknown = ActionUpdate, "its content is not known", true
		case was.Digest != s.content.Digest:
			s.action, s.reason = ActionUpdate, "its files changed"
		case was.ID != s.id:
			s.action, s.reason = ActionUpdate, "another client recreated it"
		}
	}
	return steps, nil
}

// pauseOf returns the time until a refused package is sent again.
func (w *run) pauseOf(f *Failure) time.Duration {
	return f.pauseLeft(w.policy, w.policy.Retry, time.Now())
}

// ensurePackages creates and updates packages, in order. If one is refused, only the
// packages and instances that need it wait (see holdBack). An error concerns all
// packages.
func (w *run) ensurePackages(ctx context.Context) error {
	steps, err := w.comparePackages(ctx)
	if err != nil {
		return err
	}
	for i := range steps {
		s := &steps[i]
		status := Status{Phase: PhaseReady, Source: s.Source, ID: s.id}
		problem, waits := w.packageProblem(s.Package), w.missingOf(s.content)
		switch {
		case problem != nil:
			status.Phase, status.Message = PhaseStalled, problem.Error()
		case s.held != nil:
			status.Phase, status.Message = s.held.phase(), s.held.Message
			w.packagesLater = sooner(w.packagesLater, w.pauseOf(s.held))
		case s.action != "" && waits != "":
			status.Phase, status.Message = PhaseProgressing, "it waits for "+waits
		case s.action != "":
			err := w.adoptOrEnsure(ctx, s)
			if err != nil && fatal(err) {
				return err
			}
			status.ID = s.id
			if err == nil {
				break
			}
			f, saveErr := w.refusePackage(ctx, s, err)
			if saveErr != nil {
				return saveErr
			}
			status.Phase, status.Message = f.phase(), f.Message
			w.packagesLater = sooner(w.packagesLater, w.pauseOf(f))
		}
		if note := w.ledger.pkg(s.Key()).Note; note != "" {
			w.warn(Problem{string(s.Kind), s.ID, s.Source, errors.New(note)})
		}
		if status.Phase != PhaseReady {
			w.blocked[s.Key()] = s.Where()
		}
		w.packages[s.Key()] = status
	}
	return nil
}

// sooner returns the shorter of two durations; a is none if 0.
func sooner(a, b time.Duration) time.Duration {
	b = max(b, time.Millisecond)
	if a == 0 || b < a {
		return b
	}
	return a
}

// missingOf returns the origin of a package that an NSD refers to and that isn't
// ready; empty if there is none.
func (w *run) missingOf(c bundle.Content) string {
	for _, id := range c.Descriptor.References() {
		if where, ok := w.blocked[bundle.Key(nbi.KindVNF, id)]; ok {
			return where
		}
	}
	return ""
}

// holdBack finds the instances that need a package that isn't ready: they stay
// unchanged.
func (w *run) holdBack(ctx context.Context) error {
	w.waiting = map[string]string{}
	if len(w.blocked) == 0 {
		return nil
	}
	for name, want := range w.wanted {
		k := bundle.Key(nbi.KindNS, want.instance.NSD)
		where, blocked := w.blocked[k]
		if c, here := w.local.contents[k]; !blocked && here {
			where = w.missingOf(c)
		} else if !blocked && w.refused[name] == nil {
			nsd, err := w.lookups.nsd(ctx, want.instance.NSD)
			if err != nil && fatal(err) {
				return err
			}
			where = w.missingOf(bundle.Content{Descriptor: nsd.Descriptor})
		}
		if where != "" {
			w.waiting[name] = "it waits for " + where + ", which isn't as it should be"
		}
	}
	return nil
}

func (w *run) packageProblem(p bundle.Package) error {
	for _, problem := range w.problems {
		if problem.What == string(p.Kind) && problem.Name == p.ID {
			return problem.Err
		}
	}
	return nil
}

// refusePackage records the failure to create or update a package.
func (w *run) refusePackage(ctx context.Context, s *packageStep, err error) (*Failure, error) {
	was := w.ledger.pkg(s.Key())
	was.Failed = was.Failed.next(s.content.Digest, err.Error(), !errors.Is(err, tko.ErrUnavailable))
	return was.Failed, w.ledger.setPackage(ctx, s.Key(), &was)
}

// adoptOrEnsure is ensure, except for a package that OSM has already, with the same
// content: a source that begins anew takes it as it is, instead of sending it again.
func (w *run) adoptOrEnsure(ctx context.Context, s *packageStep) error {
	if s.unknown {
		same, err := w.hasContent(ctx, s)
		if err != nil {
			return err
		}
		if same {
			return w.ledger.setPackage(ctx, s.Key(), &PackageState{ID: s.id, Digest: s.content.Digest, Keys: s.content.Keys()})
		}
	}
	return w.ensure(ctx, s)
}

// hasContent reports whether OSM has the content of a package: its files, and in its
// record the descriptor that is in them, which other clients may have changed.
func (w *run) hasContent(ctx context.Context, s *packageStep) (bool, error) {
	stored, err := w.stored(ctx, s)
	if err != nil {
		if fatal(err) {
			return false, err
		}
		return false, nil // it is sent
	}
	for _, withoutVersions := range []bool{false, true} {
		a, err := s.Pack(s.content, withoutVersions)
		if err != nil {
			return false, err
		}
		sent, err := s.Unpack(a.Data)
		if err == nil && sent.Digest != "" && sent.Digest == stored.Digest {
			return contains(s.there.Tree, stored.Tree(nil, false)), nil
		}
	}
	return false, nil
}

// contains reports whether a tree has all keys of another one, with equal values.
func contains(tree, part map[string]any) bool {
	for key, value := range part {
		if !reflect.DeepEqual(plainJSON(tree[key]), plainJSON(value)) {
			return false
		}
	}
	return true
}

// plainJSON returns a value as encoding/json reads it, so that numbers are of one type.
func plainJSON(value any) (plain any) {
	data, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(data, &plain)
	}
	if err != nil {
		return nil
	}
	return plain
}

// ensure creates or updates a package, and records the change.
func (w *run) ensure(ctx context.Context, s *packageStep) error {
	failed := w.changing(Change{Action: s.action, What: string(s.Kind), Name: s.ID, Source: s.Source, Reason: s.reason})
	next, err := w.upload(ctx, s)
	if err != nil {
		err = fmt.Errorf("%s: the %s package %q: %w", s.Where(), s.Kind, s.ID, err)
		failed(err)
		return err
	}
	return w.ledger.setPackage(ctx, s.Key(), next)
}

// upload sends a package, and returns its new state.
func (w *run) upload(ctx context.Context, s *packageStep) (*PackageState, error) {
	a, err := s.Pack(s.content, false)
	if err != nil {
		return nil, err
	}
	err = w.send(ctx, s, a)
	if refusedAs(err, http.StatusUnprocessableEntity) && len(s.content.Charts) > 0 {
		// Since v19, versions of charts are given with instances.
		if a, err = s.Pack(s.content, true); err == nil {
			err = w.send(ctx, s, a)
		}
	}
	if s.action == ActionUpdate && inUse(err) {
		return w.merge(ctx, s, err)
	}
	if err != nil {
		return nil, err
	}
	keys, err := w.dropKeys(ctx, s)
	if err != nil {
		return nil, err
	}
	return &PackageState{ID: s.id, Digest: s.content.Digest, Keys: keys}, nil
}

func refusedAs(err error, status int) bool {
	response, ok := errors.AsType[*nbi.Error](err)
	return ok && response.Status == status
}

// dropKeys removes keys that are no longer in the descriptor from OSM's, and returns
// the keys that OSM has then. If OSM refuses that, it adds a warning.
func (w *run) dropKeys(ctx context.Context, s *packageStep) (there []string, err error) {
	there = s.content.Keys()
	gone := slices.DeleteFunc(slices.Clone(w.ledger.pkg(s.Key()).Keys), func(k string) bool { return slices.Contains(there, k) })
	if s.action != ActionUpdate || len(gone) == 0 {
		return there, nil
	}
	if err := w.Client.MergeDescriptor(ctx, s.Kind, s.id, bundle.Without(map[string]any{"id": s.ID}, gone)); err != nil {
		if fatal(err) {
			return nil, err
		}
		w.warn(Problem{string(s.Kind), s.ID, s.Source, fmt.Errorf("OSM keeps keys that are no longer in the descriptor (%s): %w", strings.Join(gone, ", "), err)})
		there = slices.Sorted(slices.Values(slices.Concat(there, gone)))
	}
	return there, nil
}

// errStored means that OSM has a package, and responds with not found when it should
// replace it. OSM with files in folders does so if instances use the package and the
// file of the new descriptor has another name than the old one.
var errStored = errors.New("OSM has the package, and can't replace it")

// send sends a package. Another client may have created or removed it.
func (w *run) send(ctx context.Context, s *packageStep, a nbi.Archive) error {
	was := s.id
	if was != "" {
		err := w.Client.UpdatePackage(ctx, s.Kind, was, a)
		if !errors.Is(err, tko.ErrNotFound) {
			return err
		}
	}
	id, err := w.Client.CreatePackage(ctx, s.Kind, a)
	if was != "" && errors.Is(err, tko.ErrConflict) {
		return fmt.Errorf("%w: %w", errStored, err)
	}
	s.id = id
	return err
}

// prunePackages removes packages that are no longer desired, NS packages first, unless
// an instance needs them.
func (w *run) prunePackages(ctx context.Context) error {
	state := w.ledger.state()
	wanted := map[string]bool{}
	for _, p := range w.desired.Packages {
		wanted[p.Key()] = true
	}
	used := map[string]bool{}
	for _, st := range state.Instances {
		used[st.NSD] = true
	}
	waiting := false
	for _, k := range slices.Sorted(maps.Keys(state.Packages)) { // "ns/…" comes before "vnf/…"
		p := state.Packages[k]
		kind, id, _ := strings.Cut(k, "/")
		status := Status{Phase: PhaseKept, ID: p.ID}
		switch {
		case wanted[k]:
			continue
		case w.desired.Keeps(k):
			status.Message = "it is left as it is for now"
			waiting = true // packages that it refers to are needed, too
		case !w.policy.Prune:
			status.Message = "it is no longer desired, and the policy is not to prune"
		case nbi.Kind(kind) == nbi.KindNS && used[id] || nbi.Kind(kind) == nbi.KindVNF && waiting:
			status.Message = "an instance or package that isn't removed yet needs it"
			waiting = true
		default:
			err := w.removePackage(ctx, nbi.Kind(kind), id, p)
			if errors.Is(err, tko.ErrConflict) {
				status.Message = err.Error()
				break
			}
			if err != nil {
				return err
			}
			delete(w.packages, k)
			continue
		}
		w.packages[k] = status
	}
	return nil
}

func (w *run) removePackage(ctx context.Context, kind nbi.Kind, id string, p PackageState) error {
	if p.ID != "" {
		err := w.Client.DeletePackage(ctx, kind, p.ID)
		if errors.Is(err, tko.ErrNotFound) { // only a list shows whether it was deleted
			found, listErr := w.Client.Packages(ctx, kind, url.Values{"id": {id}})
			if listErr != nil {
				return fmt.Errorf("listing the %s packages: %w", kind, listErr)
			}
			if !slices.ContainsFunc(found, func(r nbi.PackageRecord) bool { return r.ID == p.ID }) {
				err = nil
			}
		}
		if err != nil {
			return fmt.Errorf("removing the %s package %q: %w", kind, id, err)
		}
		w.changing(Change{Action: ActionDelete, What: string(kind), Name: id, Reason: "it is no longer desired"})
	}
	return w.ledger.setPackage(ctx, bundle.Key(kind, id), nil)
}

// plan sets plan to the changes that a pass would make.
func (w *run) plan(ctx context.Context, plan *Plan) error {
	steps, err := w.comparePackages(ctx)
	if err != nil {
		return err
	}
	plan.Refused = slices.Clone(w.problems)
	for _, s := range steps {
		var refused error
		switch {
		case w.packageProblem(s.Package) != nil:
			w.blocked[s.Key()] = s.Where()
		case s.held != nil:
			refused = errors.New(s.held.Message)
		case s.action != "" && w.missingOf(s.content) != "":
			w.blocked[s.Key()] = s.Where()
			continue
		case s.action == ActionUpdate:
			refused = w.predict(&s)
		}
		if refused != nil {
			w.blocked[s.Key()] = s.Where()
			plan.Refused = append(plan.Refused, Problem{string(s.Kind), s.ID, s.Source, refused})
		} else if s.action != "" && s.content.Digest != "" {
			plan.Changes = append(plan.Changes, Change{Action: s.action, What: string(s.Kind), Name: s.ID, Source: s.Source, Reason: s.reason})
		}
	}
	if err := w.holdBack(ctx); err != nil {
		return err
	}
	if err := w.observe(ctx, nil); err != nil {
		return err
	}
	w.ledger.write = nil
	decisions := w.decide(w.ledger.state(), nil, time.Now())
	if err := w.approve(ctx, decisions); err != nil {
		return err
	}
	plan.Approval = w.approval
	for _, d := range decisions {
		source := w.wanted[d.name].instance.Source
		if w.refused[d.name] != nil {
			continue
		}
		if d.verb == nothing && d.phase == PhaseStalled {
			plan.Refused = append(plan.Refused, Problem{WhatInstance, d.name, source, errors.New(d.message)})
		}
		if d.verb == create {
			if _, err := w.lookups.vim(ctx, w.wanted[d.name].instance.VIM); err != nil {
				if fatal(err) {
					return err
				}
				plan.Refused = append(plan.Refused, Problem{WhatInstance, d.name, source, err})
				continue
			}
		}
		if d.verb != nothing && d.action != "" {
			plan.Changes = append(plan.Changes, Change{Action: d.action, What: WhatInstance, Name: d.name, Source: source, Reason: d.reason, Paths: d.paths})
		}
	}
	state := w.ledger.state()
	for _, k := range slices.Sorted(maps.Keys(state.Packages)) {
		if kind, id, _ := strings.Cut(k, "/"); w.policy.Prune && !w.desired.Keeps(k) && !slices.ContainsFunc(w.desired.Packages, func(p bundle.Package) bool { return p.Key() == k }) {
			plan.Changes = append(plan.Changes, Change{Action: ActionDelete, What: kind, Name: id, Reason: "it is no longer desired"})
		}
	}
	return nil
}

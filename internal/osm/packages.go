package osm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// ordered are the desired packages, those first that others refer to.
func (d Desired) ordered() []Package {
	all := slices.Clone(d.Packages)
	slices.SortStableFunc(all, func(a, b Package) int {
		if a.Kind != b.Kind {
			if a.Kind == KindVNF {
				return -1
			}
			return 1
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
}

// packageStep is what is to be done with a package.
type packageStep struct {
	Package
	content content
	id      string // OSM's, if it is there
	action  string // none if it is as it should be
	reason  string
}

// comparePackages says what is to be done with packages. OSM is asked only if
// there is something.
func (w *run) comparePackages(ctx context.Context) ([]packageStep, error) {
	state := w.book.state().Packages
	var steps []packageStep
	same := true
	ids := map[Kind][]string{}
	for _, p := range w.desired.ordered() {
		s := packageStep{Package: p, content: w.local.contents[p.key()], id: state[p.key()].ID}
		if s.content.digest == "" || state[p.key()].Digest != s.content.digest {
			same = false
		}
		steps = append(steps, s)
		ids[p.Kind] = append(ids[p.Kind], p.ID)
	}
	if same {
		return steps, nil
	}
	there := map[string]string{}
	for _, kind := range []Kind{KindVNF, KindNS} {
		for _, q := range split("id", ids[kind]) {
			found, err := w.Client.Packages(ctx, kind, q)
			if err != nil {
				return steps, fmt.Errorf("listing the %s packages: %w", kind, err)
			}
			for _, r := range found {
				there[key(kind, r.Descriptor.ID)] = r.ID
			}
		}
	}
	for i := range steps {
		s := &steps[i]
		was := state[s.key()]
		s.id = there[s.key()]
		switch {
		case s.id == "" && was.ID != "":
			s.action, s.reason = ActionCreate, "it was removed from OSM"
		case s.id == "":
			s.action, s.reason = ActionCreate, "it isn't there"
		case was.Digest == "":
			s.action, s.reason = ActionUpdate, "nobody knows what is in it"
		case was.Digest != s.content.digest:
			s.action, s.reason = ActionUpdate, "its files changed"
		case was.ID != s.id:
			s.action, s.reason = ActionUpdate, "somebody else made it anew"
		}
	}
	return steps, nil
}

// ensurePackages makes OSM have the packages, in order. The first that can't
// be stops everything.
func (w *run) ensurePackages(ctx context.Context) error {
	steps, err := w.comparePackages(ctx)
	if err != nil {
		return err
	}
	for i, s := range steps {
		err := w.packageProblem(s.Package)
		if err == nil && s.action != "" {
			err = w.ensure(ctx, &steps[i])
		}
		if err != nil {
			w.packages[s.key()] = Status{Phase: PhaseStalled, Message: err.Error(), Source: s.Source, ID: s.id}
			for _, later := range steps[i+1:] {
				w.packages[later.key()] = Status{Phase: PhaseProgressing, Message: "it waits for " + s.where(), Source: later.Source, ID: later.id}
			}
			return err
		}
		w.packages[s.key()] = Status{Phase: PhaseReady, Source: s.Source, ID: steps[i].id}
	}
	return nil
}

func (w *run) packageProblem(p Package) error {
	for _, problem := range w.problems {
		if problem.What == string(p.Kind) && problem.Name == p.ID {
			return problem.Err
		}
	}
	return nil
}

// ensure makes or updates a package.
func (w *run) ensure(ctx context.Context, s *packageStep) error {
	a, err := s.pack(s.content, false)
	if err != nil {
		return err
	}
	w.changed(Change{Action: s.action, What: string(s.Kind), Name: s.ID, Source: s.Source, Reason: s.reason})
	err = w.send(ctx, s, a)
	var said *Error
	if errors.As(err, &said) && said.Status == http.StatusUnprocessableEntity && len(s.content.charts) > 0 {
		// Since v19, versions of charts are given with instances.
		if a, err = s.pack(s.content, true); err == nil {
			err = w.send(ctx, s, a)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: the %s package %q: %w", s.where(), s.Kind, s.ID, err)
	}
	keys, err := w.dropKeys(ctx, s)
	if err != nil {
		return fmt.Errorf("%s: the %s package %q: %w", s.where(), s.Kind, s.ID, err)
	}
	return w.book.setPackage(ctx, s.key(), &PackageState{ID: s.id, Digest: s.content.digest, Keys: keys})
}

// dropKeys removes what left the top level of the descriptor, and answers what
// is there then. That a server doesn't take that is no reason to stop.
func (w *run) dropKeys(ctx context.Context, s *packageStep) (there []string, err error) {
	there = s.content.descriptor.Keys
	gone := slices.DeleteFunc(slices.Clone(w.book.state().Packages[s.key()].Keys), func(k string) bool { return slices.Contains(there, k) })
	if s.action != ActionUpdate || len(gone) == 0 {
		return there, nil
	}
	if err := w.Client.DropKeys(ctx, s.Kind, s.id, s.ID, gone); err != nil {
		if fatal(err) {
			return nil, err
		}
		w.warn(Problem{string(s.Kind), s.ID, s.Source, fmt.Errorf("OSM keeps what left the descriptor (%s): %w", strings.Join(gone, ", "), err)})
		there = slices.Sorted(slices.Values(slices.Concat(there, gone)))
	}
	return there, nil
}

// send sends a package. Somebody else may have made or removed it.
func (w *run) send(ctx context.Context, s *packageStep, a Archive) (err error) {
	if s.id != "" {
		err = w.Client.UpdatePackage(ctx, s.Kind, s.id, a)
		if !errors.Is(err, tko.ErrNotFound) {
			return err
		}
	}
	s.id, err = w.Client.CreatePackage(ctx, s.Kind, a)
	return err
}

// prunePackages removes packages that nobody wants any more: NS packages first,
// and none that an instance needs.
func (w *run) prunePackages(ctx context.Context) error {
	state := w.book.state()
	wanted := map[string]bool{}
	for _, p := range w.desired.Packages {
		wanted[p.key()] = true
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
		case w.desired.keeps(k):
			status.Message = "it is left as it is for now"
			waiting = true // what it refers to is needed, too
		case !w.policy.Prune:
			status.Message = "nobody wants it any more, and the policy is not to prune"
		case Kind(kind) == KindNS && used[id] || Kind(kind) == KindVNF && waiting:
			status.Message = "it is needed by what isn't removed yet"
			waiting = true
		default:
			err := w.removePackage(ctx, Kind(kind), id, p)
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

func (w *run) removePackage(ctx context.Context, kind Kind, id string, p PackageState) error {
	if p.ID != "" {
		err := w.Client.DeletePackage(ctx, kind, p.ID)
		if errors.Is(err, tko.ErrNotFound) { // is it gone?
			found, listErr := w.Client.Packages(ctx, kind, url.Values{"id": {id}})
			if listErr != nil {
				return fmt.Errorf("listing the %s packages: %w", kind, listErr)
			}
			if !slices.ContainsFunc(found, func(r PackageRecord) bool { return r.ID == p.ID }) {
				err = nil
			}
		}
		if err != nil {
			return fmt.Errorf("removing the %s package %q: %w", kind, id, err)
		}
		w.changed(Change{Action: ActionDelete, What: string(kind), Name: id, Reason: "nobody wants it any more"})
	}
	return w.book.setPackage(ctx, key(kind, id), nil)
}

// plan says what a pass would do.
func (w *run) plan(ctx context.Context, plan *Plan) error {
	steps, err := w.comparePackages(ctx)
	if err != nil {
		return err
	}
	for _, s := range steps {
		if s.action != "" && s.content.digest != "" {
			plan.Changes = append(plan.Changes, Change{Action: s.action, What: string(s.Kind), Name: s.ID, Source: s.Source, Reason: s.reason})
		}
	}
	plan.Refused = slices.Clone(w.problems)
	if err := w.observe(ctx, nil); err != nil {
		return err
	}
	w.book.save = nil
	decisions := w.decide(nil)
	w.policy.Approve = ""
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
			plan.Refused = append(plan.Refused, Problem{whatInstance, d.name, source, errors.New(d.message)})
		}
		if d.verb != nothing && d.action != "" {
			plan.Changes = append(plan.Changes, Change{Action: d.action, What: whatInstance, Name: d.name, Source: source, Reason: d.reason, Paths: d.paths})
		}
	}
	state := w.book.state()
	for _, k := range slices.Sorted(maps.Keys(state.Packages)) {
		if kind, id, _ := strings.Cut(k, "/"); w.policy.Prune && !w.desired.keeps(k) && !slices.ContainsFunc(w.desired.Packages, func(p Package) bool { return p.key() == k }) {
			plan.Changes = append(plan.Changes, Change{Action: ActionDelete, What: kind, Name: id, Reason: "nobody wants it any more"})
		}
	}
	return nil
}

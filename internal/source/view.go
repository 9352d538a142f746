package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/filter"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// The limits of views.
const (
	maxViews        = 500
	maxAllViews     = 1 << 20 // bytes
	maxDescribed    = 1024    // bytes of a description
	maxViewsAtATime = maxViews
)

// A ViewKeeper keeps the saved views of dashboards.
type ViewKeeper struct{ shared }

// RegisterViews saves views: all of them, or none. With dryRun nothing is changed.
func (s *ViewKeeper) RegisterViews(ctx context.Context, all []tko.View, dryRun bool) ([]tko.RegisteredView, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Publish)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "there are no views: give manifests of the kind %s", tko.ViewKind)
	}
	wanted, err := checkViews(all, "", rights.Author(ctx))
	if err != nil {
		return nil, err
	}
	decide := func(book *rights.Book) (viewing, error) { return saveViews(book, wanted) }
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return nil, err
	}
	if d, err := decide(book); err != nil || dryRun || len(d.Put) == 0 {
		return d.results, err
	}
	d, err := rights.ChangeRules(ctx, s.rights, c, decide)
	return d.results, err
}

// checkViews completes and checks views.
func checkViews(all []tko.View, parent string, by tko.Author) (wanted []rights.StoredView, err error) {
	if len(all) > maxViewsAtATime {
		return nil, tko.Errorf(tko.ErrInvalid, "there are %d views: use at most %d", len(all), maxViewsAtATime)
	}
	now := time.Now().UTC().Truncate(time.Second)
	var wrong []error
	seen := map[string]bool{}
	for _, one := range all {
		v := rights.StoredView{View: one}
		v.Parent, v.By, v.Created, v.Updated, v.Problem = parent, by, now, now, ""
		if err := checkView(one); err != nil {
			wrong = append(wrong, err)
		}
		if seen[v.Name] {
			wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "view %q is there twice: remove one", v.Name))
		}
		seen[v.Name] = true
		wanted = append(wanted, v)
	}
	if len(wrong) > 0 {
		return nil, oneOf(wrong)
	}
	return wanted, nil
}

func checkView(v tko.View) error {
	if err := tko.CheckID("view name", v.Name); err != nil {
		return err
	}
	if len(v.Description) > maxDescribed || !record.Storable(v.Description) {
		return tko.Errorf(tko.ErrInvalid, "view %q: its description has %d bytes: use a text of at most %d", v.Name, len(v.Description), maxDescribed)
	}
	if !record.Storable(v.Path) || !record.Storable(v.Query) {
		return tko.Errorf(tko.ErrInvalid, "view %q: its path or query is no text: copy it from the address of the page", v.Name)
	}
	if err := filter.CheckPage(v.Path, v.Query); err != nil {
		return tko.Errorf(tko.ErrInvalid, "view %q: %w", v.Name, err)
	}
	return nil
}

// viewOf returns the view with a name.
func viewOf(b *rights.Book, name string) (v rights.StoredView, found bool) {
	i := slices.IndexFunc(b.Views, func(v rights.StoredView) bool { return v.Name == name })
	if i < 0 {
		return v, false
	}
	return b.Views[i], true
}

// A viewing is the decision about views that are saved.
type viewing struct {
	rights.Change

	results []tko.RegisteredView
}

// saveViews returns how views change the rules.
func saveViews(b *rights.Book, wanted []rights.StoredView) (r viewing, err error) {
	for _, v := range wanted {
		before, exists := viewOf(b, v.Name)
		result := tko.RegisteredView{Name: v.Name, Created: !exists, Changed: true}
		if exists {
			if before.Parent != v.Parent && (!before.Undeclared || v.Parent != "") {
				return r, tko.Errorf(tko.ErrConflict, "view %q: %s: use another name, or remove that one first", v.Name, savedBy(before))
			}
			v.Created = before.Created
			result.Changed = !v.Same(before.View) || before.Undeclared
		}
		r.results = append(r.results, result)
		if !result.Changed {
			continue
		}
		rec := audit.Record{Kind: record.RuleView, ID: v.Name, Op: "saved", Detail: printable.Short(v.Address(), maxDetail), Why: v.By.Why}
		if err := r.Write(record.RuleView, v.Name, v, rec); err != nil {
			return r, err
		}
	}
	return r, fitViews(b, r.Put)
}

// savedBy returns who saved a view, for messages.
func savedBy(v rights.StoredView) string {
	if v.Parent != "" {
		return fmt.Sprintf("the repository of source %q declares it", v.Parent)
	}
	return v.By.Who + " saved it"
}

// fitViews returns an ErrInvalid if there would be too many views.
func fitViews(b *rights.Book, put []record.AccessRule) error {
	n, size := totalOf(record.RuleView, put, b.Views, func(v rights.StoredView) (string, []byte) {
		return v.Name, []byte(v.Path + v.Query + v.Description)
	})
	if n > maxViews || size > maxAllViews {
		return tko.Errorf(tko.ErrInvalid, "there would be %d views of %d bytes: use at most %d of %d bytes, and delete some with tko view delete NAME", n, size, maxViews, maxAllViews)
	}
	return nil
}

// declaredViews completes and checks the views that the repository of a source declares. The
// owner of the source must have the right publish.
func (s *ViewKeeper) declaredViews(ctx context.Context, book *rights.Book, parent string, all []tko.SourceDefinition) ([]rights.StoredView, error) {
	if len(all) == 0 {
		return nil, nil
	}
	if owns := book.OwnerOfSource(parent); s.settings.Access == rights.Enforce {
		own, unlimited, _ := s.rights.OwnerGrant(book, owns)
		if !unlimited && !own.May(access.Publish, access.Attributes{}) {
			return nil, tko.Errorf(tko.ErrInvalid, "the repository of source %q declares views, which its owner %s may not: give it the role publish, or remove them", parent, owns)
		}
	}
	var views []tko.View
	var wrong []error
	for _, d := range all {
		v, err := d.View()
		wrong = append(wrong, err)
		views = append(views, v)
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%w", err)
	}
	return checkViews(views, parent, rights.Author(ctx))
}

// declareViews adds to a declaration the views of its repository. It returns the names of
// those that are no longer declared, and stay.
func declareViews(b *rights.Book, c *rights.Change, wanted []rights.StoredView, in declaring) (kept []string, err error) {
	done, err := saveViews(b, wanted)
	if err != nil {
		return nil, err
	}
	c.Put, c.Records = append(c.Put, done.Put...), append(c.Records, done.Records...)
	for _, v := range b.Views {
		if v.Parent != in.request.Parent || slices.ContainsFunc(wanted, func(w rights.StoredView) bool { return w.Name == v.Name }) {
			continue
		}
		rec := audit.Record{Kind: record.RuleView, ID: v.Name, Op: "undeclared by " + in.request.Parent, Why: in.by.Why}
		if in.request.Prune {
			c.Erase(record.RuleView, v.Name)
			c.Records = append(c.Records, rec)
			continue
		}
		kept = append(kept, tko.UndeclaredView+v.Name)
		if v.Undeclared {
			continue
		}
		v.Undeclared = true
		if err := c.Write(record.RuleView, v.Name, v, rec); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// Views returns the saved views by name. Callers who may read anything read all of them.
func (s *ViewKeeper) Views(ctx context.Context) ([]tko.View, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Open)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(record.EntityKinds, func(k tko.Kind) bool { return c.Grant.Somewhere(access.Read, k) }) {
		return nil, s.rights.Refuse(ctx, c, "", "", access.Read)
	}
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return nil, err
	}
	var all []tko.View
	for _, stored := range book.Views {
		v := stored.View
		if err := filter.CheckPage(v.Path, v.Query); err != nil {
			v.Problem = err.Error() + ": change the view, or delete it"
		}
		all = append(all, v)
	}
	return all, nil
}

// DeleteView deletes a view that a user saved.
func (s *ViewKeeper) DeleteView(ctx context.Context, name string) error {
	ctx, c, err := s.rights.Enter(ctx, "", access.Publish)
	if err != nil {
		return err
	}
	why := rights.Author(ctx).Why
	_, err = rights.ChangeRules(ctx, s.rights, c, func(book *rights.Book) (change rights.Change, err error) {
		v, found := viewOf(book, name)
		switch {
		case !found:
			return change, tko.Errorf(tko.ErrNotFound, "view %q: not found: tko view list shows those that are saved", name)
		case v.Parent != "" && !v.Undeclared:
			return change, tko.Errorf(tko.ErrInvalid, "view %q: %s: remove its manifest there", name, savedBy(v))
		}
		change.Erase(record.RuleView, name)
		change.Records = []audit.Record{{Kind: record.RuleView, ID: name, Op: "deleted", Why: why}}
		return change, nil
	})
	return err
}

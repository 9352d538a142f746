package hold

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/content"
	"github.com/tko-orchestrator/tko/internal/criteria"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
)

// The limits of freezes.
const (
	maxSiteFreezes  = 1000
	maxFreezeReason = 1000
	maxFreezeKeys   = 20
)

// SiteFreezes keep sites from being changed for a time.
type SiteFreezes struct{ *holds }

// Freeze freezes the sites that match until a time, and returns the freeze with its ID.
// A freeze with the same selection that isn't over is extended: it keeps its ID, and gets
// the reason and the author of the call. ErrConflict if it ends later than that.
// The caller must hold the right call on each of them. A freeze without a selection, or
// whose selection matches no site, is an ErrInvalid. Very many sites must be confirmed:
// see [tko.WithConfirmation].
func (s *SiteFreezes) Freeze(ctx context.Context, f tko.Freeze) (tko.Freeze, error) {
	ctx, c, err := s.rights.EnterOperator(ctx)
	if err != nil {
		return tko.Freeze{}, err
	}
	now := time.Now()
	if err := checkFreeze(f, now); err != nil {
		return tko.Freeze{}, err
	}
	sites, err := s.frozenSites(ctx, f)
	if err != nil {
		return tko.Freeze{}, err
	}
	if len(sites) == 0 {
		return tko.Freeze{}, tko.Errorf(tko.ErrInvalid, "no site has metadata that matches %s: correct the selection, as tko site list --metadata shows", selectionText(f))
	}
	if err := s.gate.Allow(ctx, "freeze", tko.KindSite, len(sites)); err != nil {
		return tko.Freeze{}, err
	}
	f.ID, f.By, f.Created, f.Until = uuid.NewString(), rights.Author(ctx), now.UTC().Truncate(time.Second), f.Until.UTC().Truncate(time.Second)
	if _, _, err := s.activeFreezes(ctx); err != nil { // ends those that are over
		return tko.Freeze{}, err
	}
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return tko.Freeze{}, err
	}
	old, extends := sameFreeze(book, f, now)
	if extends {
		f.ID, f.Created = old.ID, old.Created
	}
	_, err = rights.ChangeRules(ctx, s.rights, c, func(book *rights.Book) (change rights.Change, err error) {
		switch old, again := sameFreeze(book, f, now); {
		case again != extends || old.ID != f.ID && extends:
			return change, tko.Errorf(tko.ErrConflict, "another client changed the freezes of sites with %s meanwhile: try again", selectionText(f))
		case again && old.Until.After(f.Until):
			return change, tko.Errorf(tko.ErrConflict, "sites with %s are frozen until %s already (%s), which is later: to end that earlier, run tko unfreeze %s first",
				selectionText(f), old.Until.UTC().Format(time.RFC3339), old.Reason, old.ID)
		}
		if !extends && len(book.Freezes)-len(change.Remove) >= maxSiteFreezes {
			return change, tko.Errorf(tko.ErrInvalid, "there are %d freezes, the maximum: remove some", len(book.Freezes))
		}
		return change, change.Write(record.RuleFreeze, f.ID, f, describeFreeze("froze", f))
	})
	if err != nil {
		return tko.Freeze{}, err
	}
	return f, s.store.EnqueueWork(ctx, tko.QueueSchedule, sites, false) // their conditions report it
}

// sameFreeze returns the freeze with the selection of f that isn't over.
func sameFreeze(book *rights.Book, f tko.Freeze, now time.Time) (tko.Freeze, bool) {
	i := slices.IndexFunc(book.Freezes, func(old tko.Freeze) bool {
		return now.Before(old.Until) && maps.Equal(old.SiteMetadata, f.SiteMetadata)
	})
	if i < 0 {
		return tko.Freeze{}, false
	}
	return book.Freezes[i], true
}

// Unfreeze ends freezes. One that doesn't exist, or is over, is an ErrNotFound, and
// nothing is changed.
func (s *SiteFreezes) Unfreeze(ctx context.Context, ids ...string) error {
	ctx, c, err := s.rights.EnterOperator(ctx)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return tko.Errorf(tko.ErrInvalid, "no freeze is named: give the IDs that tko freeze list shows")
	}
	for _, id := range ids {
		book, err := s.rights.RulesOf(ctx, 0)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(book.Freezes, func(f tko.Freeze) bool { return f.ID == id })
		if i < 0 {
			return tko.Errorf(tko.ErrNotFound, "freeze %.60q: not found", id)
		}
		f := book.Freezes[i]
		sites, err := s.frozenSites(ctx, f)
		if err != nil {
			return err
		}
		if err := s.endFreeze(ctx, c, f); err != nil {
			return err
		}
		if err := s.store.EnqueueWork(ctx, tko.QueueSchedule, sites, false); err != nil {
			return err
		}
	}
	return nil
}

// Freezes returns the freezes that aren't over, those that end first at the beginning: of sites
// that the caller sees.
func (s *SiteFreezes) Freezes(ctx context.Context) ([]tko.Freeze, error) {
	ctx, c, err := s.rights.Enter(ctx, tko.KindSite, access.Read)
	if err != nil {
		return nil, err
	}
	freezes, _, err := s.activeFreezes(ctx)
	if err != nil || c.View().IsAll() {
		return freezes, err
	}
	var seen []tko.Freeze
	for _, f := range freezes {
		query, err := criteria.Sites(tko.SiteSelect{Metadata: f.SiteMetadata}, tko.ListOptions{})
		if err != nil {
			return nil, err
		}
		query.Scope, query.Limit = c.View(), 1
		for _, err := range s.store.List(ctx, query) {
			if err != nil {
				return nil, err
			}
			seen = append(seen, f)
		}
	}
	return seen, nil
}

// activeFreezes returns the freezes that aren't over, and the version of the rules that
// they are part of.
func (s *holds) activeFreezes(ctx context.Context) ([]tko.Freeze, int64, error) {
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return nil, 0, err
	}
	ended := false
	now := time.Now()
	var active []tko.Freeze
	for _, f := range book.Freezes {
		if now.Before(f.Until) {
			active = append(active, f)
			continue
		}
		// The freeze is over, and holds until it is known what its end releases: who reads
		// it first decides that.
		c, ok := rights.CallerOf(ctx)
		if !ok {
			return nil, 0, rights.ErrNotEntered
		}
		all := rights.WithAllRights(ctx, c)
		c, _ = rights.CallerOf(all)
		if err := s.endFreeze(all, c, f); err != nil {
			return nil, 0, err
		}
		ended = true
	}
	if ended {
		if book, err = s.rights.RulesOf(ctx, 0); err != nil {
			return nil, 0, err
		}
	}
	slices.SortFunc(active, func(a, b tko.Freeze) int {
		if d := a.Until.Compare(b.Until); d != 0 {
			return d
		}
		return strings.Compare(a.ID, b.ID)
	})
	return active, book.Version, nil
}

// freezes returns the freezes, and the suspension of sites, for the rules of rollouts, and the
// version of the rules that they are part of.
func (s *holds) freezes(ctx context.Context) ([]execute.Freeze, int64, error) {
	active, rules, err := s.activeFreezes(ctx)
	if err != nil {
		return nil, 0, err
	}
	all := []execute.Freeze{{
		Matches: func(_ tko.SiteID, metadata map[string]string) bool { return tko.Suspended(metadata) },
		Until:   time.Now().Add(execute.SuspendedAgain), Reason: "suspended, and looked at again",
	}}
	for _, f := range active {
		all = append(all, execute.Freeze{
			Matches: func(_ tko.SiteID, metadata map[string]string) bool { return f.Selects(metadata) },
			Until:   f.Until, Reason: f.Reason,
		})
	}
	return all, rules, nil
}

// frozenSites returns the IDs of the sites that a freeze selects now. The caller must
// hold the right call on each.
func (s *SiteFreezes) frozenSites(ctx context.Context, f tko.Freeze) ([]string, error) {
	query, err := criteria.Sites(tko.SiteSelect{Metadata: f.SiteMetadata}, tko.ListOptions{})
	if err != nil {
		return nil, err
	}
	query.Scope = access.ScopeAll
	var ids []string
	for r, err := range s.store.List(ctx, query) {
		if err == nil {
			err = s.rights.Permit(ctx, &r, nil, access.Call)
		}
		if c, ok := rights.CallerOf(ctx); ok && (errors.Is(err, tko.ErrDenied) || errors.Is(err, tko.ErrNotFound)) && !c.Sees(r) {
			err = tko.Errorf(tko.ErrDenied, "sites with %s are not only those that you may freeze: add metadata that only yours have", selectionText(f))
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, r.ID)
	}
	return ids, nil
}

func checkFreeze(f tko.Freeze, now time.Time) error {
	switch {
	case len(f.SiteMetadata) == 0:
		return tko.Errorf(tko.ErrInvalid, "the freeze selects no sites by metadata, which would freeze everything: name metadata, such as region=north")
	case len(f.SiteMetadata) > maxFreezeKeys:
		return tko.Errorf(tko.ErrInvalid, "the freeze selects by %d metadata keys: use at most %d", len(f.SiteMetadata), maxFreezeKeys)
	case strings.TrimSpace(f.Reason) == "":
		return tko.Errorf(tko.ErrInvalid, "the freeze has no reason: state one for those who wait for its end")
	case len(f.Reason) > maxFreezeReason || !record.Storable(f.Reason):
		return tko.Errorf(tko.ErrInvalid, "the reason of the freeze has %d bytes: use plain text of at most %d", len(f.Reason), maxFreezeReason)
	case f.Until.IsZero():
		return tko.Errorf(tko.ErrInvalid, "the freeze has no end: state until when")
	case !f.Until.After(now):
		return tko.Errorf(tko.ErrInvalid, "the freeze would end at %s, which is over", f.Until.UTC().Format(time.RFC3339))
	case f.Until.Sub(now) > tko.MaxFreeze:
		return tko.Errorf(tko.ErrInvalid, "the freeze would end at %s: a freeze takes at most %d days, freeze again then", f.Until.UTC().Format(time.RFC3339), int(tko.MaxFreeze.Hours()/24))
	}
	for key, text := range f.SiteMetadata {
		if err := content.CheckMetadata(key, text); err != nil {
			return err
		}
		if _, err := tko.ParsePattern(text); err != nil {
			return err
		}
	}
	return nil
}

func selectionText(f tko.Freeze) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(f.SiteMetadata)) {
		parts = append(parts, fmt.Sprintf("%s=%s", key, f.SiteMetadata[key]))
	}
	return strings.Join(parts, ",")
}

func describeFreeze(verb string, f tko.Freeze) audit.Record {
	return audit.Record{Kind: record.RuleFreeze, ID: f.ID, Op: verb, Detail: fmt.Sprintf("%s until %s", selectionText(f), f.Until.UTC().Format(time.RFC3339)), Why: f.Reason}
}

// SiteHold returns why changes of a site must not be scheduled now: a rollout with
// limits.apart is changing a site that must not be changed at the same time. "" if nothing
// keeps the site from being changed.
func (s *SiteFreezes) SiteHold(ctx context.Context, id tko.SiteID) (reason string, err error) {
	if _, _, err := s.rights.Enter(ctx, "", access.Schedule); err != nil {
		return "", err
	}
	entries, err := s.store.ApartFlights(ctx)
	if err != nil || len(entries) == 0 {
		return "", err
	}
	sites := []string{string(id)}
	for _, e := range entries {
		sites = append(sites, string(e.Site))
	}
	metadata, err := s.reader.MetadataOf(ctx, tko.KindSite, sites)
	if err != nil {
		return "", err
	}
	for i := range entries {
		entries[i].Now = metadata[string(entries[i].Site)]
	}
	return execute.Hold(entries, id, metadata[string(id)]), nil
}

package planner_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

// A template or site that deployments of a rollout in progress refer to isn't deleted unasked: a
// running undo was superseded, and left the fleet half undone.
func TestDeletionOfWhatARolloutChangesNeedsConsent(t *testing.T) {
	t.Parallel()
	deletions := map[string]func(ctx context.Context, w *world) error{
		"the template": func(ctx context.Context, w *world) error {
			_, err := w.DeleteTemplate(ctx, "t:v2")
			return err
		},
		"a purge of templates": func(ctx context.Context, w *world) error {
			_, err := w.PurgeTemplates(ctx, tko.TemplateSelect{IDs: []string{"t:v2"}}, false)
			return err
		},
		"a removal": func(ctx context.Context, w *world) error {
			_, err := w.RemoveEntity(ctx, tko.KindTemplate, "t:v2", false)
			return err
		},
		"the site": func(ctx context.Context, w *world) error {
			_, err := w.DeleteSite(ctx, "s00")
			return err
		},
	}
	for title, del := range deletions {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			ids := w.fleet(3)
			before := w.content(ids)
			w.started("r", strings.Replace(upgrade, "waves: [{name: canary, count: 1}, {name: rest}]", "limits: {concurrent: 3}", 1))
			w.advance("r")
			if w.versions(ids) != "v2 v2 v2" {
				t.Fatal(w.versions(ids))
			}
			if err := del(w.ctx, w); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), `rollout "r" is changing`) {
				t.Errorf("while it runs: %v", err)
			}
			undo := w.do("r", "undo").UndoneBy
			err := del(w.ctx, w)
			if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "tko rollout status "+string(undo)) && !strings.Contains(err.Error(), "tko rollout status r") || !strings.Contains(err.Error(), "--confirm=") {
				t.Errorf("during the undo: %v", err)
			}
			for range 4 {
				w.advance(undo)
				w.settle(ids...)
			}
			w.advance("r")
			if s := w.status("r"); s.State != "Undone" || w.content(ids) != before {
				t.Fatalf("%s %s %v, %s", s.State, s.Reason, s.Blocks, w.versions(ids))
			}
			if err := del(w.ctx, w); err != nil {
				t.Errorf("after the undo: %v", err)
			}
		})
	}
}

// With consent, it is deleted, and the rows say why they aren't undone.
func TestConsentDeletesWhatARolloutChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.fleet(3)
	w.started("r", strings.Replace(upgrade, "waves: [{name: canary, count: 1}, {name: rest}]", "limits: {concurrent: 3}", 1))
	w.advance("r")
	if d, err := w.DeleteTemplate(tko.WithConfirmation(w.ctx, 1+len(ids)), "t:v2"); err != nil || d.Orphaned != len(ids) {
		t.Errorf("%+v, %v", d, err)
	}
}

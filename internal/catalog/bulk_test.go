package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A cuttingStore calls a function before each commit.
type cuttingStore struct {
	record.Store
	before func(writes []record.Write) error
}

func (s *cuttingStore) Commit(ctx context.Context, gated record.Gated) ([]record.Outcome, error) {
	writes := gated.Writes()
	if err := s.before(writes); err != nil {
		return nil, err
	}
	return s.Store.Commit(ctx, gated)
}

// A laterStore calls a function before it lists for the second time.
type laterStore struct {
	record.Store
	lists int
	again func() error
}

func (s *laterStore) List(ctx context.Context, query record.Query) iter.Seq2[record.Record, error] {
	s.lists++
	if s.lists == 2 {
		if err := s.again(); err != nil {
			return func(yield func(record.Record, error) bool) { yield(record.Record{}, err) }
		}
	}
	return s.Store.List(ctx, query)
}

// unconfirmed are options with which these tests need no confirmation.
var unconfirmed = catalog.Options{ConfirmAbove: 1_000_000, ConfirmPercent: 100}

// between makes the world's catalog call a function before each commit.
func (w *world) between(before func(writes []record.Write) error) {
	w.Service = catalog.New(&cuttingStore{w.store, before}, w.validator, unconfirmed)
}

// many makes deployments under a parent.
func (w *world) many(n int, request tko.NewDeployment) {
	w.t.Helper()
	if request.Parent == "" || request.Prepared {
		w.each(n, func(int) error {
			_, err := w.CreateDeployment(w.ctx, request)
			return err
		})
		return
	}
	children := tko.NewChildren{Parent: request.Parent}
	for i := range n {
		children.Children = append(children.Children, tko.NewChild{Origin: strconv.Itoa(i), Template: request.Template})
	}
	if _, _, err := w.CreateChildren(w.ctx, children); err != nil {
		w.t.Fatal(err)
	}
}

// each makes n concurrent calls, which the store commits together.
func (w *world) each(n int, call func(i int) error) {
	w.t.Helper()
	const callers = 32
	var wait sync.WaitGroup
	for first := range min(n, callers) {
		wait.Go(func() {
			for i := first; i < n; i += callers {
				if err := call(i); err != nil {
					w.t.Error(err)
					return
				}
			}
		})
	}
	wait.Wait()
	if w.t.Failed() {
		w.t.FailNow()
	}
}

func TestInterruptedDeletionsReportTheirProgress(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why  string
		run  func(ctx context.Context, w *world, top tko.DeploymentID) error
		done string
	}{
		"a purge": {"a part went", func(ctx context.Context, w *world, _ tko.DeploymentID) error {
			_, err := w.PurgeDeployments(ctx, tko.DeploymentSelect{}, false)
			return err
		}, "were deleted before this"},
		"a deployment": {"its descendants went first", func(ctx context.Context, w *world, top tko.DeploymentID) error {
			_, err := w.DeleteDeployment(ctx, top)
			return err
		}, "were deleted before this"},
		"a template": {"a part of its deployments lost it", func(ctx context.Context, w *world, _ tko.DeploymentID) error {
			_, err := w.DeleteTemplate(ctx, "t")
			return err
		}, "stopped referring to it before this error"},
		"an approval": {"a part was approved", func(ctx context.Context, w *world, _ tko.DeploymentID) error {
			_, err := w.ApproveDeployments(ctx, tko.DeploymentSelect{}, false)
			return err
		}, "were approved before this"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, unconfirmed)
			w.template("t", "")
			top := w.create(tko.NewDeployment{})
			w.many(450, tko.NewDeployment{Parent: top, Template: "t", Prepared: true})
			whole := w.Service
			ctx, cancel := context.WithCancel(w.ctx)
			commits := 0
			w.between(func([]record.Write) error {
				commits++
				if commits == 2 {
					cancel()
				}
				return nil
			})
			before := w.head()
			err := test.run(ctx, w, top)
			wantError(t, err, context.Canceled, test.done)
			if !strings.Contains(err.Error(), "repeat the request") || w.head() == before || commits != 2 {
				t.Errorf("after %d commits the error is %v", commits, err)
			}
			w.Service = whole
			if err := test.run(w.ctx, w, top); err != nil {
				t.Errorf("again: %v", err)
			}
			no := false
			for _, d := range all(t, w.Deployments(w.ctx, tko.DeploymentSelect{Approved: &no, Templates: []string{"t"}}, tko.ListOptions{})) {
				t.Errorf("%s: deployment %s is left", test.why, d.ID)
				break
			}
		})
	}
}

func TestPurgesLeaveRecordsThatAreAddedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, unconfirmed)
	for i := range 20 {
		w.site(fmt.Sprintf("a/%02d", i), "")
	}
	whole := w.Service
	w.Service = catalog.New(&laterStore{Store: w.store, again: func() error {
		_, err := whole.RegisterSite(w.ctx, tko.Site{ID: "z"})
		return err
	}}, w.validator, unconfirmed)
	if deleted, err := w.PurgeSites(w.ctx, tko.SiteSelect{}, false); err != nil || deleted.Count != 20 {
		t.Errorf("%+v, %v", deleted, err)
	}
	if left := all(t, w.Sites(w.ctx, tko.SiteSelect{}, tko.ListOptions{})); len(left) != 1 || left[0].ID != "z" {
		t.Errorf("%d sites are left: want the one that came in", len(left))
	}
}

func TestPurgesDeleteManyPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, unconfirmed)
	var top tko.DeploymentID
	const tops, children, grandchildren = 3, 700, 1
	for range tops {
		top = w.create(tko.NewDeployment{Metadata: map[string]string{"top": "yes"}})
		w.many(children, tko.NewDeployment{Parent: top})
	}
	inner := all(t, w.Deployments(w.ctx, tko.DeploymentSelect{Parent: top}, tko.ListOptions{}))[0]
	w.many(grandchildren, tko.NewDeployment{Parent: inner.ID})
	tests := map[string]struct {
		why  string
		sel  tko.DeploymentSelect
		want tko.Deleted
	}{
		"tops": {"those below them go", tko.DeploymentSelect{Metadata: map[string]string{"top": "yes"}}, tko.Deleted{
			Count: tops + tops*children + grandchildren, Descendants: tops*children + grandchildren,
		}},
		"children": {"one has a child", tko.DeploymentSelect{Parent: top}, tko.Deleted{Count: children + grandchildren, Descendants: grandchildren}},
		"all":      {"those below are selected, too", tko.DeploymentSelect{}, tko.Deleted{Count: tops + tops*children + grandchildren}},
	}
	for name, test := range tests {
		if got, err := w.PurgeDeployments(w.ctx, test.sel, true); err != nil || got != test.want {
			t.Errorf("%s: %+v, %v, want %+v: %s", name, got, err, test.want, test.why)
		}
	}
	if got, err := w.PurgeDeployments(w.ctx, tko.DeploymentSelect{}, false); err != nil || got != tests["all"].want {
		t.Errorf("%+v, %v: want what the dry run said", got, err)
	}
}

func TestNoRecordCanReferToOneThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, unconfirmed)
	w.template("t", "")
	w.many(450, tko.NewDeployment{Template: "t"})
	whole, stop := w.Service, errors.New("stop")
	commits := 0
	w.between(func([]record.Write) error {
		commits++
		if commits == 2 {
			return stop
		}
		return nil
	})
	if _, err := w.DeleteTemplate(w.ctx, "t"); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	w.Service = whole
	_, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Template: "t"})
	wantError(t, err, tko.ErrInvalid, `template "t" is being deleted`, "delete it again")
	template, err := w.Template(w.ctx, "t", 0)
	if err != nil || len(template.Stamp.Conditions) != 1 || template.Stamp.Conditions[0].Type != tko.ConditionDeleting {
		t.Errorf("%v, %v: want the template to say that it is being deleted", template.Stamp.Conditions, err)
	}
	if deleted, err := w.DeleteTemplate(w.ctx, "t"); err != nil || deleted.Count != 1 {
		t.Errorf("%+v, %v", deleted, err)
	}
}

// A breakingStore loses the snapshot of its first lists after some records.
type breakingStore struct {
	record.Store
	breaks atomic.Int64
}

func (s *breakingStore) List(ctx context.Context, query record.Query) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		count := 0
		for r, err := range s.Store.List(ctx, query) {
			count++
			if count > 3 && s.breaks.Add(-1) >= 0 {
				yield(record.Record{}, tko.Errorf(tko.ErrUnavailable, "lost"))
				return
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

func TestPurgesContinueAfterTheirListsAreLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, unconfirmed)
	w.site("stays", "")
	for i := range 20 {
		w.site(fmt.Sprintf("goes/%02d", i), "")
	}
	store := &breakingStore{Store: w.store}
	store.breaks.Store(4)
	w.Service = catalog.New(store, w.validator, unconfirmed)
	deleted, err := w.PurgeSites(w.ctx, tko.SiteSelect{IDs: []string{"goes/*"}}, false)
	if err != nil || deleted.Count != 20 {
		t.Errorf("%d were deleted: %v", deleted.Count, err)
	}
	store.breaks.Store(1 << 30)
	if _, err := w.PurgeSites(w.ctx, tko.SiteSelect{}, true); err != nil {
		t.Errorf("a list of one that isn't lost: %v", err)
	}
}

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
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func manyConditions(n, message int) []tko.Condition {
	conditions := make([]tko.Condition, n)
	for i := range conditions {
		conditions[i] = tko.Condition{Type: fmt.Sprint("T", i), Status: tko.ConditionTrue, Message: strings.Repeat("m", message)}
	}
	return conditions
}

func TestTooManyConditionsAreRefusedBeforeTheyAreMerged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("s", "")
	before := w.head()
	began := time.Now()
	err := w.SetConditions(w.ctx, tko.KindSite, "s", manyConditions(1_000_000, 1))
	wantError(t, err, tko.ErrInvalid, "1000000 conditions", "at most 64")
	if took := time.Since(began); took > 2*time.Minute { // to compare each with each takes hours
		t.Errorf("it took %s to refuse them", took)
	}
	_, err = w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: w.create(tko.NewDeployment{}), Revision: 1, Conditions: manyConditions(65, 1)})
	wantError(t, err, tko.ErrInvalid, "65 conditions")
	err = w.SetConditions(w.ctx, tko.KindSite, "s", manyConditions(64, 30_000))
	wantError(t, err, tko.ErrInvalid, `site "s"`, "at most 1048576")
	if err := w.SetConditions(w.ctx, tko.KindSite, "s", manyConditions(64, 10_000)); err != nil {
		t.Errorf("conditions within the limits: %v", err)
	}
	changes, err := w.store.Changes(w.ctx, before, 100)
	if err != nil || len(changes) != 2 { // the deployment, and the last
		t.Errorf("%d changes were made (%v), want 2: refused conditions change nothing", len(changes), err)
	}
}

func TestTooMuchWorkInOneCallIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	items := make([]tko.WorkItem, 10_001)
	finished := make([]tko.FinishedWork, len(items))
	names := make([]string, len(items))
	for i := range items {
		items[i] = tko.WorkItem{Queue: tko.QueuePrepare, Key: "k", Claim: "c"}
		finished[i] = tko.FinishedWork{Item: items[i], Outcome: tko.WorkDone}
		names[i] = "source"
	}
	_, err := w.RenewWork(w.ctx, items, time.Second)
	wantError(t, err, tko.ErrInvalid, "10001", "at most 10000")
	wantError(t, w.FinishWork(w.ctx, finished), tko.ErrInvalid, "10001", "at most 10000")
	site := tko.WorkItem{Queue: tko.QueueSchedule, Key: "s", Claim: "c"}
	for why, f := range map[string]tko.FinishedWork{
		"another queue":   {Item: tko.WorkItem{Queue: tko.QueuePrepare, Key: "d", Claim: "c"}, Outcome: tko.WorkLater, Retry: time.Second, Gather: true},
		"another outcome": {Item: site, Outcome: tko.WorkFailed, Retry: time.Second, Gather: true},
		"for hours":       {Item: site, Outcome: tko.WorkLater, Retry: tko.MaxGather + 1, Gather: true},
	} {
		if err := w.FinishWork(w.ctx, []tko.FinishedWork{f}); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "gathers") {
			t.Errorf("gathering, %s: %v", why, err)
		}
	}
	wantError(t, w.EnqueueSources(w.ctx, names, false, ""), tko.ErrInvalid, "10001", "at most 10000")
}

func TestCreateChildrenStopsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	parent := w.create(tko.NewDeployment{})
	before := w.head()
	children := make([]tko.NewChild, 10_000)
	for i := range children {
		children[i] = tko.NewChild{Origin: strconv.Itoa(i)}
	}
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	_, _, err := w.CreateChildren(ctx, tko.NewChildren{Parent: parent, Children: children})
	wantError(t, err, context.Canceled)
	if w.head() != before {
		t.Error("something was created")
	}
}

func TestTooManyPatternsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("kept", "")
	w.site("kept", "")
	ids, metadata := make([]string, 1010), map[string]string{}
	for i := range ids {
		ids[i] = fmt.Sprintf("a%d*", i)
		metadata[fmt.Sprint("k", i)] = "v"
	}
	hundred := strings.Repeat("*a", 20_000)
	for name, test := range map[string]struct {
		why   string
		list  func() error
		names []string
	}{
		"templates by ID": {"each is a condition of one statement", func() error { return firstError(w.Templates(w.ctx, tko.TemplateSelect{IDs: ids}, tko.ListOptions{})) }, []string{"1010 patterns", "at most 100"}},
		"templates by metadata": {"as many", func() error {
			return firstError(w.Templates(w.ctx, tko.TemplateSelect{Metadata: metadata}, tko.ListOptions{}))
		}, []string{"1010 patterns"}},
		"sites": {"all of a select count", func() error {
			return firstError(w.Sites(w.ctx, tko.SiteSelect{IDs: ids[:50], Templates: ids[:51]}, tko.ListOptions{}))
		}, []string{"101 patterns"}},
		"deployments": {"of templates and sites, too", func() error {
			return firstError(w.Deployments(w.ctx, tko.DeploymentSelect{TemplateMetadata: metadata}, tko.ListOptions{}))
		}, []string{"1010 patterns"}},
		"plugins": {"the same", func() error {
			return firstError(w.Plugins(w.ctx, tko.PluginSelect{Names: ids}, tko.ListOptions{}))
		}, []string{"1010 patterns"}},
		"a purge": {"before anything goes", func() error {
			_, err := w.PurgeSites(w.ctx, tko.SiteSelect{IDs: ids}, true)
			return err
		}, []string{"1010 patterns"}},
		"one of many wildcards": {"its regular expression is too large", func() error {
			return firstError(w.Sites(w.ctx, tko.SiteSelect{IDs: []string{hundred}}, tko.ListOptions{}))
		}, []string{"*a*a", "wildcards"}},
		"a long one": {"it would be compiled for every record", func() error {
			return firstError(w.Sites(w.ctx, tko.SiteSelect{Metadata: map[string]string{"k": strings.Repeat("x", 2000) + "*"}}, tko.ListOptions{}))
		}, []string{`"k"`, "2001 bytes"}},
	} {
		began := time.Now()
		err := test.list()
		wantError(t, err, tko.ErrInvalid, test.names...)
		if len(err.Error()) > 500 {
			t.Errorf("%s: the error has %d bytes: it should not repeat the request", name, len(err.Error()))
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: it took %s to refuse it: %s", name, took, test.why)
		}
	}
	if got := all(t, w.Sites(w.ctx, tko.SiteSelect{IDs: repeat("k*", 100)}, tko.ListOptions{})); len(got) != 1 {
		t.Errorf("100 patterns list %d sites, want one", len(got))
	}
	_, err := collect(w.Records(w.ctx, record.Query{Kind: tko.KindSite, IDs: make([]tko.Pattern, 101), Limit: -1}, w.head()))
	wantError(t, err, tko.ErrInvalid, "101 patterns")
}

func repeat(text string, n int) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = text
	}
	return texts
}

func TestMetadataIsBoundedInTotal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	large := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprintf("k%02d", i)] = strings.Repeat("v", 60_000)
		}
		return m
	}
	before := w.head()
	_, err := w.RegisterSite(w.ctx, tko.Site{ID: "s", Metadata: large(84)}) // 5 MB
	wantError(t, err, tko.ErrInvalid, "metadata", "at most 1048576")
	_, err = w.RegisterTemplate(w.ctx, tko.Template{ID: "t", Metadata: large(84)})
	wantError(t, err, tko.ErrInvalid, "metadata", "at most 1048576")
	_, err = w.CreateDeployment(w.ctx, tko.NewDeployment{Metadata: large(84)})
	wantError(t, err, tko.ErrInvalid, "metadata", "at most 1048576")
	if w.head() != before {
		t.Error("something was stored")
	}
	if _, err := w.RegisterSite(w.ctx, tko.Site{ID: "s", Metadata: large(17)}); err != nil {
		t.Errorf("metadata within the limit: %v", err)
	}

	// Metadata that an earlier version stored can still be modified, but can't grow.
	id := w.create(tko.NewDeployment{})
	records, err := w.store.Get(w.ctx, record.Fields{Package: true}, record.Key{Kind: tko.KindDeployment, ID: string(id)})
	if err != nil {
		t.Fatal(err)
	}
	old := records[0]
	old.Metadata = &record.Metadata{Effective: large(30), Passed: large(30)}
	if _, err := w.store.Commit(w.ctx, record.Ungated(record.Write{Op: tko.OpWritten, Record: old, Expect: old.Revision})); err != nil {
		t.Fatal(err)
	}
	m := w.start(id)
	_, _, err = w.EndModification(w.ctx, m.Token, append(m.Package, pkg(t, facts("more: text"))...))
	wantError(t, err, tko.ErrInvalid, "metadata")
	if _, _, err := w.EndModification(w.ctx, m.Token, append(m.Package, pkg(t, thing("a", ""))...)); err != nil {
		t.Errorf("a change of the package alone: %v", err)
	}
}

// The key of a value in a metadata resource is as long as its path: the size of all
// keys must stay in proportion to the package.
func TestKeysOfDeepMetadataStayInProportion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	leaves := make([]string, 2000)
	for i := range leaves {
		leaves[i] = fmt.Sprintf("k%d: v", i)
	}
	_, err := w.RegisterTemplate(w.ctx, tko.Template{ID: "t", Package: pkg(t, facts("? "+strings.Repeat("x", 1<<20)+"\n: {"+strings.Join(leaves, ", ")+"}"))})
	wantError(t, err, tko.ErrInvalid, "metadata key", "at most 512")
}

// collect returns a list up to its first error.
func collect[T any](list iter.Seq2[T, error]) ([]T, error) {
	var items []T
	for item, err := range list {
		if err != nil {
			return items, err
		}
		items = append(items, item)
	}
	return items, nil
}

// A claimCountingStore counts its claims of work.
type claimCountingStore struct {
	record.Store

	claims atomic.Int64
}

func (s *claimCountingStore) ClaimWork(ctx context.Context, claim tko.ClaimWork) ([]tko.WorkItem, time.Time, error) {
	s.claims.Add(1)
	return s.Store.ClaimWork(ctx, claim)
}

// Many waiting workers don't each query the database at each change.
func TestWaitingWorkersShareOneQueryOfTheStore(t *testing.T) {
	t.Parallel()
	store := &claimCountingStore{Store: openStore(t)}
	service := catalog.New(store, &validator{}, catalog.Options{})
	const waiting, writes = 500, 20
	ctx, cancel := context.WithCancel(t.Context())
	var got atomic.Int64
	var wait sync.WaitGroup
	for range waiting {
		wait.Go(func() {
			items, err := service.ClaimWork(ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Max: 1, Lease: time.Hour, Wait: time.Hour})
			if err == nil {
				got.Add(int64(len(items)))
			}
		})
	}
	eventually.True(t, "all wait", func() bool { return store.claims.Load() >= waiting })
	begun := store.claims.Load()
	for n := range writes {
		if _, err := service.RegisterTemplate(ctx, tko.Template{ID: "t", Metadata: map[string]string{"n": strconv.Itoa(n)}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := service.CreateDeployment(ctx, tko.NewDeployment{}); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "one gets the work", func() bool { return got.Load() == 1 })
	if n := store.claims.Load() - begun; n > waiting {
		t.Errorf("%d waiting workers queried the store %d times at %d changes, want about once for each change", waiting, n, writes+1)
	}
	cancel()
	wait.Wait()
}

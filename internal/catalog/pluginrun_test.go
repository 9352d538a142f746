package catalog_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// idsOf returns the IDs of the entities that runs were for.
func idsOf(found tko.PluginRuns) string {
	var ids []string
	for _, r := range found.Runs {
		ids = append(ids, r.ID)
	}
	return strings.Join(ids, " ")
}

func TestRunsOfPluginsAreShownToThoseWhoMayReadWhatTheyWereFor(t *testing.T) {
	t.Parallel()
	runs := &catalog.PluginRuns{}
	w := newGuarded(t, catalog.Options{Runs: runs})
	w.template("t", "")
	w.site("emea/a", "")
	w.site("apac/b", "")
	if _, err := w.RegisterPlugin(w.ctx, tko.Plugin{Type: "schedule", Name: "p", Arguments: []string{"true"}}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for i, id := range []string{"emea/a", "apac/b", "gone"} {
		runs.Add(tko.PluginRun{Plugin: "schedule|p", Kind: tko.KindSite, ID: id, Began: began.Add(time.Duration(i)), Result: "failed", Error: "pool exhausted", Lines: []string{"password hunter2"}, More: 3})
	}
	w.bind("cert:ada", access.Viewer, emea)
	w.bind("cert:ada", access.Viewer, access.Scope{Kinds: []tko.Kind{tko.KindPlugin}})
	ada := w.as("cert:ada")
	got, err := w.PluginRuns(ada, tko.KindPlugin, "schedule|p")
	w.is("runs of a plugin", err, nil)
	if idsOf(got) != "emea/a" || got.Lines || got.Runs[0].Lines != nil || got.Runs[0].More != 0 || got.Runs[0].Error != "pool exhausted" {
		t.Errorf("without the right to the log, runs are %+v", got)
	}
	got, err = w.PluginRuns(ada, tko.KindSite, "emea/a")
	w.is("runs for a site", err, nil)
	if idsOf(got) != "emea/a" {
		t.Errorf("for a site, runs are %+v", got)
	}
	got, err = w.PluginRuns(ada, tko.KindSite, "apac/b")
	w.is("runs for a site that is not visible", err, tko.ErrNotFound)
	if len(got.Runs) > 0 {
		t.Errorf("for a site that is not visible, runs are %+v", got)
	}
	got, err = w.PluginRuns(w.ctx, tko.KindPlugin, "schedule|p")
	w.is("runs of a plugin", err, nil)
	if idsOf(got) != "apac/b emea/a" || !got.Lines || got.Runs[0].Lines == nil || got.Runs[0].More != 3 {
		t.Errorf("with the right to the log, runs are %+v", got)
	}
	_, err = w.PluginRuns(w.ctx, tko.KindTemplate, "t")
	w.is("runs for a template", err, tko.ErrInvalid)
}

func TestRunsOfPluginsThatAreHeldAndSentAreBounded(t *testing.T) {
	t.Parallel()
	runs := &catalog.PluginRuns{}
	w := newWorld(t, catalog.Options{Runs: runs})
	w.site("s", "")
	if _, err := w.RegisterPlugin(w.ctx, tko.Plugin{Type: "validate", Name: "busy", Arguments: []string{"true"}}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for i := range 1000 {
		runs.Add(tko.PluginRun{Plugin: fmt.Sprintf("validate|%d", i), Began: began.Add(time.Duration(i)), Kind: tko.KindSite, ID: "s", Error: strconv.Itoa(i)})
		runs.Add(tko.PluginRun{Plugin: "validate|busy", Began: began.Add(time.Duration(i)), Error: strconv.Itoa(i)})
	}
	got, err := w.PluginRuns(w.ctx, tko.KindPlugin, "validate|busy")
	if err != nil || len(got.Runs) != 20 || got.More != 0 || got.Runs[0].Error != "999" || got.Runs[19].Error != "980" {
		t.Errorf("%v: of a plugin, %d runs are held, and %d more", err, len(got.Runs), got.More)
	}
	got, err = w.PluginRuns(w.ctx, tko.KindSite, "s")
	if err != nil || len(got.Runs) != 199 || got.More != 0 || got.Runs[0].Error != "999" {
		t.Errorf("%v: runs of %d other plugins are held, and %d more", err, len(got.Runs), got.More)
	}
	for i := range 1000 { // twenty of each plugin, which log 1 MB in 20 runs
		runs.Add(tko.PluginRun{Plugin: fmt.Sprintf("validate|%d", 900+i%50), Began: began.Add(time.Duration(2000 + i)), Kind: tko.KindSite, ID: "s", Lines: []string{strings.Repeat("x", 50_000)}})
	}
	if got, err = w.PluginRuns(w.ctx, tko.KindSite, "s"); err != nil || len(got.Runs) != 41 || got.More != 1149-41 {
		t.Errorf("%v: %d runs are sent, and %d are left out", err, len(got.Runs), got.More)
	}
	for i := range 1000 {
		runs.Add(tko.PluginRun{Plugin: fmt.Sprintf("validate|%d", 900+i%50), Began: began.Add(time.Duration(4000 + i)), Kind: tko.KindSite, ID: "s"})
	}
	if got, err = w.PluginRuns(w.ctx, tko.KindSite, "s"); err != nil || len(got.Runs) != 200 || got.More != 1149-200 {
		t.Errorf("%v: %d runs are sent, and %d are left out", err, len(got.Runs), got.More)
	}
}

package gitops_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// edit changes the template and metadata of the site a, as a user does. It removes keys whose
// value is "".
func (w *world) edit(template tko.TemplateID, metadata map[string]string) {
	w.Helper()
	s, err := w.Site(w.Context(), "a", 0)
	if err != nil {
		w.Fatal(err)
	}
	for key, value := range metadata {
		s.Metadata[key] = value
		if value == "" {
			delete(s.Metadata, key)
		}
	}
	if _, err := w.PutEntity(w.Context(), tko.Put{Kind: tko.KindSite, ID: "a", Template: template, Metadata: s.Metadata, Package: s.Package, Revision: s.Stamp.Revision}); err != nil {
		w.Fatal(err)
	}
}

// originsOf returns the template and metadata of a site, with the origin of each part, as
// the source sites has it.
func (w *world) originsOf(id tko.SiteID) map[string]string {
	w.Helper()
	site, err := w.Site(w.Context(), id, 0)
	if err != nil {
		w.Fatal(err)
	}
	s, err := w.Source(w.Context(), "sites")
	if err != nil {
		w.Fatal(err)
	}
	i := slices.IndexFunc(s.Status.Items, func(i tko.SourceItem) bool { return i.Name == string(id) })
	if i < 0 {
		w.Fatalf("the source doesn't own site %q", id)
	}
	origins := s.Status.OriginsOf(s.Status.Items[i])
	found := map[string]string{}
	if site.Template != "" {
		found["template"] = fmt.Sprintf("%s from %s", site.Template, origins["template"])
	}
	for key, value := range site.Metadata {
		found[key] = fmt.Sprintf("%s from %s", value, origins["metadata."+key])
	}
	return found
}

// regionOf has the server list the site a with a region.
func (o *outside) regionOf(region string) {
	o.serve(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `[{"name": "a", "region": %q}]`, region)
	})
}

// registered returns an inventory with the site a in the west, of which users may set some
// parts, and a client of the data controller at which it is registered.
func (o *outside) registered(t *testing.T, editable ...string) (*client.Client, gitops.Settings) {
	t.Helper()
	o.regionOf("west")
	c, settings := data(t), o.settings()
	settings.Inventory.Editable = editable
	t.Run("registered", func(t *testing.T) {
		start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, settings)}}).until("sites", "applied", wasApplied)
	})
	return c, settings
}

func wasApplied(s tko.Source) bool { return ready(s).Status == tko.ConditionTrue }

// has waits until the site a has these values from these origins.
func (w *world) has(what string, want map[string]string) {
	w.Helper()
	eventually.NoError(w.TB, what, func() error {
		if diff := cmp.Diff(want, w.originsOf("a")); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// Values that a user sets stay where the inventory lets users set them, whatever the
// inventory has. All others are restored.
func TestInventoryKeepsValuesOfUsersWhereItMay(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	serve := func(region, contact string) {
		o.serve(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `[{"name": "a", "region": %q, "contact": %q}, {"name": "b", "region": %q, "contact": %q}]`, region, contact, region, contact)
		})
	}
	serve("west", "ops")
	c := data(t)
	for _, id := range []tko.TemplateID{"edge:v1", "edge:v2"} {
		if _, err := c.RegisterTemplate(t.Context(), tko.Template{ID: id, Metadata: map[string]string{"tier": string(id)}}); err != nil {
			t.Fatal(err)
		}
	}
	settings := o.settings()
	settings.Inventory.Editable = []string{"template", "metadata.contact", "metadata.note*", "metadata.tier"}
	settings.Inventory.From[0].Map.Template = `"edge:v1"`
	settings.Inventory.From[0].Map.Metadata["contact"] = "record.contact"
	w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	w.until("sites", "applied", func(s tko.Source) bool { return wasApplied(s) && len(s.Status.Items) == 2 })
	check := func(what string, want map[string]string) tko.Source {
		t.Helper()
		w.settle("sites")
		s := w.until("sites", what, wasApplied)
		if diff := cmp.Diff(want, w.originsOf("a")); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
		return s
	}
	w.edit("edge:v2", map[string]string{"contact": "ada", "note-1": "flooded", "region": "mine", "mine": "x", "tier": "edge:v2"})
	edited := map[string]string{
		"template": "edge:v2 from user:test", "contact": "ada from user:test", "note-1": "flooded from user:test", "region": "west from url", "tier": "edge:v2 from ",
	}
	s := check("a user has set values", edited)
	if text := strings.Join(s.Status.Messages, "\n"); !strings.Contains(text, `site "a" keeps metadata.contact "ada" of test, in place of "ops" of url`) {
		t.Errorf("the messages are %q", text)
	}
	check("nothing has changed", edited)
	serve("east", "noc")
	edited["region"] = "east from url"
	check("the inventory has changed", edited)
	if diff := cmp.Diff(map[string]string{"template": "edge:v1 from url", "contact": "noc from url", "region": "east from url", "tier": "edge:v1 from "}, w.originsOf("b")); diff != "" {
		t.Errorf("the other site: %s", diff)
	}
	// Who removes a value, or sets that of the inventory, leaves it to the inventory.
	w.edit("edge:v1", map[string]string{"contact": "", "note-1": "", "tier": "edge:v1"})
	given := map[string]string{"template": "edge:v1 from url", "contact": "noc from url", "region": "east from url", "tier": "edge:v1 from "}
	check("the user has removed values", given)
	serve("east", "soc")
	given["contact"] = "soc from url"
	check("the inventory has changed again", given)
}

// If a source no longer lets users set values, they are restored.
func TestInventoryRestoresValuesThatAreNoLongerEditable(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	o.sites(t, "a")
	c := data(t)
	settings := o.settings()
	settings.Inventory.Editable = []string{"*"}
	t.Run("editable", func(t *testing.T) {
		w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
		w.until("sites", "applied", wasApplied)
		w.edit("", map[string]string{"region": "mine", "own": "x"})
		w.settle("sites")
		w.until("sites", "kept", wasApplied)
		if diff := cmp.Diff(map[string]string{"region": "mine from user:test", "own": "x from user:test"}, w.originsOf("a")); diff != "" {
			t.Error(diff)
		}
	})
	settings.Inventory.Editable = []string{"metadata.own"}
	w := start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, settings)}})
	w.until("sites", "restored", func(s tko.Source) bool {
		return wasApplied(s) && s.Status.OriginsOf(s.Status.Items[0])["metadata.region"] == "url"
	})
	if diff := cmp.Diff(map[string]string{"region": "west from url", "own": "x from user:test"}, w.originsOf("a")); diff != "" {
		t.Error(diff)
	}
}

// meddling is a client before whose first write of a site a user writes the site.
type meddling struct {
	*client.Client
	once sync.Once
	user func()
}

func (m *meddling) PutEntity(ctx context.Context, p tko.Put) (tko.PutResult, error) {
	if !p.DryRun {
		m.once.Do(m.user)
	}
	return m.Client.PutEntity(ctx, p)
}

// A value that a user sets while the inventory is applied isn't lost.
func TestInventoryKeepsValuesThatUsersSetMeanwhile(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	c, settings := o.registered(t, "metadata.contact")
	o.regionOf("east")
	w := &world{TB: t, Client: c}
	w.controller = gitops.New(&meddling{Client: c, user: func() { w.edit("", map[string]string{"contact": "ada"}) }}, gitops.Options{Sources: []gitops.Spec{spec(t, settings)}, Log: slog.New(slog.DiscardHandler)})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.controller.Run(ctx) }()
	w.has("the values of the inventory and the user", map[string]string{"contact": "ada from user:test", "region": "east from url"})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// forgetful is a client that writes sites, and then can't save what was written, as if the
// controller were killed.
type forgetful struct {
	*client.Client
	wrote atomic.Bool
}

func (f *forgetful) PutEntity(ctx context.Context, p tko.Put) (tko.PutResult, error) {
	result, err := f.Client.PutEntity(ctx, p)
	if !p.DryRun && err == nil {
		f.wrote.Store(true)
	}
	return result, err
}

func (f *forgetful) SaveSource(ctx context.Context, s tko.Source, claim tko.WorkItem) (int64, error) {
	if f.wrote.Load() {
		return 0, errors.New("killed")
	}
	return f.Client.SaveSource(ctx, s, claim)
}

// A value that the source wrote before it was killed isn't taken for that of a user, which
// would keep it for ever.
func TestInventoryDoesNotKeepItsOwnValues(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	c, settings := o.registered(t, "*")
	o.regionOf("east")
	killed := gitops.New(&forgetful{Client: c}, gitops.Options{Sources: []gitops.Spec{spec(t, settings)}, Log: slog.New(slog.DiscardHandler)})
	ctx, kill := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- killed.Run(ctx) }()
	eventually.NoError(t, "the site has the value of the inventory", func() error {
		if site, err := c.Site(t.Context(), "a", 0); err != nil || site.Metadata["region"] != "east" {
			return fmt.Errorf("the metadata is %v: %w", site.Metadata, err)
		}
		return nil
	})
	kill()
	<-done // how it ends doesn't matter
	o.regionOf("south")
	start(t, c, gitops.Options{Sources: []gitops.Spec{spec(t, settings)}}).has("the value of the inventory", map[string]string{"region": "south from url"})
}

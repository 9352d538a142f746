package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the checker reads the queues in the database
	_ "modernc.org/sqlite"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A checker compares what is there after the faults with what was acknowledged.
type checker struct {
	world   *world
	ledger  *ledger
	clients []*client.Client // of each data server, without a link
	shared  tko.DeploymentID
}

func (c *checker) position(ctx context.Context) int64 {
	c.world.t.Helper()
	about, err := c.clients[0].About(ctx)
	if err != nil {
		c.world.t.Fatal(err)
	}
	return about.Position
}

// settle waits until nothing is left to do. No restart and no new revision helps.
func (c *checker) settle() {
	t := c.world.t
	t.Helper()
	began := time.Now()
	limit := setting(t, "TKO_FAULTS_SETTLE", eventually.Limit, time.ParseDuration)
	eventually.Within(t, limit, "all to settle after the faults", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for i, data := range c.clients {
			if _, err := data.About(ctx); err != nil {
				return fmt.Errorf("data server %d: %w", i, err)
			}
		}
		if err := c.unsettled(ctx); err != nil {
			return err
		}
		return c.queued(ctx)
	})
	t.Logf("settled after %s", time.Since(began).Round(10*time.Millisecond))
}

// unsettled returns what differs between the deployments, their conditions, and the
// repository of the sites.
func (c *checker) unsettled(ctx context.Context) error {
	var errs []error
	report := func(format string, arguments ...any) { errs = append(errs, fmt.Errorf(format, arguments...)) }
	children, alive := map[tko.DeploymentID]map[tko.SiteID]int{}, map[tko.DeploymentID]tko.TemplateID{}
	wanted := map[string]string{} // tags by site and ID
	for d, err := range c.clients[0].Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{Packages: true}) {
		if err != nil {
			return err
		}
		alive[d.ID] = d.Template
		if d.Parent != "" {
			if children[d.Parent] == nil {
				children[d.Parent] = map[tko.SiteID]int{}
			}
			children[d.Parent][d.Site]++
		}
		if !d.Prepared {
			report("deployment %s (%s) is not prepared: %v", d.ID, d.Template, d.Stamp.Conditions)
		}
		if !d.Approved && d.Template != "manual:v1" {
			report("deployment %s (%s) is not approved: %v", d.ID, d.Template, d.Stamp.Conditions)
		}
		tag := settings(d.Package).Text("data", "tag")
		scheduled := false
		for _, condition := range d.Stamp.Conditions {
			switch {
			case condition.Status == tko.ConditionFalse && condition.Type != tko.ConditionApproved, condition.Type == tko.ConditionDeleting:
				report("deployment %s (%s) has the condition %v", d.ID, d.Template, condition)
			case condition.Type == tko.ConditionScheduled && condition.Status == tko.ConditionTrue:
				scheduled = true
			}
		}
		if d.Template == "topology:v1" {
			continue
		}
		for _, r := range d.Package {
			if r.Name() == "made" && r.Text("data", "of") != tag {
				report("deployment %s has the tag %q, and was prepared with %q", d.ID, tag, r.Text("data", "of"))
			}
		}
		if d.Site == "" || !d.Prepared || !d.Approved {
			continue
		}
		if !scheduled {
			report("deployment %s is not scheduled: %v", d.ID, d.Stamp.Conditions)
		}
		wanted[fmt.Sprintf("%s/%s", d.Site, d.ID)] = tag
	}
	for id, template := range alive {
		if template != "topology:v1" {
			continue
		}
		for i := range fleet {
			if n := children[id][tko.SiteID(fmt.Sprint("fleet/", i))]; n != 1 {
				report("topology %s has %d children at site %d, want 1", id, n, i)
			}
		}
	}
	for parent := range children {
		if _, ok := alive[parent]; !ok {
			report("topology %s was deleted, and its children were not", parent)
		}
	}
	errs = append(errs, c.undelivered(wanted)...)
	if n := len(errs); n > 12 {
		errs = append(errs[:12], fmt.Errorf("and %d more", n-12))
	}
	return errors.Join(errs...)
}

var tagInFile = regexp.MustCompile(`\btag: ?"?([^"\n]*)"?`)

// undelivered returns the differences between the repository and the tags that each
// deployment must have there.
func (c *checker) undelivered(wanted map[string]string) []error {
	var errs []error
	got := map[string]string{}
	for name, text := range c.world.git.files(c.world.t) {
		parts := strings.Split(name, "/") // fleet/SITE/ID/FILE
		if len(parts) < 4 {
			continue
		}
		key := strings.Join(parts[:3], "/")
		if match := tagInFile.FindStringSubmatch(text); match != nil {
			got[key] = match[1]
		} else if _, ok := got[key]; !ok {
			got[key] = ""
		}
	}
	for key, tag := range wanted {
		if got[key] != tag {
			errs = append(errs, fmt.Errorf("the repository has %s with %q, want %q", key, got[key], tag))
		}
	}
	for key := range got {
		if _, ok := wanted[key]; !ok {
			errs = append(errs, fmt.Errorf("the repository has %s, which must not be there", key))
		}
	}
	return errs
}

// database opens the store for the checker.
func (c *checker) database() (*sql.DB, error) {
	if c.world.database != nil {
		return sql.Open("pgx", c.world.store)
	}
	return sql.Open("sqlite", "file:"+c.world.store+"?mode=ro")
}

// queued returns the work that is left.
func (c *checker) queued(ctx context.Context) error {
	db, err := c.database()
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	rows, err := db.QueryContext(ctx, "SELECT queue, key, attempt, last_error FROM work WHERE queue IN ('prepare', 'schedule')")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var errs []error
	for rows.Next() {
		var queue, key, last string
		var attempt int
		if err := rows.Scan(&queue, &key, &attempt, &last); err != nil {
			return err
		}
		errs = append(errs, fmt.Errorf("queue %s has %s, attempt %d: %s", queue, key, attempt, last))
	}
	return errors.Join(append(errs, rows.Err())...)
}

// check checks all that has settled.
func (c *checker) check(followers []*follower) {
	t := c.world.t
	t.Helper()
	ctx := patient(t)
	c.identify(ctx)
	c.checkRecords(ctx)
	c.checkShared(ctx)
	changes := c.checkFeeds(ctx, followers)
	c.checkAudit(ctx, changes)
	c.checkLeaks()
	for _, d := range c.world.daemons {
		d.stop(t)
		c.ledger.report(d.faultsInLog()...)
	}
	eventually.NoError(t, "the end of the plugins' processes", func() error {
		if left := c.world.pluginProcesses(); len(left) > 0 {
			return fmt.Errorf("processes are left: %v", left)
		}
		return nil
	})
}

// identify finds the deployments whose creation had an unknown outcome, by their tags.
// Each creation made at most one.
func (c *checker) identify(ctx context.Context) {
	byTag := map[string][]string{}
	for d, err := range c.clients[0].Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			c.world.t.Fatal(err)
		}
		if tag := d.Metadata["tag"]; tag != "" && d.Parent == "" {
			byTag[tag] = append(byTag[tag], string(d.ID))
		}
	}
	for _, r := range c.ledger.records {
		if r.kind != tko.KindDeployment {
			continue
		}
		w, found := r.writes[0], byTag[r.writes[0].tag]
		switch {
		case len(found) > 1:
			c.ledger.report(fmt.Sprintf("deployments %v come from one creation (%v)", found, w))
		case w.outcome == refused && len(found) > 0:
			c.ledger.report(fmt.Sprintf("deployment %s is there, although its creation was refused", found[0]))
		case w.outcome == unknown && len(found) == 1:
			r.id = found[0]
		}
		delete(byTag, w.tag)
	}
	for tag, ids := range byTag {
		c.ledger.report(fmt.Sprintf("deployments %v have the tag %q, which no creation has", ids, tag))
	}
}

func (c *checker) checkRecords(ctx context.Context) {
	for i, r := range c.ledger.records {
		if r.id == "" {
			continue
		}
		data := c.clients[i%len(c.clients)]
		o, err := observe(ctx, data, r, 0)
		if err != nil && !errors.Is(err, tko.ErrNotFound) {
			c.ledger.report(fmt.Sprintf("read %s %q: %v", r.kind, r.id, err))
			continue
		}
		c.ledger.report(r.checkRead(o))
		if !o.exists {
			continue
		}
		var tags []string
		for revision := int64(1); revision <= o.revision; revision++ {
			past, err := observe(ctx, data, r, revision)
			if err != nil {
				c.ledger.report(fmt.Sprintf("read %s %q at revision %d of %d: %v", r.kind, r.id, revision, o.revision, err))
				continue
			}
			tags = append(tags, past.tag)
		}
		c.ledger.report(r.checkHistory(tags)...)
		c.checkStatus(ctx, data, r)
	}
}

// checkStatus checks the approval of a deployment, and the condition of a site.
func (c *checker) checkStatus(ctx context.Context, data *client.Client, r *record) {
	switch r.kind {
	case tko.KindDeployment:
		d, err := data.Deployment(ctx, tko.DeploymentID(r.id), 0)
		if err != nil {
			c.ledger.report(err.Error())
			return
		}
		if r.template == "manual:v1" && (d.Approved && r.approved == "" || !d.Approved && r.approved == acknowledged) {
			c.ledger.report(fmt.Sprintf("deployment %s is approved: %t; its approval: %q", r.id, d.Approved, r.approved))
		}
	case tko.KindSite:
		s, err := data.Site(ctx, tko.SiteID(r.id), 0)
		if err != nil {
			c.ledger.report(err.Error())
			return
		}
		got := ""
		for _, condition := range s.Stamp.Conditions {
			if condition.Type == conditionType {
				got = condition.Message
			}
		}
		last := record{kind: r.kind, id: r.id + " (condition)", writes: r.condition}
		c.ledger.report(last.checkRead(observation{exists: got != "", tag: got}))
	default: // templates have neither
	}
}

// checkShared checks the value that all workers incremented.
func (c *checker) checkShared(ctx context.Context) {
	d, err := c.clients[0].Deployment(ctx, c.shared, 0)
	if err != nil {
		c.ledger.report(err.Error())
		return
	}
	c.ledger.report(c.ledger.counter.check(strings.Fields(settings(d.Package).Text("data", "counted")))...)
}

// checkFeeds reads the whole feed from each server, compares it with what the followers
// saw, and returns it.
func (c *checker) checkFeeds(ctx context.Context, followers []*follower) []tko.Change {
	final := c.position(ctx)
	var whole []tko.Change
	for i, data := range c.clients {
		var changes []tko.Change
		for change, err := range data.Watch(ctx, 0) {
			if err != nil {
				c.ledger.report(fmt.Sprintf("read the feed: %v", err))
				return whole
			}
			changes = append(changes, change)
			if change.Position >= final {
				break
			}
		}
		if i == 0 {
			whole = changes
			c.ledger.report(checkFeed(changes, c.ledger.records)...)
		} else {
			c.ledger.report(differences(fmt.Sprintf("the feed of server %d", i), whole, changes)...)
		}
	}
	for _, f := range followers {
		c.ledger.report(differences(f.name, whole, f.changes)...)
		c.world.t.Logf("%s saw %d changes, and continued %d times", f.name, len(f.changes), f.breaks)
	}
	return whole
}

// differences returns how a feed differs from the wanted one: each change is there once,
// in order.
func differences(name string, want, got []tko.Change) []string {
	same := func(a, b tko.Change) bool {
		return a.Position == b.Position && a.Kind == b.Kind && a.ID == b.ID && a.Op == b.Op && a.Revision == b.Revision
	}
	for i := range want {
		if i >= len(got) {
			return []string{fmt.Sprintf("%s ends before change %d of %d: %v", name, i, len(want), want[i])}
		}
		if !same(want[i], got[i]) {
			return []string{fmt.Sprintf("%s has change %d as %v, want %v", name, i, got[i], want[i])}
		}
	}
	if len(got) > len(want) {
		return []string{fmt.Sprintf("%s has %d changes, want %d", name, len(got), len(want))}
	}
	return nil
}

// checkAudit checks the chain, and that each change has one record.
func (c *checker) checkAudit(ctx context.Context, changes []tko.Change) {
	access := c.clients[len(c.clients)-1].Access()
	if _, err := access.VerifyAudit(ctx); err != nil {
		c.ledger.report(fmt.Sprintf("the audit log: %v", err))
	}
	at := map[int64]int{}
	seq := int64(0)
	for message, err := range access.Audit(ctx, &tkopb.ListAudit{}) {
		if err != nil {
			c.ledger.report(fmt.Sprintf("the audit log: %v", err))
			return
		}
		if message.GetSeq() != seq+1 {
			c.ledger.report(fmt.Sprintf("the audit log has record %d after %d", message.GetSeq(), seq))
		}
		seq = message.GetSeq()
		var r audit.Record
		if err := json.Unmarshal(message.GetText(), &r); err != nil {
			c.ledger.report(fmt.Sprintf("audit record %d: %v", seq, err))
			continue
		}
		if r.Position > 0 {
			at[r.Position]++
		}
	}
	for _, change := range changes {
		if n := at[change.Position]; n != 1 {
			c.ledger.report(fmt.Sprintf("the audit log has %d records of the change %v", n, change))
		}
	}
}

// Limits on what a server that has nothing to do may hold. They are far above what the
// followers, the workers' connections and the pools need, and far below what a leak of
// one of each per fault or call would hold.
const (
	maxGoroutines = 400
	maxFiles      = 200
)

func (c *checker) checkLeaks() {
	for _, d := range c.world.daemons {
		eventually.NoError(c.world.t, d.name+" without leaks", func() error {
			files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", d.pid()))
			if err != nil {
				return err
			}
			text, err := c.world.fetchFrom(d, "/debug/pprof/goroutine?debug=1")
			if err != nil {
				return err
			}
			_, rest, _ := strings.Cut(text, "total ")
			line, _, _ := strings.Cut(rest, "\n")
			goroutines, err := strconv.Atoi(line)
			if err != nil {
				return fmt.Errorf("%w: %.100s", err, text)
			}
			if goroutines > maxGoroutines || len(files) > maxFiles {
				return fmt.Errorf("%d goroutines, %d open files:\n%.5000s", goroutines, len(files), text)
			}
			return nil
		})
	}
	if c.world.database == nil {
		return
	}
	db, err := c.database()
	if err != nil {
		c.ledger.report(err.Error())
		return
	}
	defer func() { _ = db.Close() }()
	eventually.NoError(c.world.t, "PostgreSQL without leaked connections", func() error {
		var n, idle int
		row := db.QueryRow("SELECT count(*), count(*) FILTER (WHERE state LIKE 'idle in transaction%') FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()")
		if err := row.Scan(&n, &idle); err != nil {
			return err
		}
		if most := 17 * c.world.setup.data; n > most || idle > 0 {
			return fmt.Errorf("%d connections, of which %d are idle in a transaction; want at most %d and 0", n, idle, most)
		}
		return nil
	})
}

// fetchFrom returns a page of a server on this machine.
func (w *world) fetchFrom(d *daemon, path string) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	scheme := "http://"
	if slices.Contains(d.args, "--tls-client-auth=require") {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(w.authority.PEM())
		cert, err := tls.LoadX509KeyPair(w.file("admin.crt"), w.file("admin.key"))
		if err != nil {
			return "", err
		}
		scheme, transport.TLSClientConfig = "https://", &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, ServerName: "localhost"}
	}
	response, err := (&http.Client{Timeout: 10 * time.Second, Transport: transport}).Get(scheme + d.debug + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(bytes.TrimSpace(text)), err
}

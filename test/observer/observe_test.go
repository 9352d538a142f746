package observer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// A record is a deployment as of a change.
type record struct {
	id, parent     tko.DeploymentID
	revision       int64
	template, site string
	origin         string
	replaces       []tko.DeploymentID
	running        bool // prepared and approved at a site
	content        content
	digest         [sha256.Size]byte // of the package, without the state of the deployment
	proposed       int               // changes that its placements propose, and that an approval consents to
}

// A change is a change of the log, with what the observer read as of it.
type change struct {
	tko.Change

	record   *record           // of a deployment that was written
	metadata map[string]string // of a site that was written
}

// A delivery is what a site had after a commit.
type delivery struct {
	at    time.Time // to the second
	facts map[string]bool
}

// An observer reads what happens, by itself.
type observer struct {
	w      *world
	l      *ledger
	client *client.Client

	lock    sync.Mutex
	changes []change
	found   []string
	checked int                  // conditions that are True
	counts  map[string]int       // of what was judged, by kinds; each must be there for the run to prove something
	lag     time.Duration        // the longest time until a change was observed
	asked   map[string]time.Time // when a deployment was read for its conditions
	failing map[tko.DeploymentID][]failure

	clusters *clusterObserver // nil without a cluster

	git       sync.Mutex
	head      string
	commits   int
	files     map[string]map[string]string // blobs by path, by the folder of a deployment, at the head
	folders   map[string]map[string]bool   // of deployments, by site
	blobs     map[string]content           // of files
	delivered map[string][]delivery        // by site, in their order
	versions  map[string][]version         // by the folder of a deployment, in their order
}

func newObserver(w *world, l *ledger) *observer {
	o := &observer{
		w: w, l: l, client: w.dial("root"), asked: map[string]time.Time{}, files: map[string]map[string]string{}, folders: map[string]map[string]bool{}, blobs: map[string]content{}, delivered: map[string][]delivery{}, versions: map[string][]version{}, failing: map[tko.DeploymentID][]failure{},
	}
	if w.cluster != nil {
		o.clusters = newClusterObserver(o)
	}
	return o
}

func (o *observer) report(format string, args ...any) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if text := fmt.Sprintf(format, args...); !slices.Contains(o.found, text) {
		o.found = append(o.found, text)
	}
}

// watch follows the change log until ctx ends, across restarts of the server.
func (o *observer) watch(ctx context.Context) {
	after := int64(0)
	for ctx.Err() == nil {
		after = o.follow(ctx, after)
		if ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond) // until the server is back
		}
	}
}

// manyChanges is how many changes are read at once, as many as the server reads deployments at once.
const manyChanges = 200

// follow follows the change log from a position until the connection or a read fails, and returns the position that
// the observer is at. It reads what has come meanwhile at once: one read for each change falls behind a large fleet.
func (o *observer) follow(ctx context.Context, after int64) int64 {
	ctx, cancel := context.WithCancel(ctx)
	var stream sync.WaitGroup
	defer stream.Wait()
	defer cancel()
	log := make(chan tko.Change, manyChanges)
	stream.Go(func() {
		defer close(log)
		for c, err := range o.client.Watch(ctx, after, tko.KindTemplate, tko.KindSite, tko.KindDeployment) {
			if err != nil {
				return
			}
			select {
			case log <- c:
			case <-ctx.Done():
				return
			}
		}
	})
	last := after
	for first := range log {
		batch := []tko.Change{first}
		for len(batch) < manyChanges && len(log) > 0 {
			batch = append(batch, <-log)
		}
		for _, c := range batch {
			if c.Position <= last {
				o.report("the change log has position %d after %d", c.Position, last)
			}
			last = c.Position
		}
		seen, err := o.read(ctx, batch)
		if err != nil {
			return after // again from the same position
		}
		after = last
		o.lock.Lock()
		o.changes = append(o.changes, seen...)
		o.lag = max(o.lag, time.Since(first.Time))
		o.lock.Unlock()
	}
	return after
}

// again is how often the state of a deployment is read whose conditions change all the time.
const again = 300 * time.Millisecond

// read reads the entities of changes as of the changes. Of a status, it reads what is now: a condition that is True then
// must be true.
func (o *observer) read(ctx context.Context, batch []tko.Change) ([]change, error) {
	var asked []tko.DeploymentID
	for _, c := range batch {
		id := tko.DeploymentID(c.ID)
		if c.Kind != tko.KindDeployment || c.Op == tko.OpDeleted || slices.Contains(asked, id) {
			continue
		}
		if c.Op == tko.OpStatus && time.Since(o.asked[c.ID]) <= again {
			o.noteFailure(id, 0, false) // it isn't known
			continue
		}
		asked = append(asked, id)
	}
	now := map[string]tko.Deployment{}
	if len(asked) > 0 {
		found, err := o.client.DeploymentsByID(ctx, asked)
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			now[string(d.ID)] = d
			o.asked[string(d.ID)] = time.Now()
		}
	}
	o.readGit() // after what it is compared with
	for _, d := range now {
		o.checkConditions(d)
		o.noteFailure(d.ID, d.Stamp.Revision, isFailing(d))
	}
	return o.readThen(ctx, batch, now)
}

// A failure is that a deployment was seen to fail at a time, at a revision; 0 if it didn't or isn't known to.
type failure struct {
	at       time.Time
	revision int64
}

// isFailing reports whether the newest revision of a deployment can't be applied to its site.
func isFailing(d tko.Deployment) bool {
	for _, c := range d.Stamp.Conditions {
		if c.Type == tko.ConditionScheduled && c.ObservedRevision == d.Stamp.Revision {
			return c.Status == tko.ConditionFalse && (c.Reason == "Conflict" || c.Reason == "Failed")
		}
	}
	return false
}

func (o *observer) noteFailure(id tko.DeploymentID, revision int64, failing bool) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if !failing {
		revision = 0
	}
	if all := o.failing[id]; len(all) > 0 && all[len(all)-1].revision != revision || len(all) == 0 && failing {
		o.failing[id] = append(all, failure{time.Now(), revision})
	}
}

// failedBy returns the revision at which a deployment was seen to fail last before a time; 0 for none.
func (o *observer) failedBy(id tko.DeploymentID, then time.Time) (revision int64) {
	o.lock.Lock()
	defer o.lock.Unlock()
	for _, f := range o.failing[id] {
		if f.at.After(then) {
			break
		}
		revision = f.revision
	}
	return revision
}

// readThen completes changes with what was there as of each: most are still as they are now.
func (o *observer) readThen(ctx context.Context, batch []tko.Change, now map[string]tko.Deployment) ([]change, error) {
	seen := make([]change, len(batch))
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(16)
	for i, c := range batch {
		seen[i].Change = c
		if c.Op != tko.OpWritten {
			continue
		}
		then := tko.WithAsOf(ctx, tko.AsOf{Position: c.Position})
		switch c.Kind {
		case tko.KindSite:
			reads.Go(func() error {
				s, err := o.client.Site(then, tko.SiteID(c.ID), 0)
				seen[i].metadata = s.Metadata
				return unlessGone(err)
			})
		case tko.KindDeployment:
			// The deletion of a template or site takes it from deployments without a revision of theirs.
			if d, ok := now[c.ID]; ok && d.Stamp.Revision == c.Revision && d.Template != "" && d.Site != "" {
				seen[i].record = recordOf(d)
				continue
			}
			reads.Go(func() error {
				d, err := o.client.Deployment(then, tko.DeploymentID(c.ID), 0)
				seen[i].record = recordOf(d)
				return unlessGone(err)
			})
		default:
		}
	}
	return seen, reads.Wait()
}

// unlessGone returns an error other than that an entity isn't there.
func unlessGone(err error) error {
	if errors.Is(err, tko.ErrNotFound) {
		return nil
	}
	return err
}

func recordOf(d tko.Deployment) *record {
	return &record{
		id: d.ID, parent: d.Parent, revision: d.Stamp.Revision, template: string(d.Template), site: string(d.Site), origin: d.Origin, replaces: d.Replaces,
		running: d.Prepared && d.Approved && d.Site != "", content: contentOf(d.Package), digest: digestOf(d.Package), proposed: proposedBy(d.Package),
	}
}

// digestOf returns the digest of a package, without the resource that has the state of the deployment.
func digestOf(p krm.Package) [sha256.Size]byte {
	var all []krm.Resource
	for _, r := range p {
		if r.GVK() != krm.DeploymentGVK {
			all = append(all, r)
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		return [sha256.Size]byte{} // as no other one
	}
	return sha256.Sum256(text)
}

// proposedBy returns the number of children that the placements of a package propose to create, to replace and to delete.
func proposedBy(p krm.Package) (n int) {
	for _, r := range p {
		for _, what := range []string{"create", "delete", "replace"} {
			count, _ := r.Get("status", "proposal", what, "count")
			number, _ := strconv.Atoi(fmt.Sprint(count))
			n += number
		}
	}
	return n
}

// checkConditions checks that what a deployment says of its site is so. The commits were read after the deployment.
func (o *observer) checkConditions(d tko.Deployment) {
	for _, c := range d.Stamp.Conditions {
		if c.Status != tko.ConditionTrue || c.ObservedRevision != d.Stamp.Revision || d.Site == "" {
			continue
		}
		inCluster := o.clusters != nil && o.w.isClusterSite(d.Site)
		switch {
		case inCluster && (c.Type == tko.ConditionHealthy || c.Type == tko.ConditionScheduled) && c.Reason != tko.ReasonNothingToSchedule:
			o.clusters.claim(claim{d.ID, string(d.Site), contentOf(d.Package), c.Type})
		case inCluster:
		case c.Type == tko.ConditionHealthy:
			o.report("deployment %s says that it is healthy at %s, whose repository reports no health", d.ID, d.Site)
		case c.Type == tko.ConditionScheduled && c.Reason != tko.ReasonNothingToSchedule:
			if is := contentOf(d.Package); !o.wasDelivered(string(d.Site), is) {
				o.report("deployment %s says that revision %d is scheduled (%s) at %s, and no commit has its content there: %s", d.ID, c.ObservedRevision, c.Reason, d.Site, is)
			}
			o.lock.Lock()
			o.checked++
			o.lock.Unlock()
		}
	}
}

// wasDelivered reports whether a commit had all facts at a site. Equal resources of several deployments are there once.
func (o *observer) wasDelivered(site string, c content) bool {
	o.git.Lock()
	defer o.git.Unlock()
	return slices.ContainsFunc(o.delivered[site], func(had delivery) bool { return c.isIn(had.facts) })
}

// wasDeliveredIn reports whether a site had all facts between two times, also if it had them before.
func (o *observer) wasDeliveredIn(site string, c content, from, until time.Time) bool {
	o.git.Lock()
	defer o.git.Unlock()
	for _, had := range slices.Backward(o.delivered[site]) {
		if !had.at.After(until) && c.isIn(had.facts) {
			return true
		}
		if !had.at.After(from) { // the last one before
			return false
		}
	}
	return false
}

// A version is what the folder of a deployment had after a commit.
type version struct {
	at      time.Time // to the second
	files   string    // the blobs by their paths
	content string
}

// versionOf returns what the folder of a deployment has now.
func (o *observer) versionOf(folder string, at time.Time) version {
	v := version{at: at, files: fmt.Sprint(o.files[folder])} // maps are printed in the order of their keys
	var all content
	for _, blob := range o.files[folder] {
		all = append(all, o.blobs[blob]...)
	}
	v.content = all.sorted().String()
	return v
}

// An undo is what a rollout changed in a deployment, and another one restored.
type undo struct {
	id                tko.DeploymentID
	site, content, by string
	changed, undone   time.Time
}

// checkUndos compares the files that sites had before changes of rollouts with those after their undos, byte for byte. It
// returns how many it compared: what was not delivered in between can't be.
func (o *observer) checkUndos(undos []undo) (compared int, found []string) {
	o.git.Lock()
	defer o.git.Unlock()
	for _, u := range undos {
		var before *version
		after := []version{}
		for _, v := range o.versions[u.site+"/"+string(u.id)] {
			switch {
			case !v.at.After(u.changed) && v.content == u.content:
				before = &v
			case !v.at.Before(u.undone.Truncate(time.Second)) && v.content == u.content:
				after = append(after, v)
			}
		}
		if before == nil || len(after) == 0 {
			continue
		}
		compared++
		if after[0].files != before.files {
			found = append(found, fmt.Sprintf("the undo of rollout %s left the files %s of deployment %s at %s, which were %s before", u.by, after[0].files, u.id, u.site, before.files))
		}
	}
	return compared, found
}

// readGit reads the commits since the last ones.
func (o *observer) readGit() {
	o.git.Lock()
	defer o.git.Unlock()
	head, err := exec.Command("git", "--git-dir", o.w.repository, "rev-parse", "--verify", "--quiet", "main").Output()
	next := strings.TrimSpace(string(head))
	if err != nil || next == o.head {
		return
	}
	span := next
	if o.head != "" {
		span = o.head + ".." + next
	}
	log, err := exec.Command("git", "--git-dir", o.w.repository, "-c", "core.quotePath=false", "log", "--reverse", "--root", "--raw", "--no-abbrev", "--no-renames", "--format=commit %H %ct", span).Output()
	if err != nil {
		o.report("the repository can't be read: %v", err)
		return
	}
	o.readBlobs(string(log))
	changed, folders := map[string]bool{}, map[string]bool{}
	var at time.Time
	commit := func() {
		for site := range changed {
			o.delivered[site] = append(o.delivered[site], delivery{at, o.factsAt(site)})
		}
		for folder := range folders {
			o.versions[folder] = append(o.versions[folder], o.versionOf(folder, at))
		}
		clear(changed)
		clear(folders)
	}
	for line := range strings.Lines(string(log)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "commit ") {
			commit()
			seconds, _ := strconv.ParseInt(strings.Fields(line)[2], 10, 64)
			at = time.Unix(seconds, 0)
			o.commits++
		}
		if !strings.HasPrefix(line, ":") {
			continue
		}
		raw, path, _ := strings.Cut(line, "\t")
		fields := strings.Fields(raw)
		if strings.HasSuffix(path, "/.tko") {
			continue
		}
		folder := folderOf(path)
		changed[siteOf(folder)], folders[folder] = true, true
		if o.files[folder] == nil {
			o.files[folder] = map[string]string{}
			if o.folders[siteOf(folder)] == nil {
				o.folders[siteOf(folder)] = map[string]bool{}
			}
			o.folders[siteOf(folder)][folder] = true
		}
		if fields[4] == "D" {
			delete(o.files[folder], path)
		} else {
			o.files[folder][path] = fields[3]
			o.checkFile(folder, path)
		}
	}
	commit()
	o.head = next
}

// readBlobs reads the contents of the files that a log names.
func (o *observer) readBlobs(log string) {
	var want []string
	for line := range strings.Lines(log) {
		if fields := strings.Fields(line); strings.HasPrefix(line, ":") && fields[4] != "D" && !strings.HasSuffix(strings.TrimSpace(line), "/.tko") {
			if _, known := o.blobs[fields[3]]; !known {
				o.blobs[fields[3]] = nil
				want = append(want, fields[3])
			}
		}
	}
	cat := exec.Command("git", "--git-dir", o.w.repository, "cat-file", "--batch")
	cat.Stdin = strings.NewReader(strings.Join(want, "\n") + "\n")
	out, err := cat.Output()
	if err != nil && len(want) > 0 {
		o.report("the repository can't be read: %v", err)
		return
	}
	reader := bufio.NewReader(bytes.NewReader(out))
	for _, blob := range want {
		var size int
		header, err := reader.ReadString('\n')
		if err != nil {
			o.report("blob %s can't be read: %v", blob, err)
			return
		}
		if _, err := fmt.Sscanf(header[strings.LastIndex(header, " ")+1:], "%d", &size); err != nil {
			o.report("blob %s can't be read: %v", blob, err)
			return
		}
		text := make([]byte, size+1)
		if _, err := io.ReadFull(reader, text); err != nil {
			o.report("blob %s can't be read: %v", blob, err)
			return
		}
		var r map[string]any
		if err := yaml.Unmarshal(text, &r); err != nil {
			o.report("blob %s is no YAML: %v", blob, err)
		}
		o.blobs[blob] = contentOf(krm.Package{r})
	}
}

// factsAt returns what a site has.
func (o *observer) factsAt(site string) map[string]bool {
	all := map[string]bool{}
	for folder := range o.folders[site] {
		for _, blob := range o.files[folder] {
			for _, f := range o.blobs[blob] {
				all[f.String()] = true
			}
		}
	}
	return all
}

// factsNow returns what a site has, in the repository or in the cluster.
func (o *observer) factsNow(site string) map[string]bool {
	if o.clusters == nil || !o.w.isClusterSite(tko.SiteID(site)) {
		return o.factsAt(site)
	}
	o.clusters.lock.Lock()
	defer o.clusters.lock.Unlock()
	return o.clusters.facts(site)
}

func siteOf(folder string) string { return folder[:strings.LastIndex(folder, "/")] }

// folderOf returns the folder of a deployment, in that of its site, whose IDs have two parts.
func folderOf(path string) string {
	parts := strings.SplitN(path, "/", 4)
	return strings.Join(parts[:min(3, len(parts))], "/")
}

// checkFile checks that a site has only what its tenant may put there.
func (o *observer) checkFile(folder, path string) {
	tenant, _, _ := strings.Cut(path, "/")
	if problem := o.blobs[o.files[folder][path]].foreign(tenant); problem != "" {
		o.report("the commits of the sites: file %s: %s", path, problem)
	}
}

// settleLimit is generous: 2,000 sites take minutes on a busy machine.
const settleLimit = 15 * time.Minute

// evaluateAgain is longer than a preparer waits before it evaluates a placement again whose evaluation took long: these are at
// most a twentieth of the time, and at least one in 5 minutes.
const evaluateAgain = 6 * time.Minute

// quiet is longer than a preparer waits before it evaluates a placement again (5 s).
const quiet = 8 * time.Second

// settle waits until nothing is left to do.
func (o *observer) settle() {
	o.w.t.Helper()
	begun := time.Now()
	passed := func(what string) {
		o.w.t.Logf("%s of settling: %s", time.Since(begun).Round(time.Second), what)
	}
	o.settleLog(time.Second)
	passed("nothing is written")
	// A lock that a killed server left in a local repository is removed after 30 s.
	eventually.Within(o.w.t, settleLimit, "the schedules of all deployments", func() error {
		waits := 0
		example := ""
		for d, err := range o.client.Deployments(o.w.t.Context(), tko.DeploymentSelect{}, tko.ListOptions{}) {
			if err != nil {
				return err
			}
			if d.Site != "" && d.Prepared && d.Approved && !o.w.isBroken(d.Site) && !isScheduled(d) {
				waits++
				example = fmt.Sprintf("%s at %s: %+v", d.ID, d.Site, d.Stamp.Conditions)
			}
		}
		if waits > 0 {
			return fmt.Errorf("%d deployments are not scheduled: %s", waits, example)
		}
		return nil
	})
	passed("all that can be is scheduled")
	o.settleLog(quiet)
	passed("nothing is written again")
	j, taken := o.newJudge(), 0
	for end := time.Now().Add(evaluateAgain); time.Now().Before(end); time.Sleep(2 * quiet) {
		o.lock.Lock()
		changes := slices.Clone(o.changes[taken:])
		o.lock.Unlock()
		for _, c := range changes {
			j.take(c)
		}
		taken += len(changes)
		_, found := o.checkPlacementsNow(j.deletedByUsers)
		if len(found) == 0 {
			break
		}
		passed(fmt.Sprintf("%d places of topologies aren't as they say, such as: %s", len(found), found[0]))
	}
	passed("placements are evaluated")
	o.settleLog(quiet)
}

// isScheduled reports whether the meta-scheduler has done what it can for a deployment.
func isScheduled(d tko.Deployment) bool {
	for _, c := range d.Stamp.Conditions {
		if c.Type == tko.ConditionScheduled && c.ObservedRevision == d.Stamp.Revision {
			return c.Status == tko.ConditionTrue || c.Reason == "Conflict" || c.Reason == "WaitsForSharers"
		}
	}
	return false
}

// settleLog waits until nothing is written for a time.
func (o *observer) settleLog(quiet time.Duration) {
	o.w.t.Helper()
	still, last, head := time.Now(), 0, ""
	eventually.Within(o.w.t, settleLimit, "the end of all work", func() error {
		o.readGit()
		o.lock.Lock()
		written := 0
		for _, c := range o.changes {
			if c.Op != tko.OpStatus {
				written++
			}
		}
		o.lock.Unlock()
		if written != last || o.head != head {
			still, last, head = time.Now(), written, o.head
		}
		if time.Since(still) < quiet {
			return errors.New("there are changes")
		}
		about, err := o.client.About(o.w.t.Context())
		if err != nil {
			return err
		}
		o.lock.Lock()
		defer o.lock.Unlock()
		// Deployments that can't be prepared are tried again, which changes their conditions.
		if n := len(o.changes); n == 0 || o.changes[n-1].Position < about.Position && time.Since(o.changes[n-1].Time) > time.Second {
			return fmt.Errorf("the observer is at an earlier position than %d", about.Position)
		}
		return nil
	})
}

// newJudge returns a judge of the requests until now.
func (o *observer) newJudge() *judge {
	j := newJudge(o.w.limits, o.l.snapshot())
	j.rollouts.delivered, j.rollouts.failed = o.wasDeliveredIn, o.failedBy
	o.l.lock.Lock()
	defer o.l.lock.Unlock()
	j.halts = slices.Clone(o.l.halts)
	return j
}

// judgeSoFar returns what is wrong in what was observed until now, and how much of each kind was judged.
func (o *observer) judgeSoFar() (found []string, counts map[string]int) {
	j := o.newJudge()
	o.lock.Lock()
	changes, seen := slices.Clone(o.changes), slices.Clone(o.found)
	o.lock.Unlock()
	until := time.Time{}
	for _, c := range changes {
		j.take(c)
		until = c.Time
	}
	compared, restored := o.checkUndos(j.rollouts.undos)
	return slices.Concat(seen, restored, j.found, j.consents(until), o.l.findings()), j.counts(compared)
}

// judge returns all that is wrong.
func (o *observer) judge() []string {
	j := o.newJudge()
	for _, c := range o.changes {
		j.take(c)
	}
	o.w.t.Logf("the judge: %s", j.summary())
	alive, unplaced := o.checkPlacementsNow(j.deletedByUsers)
	o.readGit()
	for _, d := range alive {
		o.checkConditions(d)
	}
	o.w.t.Logf("conditions at the end: %v", conditionsOf(alive))
	o.w.t.Logf("rollouts at the end: %v", o.rolloutsNow())
	atSites := o.checkSites(alive)
	if o.clusters != nil {
		atSites = append(atSites, o.clusters.check(alive)...)
	}
	compared, restored := o.checkUndos(j.rollouts.undos)
	o.counts = j.counts(compared)
	if o.clusters != nil {
		o.counts["conditions of sites in a cluster"] = len(o.clusters.claims)
	}
	return slices.Concat(o.found, restored, j.found, o.l.findings(), j.end(alive), atSites, unplaced)
}

// checkPlacementsNow returns all deployments, and what is wrong with the children of topologies.
func (o *observer) checkPlacementsNow(deletedByUsers map[string]bool) (alive []tko.Deployment, found []string) {
	for d, err := range o.client.Deployments(o.w.t.Context(), tko.DeploymentSelect{}, tko.ListOptions{Packages: true}) {
		if err != nil {
			o.w.t.Fatal(err)
		}
		alive = append(alive, d)
	}
	var sites []tko.Site
	for s, err := range o.client.Sites(o.w.t.Context(), tko.SiteSelect{}, tko.ListOptions{}) {
		if err != nil {
			o.w.t.Fatal(err)
		}
		sites = append(sites, s)
	}
	templates := map[tko.TemplateID]bool{}
	for s, err := range o.client.Templates(o.w.t.Context(), tko.TemplateSelect{}, tko.ListOptions{}) {
		if err != nil {
			o.w.t.Fatal(err)
		}
		templates[s.ID] = true
	}
	return alive, checkPlacements(alive, sites, templates, deletedByUsers)
}

// rolloutsNow counts rollouts by their states and reasons, for the log of a run.
func (o *observer) rolloutsNow() map[string]int {
	counts := map[string]int{}
	for r, err := range o.client.Rollouts(o.w.t.Context(), tko.RolloutSelect{}, tko.ListOptions{}) {
		if err != nil {
			o.w.t.Fatal(err)
		}
		if r.State == "Running" || r.State == "Paused" { // something waits
			status, err := o.client.RolloutStatus(o.w.t.Context(), r.ID)
			o.w.t.Logf("rollout %s is %s: %v %v, %v", r.ID, r.State, status.Blocks, status.Waves, err)
		}
		kind, _, _ := strings.Cut(string(r.ID), "/")
		counts[fmt.Sprintf("%s %s: %s", strings.TrimRight(kind, "0123456789"), r.State, r.Reason)]++
	}
	return counts
}

// checkSites compares what is at the sites at the end with what says that it is there.
func (o *observer) checkSites(alive []tko.Deployment) (found []string) {
	o.readGit()
	at := map[string]tko.Deployment{}
	for _, d := range alive {
		at[string(d.Site)+"/"+string(d.ID)] = d
	}
	for folder, files := range o.files {
		if len(files) == 0 {
			continue
		}
		if d, ok := at[folder]; !ok || !d.Approved {
			found = append(found, fmt.Sprintf("the folder %s is left at the end, and there is no such deployment", folder))
		}
	}
	for folder, d := range at {
		for _, c := range d.Stamp.Conditions {
			if c.Type != tko.ConditionScheduled || c.Status != tko.ConditionTrue || c.ObservedRevision != d.Stamp.Revision || d.Site == "" || c.Reason == tko.ReasonNothingToSchedule {
				continue
			}
			if want := contentOf(d.Package); !want.isIn(o.factsNow(string(d.Site))) {
				found = append(found, fmt.Sprintf("deployment %s is scheduled at %s at the end, with %s; the site has %v in %s", d.ID, d.Site, want, slices.Sorted(maps.Keys(o.factsNow(string(d.Site)))), folder))
			}
		}
	}
	return found
}

// conditionsOf counts the conditions of deployments, for the log of a run.
func conditionsOf(alive []tko.Deployment) map[string]int {
	counts := map[string]int{}
	for _, d := range alive {
		for _, c := range d.Stamp.Conditions {
			counts[fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason)]++
		}
	}
	return counts
}

// write writes what the observer saw to a file, to find the cause of what it found.
func (o *observer) write(path string) {
	o.lock.Lock()
	defer o.lock.Unlock()
	var text strings.Builder
	for _, c := range o.changes {
		fmt.Fprintf(&text, "%d %s %s %s %s r%d by %q why %q", c.Position, c.Time.Format("15:04:05.000"), c.Op, c.Kind, c.ID, c.Revision, c.Author.Who, c.Author.Why)
		if r := c.record; r != nil {
			fmt.Fprintf(&text, " parent=%s template=%s site=%s running=%t proposed=%d replaces=%v content=%s", r.parent, r.template, r.site, r.running, r.proposed, r.replaces, r.content)
		}
		if c.metadata != nil {
			fmt.Fprintf(&text, " %v", c.metadata)
		}
		text.WriteString("\n")
	}
	for _, r := range o.l.requests {
		fmt.Fprintf(&text, "request %s %s by %s of %s consent %d done %t refused %t: %v\n", r.op, r.verb, r.author, r.of, r.consent, r.done, r.refused, r.err)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		o.w.t.Error(err)
	}
}

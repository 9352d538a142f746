package observer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A fact is a resource that is for a site: its kind, its name and its data.
type fact struct {
	name string
	data map[string]string
}

func (f fact) String() string {
	words := []string{f.name}
	for _, key := range slices.Sorted(maps.Keys(f.data)) {
		words = append(words, key+"="+f.data[key])
	}
	return strings.Join(words, " ")
}

// A content is what is for a site, sorted.
type content []fact

func (c content) sorted() content {
	slices.SortFunc(c, func(x, y fact) int { return strings.Compare(x.String(), y.String()) })
	return c
}

func (c content) String() string {
	texts := make([]string, len(c))
	for i, f := range c {
		texts[i] = f.String()
	}
	return strings.Join(texts, "; ")
}

// isIn reports whether all of c is in a set of facts.
func (c content) isIn(facts map[string]bool) bool {
	return !slices.ContainsFunc(c, func(f fact) bool { return !facts[f.String()] })
}

func contentOf(p krm.Package) (c content) {
	for _, r := range p {
		kind := r.GVK().Kind
		if kind != "ConfigMap" && kind != "Secret" || r.Annotation("config.kubernetes.io/local-config") == "true" {
			continue
		}
		f := fact{kind + "/" + r.Name(), map[string]string{}}
		for _, field := range []string{"data", "stringData"} {
			values, _ := r.Get(field)
			fields, _ := values.(map[string]any)
			for key, value := range fields {
				f.data[key] = fmt.Sprint(value)
			}
		}
		c = append(c, f)
	}
	return c.sorted()
}

// foreign says what a tenant's site may not have: what belongs to another tenant, or was made by one.
func (c content) foreign(tenant string) string {
	for _, f := range c {
		if t := f.data["tenant"]; t != "" && t != tenant && t != "shared" {
			return fmt.Sprintf("%s belongs to tenant %s", f, t)
		}
		if by := f.data["by"]; by != "" && by != tenant && by != "root" {
			return fmt.Sprintf("%s was made by %s", f, by)
		}
	}
	return ""
}

// limits are those of the servers, as the operator set them.
type limits struct {
	removed int // entities that one cause deletes or orphans without consent
	percent int // of a kind
	created int // deployments that one topology creates without consent
	sites   int // at which one author or placement changes running deployments without consent or a rollout
}

// few is the number of removed entities of a kind up to which their share doesn't count.
const few = 10

// derived begins the causes of what controllers derive from a root deployment.
const derived = "derived from "

// A judge counts the changes of the log by their causes, and finds what exceeds the limits. It knows nothing of the
// server's counts.
type judge struct {
	limits   limits
	requests map[string]*request

	found     []string
	records   map[tko.DeploymentID]*record // the last ones, deleted deployments included
	before    map[tko.DeploymentID]*record // the ones before
	alive     map[tko.Kind]map[string]bool // IDs
	ever      map[tko.DeploymentID]bool
	replacing map[tko.DeploymentID]map[tko.DeploymentID]bool // those that ever replaced a deployment
	revs      map[string]int64

	created   map[tko.DeploymentID]map[string]bool // children that a root's derivations made
	removed   map[string]map[tko.Kind]int          // without consent, by cause
	orphans   map[string]int
	used      map[string]int             // of consents, by op
	reached   map[string]map[string]bool // sites with changed deployments, by cause
	consented map[string]map[string]bool // sites, by author
	agreed    map[tko.DeploymentID]int   // consents to what a root derives
	largest   map[tko.Kind]int           // entities at once, removed ones included

	deletedByUsers map[string]bool // places of children, which may be created again later

	rollouts  *rolloutJudge
	halts     []halt
	bySources int // changes of deployments that sources made, without those by rollouts
}

func newJudge(l limits, requests map[string]*request) *judge {
	j := &judge{
		limits: l, requests: requests, records: map[tko.DeploymentID]*record{}, before: map[tko.DeploymentID]*record{}, alive: map[tko.Kind]map[string]bool{}, ever: map[tko.DeploymentID]bool{}, replacing: map[tko.DeploymentID]map[tko.DeploymentID]bool{}, revs: map[string]int64{},
		created: map[tko.DeploymentID]map[string]bool{}, removed: map[string]map[tko.Kind]int{}, orphans: map[string]int{}, used: map[string]int{},
		reached: map[string]map[string]bool{}, agreed: map[tko.DeploymentID]int{}, consented: map[string]map[string]bool{}, largest: map[tko.Kind]int{}, deletedByUsers: map[string]bool{},
		rollouts: newRolloutJudge(),
	}
	for _, kind := range []tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment} {
		j.alive[kind] = map[string]bool{}
	}
	return j
}

// summary counts the causes, and returns the largest reach of one without consent.
func (j *judge) summary() string {
	causes := map[string]bool{}
	created, removed, reached := 0, 0, 0
	for root, of := range j.created {
		causes[derived+string(root)] = true
		created = max(created, len(of)-j.agreed[root])
	}
	for cause, of := range j.removed {
		causes[cause] = true
		total := j.orphans[cause]
		for _, n := range of {
			total += n
		}
		if root, ok := strings.CutPrefix(cause, derived); ok {
			total -= j.agreed[tko.DeploymentID(root)]
		}
		removed = max(removed, total)
	}
	for cause, sites := range j.reached {
		causes[cause] = true
		root, _ := strings.CutPrefix(cause, derived)
		reached = max(reached, len(sites)-j.agreed[tko.DeploymentID(root)])
	}
	return fmt.Sprintf("%d causes; most without consent: %d created (limit %d), %d removed or orphaned (limit %d), %d sites changed (limit %d); rollouts: %d in flight at most (limit %d), %d deployments undone; changed by kinds %v; after too many failures %d at most; %d stops and freezes",
		len(causes), created, j.limits.created, removed, j.limits.removed, reached, j.limits.sites, j.rollouts.most, concurrent, j.rollouts.undone, j.rollouts.changed, j.rollouts.latest, len(j.halts))
}

func (j *judge) report(c change, format string, args ...any) {
	j.found = append(j.found, fmt.Sprintf("position %d, %s %s by %q because of %q: ", c.Position, c.Kind, c.ID, c.Author.Who, c.Author.Why)+fmt.Sprintf(format, args...))
}

// requestOf returns the request that made a change; nil for what controllers derived.
func (j *judge) requestOf(c change) *request {
	why := strings.TrimPrefix(c.Author.Why, `field manager "`)
	if !strings.HasPrefix(why, "op-") {
		if strings.HasPrefix(c.Author.Who, "k8s:") { // a deletion by kubectl has no reason
			return &request{author: c.Author.Who, done: true}
		}
		return nil
	}
	op, _, _ := strings.Cut(why, ".")
	return j.requests[op+"."]
}

// byRollout reports whether a rollout made a change: its plan was the consent.
func byRollout(c change) bool { return strings.HasPrefix(c.Author.Why, "rollout ") }

func (j *judge) root(id tko.DeploymentID) tko.DeploymentID {
	for r := j.records[id]; r != nil && r.parent != ""; r = j.records[id] {
		id = r.parent
	}
	return id
}

// placeOf is the place of a child below its topology.
func placeOf(r *record) string { return string(r.parent) + " " + r.site }

// take judges the next change of the log.
func (j *judge) take(c change) {
	if c.Author.Why == "set-up" {
		j.note(c)
		return
	}
	request := j.requestOf(c)
	if request != nil && request.refused {
		j.report(c, "the request was refused (%v), and changed something", request.err)
	}
	if request != nil && request.author != "root" && request.author != c.Author.Who && "cert:"+request.author != c.Author.Who {
		j.report(c, "the request was of %s", request.author)
	}
	if tenant := tenantOf(c.Author.Who); tenant != "" && c.Op != tko.OpStatus {
		j.checkRights(c, tenant)
	}
	if byRollout(c) && strings.Contains(c.Author.Why, "piar") {
		j.report(c, "the rollout names a key that no site has")
	}
	if c.Kind == tko.KindDeployment && c.Op != tko.OpStatus {
		if isSource(c) {
			j.bySources++
		}
		j.halt(c)
		before := j.records[tko.DeploymentID(c.ID)]
		if !j.alive[tko.KindDeployment][c.ID] {
			before = nil
		}
		j.rollouts.take(c, before, j.report)
	}
	switch c.Op {
	case tko.OpWritten:
		j.written(c, request)
	case tko.OpDeleted:
		j.deleted(c, request)
	case tko.OpStatus:
	}
	j.note(c)
	j.agree(request)
}

// halt judges a change of a deployment at a time in which nothing may change at some sites.
func (j *judge) halt(c change) {
	var sites []string
	for _, r := range []*record{j.records[tko.DeploymentID(c.ID)], c.record} {
		if r != nil && r.site != "" {
			sites = append(sites, r.site)
		}
	}
	if h, ok := haltedBy(j.halts, c, sites...); ok {
		j.report(c, "it is at %v during the %s, positions %d to %d", sites, h.what, h.from, h.to)
	}
}

// note remembers the state after a change.
func (j *judge) note(c change) {
	switch c.Op {
	case tko.OpWritten:
		j.alive[c.Kind][c.ID] = true
		if c.record != nil && c.record.id != "" {
			j.before[c.record.id] = j.records[c.record.id]
			j.records[c.record.id] = c.record
			j.ever[c.record.id] = true
			for _, id := range c.record.replaces {
				if j.replacing[id] == nil {
					j.replacing[id] = map[tko.DeploymentID]bool{}
				}
				j.replacing[id][c.record.id] = true
			}
		}
		key := string(c.Kind) + " " + c.ID
		if c.Revision <= j.revs[key] && c.Kind == tko.KindDeployment {
			j.report(c, "revision %d comes after %d", c.Revision, j.revs[key])
		}
		j.revs[key] = c.Revision
		j.largest[c.Kind] = max(j.largest[c.Kind], len(j.alive[c.Kind]))
	case tko.OpDeleted:
		delete(j.alive[c.Kind], c.ID)
	case tko.OpStatus:
	}
}

// agree notes the consent of an approval to what a root derives, at its first change.
func (j *judge) agree(request *request) {
	if request == nil || request.verb != "approve" || j.used["approved "+request.op] > 0 || request.of == "" {
		return
	}
	j.used["approved "+request.op]++
	root := j.root(request.of)
	j.agreed[root] += max(request.consent, j.proposed(request.of))
}

func (j *judge) proposed(id tko.DeploymentID) int {
	if r := j.before[id]; r != nil {
		return r.proposed
	}
	return 0
}

// checkRights checks that an author changes only what is theirs.
func (j *judge) checkRights(c change, tenant string) {
	switch c.Kind {
	case tko.KindTemplate, tko.KindSite:
		if !strings.HasPrefix(c.ID, tenant+"/") {
			j.report(c, "it isn't in the scope of %s", tenant)
		}
	case tko.KindDeployment:
		r := c.record
		if r == nil || r.id == "" {
			r = j.records[tko.DeploymentID(c.ID)]
		}
		if r == nil {
			return
		}
		if !strings.HasPrefix(r.site, tenant+"/") && (r.site != "" || r.template != "" && !strings.HasPrefix(r.template, tenant+"/")) && !j.orphaned(r, tenant) {
			j.report(c, "it is made from %q at %q, which isn't in the scope of %s", r.template, r.site, tenant)
		}
	default:
	}
}

// orphaned reports whether a deployment descends from one of the tenant's.
func (j *judge) orphaned(r *record, tenant string) bool {
	root := j.records[j.root(r.id)]
	return root != nil && r.parent != "" && strings.HasPrefix(root.template, tenant+"/")
}

// written judges a new revision.
func (j *judge) written(c change, request *request) {
	if c.Kind == tko.KindSite && c.metadata != nil && (c.metadata["pair"] == "" || c.metadata["timezone"] == "") {
		j.report(c, "the site lost labels that the manifest doesn't name: it has %v", c.metadata)
	}
	r := c.record
	if r == nil || r.id == "" {
		return
	}
	if tenant, _, ok := strings.Cut(r.site, "/"); ok {
		if problem := r.content.foreign(tenant); problem != "" {
			j.report(c, "deployment at %s: %s", r.site, problem)
		}
	}
	before := j.records[r.id]
	if before == nil { // it is new
		if request == nil && !byRollout(c) {
			j.createdBy(c, r)
		}
		return
	}
	if request != nil && orphans(before, r) {
		j.lost(c, request, causeOf(request))
	}
	if isSource(c) && before.running && before.content.String() != r.content.String() {
		j.reach(c, c.Author.Who, before.site)
	}
	if request == nil || !before.running || before.content.String() == r.content.String() && before.site == r.site {
		return
	}
	if request.consent > 0 { // to that site, also for later changes: a site counts once
		if j.consented[request.author] == nil {
			j.consented[request.author] = map[string]bool{}
		}
		j.consented[request.author][before.site] = true
	} else if !j.consented[request.author][before.site] {
		j.reach(c, request.author, before.site)
	}
}

// causeOf returns the cause of the changes of a request: its author. A restore counts by itself.
func causeOf(request *request) string {
	if request.verb == "restore" {
		return request.op
	}
	return request.author
}

// isSource reports whether a source made a change itself, without a rollout.
func isSource(c change) bool { return strings.HasPrefix(c.Author.Who, "gitops:") && !byRollout(c) }

// createdBy counts a deployment that a topology or a source created.
func (j *judge) createdBy(c change, r *record) {
	if !isSource(c) {
		if r.parent != "" {
			j.derivedCreation(c, r)
		}
		return
	}
	cause := tko.DeploymentID(c.Author.Who)
	if j.created[cause] == nil {
		j.created[cause] = map[string]bool{}
	}
	j.created[cause][c.ID] = true
	if n := len(j.created[cause]); n > j.limits.created {
		j.report(c, "the source created %d deployments, and may %d", n, j.limits.created)
	}
}

// reach counts the sites at which a cause changes what runs.
func (j *judge) reach(c change, cause, site string) {
	if j.reached[cause] == nil {
		j.reached[cause] = map[string]bool{}
	}
	j.reached[cause][site] = true
	may := j.limits.sites
	if root, ok := strings.CutPrefix(cause, derived); ok {
		may += j.agreed[tko.DeploymentID(root)]
	}
	if n := len(j.reached[cause]); n > may {
		j.report(c, "%s changes running deployments at %d sites without consent or a rollout, and may at %d", cause, n, may)
	}
}

func (j *judge) derivedCreation(c change, r *record) {
	root := r.parent
	if above := j.records[r.parent]; above != nil {
		root = j.root(r.parent)
	}
	if owner := j.records[root]; owner != nil {
		tenant, _, _ := strings.Cut(owner.template, "/")
		if !strings.HasPrefix(r.site, tenant+"/") || !strings.HasPrefix(r.template, tenant+"/") && !strings.HasPrefix(r.template, "shared/") {
			j.report(c, "the topology %s of %s made it from %s at %s", root, tenant, r.template, r.site)
		}
	}
	if j.created[root] == nil {
		j.created[root] = map[string]bool{}
	}
	j.created[root][placeOf(r)+" "+r.template] = true // one that is made again is no change
	if n, may := len(j.created[root]), j.limits.created+j.agreed[root]; n > may {
		j.report(c, "the topology %s created %d deployments, and may %d, of which %d by consent", root, n, may, j.agreed[root])
	}
}

// orphans reports whether a new revision lost the template or site that the one before had: they were deleted. The log
// has these changes before the deletion.
func orphans(before, r *record) bool {
	return before != nil && (before.template != "" && r.template == "" || before.site != "" && r.site == "")
}

// deleted judges a deletion.
func (j *judge) deleted(c change, request *request) {
	r := j.records[tko.DeploymentID(c.ID)]
	switch {
	case byRollout(c), isSource(c): // a source's budget is the consent
	case c.Kind == tko.KindDeployment && j.isReplaced(tko.DeploymentID(c.ID)):
		if request == nil && r.running {
			j.reach(c, derived+string(j.root(r.id)), r.site)
		}
	case request != nil:
		if r != nil {
			j.deletedByUsers[placeOf(r)] = true
		}
		j.lost(c, request, causeOf(request))
	case r != nil:
		cause := derived + string(j.root(r.id))
		if r.running {
			j.reach(c, cause, r.site)
		}
		j.lost(c, nil, cause)
	}
}

// lost counts an entity that is gone, or that lost its template or site.
func (j *judge) lost(c change, request *request, cause string) {
	if request != nil && request.consent > 0 {
		j.used[request.op]++
		if j.used[request.op] > request.consent {
			j.report(c, "it is change %d of a request that consented to %d", j.used[request.op], request.consent)
		}
		return
	}
	if c.Op == tko.OpDeleted {
		if j.removed[cause] == nil {
			j.removed[cause] = map[tko.Kind]int{}
		}
		j.removed[cause][c.Kind]++
	} else {
		j.orphans[cause]++
	}
	total := j.orphans[cause]
	for _, n := range j.removed[cause] {
		total += n
	}
	agreed := 0
	if root, ok := strings.CutPrefix(cause, derived); ok {
		agreed = j.agreed[tko.DeploymentID(root)]
	}
	if total > j.limits.removed+agreed {
		j.report(c, "%s removed or orphaned %d entities without consent, and may %d", cause, total, j.limits.removed+agreed)
	}
	gone := 0
	for _, of := range j.removed {
		gone += of[c.Kind]
	}
	if n, share := j.removed[cause][c.Kind], (j.largest[c.Kind]+gone)*j.limits.percent/100; n > max(few, share)+agreed {
		j.report(c, "%s removed %d entities of a kind without consent, and there were %d", cause, n, j.largest[c.Kind])
	}
}

// isReplaced reports whether a sibling replaces a deployment.
func (j *judge) isReplaced(id tko.DeploymentID) bool {
	gone := j.records[id]
	if gone == nil || gone.parent == "" {
		return false
	}
	for other := range j.replacing[id] {
		for _, r := range []*record{j.records[other], j.before[other]} { // the commit that deletes it forgets it
			if r != nil && j.alive[tko.KindDeployment][string(other)] && r.parent == gone.parent && slices.Contains(r.replaces, id) {
				return true
			}
		}
	}
	return false
}

// end judges what is there at the end.
func (j *judge) end(alive []tko.Deployment) (found []string) {
	there, places := map[string]bool{}, map[string]tko.DeploymentID{}
	for _, d := range alive {
		there[string(d.ID)] = true
		if !j.alive[tko.KindDeployment][string(d.ID)] {
			found = append(found, fmt.Sprintf("deployment %s is there, and the change log says otherwise", d.ID))
		}
		if d.Parent == "" || d.Origin == "" {
			continue
		}
		place := string(d.Parent) + " " + d.Origin
		if other, twice := places[place]; twice {
			found = append(found, fmt.Sprintf("deployments %s and %s are both the child %q of %s", other, d.ID, d.Origin, d.Parent))
		}
		places[place] = d.ID
	}
	for id := range j.alive[tko.KindDeployment] {
		if !there[id] {
			found = append(found, fmt.Sprintf("deployment %s is lost: the change log has no deletion of it", id))
		}
	}
	found = append(found, j.consents(time.Now())...)
	for _, r := range j.requests {
		if r.done && r.created != "" && !j.ever[r.created] {
			found = append(found, fmt.Sprintf("%s: deployment %s was acknowledged, and the change log doesn't have it", r.op, r.created))
		}
	}
	return found
}

// consents judges the consents of requests that ended before a time.
func (j *judge) consents(before time.Time) (found []string) {
	for _, r := range j.requests {
		if removes := r.verb == "delete" || r.verb == "purge" || r.verb == "template"; removes && r.done && r.ended.Before(before) && isFarAbove(r.consent, j.used[r.op]) {
			found = append(found, fmt.Sprintf("%s: a %s of %d entities was done with consent to %d", r.op, r.verb, j.used[r.op], r.consent))
		}
	}
	return found
}

// isFarAbove reports whether a consent is above what was done by more than a tenth and more than 100. Half of that is
// left for what was removed in between by other causes.
func isFarAbove(consent, done int) bool {
	above := consent - done
	return above > 150 && above*100 > done*15
}

// checkPlacements checks that topologies that say that their children match their placements have just those children.
func checkPlacements(alive []tko.Deployment, sites []tko.Site, templates map[tko.TemplateID]bool, deleted map[string]bool) (found []string) {
	children := map[tko.DeploymentID]map[string]map[string]int{} // by parent, place and template
	for _, d := range alive {
		if d.Parent != "" {
			if children[d.Parent] == nil {
				children[d.Parent] = map[string]map[string]int{}
			}
			place := placeOf(recordOf(d))
			if children[d.Parent][place] == nil {
				children[d.Parent][place] = map[string]int{}
			}
			children[d.Parent][place][string(d.Template)]++
		}
	}
	for _, d := range alive {
		tenant, _, _ := strings.Cut(string(d.Template), "/")
		if !upToDate(d) {
			continue
		}
		template, selected := "", func(tko.Site) bool { return false }
		for _, r := range d.Package {
			switch r.GVK().Kind {
			case "Template":
				template = r.Text("spec", "templateId")
			case "Sites":
				if all, _ := r.Get("spec", "select", "all"); all == true {
					selected = func(tko.Site) bool { return true }
				} else if pair := r.Text("spec", "select", "metadata", "pair"); pair == "*" {
					selected = func(s tko.Site) bool { return s.Metadata["pair"] != "" }
				} else {
					group := r.Text("spec", "select", "metadata", "group")
					selected = func(s tko.Site) bool { return s.Metadata["group"] == group }
				}
			}
		}
		if !templates[tko.TemplateID(template)] {
			continue
		}
		for _, s := range sites {
			place := string(d.ID) + " " + string(s.ID)
			want := 0
			if selected(s) && strings.HasPrefix(string(s.ID), tenant+"/") {
				want = 1
			}
			// A child whose template was deleted has none.
			if is := children[d.ID][place][template] + children[d.ID][place][""]; is != want && !deleted[place] {
				found = append(found, fmt.Sprintf("topology %s says that its children match: it has %d children from %s at %s, want %d", d.ID, is, template, s.ID, want))
			}
		}
	}
	return found
}

// upToDate reports whether a topology states that its children match its placements, now.
func upToDate(d tko.Deployment) bool {
	for _, c := range d.Stamp.Conditions {
		if c.Type == tko.ConditionPlaced && c.Status == tko.ConditionTrue && c.ObservedRevision == d.Stamp.Revision && c.Reason == "UpToDate" {
			return true
		}
	}
	return false
}

// counts returns how much of each kind was judged. undone is the number of undos whose files were compared.
func (j *judge) counts(undone int) map[string]int {
	all := map[string]int{"changes of rollouts in flight at once": max(0, j.rollouts.most-1), "deployments undone": j.rollouts.undone, compared: undone, "stops and freezes": len(j.halts), "changes by sources": j.bySources, "changes of rollouts": 0}
	for _, n := range j.rollouts.changed {
		all["changes of rollouts"] += n
	}
	return all
}

package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

var cascadePromises = []promise{
	{"deleting a template removes it from sites and deployments", deleteTemplate},
	{"deleting a site removes it from deployments, and enqueues work", deleteSite},
	{"deleting a deployment deletes its descendants", deleteDeployment},
	{"one call deletes many records", deleteMany},
	{"deleting a plugin deletes nothing else", deletePlugin},
	{"deleting a template with very many referring records takes bounded commits", deleteBigTemplate},
	{"deleting a deployment with very many descendants takes bounded commits", deleteBigFamily},
	{"deletions over their limit delete nothing", deletionLimitIsChecked},
	{"the next deletion continues an interrupted one", interruptedDeletionContinues},
	{"no new record may refer to one that is being deleted", deletingRecordIsNotReferred},
	{"a deletion ends although children are created again", deleteWhileChildrenComeBack},
	{"two concurrent deletions delete each record once", deleteTwiceAtOnce},
	{"descendants of all levels are listed", descendantsAreListed},
}

// A deletion is the total of all commits of one deletion.
type deletion struct{ Deleted, Descendants, Dissociated, Commits int }

// remove deletes records with as many commits as it takes.
func (w *world) remove(keys ...record.Key) deletion {
	w.Helper()
	var d deletion
	for d.Commits = 1; ; d.Commits++ {
		head := w.head()
		keys = w.step(&d, keys...)
		if len(keys) == 0 {
			return d
		}
		changes := slices.DeleteFunc(w.changes(head), func(c tko.Change) bool { return c.Op == tko.OpWritten && c.Revision == 1 }) // by concurrent writers
		if changed := len(changes); changed > w.store.MaxStep()+len(keys) || changed == 0 {
			w.Fatalf("one commit of a deletion made %d changes, want 1 to %d", changed, w.store.MaxStep()+len(keys))
		}
	}
}

// step commits deletions once, and returns the keys that need more steps.
func (w *world) step(d *deletion, keys ...record.Key) (more []record.Key) {
	w.Helper()
	writes := make([]record.Write, len(keys))
	for i, k := range keys {
		writes[i] = deleted(k)
	}
	for _, o := range w.commit(writes...) {
		d.Deleted, d.Descendants, d.Dissociated = d.Deleted+o.Deleted, d.Descendants+o.Descendants, d.Dissociated+o.Dissociated
		if o.More {
			more = append(more, o.Key)
		}
	}
	return more
}

// many writes n equal deployments.
func (w *world) many(n int, format string, change ...func(*record.Write)) {
	w.Helper()
	writes := make([]record.Write, n)
	for i, id := range ids(format, n) {
		writes[i] = deployment(id, append([]func(*record.Write){withPackage("the same")}, change...)...)
	}
	w.commit(writes...)
}

// all returns the IDs of all deployments.
func (w *world) all() []string {
	w.Helper()
	return w.ids(record.Query{Kind: tko.KindDeployment, Limit: -1})
}

// wide is more records than the first step of a deletion changes.
const wide = 300

func deleteBigTemplate(w *world) {
	big := w.store.MaxStep() + 500 // more records than one commit may change
	w.commit(template("t"), template("other"))
	w.commit(site("s1", of("t")), site("s2", of("t")), site("s3", of("other")))
	w.many(big, "d%05d", of("t"))
	w.many(10, "e%05d", of("other"))
	head := w.head()
	d := w.remove(templateKey("t"))
	w.equal("deleted", d.Deleted, 1)
	w.equal("dissociated", d.Dissociated, big+2)
	if d.Commits < 2 {
		w.Errorf("%d records were changed in one commit", big)
	}
	log := w.logged(head)
	w.equal("last change", log[len(log)-1], loggedChange{tko.OpDeleted, "template t", 1})
	w.equal("the Deleting condition is set once", log[slices.Index(log, loggedChange{tko.OpStatus, "template t", 1})], loggedChange{tko.OpStatus, "template t", 1})
	w.equal("number of changes", len(log), big+2+2)
	w.equal("referring deployments", len(w.ids(record.Query{Kind: tko.KindDeployment, Templates: patterns("t"), Limit: -1})), 0)
	w.equal("others", len(w.one(templateKey("other")).Deployments), 10)
	w.equal("site", w.one(siteKey("s1")).Template+w.one(siteKey("s3")).Template, "other")
	w.commit(template("t"))
	if r := w.one(templateKey("t")); r.Deleting() || len(r.Deployments) > 0 {
		w.Errorf("a new template of the same name has deployments or conditions of the old one: %v", r)
	}
}

// family writes a deployment "r" with many more descendants, of many levels, than the
// first commit deletes. It returns their number.
func (w *world) family() (descendants int) {
	w.Helper()
	w.commit(deployment("r"))
	w.many(wide, "a%04d", under("r"), at("s"), ready)
	for i := range 20 {
		w.many(20, fmt.Sprintf("b%02d-", i)+"%03d", under(fmt.Sprintf("a%04d", 7*i)), metadata("k", "v"))
	}
	parent := "b00-001"
	for i := range 40 {
		id := fmt.Sprintf("c%02d", i)
		w.commit(deployment(id, under(parent)))
		parent = id
	}
	return wide + 20*20 + 40
}

func deletionLimitIsChecked(w *world) {
	w.commit(deployment("r"), deployment("other"))
	w.many(5, "a%04d", under("r"))
	atMost := func(most int, keys ...record.Key) ([]record.Outcome, error) {
		writes := make([]record.Write, len(keys))
		for i, k := range keys {
			writes[i] = deleted(k)
			writes[i].DeleteLimit = &most
		}
		return w.store.Commit(w.ctx(), record.Ungated(writes...))
	}
	head := w.head()
	for most, keys := range map[int][]record.Key{
		5: {deploymentKey("r")},
		6: {deploymentKey("r"), deploymentKey("other")},
		0: {deploymentKey("other")},
	} {
		_, err := atMost(most, keys...)
		if exceeded := (*record.ExceededError)(nil); !errors.As(err, &exceeded) || exceeded.Limit != most {
			w.Errorf("at most %d: %v", most, err)
		}
	}
	w.equal("head", w.head(), head)
	w.equal("left", len(w.all()), 7)
	if _, err := atMost(7, deploymentKey("r"), deploymentKey("other")); err != nil {
		w.Error(err)
	}
	w.equal("left", len(w.all()), 0)
}

func deleteBigFamily(w *world) {
	n := w.family()
	w.commit(deployment("other"), deployment("child", under("other")))
	parents := map[string]string{}
	for _, r := range w.list(record.Query{Kind: tko.KindDeployment, Limit: -1}) {
		parents[r.ID] = r.Parent
	}
	head := w.head()
	d := w.remove(deploymentKey("r"))
	w.equal("deleted", []int{d.Deleted, d.Descendants}, []int{n + 1, n})
	if d.Commits < 2 {
		w.Errorf("%d records were deleted in one commit", n)
	}
	w.equal("left", w.all(), []string{"child", "other"})
	w.equal("index", len(w.ids(record.Query{Kind: tko.KindDeployment, Metadata: values("k", "v"), Limit: -1})), 0)
	gone := map[string]bool{}
	for _, c := range w.changes(head) {
		if c.Op == tko.OpDeleted {
			gone[c.ID] = true
		}
		if c.Op == tko.OpDeleted && gone[parents[c.ID]] {
			w.Fatalf("%s was deleted after its parent", c.ID)
		}
	}
	CheckConsistency(w.T, w.store)
}

func interruptedDeletionContinues(w *world) {
	n := w.family()
	w.commit(template("t"))
	w.many(wide, "t%04d", of("t"))
	var first deletion
	if more := w.step(&first, deploymentKey("r"), templateKey("t")); len(more) != 2 {
		w.Fatalf("one step leaves %v, want both", more)
	}
	CheckConsistency(w.T, w.store)
	for _, r := range w.list(record.Query{Kind: tko.KindDeployment, Limit: -1}) {
		if r.Parent != "" && w.get(record.Fields{}, deploymentKey(r.Parent))[0].Revision == 0 {
			w.Fatalf("the parent of %s was deleted before it", r.ID)
		}
	}
	rest := w.remove(templateKey("t"), deploymentKey("r"))
	w.equal("deleted", first.Deleted+rest.Deleted, n+2)
	w.equal("dissociated", first.Dissociated+rest.Dissociated, wide)
	w.equal("left", len(w.all()), wide)
	CheckConsistency(w.T, w.store)
}

func deletingRecordIsNotReferred(w *world) {
	n := w.family()
	w.commit(template("t"), template("u"))
	w.many(wide, "t%04d", of("t"))
	var d deletion
	w.step(&d, templateKey("t"))
	w.step(&d, deploymentKey("r"))
	for _, k := range []record.Key{templateKey("t"), deploymentKey("r")} {
		r := w.one(k)
		if !r.Deleting() {
			w.Errorf("%v has no Deleting condition: %v", k, r.Conditions)
		}
		err := w.refusal(tko.ErrInvalid, deployment("new", requires(k)))
		missing := (*record.MissingError)(nil)
		if !errors.As(err, &missing) || missing.Key != k || !missing.Deleting {
			w.Errorf("error is %v", err)
		}
	}
	newChild := deployment("new", under("r"))
	newChild.ParentRevision = 1
	w.refused(tko.ErrConflict, newChild)
	w.commit(deployment("new", requires(templateKey("u"))))
	w.remove(templateKey("t"), deploymentKey("r"))
	w.equal("left", len(w.all()), wide+1)
	w.refused(tko.ErrInvalid, deployment("newer", requires(templateKey("t"))))
	_ = n
}

// A preparer creates the children of an unprepared deployment again, as long as the
// deployment exists.
func deleteWhileChildrenComeBack(w *world) {
	n := w.family()
	parents := []string{"r", "a0000", "a0007", "b00-001", "c20"}
	stop := make(chan struct{})
	var wait sync.WaitGroup
	for _, parent := range parents {
		wait.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				child := deployment(fmt.Sprintf("%s-new%d", parent, i), under(parent), origin(fmt.Sprintf("of %s %d", parent, i%50)))
				child.ParentRevision = 1
				if _, err := w.store.Commit(w.ctx(), record.Ungated(child)); errors.Is(err, tko.ErrConflict) {
					if w.get(record.Fields{}, deploymentKey(parent))[0].Revision == 0 {
						return
					}
				} else if err != nil {
					w.Error(err)
					return
				}
			}
		})
	}
	d := w.remove(deploymentKey("r"))
	close(stop)
	wait.Wait()
	if d.Deleted <= n {
		w.Errorf("%d deployments were deleted, want more than %d", d.Deleted, n)
	}
	w.equal("left", w.all(), []string{})
	CheckConsistency(w.T, w.store)
}

func deleteTwiceAtOnce(w *world) {
	n := w.family()
	w.commit(template("t"))
	w.many(wide, "t%04d", of("t"))
	var both [2]deletion
	var wait sync.WaitGroup
	for i := range both {
		wait.Go(func() {
			keys := []record.Key{deploymentKey("r"), templateKey("t")}
			for len(keys) > 0 {
				keys = w.step(&both[i], keys...)
			}
		})
	}
	wait.Wait()
	w.equal("deleted", both[0].Deleted+both[1].Deleted, n+2)
	w.equal("dissociated", both[0].Dissociated+both[1].Dissociated, wide)
	w.equal("left", len(w.all()), wide)
	CheckConsistency(w.T, w.store)
}

func descendantsAreListed(w *world) {
	w.commit(
		deployment("a"), deployment("b", under("a")), deployment("c", under("b")), deployment("d", under("b")),
		deployment("other"), deployment("e", under("other")), deployment("leaf"),
	)
	tests := map[string]struct {
		why  string
		of   []string
		want []string
	}{
		"all levels":          {"grandchildren, too", []string{"a"}, []string{"b", "c", "d"}},
		"one below the other": {"the given deployments are not returned", []string{"a", "b"}, []string{"c", "d"}},
		"two families":        {"each has its own", []string{"b", "other"}, []string{"c", "d", "e"}},
		"none":                {"a leaf has none", []string{"leaf", "c"}, nil},
		"not there":           {"a missing deployment has none", []string{"nope"}, nil},
		"nothing":             {"no deployments were given", nil, nil},
	}
	for name, test := range tests {
		var got []string
		w.ok(w.store.Descendants(w.ctx(), test.of, func(id string) { got = append(got, id) }))
		slices.Sort(got)
		got = slices.Compact(got)
		w.equal(name+": "+test.why, got, test.want)
	}
}

func deleteTemplate(w *world) {
	w.commit(template("t"), template("t2"))
	w.commit(site("s", of("t"), metadata("k", "v")), site("s2", of("t2")), deployment("d", of("t"), at("s"), metadata("k", "v")), deployment("d2", of("t2")))
	before, head := w.one(deploymentKey("d")), w.head()
	outcome := w.commit(deleted(templateKey("t"), by("Ann", "tidy")))[0]
	made := w.changes(head)
	w.equal("outcome", outcome, record.Outcome{Key: templateKey("t"), Revision: 1, Position: made[2].Position, Deleted: 1, Dissociated: 2})
	w.equal("log", w.logged(head), []loggedChange{
		{tko.OpWritten, "deployment d", 2}, {tko.OpWritten, "site s", 2}, {tko.OpDeleted, "template t", 1},
	})
	for _, c := range made {
		w.equal("author", c.Author, tko.Author{Who: "Ann", Why: "tidy"})
	}
	after := w.one(deploymentKey("d"))
	want := before
	want.Template, want.Revision, want.Position, want.Updated, want.Author = "", 2, made[0].Position, after.Updated, tko.Author{Who: "Ann", Why: "tidy"}
	w.equal("deployment", after, want)
	w.equal("site", w.one(siteKey("s")).Template, "")
	w.equal("others", w.one(siteKey("s2")).Template+w.one(deploymentKey("d2")).Template, "t2t2")
	w.equal("metadata", w.ids(record.Query{Kind: tko.KindDeployment, Metadata: values("k", "v"), Limit: -1}), []string{"d"})
	revision, err := w.store.Revision(w.ctx(), deploymentKey("d"), 1)
	w.ok(err)
	w.equal("template of revision 1", revision.Template, "t")
	w.commit(template("t"))
	w.equal("deployments of a new template of the same name", w.one(templateKey("t")).Deployments, []string(nil))
}

func deleteSite(w *world) {
	w.commit(site("s"), site("s2"))
	w.commit(deployment("d1", at("s"), ready), deployment("d2", at("s")), deployment("d3", at("s2"), ready))
	w.commit(status(deploymentKey("d1"), tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, Reason: "Applied"}))
	w.dueWork(tko.QueueSchedule)
	w.dueWork(tko.QueuePrepare)
	head := w.head()
	w.commit(deleted(siteKey("s")))
	w.equal("log", w.logged(head), []loggedChange{
		{tko.OpWritten, "deployment d1", 2}, {tko.OpWritten, "deployment d2", 2}, {tko.OpDeleted, "site s", 1},
	})
	w.equal("dissociated", w.one(deploymentKey("d1")).Site, "")
	left := w.one(deploymentKey("d1")).Conditions
	w.equal("conditions of a scheduled deployment", left, []tko.Condition{{
		Type: tko.ConditionScheduled, Status: tko.ConditionUnknown, Reason: tko.ReasonSiteDeleted, LastTransition: left[0].LastTransition, ObservedRevision: 2,
		Message: `site "s" was deleted: its objects stay where they are, and TKO no longer manages them`,
	}})
	w.equal("conditions of an unscheduled deployment", w.one(deploymentKey("d2")).Conditions, []tko.Condition(nil))
	w.equal("work to schedule", w.dueWork(tko.QueueSchedule), []string{"s"})
	w.equal("work to prepare", w.dueWork(tko.QueuePrepare), []string{"d2"})
}

func deleteDeployment(w *world) {
	w.commit(site("s"))
	w.commit(
		deployment("a"), deployment("b", under("a"), at("s"), ready), deployment("c", under("b")), deployment("d", under("b")),
		deployment("e", under("a")), deployment("other"), deployment("f", under("other")),
	)
	w.dueWork(tko.QueueSchedule)
	head := w.head()
	outcome := w.commit(deleted(deploymentKey("a")))[0]
	w.equal("counts", []int{outcome.Deleted, outcome.Descendants}, []int{5, 4})
	w.equal("left", w.ids(record.Query{Kind: tko.KindDeployment, Limit: -1}), []string{"f", "other"})
	log := w.logged(head)
	w.equal("last change", log[len(log)-1], loggedChange{tko.OpDeleted, "deployment a", 1})
	w.equal("number of changes", len(log), 5)
	position := func(id string) int {
		return slices.Index(log, loggedChange{tko.OpDeleted, "deployment " + id, 1})
	}
	if position("c") > position("b") || position("d") > position("b") || position("b") < 0 {
		w.Errorf("a parent was deleted before its children: %v", log)
	}
	w.equal("work to schedule", w.dueWork(tko.QueueSchedule), []string{"s"})
	w.equal("a leaf", w.commit(deleted(deploymentKey("f")))[0].Deleted, 1)
}

func deleteMany(w *world) {
	var writes, deletes []record.Write
	w.commit(template("t"), site("s"))
	for i := range 50 {
		parent := fmt.Sprintf("p%02d", i)
		writes = append(writes, deployment(parent, of("t")))
		deletes = append(deletes, deleted(deploymentKey(parent)))
		for c := range 3 {
			writes = append(writes, deployment(fmt.Sprintf("p%02d-%d", i, c), under(parent), at("s"), metadata("k", "v")))
		}
	}
	w.commit(writes...)
	deletes = append(deletes, deleted(templateKey("t")), deleted(siteKey("s")))
	keys := make([]record.Key, len(deletes))
	for i := range deletes {
		keys[i] = deletes[i].Record.Key
	}
	w.equal("deleted", w.remove(keys...).Deleted, 202)
	w.commit(deployment("p"), deployment("q", under("p")))
	w.equal("the child", w.commit(deleted(deploymentKey("p")), deleted(deploymentKey("q")))[1], record.Outcome{Key: deploymentKey("q")})
	w.equal("left", len(w.ids(record.Query{Kind: tko.KindDeployment, Limit: -1})), 0)
	w.equal("index", len(w.ids(record.Query{Kind: tko.KindDeployment, Metadata: values("k", "v"), Limit: -1})), 0)
}

func deletePlugin(w *world) {
	k := key(tko.KindPlugin, "prepare|a")
	w.commit(written(tko.KindPlugin, "prepare|a"), deployment("d"))
	w.equal("outcome", w.commit(deleted(k))[0].Deleted, 1)
	w.equal("deployments", len(w.ids(record.Query{Kind: tko.KindDeployment, Limit: -1})), 1)
}

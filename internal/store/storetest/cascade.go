package storetest

import (
	"fmt"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

var cascadePromises = []promise{
	{"deleting a template takes it from sites and deployments", deleteTemplate},
	{"deleting a site takes it from deployments, and calls for work", deleteSite},
	{"deleting a deployment deletes its descendants", deleteDeployment},
	{"many are deleted in one commit", deleteMany},
	{"deleting a plugin deletes nothing else", deletePlugin},
}

func deleteTemplate(w *world) {
	w.commit(template("t"), template("t2"))
	w.commit(site("s", of("t"), metadata("k", "v")), site("s2", of("t2")), deployment("d", of("t"), at("s"), metadata("k", "v")), deployment("d2", of("t2")))
	before, head := w.one(deploymentKey("d")), w.head()
	outcome := w.commit(deleted(templateKey("t"), by("Ann", "tidy")))[0]
	w.equal("outcome", outcome, catalog.Outcome{Key: templateKey("t"), Revision: 1, Position: head + 3, Deleted: 1})
	w.equal("log", w.told(head), []told{
		{tko.OpWritten, "deployment d", 2}, {tko.OpWritten, "site s", 2}, {tko.OpDeleted, "template t", 1},
	})
	for _, c := range w.changes(head) {
		w.equal("author", c.Author, tko.Author{Who: "Ann", Why: "tidy"})
	}
	after := w.one(deploymentKey("d"))
	want := before
	want.Template, want.Revision, want.Position, want.Updated, want.Author = "", 2, head+1, after.Updated, tko.Author{Who: "Ann", Why: "tidy"}
	w.equal("deployment", after, want)
	w.equal("site", w.one(siteKey("s")).Template, "")
	w.equal("others", w.one(siteKey("s2")).Template+w.one(deploymentKey("d2")).Template, "t2t2")
	w.equal("metadata", w.ids(catalog.Query{Kind: tko.KindDeployment, Metadata: values("k", "v"), Limit: -1}), []string{"d"})
	revision, err := w.store.Revision(w.ctx(), deploymentKey("d"), 1)
	w.ok(err)
	w.equal("as it was", revision.Template, "t")
	w.commit(template("t"))
	w.equal("a template of the same name has none", w.one(templateKey("t")).Deployments, []string(nil))
}

func deleteSite(w *world) {
	w.commit(site("s"), site("s2"))
	w.commit(deployment("d1", at("s"), ready), deployment("d2", at("s")), deployment("d3", at("s2"), ready))
	w.dueWork(tko.QueueSchedule)
	w.dueWork(tko.QueuePrepare)
	head := w.head()
	w.commit(deleted(siteKey("s")))
	w.equal("log", w.told(head), []told{
		{tko.OpWritten, "deployment d1", 2}, {tko.OpWritten, "deployment d2", 2}, {tko.OpDeleted, "site s", 1},
	})
	w.equal("dissociated", w.one(deploymentKey("d1")).Site, "")
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
	w.equal("left", w.ids(catalog.Query{Kind: tko.KindDeployment, Limit: -1}), []string{"f", "other"})
	log := w.told(head)
	w.equal("the last is what was asked for", log[len(log)-1], told{tko.OpDeleted, "deployment a", 1})
	w.equal("each is a change", len(log), 5)
	position := func(id string) int {
		return slices.Index(log, told{tko.OpDeleted, "deployment " + id, 1})
	}
	if position("c") > position("b") || position("d") > position("b") || position("b") < 0 {
		w.Errorf("children go before parents: %v", log)
	}
	w.equal("work to schedule", w.dueWork(tko.QueueSchedule), []string{"s"})
	w.equal("a leaf", w.commit(deleted(deploymentKey("f")))[0].Deleted, 1)
}

func deleteMany(w *world) {
	var writes, deletes []catalog.Write
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
	// A child that goes with its parent isn't there any more when it is its turn.
	deletes = append(deletes, deleted(deploymentKey("p00-1")), deleted(templateKey("t")), deleted(siteKey("s")))
	outcomes := w.commit(deletes...)
	all := 0
	for _, o := range outcomes {
		all += o.Deleted
	}
	w.equal("deleted", all, 202)
	w.equal("the child", outcomes[50], catalog.Outcome{Key: deploymentKey("p00-1")})
	w.equal("left", len(w.ids(catalog.Query{Kind: tko.KindDeployment, Limit: -1})), 0)
	w.equal("index", len(w.ids(catalog.Query{Kind: tko.KindDeployment, Metadata: values("k", "v"), Limit: -1})), 0)
}

func deletePlugin(w *world) {
	k := key(tko.KindPlugin, "prepare|a")
	w.commit(written(tko.KindPlugin, "prepare|a"), deployment("d"))
	w.equal("outcome", w.commit(deleted(k))[0].Deleted, 1)
	w.equal("deployments", len(w.ids(catalog.Query{Kind: tko.KindDeployment, Limit: -1})), 1)
}

package observer

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
)

// A log makes changes for tests of the judge.
type log struct {
	changes  []change
	requests map[string]*request
	revision map[string]int64
	halts    []halt
	// failed are the revisions at which deployments fail; if there are any, all other changes of rollouts are delivered at once.
	failed map[tko.DeploymentID]int64
}

func (l *log) add(op tko.Op, kind tko.Kind, id, who, why string, r *record) *log {
	l.revision[id]++
	l.changes = append(l.changes, change{
		Change: tko.Change{Position: int64(len(l.changes) + 1), Op: op, Kind: kind, ID: id, Revision: l.revision[id], Author: tko.Author{Who: who, Why: why}, Time: time.Unix(int64(len(l.changes)+1), 0)}, record: r,
	})
	if r != nil {
		r.revision = l.revision[id]
	}
	return l
}

func (l *log) write(who, why string, r *record) *log {
	return l.add(tko.OpWritten, tko.KindDeployment, string(r.id), who, why, r)
}

func (l *log) remove(who, why, id string) *log {
	return l.add(tko.OpDeleted, tko.KindDeployment, id, who, why, nil)
}

func (l *log) request(op string, r request) *log {
	r.op = op
	l.requests[op] = &r
	return l
}

// The judge finds each kind of fault in a log that is otherwise right, and none in a right one.
func TestTheObserverFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	at := func(id, parent, template, site, op string) *record {
		tenant, _, _ := strings.Cut(template, "/")
		return &record{id: tko.DeploymentID(id), parent: tko.DeploymentID(parent), template: template, site: site, running: site != "", digest: sha256.Sum256([]byte(op)), content: content{{"ConfigMap/w", map[string]string{"tenant": tenant, "op": op}}}}
	}
	topology := func(l *log) *log { return l.write("cert:a", "op-1.", at("top", "", "a/top/base:v1", "", "")) }
	many := func(n int, do func(i int)) {
		for i := range n {
			do(i)
		}
	}
	running := func(l *log, n int) *log {
		many(n, func(i int) {
			l.write("cert:root", "set-up", at(fmt.Sprint("d", i), "", "a/w:v1", fmt.Sprint("a/", i), "old"))
		})
		return l
	}
	rolled := func(l *log, rollout string, i int, op string) {
		l.write("cert:root", fmt.Sprintf("rollout %q", rollout), at(fmt.Sprint("d", i), "", "a/w:v1", fmt.Sprint("a/", i), op))
	}
	one, confirmed := request{author: "a", done: true}, request{author: "a", done: true, consent: 8}
	for name, test := range map[string]struct {
		log  func(l *log)
		want string // in what the judge finds; "" if nothing is wrong
	}{
		"a right log": {func(l *log) {
			topology(l).write("preparer", "", at("x", "top", "a/w:v1", "a/1", "")).write("cert:a", "op-1.", at("x", "top", "a/w:v1", "a/1", "new")).remove("cert:a", "op-1.", "x")
		}, ""},
		"deletions up to the limit":  {func(l *log) { running(l, 9); many(5, func(i int) { l.remove("cert:a", "op-1.", fmt.Sprint("d", i)) }) }, ""},
		"deletions beyond the limit": {func(l *log) { running(l, 9); many(6, func(i int) { l.remove("cert:a", "op-1.", fmt.Sprint("d", i)) }) }, "removed or orphaned 6 entities"},
		"deletions of two requests beyond it": {func(l *log) {
			running(l, 9)
			many(6, func(i int) { l.remove("cert:a", fmt.Sprintf("op-%d.", 1+i%2), fmt.Sprint("d", i)) })
		}, "removed or orphaned 6 entities"},
		"deletions with consent":       {func(l *log) { running(l, 9); many(8, func(i int) { l.remove("cert:a", "op-8.", fmt.Sprint("d", i)) }) }, ""},
		"deletions beyond the consent": {func(l *log) { running(l, 9); many(9, func(i int) { l.remove("cert:a", "op-8.", fmt.Sprint("d", i)) }) }, "change 9 of a request that consented to 8"},
		"a deleted template with many users": {func(l *log) {
			running(l, 9)
			many(9, func(i int) { l.write("cert:a", "op-1.", at(fmt.Sprint("d", i), "", "", fmt.Sprint("a/", i), "old")) })
			l.add(tko.OpDeleted, tko.KindTemplate, "a/w:v1", "cert:a", "op-1.", nil)
		}, "removed or orphaned 10 entities"},
		"a deleted template with more users than its consent": {func(l *log) {
			running(l, 9)
			many(9, func(i int) { l.write("cert:a", "op-8.", at(fmt.Sprint("d", i), "", "", fmt.Sprint("a/", i), "old")) })
		}, "change 9 of a request that consented to 8"},
		"a consent that is far too large": {func(l *log) {
			l.request("op-7.", request{author: "a", verb: "purge", done: true, consent: 209})
			running(l, 9)
			many(9, func(i int) { l.remove("cert:a", "op-7.", fmt.Sprint("d", i)) })
		}, "9 entities was done with consent to 209"},
		"children beyond the limit": {func(l *log) {
			topology(l)
			many(7, func(i int) { l.write("preparer", "", at(fmt.Sprint("c", i), "top", "a/w:v1", fmt.Sprint("a/", i), "")) })
		}, "created 7 deployments"},
		"children that are made again": {func(l *log) {
			topology(l)
			many(7, func(i int) { l.write("preparer", "", at(fmt.Sprint("c", i), "top", "a/w:v1", "a/1", "")) })
		}, ""},
		"changes at few sites": {func(l *log) {
			running(l, 9)
			many(3, func(i int) {
				l.write("cert:a", "op-1.", at(fmt.Sprint("d", i), "", "a/w:v1", fmt.Sprint("a/", i), "new"))
			})
		}, ""},
		"changes at many sites": {func(l *log) {
			running(l, 9)
			many(4, func(i int) {
				l.write("cert:a", "op-1.", at(fmt.Sprint("d", i), "", "a/w:v1", fmt.Sprint("a/", i), "new"))
			})
		}, "changes running deployments at 4 sites"},
		"changes of many sites by a rollout": {func(l *log) {
			running(l, 9)
			many(9, func(i int) {
				l.write("cert:root", `rollout "x"`, at(fmt.Sprint("d", i), "", "a/w:v1", fmt.Sprint("a/", i), "new"))
			})
		}, ""},
		"a change by a mistyped rollout": {func(l *log) {
			running(l, 1).write("cert:root", `rollout "piar-1"`, at("d0", "", "a/w:v1", "a/0", "new"))
		}, "a key that no site has"},
		"a write at a foreign site":       {func(l *log) { l.write("cert:a", "op-1.", at("x", "", "a/w:v1", "b/1", "")) }, "isn't in the scope of a"},
		"a child at a foreign site":       {func(l *log) { topology(l).write("preparer", "", at("x", "top", "a/w:v1", "b/1", "")) }, "made it from a/w:v1 at b/1"},
		"a child from a foreign template": {func(l *log) { topology(l).write("preparer", "", at("x", "top", "b/w:v1", "a/1", "")) }, "made it from b/w:v1 at a/1"},
		"foreign content at a site": {func(l *log) {
			r := at("x", "", "a/w:v1", "a/1", "")
			r.content[0].data["tenant"] = "b"
			l.write("cert:a", "op-1.", r)
		}, "belongs to tenant b"},
		"a refused request that did something": {func(l *log) { l.write("cert:a", "op-9.", at("x", "", "a/w:v1", "a/1", "")) }, "was refused"},
		"a site that lost its labels": {func(l *log) {
			l.add(tko.OpWritten, tko.KindSite, "a/1", "cert:a", "op-1.", nil)
			l.changes[0].metadata = map[string]string{"color": "red"}
		}, "lost labels"},
		"a rollout within its limits": {func(l *log) {
			running(l, 20)
			many(5, func(i int) { rolled(l, "pair-a-1", 2*i, "new") })
		}, ""},
		"more changes of a rollout in flight than it may have": {func(l *log) {
			running(l, 20)
			many(6, func(i int) { rolled(l, "pair-a-1", 2*i, "new") })
		}, "has 6 changes in flight"},
		"a rollout that changes a pair at once": {func(l *log) {
			running(l, 20)
			rolled(l, "pair-a-1", 4, "new")
			rolled(l, "pair-a-1", 5, "new")
		}, "rollouts keep pairs apart"},
		"two rollouts that change a pair at once": {func(l *log) {
			running(l, 20)
			rolled(l, "pair-a-1", 4, "new")
			rolled(l, "moved-a-2", 5, "new")
		}, "rollouts keep pairs apart"},
		"a rollout that goes on after a failure": {func(l *log) {
			l.failed = map[tko.DeploymentID]int64{"d0": 2}
			running(l, 20)
			many(7, func(i int) {
				rolled(l, "bad-a-1", 2*i, "new") // all but the first one are delivered at once
			})
		}, "is change 6 of the rollout after 1 failed"},
		"an undo that restores another content": {func(l *log) {
			running(l, 3)
			rolled(l, "pair-a-1", 1, "new")
			rolled(l, "pair-a-1-undo", 1, "newer")
		}, "and not what it had been"},
		"a source beyond its limit of creations": {func(l *log) {
			many(7, func(i int) {
				l.write("gitops:source-a", "main@sha1:1", at(fmt.Sprint("g", i), "", "a/w:v1", fmt.Sprint("a/", i), ""))
			})
		}, "the source created 7 deployments"},
		"a source at a foreign site": {func(l *log) { l.write("gitops:source-a", "main@sha1:1", at("x", "", "a/w:v1", "b/1", "")) }, "isn't in the scope of a"},
		"a source that changes many sites": {func(l *log) {
			running(l, 9)
			many(4, func(i int) {
				l.write("gitops:source-a", "main@sha1:1", at(fmt.Sprint("d", i), "", "a/w:v1", fmt.Sprint("a/", i), "new"))
			})
		}, "changes running deployments at 4 sites"},
		"a source that removes when its folder is gone": {func(l *log) {
			running(l, 2)
			l.halts = []halt{{what: "time without the folder", pattern: func(string) bool { return true }, from: 0, to: 9, removalsBy: "gitops:source-a"}}
			l.remove("gitops:source-a", "main@sha1:1", "d1")
		}, "during the time without the folder"},
		"a user of kubectl that deletes too much": {func(l *log) {
			running(l, 9)
			many(6, func(i int) { l.remove("k8s:a", "", fmt.Sprint("d", i)) })
		}, "removed or orphaned 6 entities"},
		"a user of kubectl at a foreign site": {func(l *log) { l.write("k8s:a", `field manager "op-1."`, at("x", "", "a/w:v1", "b/1", "")) }, "isn't in the scope of a"},
		"a lost deployment":                   {func(l *log) { l.write("cert:a", "op-1.", at("lost", "", "a/w:v1", "a/1", "")) }, "is lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &log{requests: map[string]*request{}, revision: map[string]int64{}}
			l.request("op-1.", one).request("op-2.", one).request("op-8.", confirmed).request("op-9.", request{author: "a", refused: true})
			test.log(l)
			j := newJudge(limits{removed: 5, percent: 100, created: 6, sites: 3}, l.requests)
			j.halts = l.halts
			if l.failed != nil {
				j.rollouts.failed = func(id tko.DeploymentID, then time.Time) int64 {
					if j.rollouts.last[id].at.Equal(then) { // it is changed now
						return 0
					}
					return l.failed[id]
				}
				j.rollouts.delivered = func(site string, _ content, _, _ time.Time) bool { return site != "a/0" }
			}
			for _, c := range l.changes {
				j.take(c)
			}
			var there []tko.Deployment
			for id := range j.alive[tko.KindDeployment] {
				if id != "lost" {
					there = append(there, tko.Deployment{ID: tko.DeploymentID(id)})
				}
			}
			got := strings.Join(append(j.found, j.end(there)...), "\n")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("the judge found %q, want %q", got, test.want)
			}
		})
	}
}

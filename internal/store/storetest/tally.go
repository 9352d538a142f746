package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/test/eventually"
)

var tallyPromises = []promise{
	{"the numbers of entities are those of all entities, after each kind of change", numbersAreExact},
	{"the numbers of entities are exact while many write", numbersAreExactAmongWriters},
	{"the oldest failure of each group is known, also after the oldest has ended", oldestFailuresAreKnown},
	{"entities whose conditions aren't distinguished make no wrong numbers", unclearNumbersAreMissing},
}

// className returns a text for a class.
func className(c record.Class) string {
	conditions := make([]string, len(c.Conditions))
	for i, condition := range c.Conditions {
		conditions[i] = condition.Type + "=" + condition.Status + ":" + condition.Reason
	}
	return fmt.Sprintf("%s prepared=%v approved=%v site=%v outdated=%v %s", c.Kind, c.Prepared, c.Approved, c.AtSite, c.Outdated, strings.Join(conditions, " "))
}

// failureName returns a text for a failure.
func failureName(k record.Key, c tko.Condition) string {
	return fmt.Sprintf("%s %s=%s:%s since %d %s: %s", k.Kind, c.Type, c.Status, c.Reason, c.LastTransition.UnixNano(), k.ID, c.Message)
}

// listed returns the numbers and the oldest failures of all entities, by reading each.
func (w *world) listed() (numbers map[string]int64, failures []string) {
	w.Helper()
	numbers = map[string]int64{}
	type group struct {
		kind        tko.Kind
		typ, reason string
	}
	oldest := map[group]record.OldestFailure{}
	for _, kind := range []tko.Kind{tko.KindSite, tko.KindDeployment} {
		for _, r := range w.list(record.Query{Kind: kind, Limit: -1}) {
			c, _ := record.ClassOf(&r)
			numbers[className(c)]++
			for _, c := range r.Conditions {
				g := group{kind, c.Type, c.Reason}
				if other, ok := oldest[g]; record.CanFail(&c) && (!ok || c.LastTransition.Before(other.Condition.LastTransition)) {
					oldest[g] = record.OldestFailure{Key: r.Key, Condition: c}
				}
			}
		}
	}
	for f := range maps.Values(oldest) {
		failures = append(failures, failureName(f.Key, f.Condition))
	}
	slices.Sort(failures)
	return numbers, failures
}

// checkNumbers compares the numbers of the store with its entities.
func (w *world) checkNumbers(when string) {
	w.Helper()
	t, ok, err := w.store.Tally(w.ctx())
	w.ok(err)
	if !ok {
		w.Fatalf("%s: the store has no numbers", when)
	}
	w.equal(when+": position", t.Position, w.head())
	got := map[string]int64{}
	for _, c := range t.Classes {
		got[className(c.Class)] += c.Count
		if c.Count < 1 {
			w.Errorf("%s: %d entities are %s", when, c.Count, className(c.Class))
		}
	}
	var failures []string
	for _, f := range t.Oldest {
		failures = append(failures, failureName(f.Key, f.Condition))
	}
	slices.Sort(failures)
	numbers, oldest := w.listed()
	w.equal(when+": numbers", got, numbers)
	w.equal(when+": oldest failures", failures, oldest)
}

// waitForNumbers waits until the store has counted its entities. It calls meanwhile, if not nil, now and then.
func (w *world) waitForNumbers(meanwhile func()) {
	w.Helper()
	eventually.True(w.T, "the entities are counted", func() bool {
		if meanwhile != nil {
			meanwhile()
		}
		_, ok, err := w.store.Tally(w.ctx())
		w.ok(err)
		return ok
	})
}

// tallyTime is when the conditions of these tests got their status: n seconds after a time.
func tallyTime(n int) time.Time {
	return time.Date(2026, 11, 1, 0, 0, n, 7, time.UTC)
}

func condition(typ, status, reason string, since int) tko.Condition {
	return tko.Condition{Type: typ, Status: status, Reason: reason, Message: "of " + reason, LastTransition: tallyTime(since), ObservedRevision: 1}
}

func numbersAreExact(w *world) {
	w.checkNumbers("of an empty store")
	w.commit(template("t"), site("s"), site("other"))
	w.checkNumbers("after new sites")
	w.commit(deployment("a", of("t"), at("s")), deployment("b", at("s"), ready), deployment("b1", under("b")), deployment("b2", under("b1")), deployment("c", of("t")))
	w.checkNumbers("after new deployments")
	w.commit(status(deploymentKey("a"), condition("Prepared", "False", "Invalid", 3)), status(siteKey("s"), condition("Scheduled", "False", "Unreachable", 2)))
	w.checkNumbers("after reports")
	w.commit(status(deploymentKey("b"), condition("Prepared", "True", "Prepared", 3), condition("Scheduled", "True", "Applied", 4)))
	w.commit(deployment("b", expect(1), at("s"), ready, func(w *record.Write) {
		w.Record.Conditions = []tko.Condition{condition("Prepared", "True", "Prepared", 3), condition("Scheduled", "True", "Applied", 4)}
	}))
	w.checkNumbers("after a new revision, which makes a report outdated")
	w.commit(status(deploymentKey("a")))
	w.checkNumbers("after conditions were removed")
	w.commit(deployment("x"))
	w.commit(deleted(deploymentKey("x")))
	w.checkNumbers("after a deployment that came and went")
	w.commit(site("s", expect(1)), deployment("c", expect(1), ready))
	w.checkNumbers("after further revisions")
	for _, k := range []record.Key{deploymentKey("b"), siteKey("s"), templateKey("t")} {
		for more := true; more; {
			more = w.commit(deleted(k))[0].More
			w.checkNumbers("after a step of the deletion of " + k.ID)
		}
	}
	numbers, _ := w.listed()
	w.equal("classes that are left", len(numbers), 3)
}

func numbersAreExactAmongWriters(w *world) {
	const writers, rounds = 4, 25
	var all sync.WaitGroup
	for writer := range writers {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(writer), 1)) //nolint:gosec // the same each time
			revisions := map[string]int64{}
			for round := range rounds {
				id := fmt.Sprintf("w%d-%d", writer, random.IntN(6))
				write := status(deploymentKey(id), condition("Healthy", []string{"True", "False", "Unknown"}[random.IntN(3)], []string{"", "Crashed", "Slow"}[random.IntN(3)], random.IntN(5)))
				switch n := random.IntN(4); {
				case revisions[id] == 0:
					revisions[id] = 1
					write = deployment(id, under(fmt.Sprintf("parent%d", round)))
				case n == 0:
					write = deployment(id, expect(revisions[id]), ready)
					revisions[id]++
				case n == 1:
					write = deleted(deploymentKey(id))
				}
				outcomes, err := w.store.Commit(w.ctx(), record.Ungated(write))
				switch {
				case err != nil:
					w.Errorf("commit: %v", err)
				case write.Op == tko.OpDeleted:
					revisions[id] = 0
				case write.Op == tko.OpWritten:
					revisions[id] = outcomes[0].Revision
				}
			}
		})
	}
	all.Wait()
	w.checkNumbers("after all writers")
}

func oldestFailuresAreKnown(w *world) {
	crashed := func(id string, since int) record.Write {
		return status(deploymentKey(id), condition("Healthy", "False", "Crashed", since))
	}
	w.commit(deployment("a"), deployment("b"), deployment("c"), deployment("d"))
	w.commit(crashed("a", 5), crashed("b", 3), crashed("c", 3), crashed("d", 9))
	w.checkNumbers("with two that are oldest")
	w.commit(status(deploymentKey("b"), condition("Healthy", "True", "", 10)))
	w.checkNumbers("after one is healthy")
	w.commit(deleted(deploymentKey("c")))
	w.checkNumbers("after the next one was deleted")
	w.commit(crashed("a", 12))
	w.checkNumbers("after the oldest failed anew")
	w.commit(status(deploymentKey("d"), condition("Healthy", "False", strings.Repeat("long", 150), 1), tko.Condition{Type: "Odd", Status: "False"}))
	w.checkNumbers("with a long reason")
	w.commit(status(deploymentKey("a"), tko.Condition{Type: "Approved", Status: "False", Reason: "NotApproved"}))
	w.commit(crashed("d", 1))
	w.checkNumbers("with an approval that is missing")
}

func unclearNumbersAreMissing(w *world) {
	w.commit(deployment("a"), deployment("b"))
	w.commit(status(deploymentKey("a"), condition("Healthy", "False", strings.Repeat("long", 300), 1)))
	if _, ok, err := w.store.Tally(w.ctx()); ok || err != nil {
		w.Errorf("the store has numbers of classes that it doesn't distinguish: %v", err)
	}
	w.commit(deleted(deploymentKey("a")))
	w.checkNumbers("after it was deleted")
}

// UpgradeOldNumbers checks that the numbers of entities are counted again, and none is returned
// until they are right, if another program has changed entities without changing the numbers:
// one of an older schema, or a restore.
func UpgradeOldNumbers(t *testing.T, older OldDatabase) {
	t.Helper()
	s := older.Open(t)
	w := &world{T: t, store: s}
	w.commit(site("s"), deployment("a"), deployment("b"), deployment("c"))
	w.commit(status(siteKey("s"), condition("Scheduled", "False", "Unreachable", 4)), status(deploymentKey("a"), condition("Healthy", "False", "Crashed", 2)))
	var more, failures []record.Write // more than are read, written or removed at once
	for i := range 2500 {
		id := fmt.Sprintf("many%04d", i)
		more, failures = append(more, deployment(id)), append(failures, status(deploymentKey(id), condition("Healthy", "False", "Slow", i%7)))
	}
	w.commit(more...)
	w.commit(failures...)
	w.checkNumbers("before")
	w.ok(s.Close())
	// What an older program does: it changes entities, and moves the head.
	older.Run(t, "DELETE FROM entity WHERE id = 'b'")
	older.Run(t, "UPDATE entity SET conditions = (SELECT x.conditions FROM entity x WHERE x.id = 'a') WHERE id = 'c'")
	older.Run(t, "UPDATE head SET position = position + 2")

	s = older.Open(t)
	w = &world{T: t, store: s}
	if _, ok, err := s.Tally(w.ctx()); ok || err != nil {
		t.Errorf("numbers that may be wrong are returned, %v", err)
	}
	n := 0
	w.waitForNumbers(func() { // writers go on meanwhile
		n++
		w.commit(
			deployment(fmt.Sprint("d", n)), status(deploymentKey("a"), condition("Healthy", "False", "Crashed", 2+n)),
			status(deploymentKey(fmt.Sprintf("many%04d", 7*n)), condition("Healthy", "True", "", n)),
		)
	})
	w.checkNumbers("after a count")
	w.commit(deployment("e"), deleted(deploymentKey("c")))
	w.checkNumbers("after further commits")
	w.ok(s.Close())
}

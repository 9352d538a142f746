package relational_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/relational"
)

// logged returns the operations of the log after a position, with their positions.
func logged(t *testing.T, s *relational.Store, after int64) (list []string) {
	t.Helper()
	changes, err := s.Changes(t.Context(), after, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range changes {
		if c.Position != after+int64(i)+1 {
			t.Errorf("the log has position %d where %d should be", c.Position, after+int64(i)+1)
		}
		list = append(list, fmt.Sprintf("%s %s %d", c.Op, c.ID, c.Revision))
	}
	return list
}

// Whatever operation of a commit loses its connection, and whether the commit happened or
// not, it happens once: clients don't notice.
func TestCommitsHappenOnceWhereverTheConnectionIsLost(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	commit(t, s, written(tko.KindTemplate, "t"), written(tko.KindSite, "s"))
	template, err := s.Get(t.Context(), record.Fields{}, record.Key{Kind: tko.KindTemplate, ID: "t"})
	if err != nil {
		t.Fatal(err)
	}
	basis := []record.Version{{Key: template[0].Key, Position: template[0].Position}}
	type scenario struct {
		why  string
		run  func(id string) error
		want []string // changes of the log, with %s for the ID
	}
	create := func(id string, change ...func(*record.Record)) error {
		_, err := s.Commit(t.Context(), record.Ungated(written(tko.KindDeployment, id, change...)))
		return err
	}
	scenarios := map[string]scenario{
		"new record": {"it is decided without the lock of the head", func(id string) error { return create(id) }, []string{"written %s 1"}},
		"derived record": {"it is checked that its basis has not changed", func(id string) error {
			w := written(tko.KindDeployment, id)
			w.ReadSet, w.Requires = basis, []record.Key{template[0].Key}
			_, err := s.Commit(t.Context(), record.Ungated(w))
			return err
		}, []string{"written %s 1"}},
		"revision": {"it needs the lock", func(id string) error {
			if err := create(id); err != nil {
				return err
			}
			outcomes, err := s.Commit(t.Context(), record.Ungated(rewritten(tko.KindDeployment, id, 1)))
			if err == nil && (outcomes[0].Revision != 2 || outcomes[0].Existed) {
				return fmt.Errorf("outcome is %+v", outcomes)
			}
			return err
		}, []string{"written %s 1", "written %s 2"}},
		"several kinds of changes": {"all are in one transaction", func(id string) error {
			w := written(tko.KindDeployment, id+"b")
			status := record.Write{Op: tko.OpStatus, Expect: record.Any, Record: record.Record{Key: deploymentKey(id), Conditions: []tko.Condition{{Type: "c"}}}}
			if err := create(id); err != nil {
				return err
			}
			_, err := s.Commit(t.Context(), record.Ungated(status, w, deleted(tko.KindDeployment, id+"none")))
			return err
		}, []string{"written %s 1", "status %s 1", "written %sb 1"}},
		"deletion": {"a second deletion would find nothing", func(id string) error {
			if err := create(id); err != nil {
				return err
			}
			if err := create(id+"child", under(id)); err != nil {
				return err
			}
			outcomes, err := s.Commit(t.Context(), record.Ungated(deleted(tko.KindDeployment, id)))
			if err == nil && (outcomes[0].Deleted != 2 || outcomes[0].Descendants != 1 || outcomes[0].More) {
				return fmt.Errorf("outcome is %+v", outcomes)
			}
			return err
		}, []string{"written %s 1", "written %schild 1", "deleted %schild 1", "deleted %s 1"}},
		"modification": {"a transaction of a token alone has no change in the log", func(id string) error {
			if err := create(id); err != nil {
				return err
			}
			if _, _, err := s.StartModification(t.Context(), id, "token of "+id, time.Minute); err != nil {
				return err
			}
			if _, err := s.Commit(t.Context(), record.Ungated(rewritten(tko.KindDeployment, id, 1))); !errors.Is(err, tko.ErrBusy) {
				return fmt.Errorf("a write without the token: %w", err)
			}
			w := rewritten(tko.KindDeployment, id, 1)
			w.Token = "token of " + id
			if _, err := s.Commit(t.Context(), record.Ungated(w)); err != nil {
				return err
			}
			if err := s.CancelModification(t.Context(), "token of "+id); !errors.Is(err, tko.ErrNotFound) {
				return fmt.Errorf("the token after its end: %w", err)
			}
			return nil
		}, []string{"written %s 1", "written %s 2"}},
		"cancelled modification": {"cancelling twice is an error, unless it is one call", func(id string) error {
			if err := create(id); err != nil {
				return err
			}
			if _, _, err := s.StartModification(t.Context(), id, "token of "+id, time.Minute); err != nil {
				return err
			}
			return s.CancelModification(t.Context(), "token of "+id)
		}, []string{"written %s 1"}},
		"broken modification": {"breaking twice is an error, unless it is one call", func(id string) error {
			if err := create(id); err != nil {
				return err
			}
			if _, _, err := s.StartModification(t.Context(), id, "token of "+id, time.Minute); err != nil {
				return err
			}
			broken, err := s.BreakModification(t.Context(), id)
			if err == nil && string(broken.Deployment) != id {
				return fmt.Errorf("the token of %q was broken", broken.Deployment)
			}
			return err
		}, []string{"written %s 1"}},
	}
	for name, test := range scenarios {
		for _, kind := range []fault{notSent, unknown, committed} {
			lost := 0
			for n := 1; ; n++ {
				before, err := s.Head(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				id := fmt.Sprintf("%s %d %d", name, kind, n)
				db.arm(n, kind)
				err = test.run(id)
				failed := db.disarm()
				if err != nil {
					t.Errorf("%s (%s), fault %d of operation %d: %v", name, test.why, kind, n, err)
				}
				want := make([]string, len(test.want))
				for i, w := range test.want {
					want[i] = fmt.Sprintf(w, id)
				}
				if diff := cmp.Diff(want, logged(t, s, before)); diff != "" {
					t.Errorf("%s, fault %d of operation %d: the log (-want +got)\n%s", name, kind, n, diff)
				}
				if failed == 0 {
					break
				}
				lost++
			}
			if lost < 2 {
				t.Errorf("%s: %d operations", name, lost)
			}
		}
	}
}

// Audit records have one chain without gaps, wherever connections are lost.
func TestAuditRecordsAreWrittenOnceWhereverTheConnectionIsLost(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	commit(t, s, written(tko.KindSite, "s"))
	want := 0
	for _, kind := range []fault{notSent, unknown, committed} {
		for n := 1; ; n++ {
			db.arm(n, kind)
			if err := s.Audit(t.Context(), audit.Record{Op: "a", ID: fmt.Sprint(kind, n)}, audit.Record{Op: "b", ID: fmt.Sprint(kind, n)}); err != nil {
				t.Fatal(err)
			}
			want += 2
			if failed := db.disarm(); failed == 0 {
				break
			}
		}
	}
	records, head, base, err := s.Audited(t.Context(), 0, 1000)
	if err != nil || len(records) != want || head.Seq != int64(want) || want < 15 {
		t.Fatalf("%d audit records, head %d, want %d: %v", len(records), head.Seq, want, err)
	}
	hash := base.Hash
	for i, r := range records {
		hash = audit.Chain(hash, r.Text)
		if r.Seq != int64(i)+1 || r.Hash != hash {
			t.Fatalf("record %d (%s) is not linked to the one before", r.Seq, r.Text)
		}
	}
	if head.Hash != hash {
		t.Error("the head of the chain is not its last record")
	}
}

// Calls of one transaction fail by themselves: those that are refused leave no trace in it,
// and the others are decided as if those had not been.
func TestRefusedCallsOfAGroupLeaveNoTrace(t *testing.T) {
	t.Parallel()
	s, db := open(t)
	commit(t, s, written(tko.KindSite, "s"), written(tko.KindDeployment, "d0"))
	before, err := s.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	var once sync.Once
	db.ran = func(relational.Statement) { once.Do(func() { <-release }) }
	var calls sync.WaitGroup
	submit := func(want error, writes ...record.Write) {
		calls.Go(func() {
			if _, err := s.Commit(t.Context(), record.Ungated(writes...)); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", writes[0].Record.ID, err, want)
			}
		})
	}
	submit(nil, rewritten(tko.KindDeployment, "d0", 1)) // holds the committer, while the others gather
	for i := range 20 {
		id := fmt.Sprintf("d%02d", i)
		submit(nil, written(tko.KindDeployment, id), rewritten(tko.KindSite, fmt.Sprintf("new %d", i), record.Absent))
		missing := written(tko.KindDeployment, "m"+id)
		missing.Requires = []record.Key{{Kind: tko.KindSite, ID: "none"}}
		// The first write of the call is fine, the second one isn't.
		submit(tko.ErrConflict, written(tko.KindDeployment, "c"+id), rewritten(tko.KindDeployment, "d0", 7))
		submit(tko.ErrNotFound, written(tko.KindDeployment, "n"+id), rewritten(tko.KindDeployment, "none", 3))
		calls.Go(func() {
			var m *record.MissingError
			if _, err := s.Commit(t.Context(), record.Ungated(missing)); !errors.As(err, &m) {
				t.Errorf("%s: %v", id, err)
			}
		})
	}
	time.Sleep(20 * time.Millisecond) // the calls wait for the committer
	close(release)
	calls.Wait()
	created := logged(t, s, before)
	slices.Sort(created)
	want := []string{"written d0 2"}
	for i := range 20 {
		want = append(want, fmt.Sprintf("written d%02d 1", i), fmt.Sprintf("written new %d 1", i))
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, created); diff != "" {
		t.Errorf("the log (-want +got)\n%s", diff)
	}
}

// A counter observes the transactions of a store.
type counter struct {
	mutex                        sync.Mutex
	optimistic, locked, conflict int
}

func (*counter) Transaction(string, time.Duration) {}
func (*counter) Failed(string)                     {}

func (c *counter) Committed(_ int, optimistic bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if optimistic {
		c.optimistic++
	} else {
		c.locked++
	}
}

func (c *counter) Conflicted() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.conflict++
}

func (c *counter) take() (optimistic, locked int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	optimistic, locked = c.optimistic, c.locked
	c.optimistic, c.locked = 0, 0
	return optimistic, locked
}

// New records are committed without the lock of the head, from what the committer knows,
// until another writer moves the head. Then that commit and the next one take the lock.
func TestNewRecordsAreCommittedWithoutLockUntilTheHeadMoves(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	c := new(counter)
	s.Observe(c)
	n := 0
	create := func() record.Outcome {
		n++
		return commit(t, s, written(tko.KindDeployment, fmt.Sprintf("d%04d", n)))[0]
	}
	create() // learns the head
	if optimistic, locked := c.take(); optimistic != 0 || locked != 1 {
		t.Errorf("the first commit: %d without lock, %d with it", optimistic, locked)
	}
	for range 5 {
		create()
	}
	if optimistic, locked := c.take(); optimistic != 5 || locked != 0 {
		t.Errorf("the next commits: %d without lock, %d with it", optimistic, locked)
	}
	misses, pauses := 0, 0
	for misses < 4 {
		before, err := s.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Exec(t.Context(), "UPDATE head SET position = position + 1 WHERE one = 1"); err != nil {
			t.Fatal(err)
		}
		if got := create(); got.Position != before+2 {
			t.Fatalf("the commit has position %d after another writer's %d", got.Position, before+1)
		}
		if optimistic, locked := c.take(); optimistic != 0 || locked != 1 {
			t.Fatalf("after another writer: %d without lock, %d with it", optimistic, locked)
		}
		misses++
		for range 1000 {
			create()
			if optimistic, _ := c.take(); optimistic == 1 {
				break
			}
			pauses++
		}
	}
	if pauses != misses { // a success in between forgets the misses before
		t.Errorf("%d more commits took the lock after %d other writers", pauses, misses)
	}
	if outcome, err := s.Commit(t.Context(), record.Ungated(written(tko.KindDeployment, "d0001"))); !errors.Is(err, tko.ErrConflict) {
		t.Errorf("an ID that exists: %v, %v", outcome, err)
	}
	if c.conflict != 1 {
		t.Errorf("%d conflicts were observed", c.conflict)
	}
}

// What the committer knows of records is checked when it commits without the lock: whatever
// another writer did to them refuses the commit.
func TestChangesOfOtherWritersRefuseCommitsWithoutLock(t *testing.T) {
	t.Parallel()
	site := record.Key{Kind: tko.KindSite, ID: "s"}
	for name, other := range map[string]string{
		"deleted": "DELETE FROM entity WHERE kind = 'site'",
		"written": "UPDATE entity SET position = position + 1 WHERE kind = 'site'",
	} {
		s, _ := open(t)
		commit(t, s, written(tko.KindSite, "s"))
		known := commit(t, s, written(tko.KindDeployment, "d1"))[0]
		derived := written(tko.KindDeployment, "d2")
		derived.Requires, derived.ReadSet = []record.Key{site}, []record.Version{{Key: site, Position: 1}}
		commit(t, s, derived)
		for _, sql := range []string{other, "UPDATE head SET position = position + 1 WHERE one = 1"} {
			if err := s.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		derived.Record.ID = "d3"
		_, err := s.Commit(t.Context(), record.Ungated(derived))
		var missing *record.MissingError
		var stale *record.StaleError
		if name == "deleted" && !errors.As(err, &missing) || name == "written" && !errors.As(err, &stale) {
			t.Errorf("%s: %v", name, err)
		}
		if got := logged(t, s, known.Position+2); len(got) != 0 {
			t.Errorf("%s: the log has %v", name, got)
		}
	}
}

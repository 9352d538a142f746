package storetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Write runs in a process that will be killed (see [KillWriter]). It writes deployments
// whose IDs begin with name, with a child each, modifies and deletes some, and prints
// the ID of each once the write is acknowledged. It ends after count deployments, or
// with an error.
func Write(ctx context.Context, store record.Store, name string, count int, out io.Writer) error {
	for i := range count {
		id := fmt.Sprintf("%s-%06d", name, i)
		_, err := store.Commit(ctx,
			record.Ungated(deployment(id, metadata("writer", name), withPackage(fmt.Sprint("package ", i%7)), origin(id)),
				deployment(id+"-child", under(id), ready, at("s")),
			))
		if err != nil {
			return err
		}
		if i%3 == 0 {
			if _, err = store.Commit(ctx, record.Ungated(deployment(id, expect(1), metadata("writer", name, "i", strconv.Itoa(i))))); err != nil {
				return err
			}
		}
		if i%5 == 4 {
			if _, err = store.Commit(ctx, record.Ungated(deleted(deploymentKey(fmt.Sprintf("%s-%06d", name, i-1))))); err != nil {
				return err
			}
		}
		if _, err = fmt.Fprintln(out, id); err != nil {
			return err
		}
	}
	return nil
}

// KillWriter starts a process that calls [Write], kills it, and checks that a store
// opened afterwards has all acknowledged writes and is consistent. It does so several
// times on the same database.
func KillWriter(t *testing.T, command func() *exec.Cmd, open func(t *testing.T) record.Store) {
	t.Helper()
	for round := range 3 {
		cmd := command()
		name := fmt.Sprintf("round%d", round)
		cmd.Args = append(cmd.Args, name)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		acknowledged := []string{}
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			acknowledged = append(acknowledged, lines.Text())
			if len(acknowledged) == 40*(round+1) {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // the process was killed
		if len(acknowledged) < 40*(round+1) {
			t.Fatalf("the process ended after %d writes, want %d at least", len(acknowledged), 40*(round+1))
		}
		t.Run(name, func(t *testing.T) {
			store := open(t)
			w := &world{T: t, store: store}
			for i, id := range acknowledged {
				gone := i%5 == 3 && i+1 < len(acknowledged)
				for _, k := range []record.Key{deploymentKey(id), deploymentKey(id + "-child")} {
					if r := w.one(k); r.Revision == 0 && !gone && i+1 < len(acknowledged) || r.Revision != 0 && gone {
						t.Errorf("%s (%d of %d) is at revision %d", k.ID, i+1, len(acknowledged), r.Revision)
					}
				}
			}
			CheckConsistency(t, store)
			if _, err := store.Commit(t.Context(), record.Ungated(site("after "+name))); err != nil {
				t.Errorf("a write afterwards: %v", err)
			}
		})
	}
}

// CheckConsistency checks that the head, the log, the revisions, the records and the
// metadata index of a store agree.
func CheckConsistency(t *testing.T, store record.Store) {
	t.Helper()
	w := &world{T: t, store: store}
	type state struct{ Revision, Position int64 }
	records := map[record.Key]state{}
	last := int64(0)
	for {
		changes, err := store.Changes(t.Context(), last, 1000)
		w.ok(err)
		if len(changes) == 0 {
			break
		}
		for _, c := range changes {
			if c.Position <= last {
				t.Fatalf("the log has position %d after %d", c.Position, last)
			}
			last = c.Position
			k := record.Key{Kind: c.Kind, ID: c.ID}
			if c.Op == tko.OpDeleted {
				delete(records, k)
				continue
			}
			records[k] = state{c.Revision, c.Position}
		}
	}
	w.equal("head", w.head(), last)
	stored := map[record.Key]state{}
	indexed := map[string]int{}
	for _, kind := range []tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindPlugin} {
		for r, err := range store.List(t.Context(), record.Query{Scope: access.ScopeAll, Kind: kind, Limit: -1, Fields: record.Fields{Package: true}}) {
			w.ok(err)
			stored[r.Key] = state{r.Revision, r.Position}
			revision, err := store.Revision(t.Context(), r.Key, r.Revision)
			w.ok(err)
			if !cmp.Equal(revision.Package, r.Package) || !cmp.Equal(revision.Metadata, r.Metadata) || revision.Parent != r.Parent {
				t.Errorf("revision %d of %v differs from the record", r.Revision, r.Key)
			}
			if kind == tko.KindDeployment {
				for key, value := range r.Metadata.Effective {
					indexed[key+"="+value]++
				}
			}
		}
	}
	if diff := cmp.Diff(records, stored); diff != "" {
		t.Errorf("the records (+) differ from the log (-):\n%.3000s", diff)
	}
	for pair, count := range indexed {
		key, value, _ := strings.Cut(pair, "=")
		w.equal("deployments of "+pair, len(w.ids(record.Query{Kind: tko.KindDeployment, Metadata: values(key, value), Limit: -1})), count)
	}
}

// CompeteWithProcess starts a process that calls [Compete] on the same database as a
// store, and calls Compete concurrently. It checks that both stores behave as one.
func CompeteWithProcess(t *testing.T, cmd *exec.Cmd, store record.Store) {
	t.Helper()
	w := &world{T: t, store: store}
	w.commit(ones("shared", contested)...)
	cmd.Args = append(cmd.Args, "competitor")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs := make(chan map[string]int, 1)
	go func() { theirs <- count(out) }()
	own := new(strings.Builder)
	if err := Compete(t.Context(), store, "own", own); err != nil {
		t.Error(err)
	}
	total := count(strings.NewReader(own.String()))
	for line, n := range <-theirs {
		total[line] += n
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the other process: %v", err)
	}
	tokens, won, claims := 0, 0, 0
	for line, n := range total {
		if n != 1 {
			t.Errorf("%s: %d times, want once", line, n)
		}
		switch {
		case strings.HasPrefix(line, "token "):
			tokens++
		case strings.HasPrefix(line, "won "):
			won++
		case strings.HasPrefix(line, "claim "):
			claims++
		}
	}
	w.equal("tokens", tokens, contested)
	w.equal("writes won", won, contested)
	w.equal("claims", claims, contested)
	CheckConsistency(t, store)
}

// contested is the number of deployments for which two processes compete.
const contested = 60

func ones(name string, n int) []record.Write {
	var writes []record.Write
	for _, id := range ids(name+"%03d", n) {
		writes = append(writes, deployment(id))
	}
	return writes
}

// Compete runs in both processes of [CompeteWithProcess]. It tries to get every token,
// every origin and every work item, and prints those it got.
func Compete(ctx context.Context, store record.Store, name string, out io.Writer) error {
	for _, id := range ids("shared%03d", contested) {
		_, _, err := store.StartModification(ctx, id, "token of "+name+" for "+id, time.Hour)
		switch {
		case err == nil:
			fmt.Fprintln(out, "token", id)
		case !errors.Is(err, tko.ErrBusy) && !errors.Is(err, tko.ErrConflict):
			return err
		}
		fresh := "new " + id
		outcomes, err := store.Commit(ctx, record.Ungated(site(fmt.Sprintf("%s/%s", name, id), origin(fresh)), site(fmt.Sprintf("%s-only/%s", name, id))))
		if err != nil {
			return err
		}
		if !outcomes[0].Existed {
			fmt.Fprintln(out, "won", id)
		}
	}
	for idle := 0; idle < 3; {
		items, _, err := store.ClaimWork(ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Worker: name, Max: 3, Lease: time.Hour})
		if err != nil {
			return err
		}
		if len(items) == 0 {
			idle++
		}
		for _, item := range items {
			fmt.Fprintln(out, "claim", item.Key)
		}
	}
	return nil
}

func count(out io.Reader) map[string]int {
	lines := map[string]int{}
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		lines[scanner.Text()]++
	}
	return lines
}

// LoseCommits checks that calls whose commit loses its connection are executed exactly
// once. lose runs a call, and closes the connection at its commit.
func LoseCommits(t *testing.T, store record.Store, lose func(what string, call func() error)) {
	t.Helper()
	w := &world{T: t, store: store}
	w.commit(deployment("a"), deployment("b"), deployment("c"))
	before := w.head()
	const count = 4 // of work items, including that of the deleted deployment

	lose("create", func() error {
		outcomes, err := store.Commit(w.ctx(), record.Ungated(site("x"), site("y")))
		if err == nil && (outcomes[0].Revision != 1 || outcomes[1].Revision != 1) {
			t.Errorf("outcomes are %+v", outcomes)
		}
		return err
	})
	w.equal("changes", w.logged(before), []loggedChange{{tko.OpWritten, "site x", 1}, {tko.OpWritten, "site y", 1}})
	before += 2
	lose("write", func() error {
		outcomes, err := store.Commit(w.ctx(), record.Ungated(deployment("new", metadata("k", "v")), deployment("a", expect(1))))
		if err == nil && (outcomes[0].Revision != 1 || outcomes[1].Revision != 2) {
			t.Errorf("outcomes are %+v", outcomes)
		}
		return err
	})
	w.equal("changes", w.logged(before), []loggedChange{{tko.OpWritten, "deployment new", 1}, {tko.OpWritten, "deployment a", 2}})
	lose("delete", func() error {
		outcomes, err := store.Commit(w.ctx(), record.Ungated(deleted(deploymentKey("new"))))
		if err == nil && outcomes[0].Deleted != 1 {
			t.Errorf("outcomes are %+v", outcomes)
		}
		return err
	})
	lose("set conditions", func() error {
		_, err := store.Commit(w.ctx(), record.Ungated(status(deploymentKey("b"), tko.Condition{Type: "Fine"})))
		return err
	})
	w.equal("changes", w.logged(before+2), []loggedChange{{tko.OpDeleted, "deployment new", 1}, {tko.OpStatus, "deployment b", 1}})

	lose("start a modification", func() error {
		r, until, err := store.StartModification(w.ctx(), "c", "token", time.Hour)
		if err == nil && (r.ID != "c" || time.Until(until) < time.Minute) {
			t.Errorf("token of %v until %v, want one of c for an hour", r, until)
		}
		return err
	})
	w.refused(tko.ErrBusy, deployment("c", expect(1)))
	lose("cancel a modification", func() error { return store.CancelModification(w.ctx(), "token") })
	w.failed(store.CancelModification(w.ctx(), "token"), tko.ErrNotFound)

	var items []tko.WorkItem
	lose("claim work", func() (err error) {
		items, _, err = store.ClaimWork(w.ctx(), tko.ClaimWork{Queue: tko.QueuePrepare, Max: 10, Lease: time.Hour})
		return err
	})
	w.equal("items", len(items), count)
	w.equal("items of others", len(w.claim(tko.QueuePrepare, 10, time.Hour)), 0)
	lose("renew leases", func() error {
		renewed, err := store.RenewWork(w.ctx(), items, time.Hour)
		if err == nil && len(renewed) != count {
			t.Errorf("%d leases were renewed, want %d", len(renewed), count)
		}
		return err
	})
	lose("finish work", func() error {
		var finished []tko.FinishedWork
		for i, item := range items {
			finished = append(finished, tko.FinishedWork{Item: item, Outcome: []tko.WorkOutcome{tko.WorkDone, tko.WorkFailed, tko.WorkLater, tko.WorkDone}[i%count], Error: "x"})
		}
		return store.FinishWork(w.ctx(), finished, func(int) time.Duration { return 0 })
	})
	items = w.claim(tko.QueuePrepare, 10, time.Hour)
	attempts := 0
	for _, item := range items {
		attempts += item.Attempt
	}
	w.equal("items", len(items), 2)
	w.equal("failed attempts", attempts, 1)
	CheckConsistency(t, store)
	loseModifications(w, lose)
}

func loseModifications(w *world, lose func(what string, call func() error)) {
	w.Helper()
	w.commit(deployment("modified"))
	for i, what := range []string{"break a modification", "end a modification"} {
		name := fmt.Sprintf("token %d", i)
		_, _, err := w.store.StartModification(w.ctx(), "modified", name, time.Hour)
		w.ok(err)
		lose(what, func() error {
			if i == 0 {
				broken, err := w.store.BreakModification(w.ctx(), "modified")
				if err == nil && broken.Deployment != "modified" {
					w.Errorf("broke the token of %q, want that of \"modified\"", broken.Deployment)
				}
				return err
			}
			outcomes, err := w.store.Commit(w.ctx(), record.Ungated(deployment("modified", expect(1), token(name))))
			if err == nil && outcomes[0].Revision != 2 {
				w.Errorf("outcomes are %+v", outcomes)
			}
			return err
		})
		w.failed(w.store.CancelModification(w.ctx(), name), tko.ErrNotFound)
	}
	w.equal("revision", w.one(deploymentKey("modified")).Revision, int64(2))
	w.commit(deployment("below", under("modified"), ready))
	lose("delete a deployment with a child", func() error {
		outcomes, err := w.store.Commit(w.ctx(), record.Ungated(deleted(deploymentKey("modified"))))
		if err == nil && (outcomes[0].Deleted != 2 || outcomes[0].More) {
			w.Errorf("outcomes are %+v", outcomes)
		}
		return err
	})
	w.equal("deployments", w.ids(record.Query{Kind: tko.KindDeployment, Limit: -1}), []string{"a", "b", "c"})
}

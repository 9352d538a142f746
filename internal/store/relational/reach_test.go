package relational_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Counts that have not changed for long go, also without a retention of changes: each
// author and topology would otherwise leave some for ever.
func TestOldCountsOfCausesAreCollected(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	key := record.Key{Kind: tko.KindDeployment, ID: "d"}
	write := func(revision int64, content string) record.Write {
		r := record.Record{Key: key, UID: "d", Site: "s", Prepared: true, Approved: true, Package: []byte(content)}
		copy(r.Digest[:], content)
		return record.Write{Op: tko.OpWritten, Expect: revision, Record: r}
	}
	commit := func(cause string, w record.Write) {
		t.Helper()
		if _, err := h.store.Commit(t.Context(), record.UngatedReach(record.Reach{Cause: cause, Window: time.Hour}, w)); err != nil {
			t.Fatal(err)
		}
	}
	commit("author/old", write(0, "a"))
	commit("author/old", write(1, "b"))
	if err := h.store.Exec(t.Context(), "UPDATE reach SET updated = 1"); err != nil {
		t.Fatal(err)
	}
	if err := h.store.Exec(t.Context(), "UPDATE reach_part SET updated = 1"); err != nil {
		t.Fatal(err)
	}
	if err := h.store.Exec(t.Context(), "UPDATE reach_site SET updated = 1"); err != nil {
		t.Fatal(err)
	}
	commit("author/new", write(2, "c"))
	if _, err := h.store.Collect(t.Context(), record.Retention{}); err != nil {
		t.Fatal(err)
	}
	var got []string
	reached, err := h.store.Reached(t.Context(), "", time.Hour, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reached {
		got = append(got, r.Cause)
	}
	if diff := cmp.Diff([]string{"author/new"}, got); diff != "" {
		t.Errorf("causes with counts (-want +got):\n%s", diff)
	}
	sites, err := h.store.Numbers(t.Context(), "SELECT count(*) FROM reach_site")
	if err != nil || len(sites) != 1 || sites[0] != 1 {
		t.Errorf("%v sites, %v: want that of the new one", sites, err)
	}
}

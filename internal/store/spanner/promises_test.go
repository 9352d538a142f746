package spanner_test

import (
	"slices"
	"testing"
)

// fewest is the number of promises that the store kept at its last step: raise it with the list.
const fewest = 121

// promised are the promises of storetest that the store keeps. The list only grows: the tests of the
// others need deployments, work or another part that the store lacks.
var promised = []string{
	"Replaces, Replaced and Base are stored with a deployment",
	"UID, creation time and origin never change",
	"a GitOps source is Enqueued until its reconciliation ends, and Due while no worker claims it",
	"a GitOps source is read as it was saved",
	"a cancelled token is unknown",
	"a change is never older than its call",
	"a change with a claim needs the claim to be valid",
	"a commit signals",
	"a commit that fails doesn't fail concurrent commits",
	"a deletion ends although children are created again",
	"a deployment that is written and modified concurrently has one winner",
	"a deployment with SingleStep is deleted without others, or not at all",
	"a deployment with a valid token is busy for other writers",
	"a failed commit leaves no trace",
	"a list is ordered by ID, byte by byte",
	"a list reads one snapshot, whatever is written concurrently",
	"a modification that fails doesn't fail concurrent calls",
	"a new schedule plugin enqueues every site",
	"a query without a scope selects nothing",
	"a read ends when its context ends",
	"a record is found by its origin",
	"a record is read as it was written",
	"a record that doesn't exist is returned with revision 0, in its place",
	"a revision has its own steps, and a record has none",
	"a revision is read as it was written",
	"a revision that never existed is not found",
	"a scope selects the records that its predicate matches, alone and with filters",
	"a site at which nothing is scheduled enqueues no work",
	"a status write changes conditions only",
	"a token can be broken",
	"a token expires",
	"a token is deleted with its deployment",
	"a token returns the deployment at the revision it was issued for",
	"a token stays valid after a refused write",
	"a window selects a part of the matches",
	"a write at another position than expected is a conflict",
	"a write at another revision than expected is a conflict",
	"a write is refused for the same reasons after another store wrote",
	"a write with a token ends the token",
	"an item is claimed by one worker only",
	"an item whose lease has expired can be claimed again",
	"an offset is exact, whatever was written since the page before",
	"an offset within one scope doesn't use the pages of another",
	"an origin identifies one record",
	"an origin identifies one record under concurrency",
	"an unknown outcome is an ErrInvalid",
	"changes are returned in their order",
	"changes enqueue work",
	"changes that may help make waiting work due",
	"changes with and without a claim don't affect each other",
	"concurrent renewing, finishing and enqueueing lose no work",
	"deleting a deployment deletes its descendants",
	"deleting a deployment with very many descendants takes bounded commits",
	"deleting a plugin deletes nothing else",
	"deleting a site removes it from deployments, and enqueues work",
	"deleting a template removes it from sites and deployments",
	"deleting a template with very many referring records takes bounded commits",
	"deletions over their limit delete nothing",
	"deployments of a record, and their number, are within the scope",
	"deployments of an earlier revision of their template are found",
	"deployments of many templates are found in the order of IDs",
	"descendants of all levels are listed",
	"each filter selects its matches, alone and with others",
	"each of many concurrent reads returns its own record, as of a time after its call",
	"each row of a list has its own deployments, whatever the filters are",
	"enqueued work is due at once",
	"failed work is due again after the back-off, with its error",
	"filters that exclude each other, or match only at the end, are evaluated correctly",
	"items of the same key are merged, and claimed oldest first",
	"its change is not lost if a worker has claimed the site",
	"keys of one commit must differ",
	"labels are matched like metadata, and separately from it",
	"lists count deployments if the fields select it",
	"lists select by conditions, also after conditions change",
	"long metadata values that differ at the end are distinct",
	"metadata of a template or site outside the scope can't be asked for",
	"metadata of very many templates is matched",
	"metadata with very many values is matched",
	"new work since the claim is not lost",
	"no new record may refer to one that is being deleted",
	"no pattern matches a template or a site that a deployment lacks",
	"one call deletes many records",
	"one commit replaces a deployment by another one",
	"one of many concurrent writers wins",
	"only one of several concurrent tokens is valid",
	"only plugins and templates with custom resources change the epoch",
	"only the holder of a claim renews its lease",
	"only the holder of a claim saves its GitOps source",
	"packages and deployments are read only if the fields select them",
	"packages of every size are read as they were written",
	"patterns match as tko.Pattern does",
	"readers miss no change while others write",
	"records returned by a read belong to the caller",
	"records that a write was made from must not have changed",
	"released work is due after its delay, by default at once",
	"required records must exist",
	"revisions of deleted records are found",
	"several revisions are read in their order, unknown ones with revision 0",
	"such changes also reach work that is claimed",
	"text that can't be stored is an ErrInvalid",
	"the backend has a name",
	"the caller may change a record after writing it",
	"the caller may stop reading a list, and write while it reads",
	"the items of a queue are listed with the leases that have not ended",
	"the items of a queue that fail are listed, with the most failures first",
	"the metadata index is updated with the records",
	"the next deletion continues an interrupted one",
	"the next read sees a commit",
	"the parent must be at its revision",
	"the state of a target is read as it was saved",
	"the state of a target is saved only with the claim of the site's work",
	"the state of a target stays when its site is deleted",
	"two concurrent deletions delete each record once",
	"valid tokens are listed without their secret",
	"with missing, only work without an item is enqueued",
	"work for later is due again, and not counted as failed",
	"work names the newest request that caused it",
	"work signals the workers of its queue",
	"work that is due again signals",
	"work that is due soon signals the workers of its queue",
	"writes of one commit see the writes before them",
}

// slow are those of promised that take more than 40 s each on the emulator, which runs one transaction at a
// time. make test runs the first two of them.
var slow = []string{
	"two concurrent deletions delete each record once",
	"the next deletion continues an interrupted one",
	"a deletion ends although children are created again",
	"a modification that fails doesn't fail concurrent calls",
	"a window selects a part of the matches",
	"an offset is exact, whatever was written since the page before",
	"deleting a deployment with very many descendants takes bounded commits",
	"filters that exclude each other, or match only at the end, are evaluated correctly",
	"labels are matched like metadata, and separately from it",
	"no new record may refer to one that is being deleted",
	"readers miss no change while others write",
}

func TestPromisesOnlyGrow(t *testing.T) {
	t.Parallel()
	if len(promised) != fewest {
		t.Errorf("the store keeps %d promises, and %d are known: a promise that was kept must be kept; raise the number for a new one", len(promised), fewest)
	}
	for _, name := range slow {
		if !slices.Contains(promised, name) {
			t.Errorf("%q is slow, and not promised", name)
		}
	}
	if !slices.IsSorted(promised) || len(slices.Compact(slices.Clone(promised))) != len(promised) {
		t.Error("the promises are not in order, or one is named twice")
	}
}

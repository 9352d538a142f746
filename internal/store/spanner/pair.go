package spanner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// The table pair has the metadata and labels of records, by which lists find them. Its rows have the shard of the record: those of one
// value spread, and are in the same place as their records.

const (
	ofMetadata = "m"
	ofLabels   = "l"
)

// maxPairValue is the number of bytes of a value that are stored as they are: keys have a limit. Longer ones end in a hash, and
// matches are compared with the record anyway.
const maxPairValue = 200

// A pair is a key and value of metadata, or of labels.
type pair struct{ of, name, value string }

func pairValue(value string) string {
	if len(value) <= maxPairValue {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return beginningOf(value, maxPairValue) + hex.EncodeToString(sum[:16])
}

// beginningOf returns at most n bytes of a text, in whole characters.
func beginningOf(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

// pairsOf returns the pairs of a record, which may be nil.
func pairsOf(r *record.Record) map[pair]bool {
	pairs := map[pair]bool{}
	if r == nil || r.Metadata == nil {
		return pairs
	}
	for name, value := range r.Metadata.Effective {
		pairs[pair{ofMetadata, name, pairValue(value)}] = true
	}
	for name, value := range r.Metadata.Labels {
		pairs[pair{ofLabels, name, pairValue(value)}] = true
	}
	return pairs
}

// putPairs puts what differs between the pairs of two states of a record. Either may be nil.
func putPairs(m *mutations, before, after *record.Record) {
	r := after
	if r == nil {
		r = before
	}
	was, is := pairsOf(before), pairsOf(after)
	for p := range was {
		if !is[p] {
			m.remove("pair", spanner.Key{shardOf(r.ID), string(r.Kind), p.of, p.name, p.value, r.ID})
		}
	}
	for p := range is {
		if !was[p] {
			m.put("pair", []string{"shard", "kind", "part", "name", "value", "id"}, shardOf(r.ID), string(r.Kind), p.of, p.name, p.value, r.ID)
		}
	}
}

// An accessPath is a way to find the records that match a query, and others.
type accessPath struct {
	from       string // tables that are joined with a shard s, the last one with the alias p, which has the columns kind and id
	where      string
	parameters map[string]any
}

// pathsOf returns the access paths of a query; none if it selects by nothing that has one: then all records of the kind are read.
func pathsOf(q *record.Query) (paths []accessPath) {
	for _, r := range referencesOf(q) {
		paths = append(paths, accessPath{
			"JOIN reference AS p ON p.shard = s", "p.role = @role AND p.target = @target AND p.kind = @kind",
			map[string]any{"role": r.role, "target": r.target},
		})
	}
	for _, of := range []struct {
		part     string
		patterns map[string]tko.Pattern
	}{{ofMetadata, q.Metadata}, {ofLabels, q.Labels}} {
		for _, name := range slices.Sorted(maps.Keys(of.patterns)) {
			pattern := of.patterns[name]
			path := accessPath{
				"JOIN pair AS p ON p.shard = s", "p.kind = @kind AND p.part = @part AND p.name = @name AND p.value = @value",
				map[string]any{"part": of.part, "name": name, "value": pairValue(pattern.Prefix())},
			}
			if !pattern.Exact() {
				path.where = "p.kind = @kind AND p.part = @part AND p.name = @name AND STARTS_WITH(p.value, @value)"
				path.parameters["value"] = beginningOf(pattern.Prefix(), maxPairValue/2)
			}
			paths = append(paths, path)
		}
	}
	return paths
}

// sampleMost is the number of records of a shard from which on an access path counts as one that selects many.
const sampleMost = 500

// pathOf returns the access path that selects the fewest records, by what a random shard has; nil to read all records of the kind. IDs
// are hashed, so a shard is a sample.
func pathOf(ctx context.Context, from reader, q *record.Query) (*accessPath, error) {
	paths := pathsOf(q)
	if len(paths) < 2 {
		if len(paths) == 1 {
			return &paths[0], nil
		}
		return nil, nil //nolint:nilnil // there is none
	}
	shard := rand.Int64N(shards) //nolint:gosec // a sample
	best, fewest := 0, int64(-1)
	for i := range paths {
		path := &paths[i]
		statement := spanner.Statement{
			SQL:    "SELECT COUNT(*) FROM (SELECT 1 FROM UNNEST([@sample]) AS s " + path.from + " WHERE " + path.where + " LIMIT @most)",
			Params: maps.Clone(path.parameters),
		}
		statement.Params["kind"], statement.Params["sample"], statement.Params["most"] = string(q.Kind), shard, int64(sampleMost)
		var n int64
		if err := from.Query(ctx, statement).Do(func(row *spanner.Row) error { return row.Column(0, &n) }); err != nil {
			return nil, fault("compare the access paths of a list", err)
		}
		if fewest < 0 || n < fewest {
			best, fewest = i, n
		}
	}
	return &paths[best], nil
}

package backup

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
)

// Schema is the version of the schema of the relational stores whose tables these are. Other stores
// write it to their archives.
const Schema = 110

// A Table is a table of a backup.
type Table struct {
	archive.Table

	// Key are the columns that order the rows: those of an index. Rows are read in
	// chunks, each after the last key of the one before.
	Key []string
	// Kinds reports that rows are read for each kind of entity by itself.
	Kinds bool
	// Chunk is the number of rows that are read at once.
	Chunk int
	// Absent returns the values of columns that archives of earlier versions lack, from
	// those of the others; a column that isn't in it gets the default of the schema.
	Absent map[string]func(column func(name string) any) (any, error)
}

func textual(name string) archive.Column { return archive.Column{Name: name, Type: archive.Text} }
func number(name string) archive.Column {
	return archive.Column{Name: name, Type: archive.Int}
}
func content(name string) archive.Column { return archive.Column{Name: name, Type: archive.Bytes} }
func flag(name string) archive.Column    { return archive.Column{Name: name, Type: archive.Bool} }

func optional(c archive.Column) archive.Column {
	c.Null = true
	return c
}

// StateColumns are the columns that the tables entity and change share.
func StateColumns() []archive.Column {
	columns := []archive.Column{
		textual("kind"), textual("id"), textual("uid"), number("revision"), number("position"), number("created"), number("updated"), textual("parent"), textual("template"), textual("site"),
		flag("prepared"), flag("approved"), optional(textual("origin")), optional(content("digest")), number("metaset"), optional(content("plugin")), flag("crds"), textual("who"), textual("why"),
		optional(content("derivation")), optional(content("owner")),
	}
	for _, f := range tko.DetailFields() {
		columns = append(columns, optional(textual(f.Name)))
	}
	return columns
}

// entityOnly and changeOnly are the other columns of these tables.
var (
	entityOnly = []archive.Column{optional(textual("conditions")), optional(textual("replaces")), number("base"), optional(textual("replaced"))}
	changeOnly = []archive.Column{textual("op"), optional(textual("steps")), number("departed"), number("base")}
)

// smallChunk is the number of rows with packages that are read at once.
const (
	largeChunk = 2000
	smallChunk = 200
)

func saved(name string, chunk int, key string, columns ...archive.Column) Table {
	return Table{Table: archive.Table{Name: name, Columns: columns}, Key: strings.Fields(key), Chunk: chunk}
}

// Tables are the tables of a backup. The others are not in it: modification tokens
// (rights of clients of the old store), the times of wakes, holds, the numbers of entities and
// the state of the store itself. The head is in the manifest.
func Tables() []Table {
	entity := saved("entity", largeChunk, "id", slices.Concat(StateColumns(), entityOnly)...)
	entity.Kinds = true
	flight := saved("flight", largeChunk, "deployment", textual("deployment"), textual("rollout"), textual("site"), textual("doc"), flag("apart"))
	flight.Absent = map[string]func(func(string) any) (any, error){"apart": flightApart}
	return []Table{
		saved("blob", smallChunk, "digest", content("digest"), number("encoding"), number("size"), content("data")),
		saved("metaset", largeChunk, "id", number("id"), content("digest"), textual("doc")),
		entity,
		saved("pair", largeChunk, "id", number("id"), textual("kind"), textual("key"), textual("value"), textual("start"), content("hash")),
		saved("entity_pair", largeChunk, "pair id", number("pair"), textual("id")),
		saved("metaset_pair", largeChunk, "pair metaset", number("pair"), number("metaset")),
		saved("change", largeChunk, "position", slices.Concat(StateColumns(), changeOnly)...),
		saved(
			"work", largeChunk, "queue key",
			textual("queue"), textual("key"), number("generation"), number("due"), number("attempt"), textual("last_error"), number("lease_until"), textual("claim"), number("claimed"),
			number("claimed_generation"), number("since"), textual("cause"), number("gathering"),
		),
		saved("source", smallChunk, "name", textual("name"), number("version"), number("updated"), content("status"), content("state"), textual("approved")),
		saved("target_state", smallChunk, "site name", textual("site"), textual("name"), number("version"), number("updated"), content("state")),
		saved("rollout", largeChunk, "id", textual("id"), flag("active"), textual("undoes"), number("started"), textual("doc")),
		saved("rollout_plan", smallChunk, "rollout plan", textual("rollout"), number("plan"), textual("doc")),
		saved(
			"rollout_row", largeChunk, "rollout plan deployment",
			textual("rollout"), number("plan"), textual("deployment"), textual("uid"), number("revision"), number("kind"), number("wave"), number("rank"), optional(content("before")),
			optional(content("after")), number("grp"), textual("parent"), textual("site"), textual("progress"), number("since"), number("evaluated"), number("credit"), flag("counted"),
			flag("broken"), textual("reason"), number("applied"), number("chain"), number("target"), textual("doc"), number("version"),
		),
		saved("rollout_pin", largeChunk, "rollout kind id revision", textual("rollout"), textual("kind"), textual("id"), number("revision")),
		saved("rollout_evidence", largeChunk, "rollout n", textual("rollout"), number("n"), textual("doc")),
		flight,
		saved("access_rule", largeChunk, "kind id", textual("kind"), textual("id"), textual("doc")),
		saved("audit", largeChunk, "seq", number("seq"), number("at"), textual("doc"), content("hash")),
		saved("audit_sink", largeChunk, "name", textual("name"), number("seq")),
		saved("notifier", largeChunk, "one", number("one"), textual("holder"), number("until")),
		saved("subscription", smallChunk, "name", textual("name"), textual("doc")),
		saved("sealing_key", largeChunk, "id", number("id"), number("version"), content("wrapped")),
		saved("audit_base", largeChunk, "one", number("one"), number("seq"), content("hash")),
		saved("collector", largeChunk, "one", number("one"), textual("holder"), number("until"), number("position"), number("revisions"), number("loose"), number("past"), number("past_at")),
		saved("longer", largeChunk, "id", textual("id"), textual("policy"), number("changes")),
		saved("reach", largeChunk, "cause what", textual("cause"), textual("what"), number("n"), number("consent"), number("since"), number("updated")),
		saved("reach_part", largeChunk, "cause what part", textual("cause"), textual("what"), number("part"), number("n"), number("consent"), number("updated")),
		saved("reach_site", largeChunk, "cause site", textual("cause"), textual("site"), number("updated")),
	}
}

// flightApart returns the column apart of a deployment in flight, from its document.
// Without it, sites that the rollout keeps apart would not be held back.
func flightApart(column func(name string) any) (any, error) {
	doc, _ := column("doc").(string)
	var e execute.Entry
	err := json.Unmarshal([]byte(doc), &e)
	if err != nil {
		return nil, fmt.Errorf("decode a deployment in flight: %w", err)
	}
	return len(e.Apart) > 0, nil
}

// Single reports whether a table always has one row.
func (t *Table) Single() bool { return t.Key[0] == "one" }

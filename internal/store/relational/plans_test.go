package relational_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
)

// SQLite has no statistics, so the plan of a statement depends on nothing but the schema. Each
// statement that the promises of a store run must search the large tables by an index, whatever
// their size.
func TestStatementsOfSQLiteSearchByIndexes(t *testing.T) {
	t.Parallel()
	var mutex sync.Mutex
	statements := map[string]relational.Statement{}
	t.Run("promises", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) record.Store {
			s, db := open(t)
			dialect := db.Dialect()
			db.ran = func(s relational.Statement) {
				text := s.Render(&dialect)
				mutex.Lock()
				defer mutex.Unlock()
				statements[text] = s
			}
			return s
		})
	})
	if len(statements) < 200 {
		t.Errorf("%d statements, want 200 at least", len(statements))
	}
	_, db := open(t)
	for _, text := range slices.Sorted(maps.Keys(statements)) {
		s := statements[text]
		var steps []string
		explain := relational.Statement{
			SQL: "EXPLAIN QUERY PLAN " + text, Args: make([]any, len(s.Args)+len(s.Columns)),
			Scan: func(from relational.Row) error {
				var id, parent, unused int
				var detail string
				err := from.Scan(&id, &parent, &unused, &detail)
				steps = append(steps, detail)
				return err
			},
		}
		if err := db.Database.Run(t.Context(), explain); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if slices.ContainsFunc(steps, func(step string) bool { return readsAll(text, step) }) {
			t.Errorf("reads all of a table: %s\n\t%s", text, strings.Join(steps, "\n\t"))
		}
	}
}

// large are the tables that grow with the fleet, or with the time.
const large = `(entity|change|entity_pair|pair|metaset|metaset_pair|blob|work|modification|audit|rollout_row|rollout_pin|rollout_evidence|target_state|reach|reach_part|reach_site)`

// scanned is a step that reads a table, or an alias of one, to its end, and in no order of an index.
var scanned = regexp.MustCompile(`^SCAN (\w+)$`)

// readsAll reports whether a step of a statement reads all of a large table.
func readsAll(sql, step string) bool {
	switch {
	case strings.Contains(step, "AUTOMATIC"): // it builds an index of all of a table
		return true
	case strings.HasPrefix(sql, "SELECT CASE WHEN k.past"): // the newest change, which is the first in its order
		return false
	case sql == "SELECT count(*), 0 FROM change": // a count
		return false
	}
	name := scanned.FindStringSubmatch(step)
	return name != nil && (regexp.MustCompile(`^`+large+`$`).MatchString(name[1]) ||
		regexp.MustCompile(`\b`+large+`( AS)? `+name[1]+`\b`).MatchString(sql))
}

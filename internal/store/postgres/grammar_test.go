package postgres_test

import (
	"encoding/json"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// A recorder records the statements that pass through a proxy.
type recorder struct {
	mutex      sync.Mutex
	statements map[string]bool
}

// proxy returns a proxy that rewrites statements and records the originals.
func (r *recorder) proxy(rewrite func(string) string) *proxy {
	return &proxy{Rewrite: func(sql string) string {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		if r.statements == nil {
			r.statements = map[string]bool{}
		}
		r.statements[sql] = true
		return rewrite(sql)
	}}
}

func asItIs(sql string) string { return sql }

// checkGrammar checks that CockroachDB can parse all statements, except for the known
// ones that are specific to PostgreSQL and optional.
func (r *recorder) checkGrammar(t *testing.T) {
	t.Helper()
	known := []string{"LISTEN ", "SELECT 'B' COLLATE ", "CREATE INDEX CONCURRENTLY entity_origin ON entity USING hash", "ANALYZE (SKIP_LOCKED) "}
	statements := slices.Sorted(maps.Keys(r.statements))
	if len(statements) < 50 {
		t.Errorf("%d statements were recorded, want 50 at least", len(statements))
	}
	process.Reads(t, "tools/portable")
	cmd := exec.CommandContext(t.Context(), "go", "run", "-C", "../../../tools/portable", ".")
	cmd.Stdin = strings.NewReader(strings.Join(statements, "\x00"))
	log := new(eventually.Buffer)
	cmd.Stderr = log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the parser of CockroachDB: %v\n%s", err, log)
	}
	var refusals []struct{ Statement, Reason string }
	if err := json.Unmarshal(out, &refusals); err != nil {
		t.Fatal(err)
	}
	for _, refusal := range refusals {
		if !slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(refusal.Statement, k) }) {
			t.Errorf("not in the grammar of CockroachDB: %s\n%s", refusal.Statement, refusal.Reason)
		}
	}
}

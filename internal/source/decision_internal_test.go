package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rights"
)

func TestDeclarationsAreDecidedFromTheRulesAlone(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	source := func(name, spec string) tko.SourceDefinition {
		return tko.SourceDefinition{Kind: tko.SourceKinds[0], Name: name, Spec: []byte(spec), Parent: "parent"}
	}
	parent := tko.SourceDefinition{Kind: tko.SourceKinds[0], Name: "parent", Spec: []byte(`{"allowSources": true}`)}
	undeclared := source("a", `{}`)
	undeclared.Undeclared = true
	tests := map[string]struct {
		why     string
		stored  []tko.SourceDefinition
		request tko.DeclareSources
		applied map[string]bool
		done    tko.DeclaredSources
		changes []string
		wantErr error
	}{
		"new ones": {
			why: "each is written with its parent", stored: []tko.SourceDefinition{parent},
			request: tko.DeclareSources{Definitions: []tko.SourceDefinition{source("a", `{}`), source("b", `{}`)}},
			done:    tko.DeclaredSources{Changed: []string{"a", "b"}},
			changes: []string{"put a", "put b", "a: declared by parent", "b: declared by parent"},
		},
		"the same": {
			why: "nothing is written", stored: []tko.SourceDefinition{parent, source("a", `{}`)},
			request: tko.DeclareSources{Definitions: []tko.SourceDefinition{source("a", `{}`)}},
			done:    tko.DeclaredSources{Owned: 1},
		},
		"one that is no longer declared": {
			why: "it stays, and is marked", stored: []tko.SourceDefinition{parent, source("a", `{}`), source("b", `{}`)},
			request: tko.DeclareSources{Definitions: []tko.SourceDefinition{source("b", `{}`)}},
			done:    tko.DeclaredSources{Kept: []string{"a"}, Owned: 2},
			changes: []string{"put a undeclared", "a: undeclared by parent"},
		},
		"one that is marked already": {
			why: "it isn't written again", stored: []tko.SourceDefinition{parent, undeclared},
			done: tko.DeclaredSources{Kept: []string{"a"}, Owned: 1},
		},
		"prune": {
			why: "what was applied ends and keeps its entities, the other is gone", stored: []tko.SourceDefinition{parent, source("a", `{}`), source("b", `{}`)},
			request: tko.DeclareSources{Prune: true}, applied: map[string]bool{"a": true},
			done:    tko.DeclaredSources{Removed: []string{"a", "b"}, Owned: 2},
			changes: []string{"put a keeps=true by=gitops at=12:00", "remove b", "a: undeclared by parent", "b: undeclared by parent"},
		},
		"its own name": {
			why: "a source can't replace itself", stored: []tko.SourceDefinition{parent},
			request: tko.DeclareSources{Definitions: []tko.SourceDefinition{source("parent", `{}`)}}, wantErr: tko.ErrInvalid,
		},
		"a parent that may not declare": {
			why: "its definition decides", stored: []tko.SourceDefinition{{Name: "parent", Spec: []byte(`{}`)}},
			request: tko.DeclareSources{Definitions: []tko.SourceDefinition{source("a", `{}`)}}, wantErr: tko.ErrInvalid,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.request.Parent = "parent"
			in := declaring{request: test.request, definitions: test.request.Definitions, applied: test.applied, by: tko.Author{Who: "gitops", Why: "commit"}, now: now}
			book := &rights.Book{Sources: test.stored}
			for range 2 { // it doesn't change what it is given
				got, err := in.decide(book)
				if !errors.Is(err, test.wantErr) {
					t.Fatalf("got %v, want %v: %s", err, test.wantErr, test.why)
				}
				if err != nil {
					continue
				}
				if diff := cmp.Diff(test.done, got.done); diff != "" {
					t.Errorf("%s (-want +got):\n%s", test.why, diff)
				}
				if diff := cmp.Diff(test.changes, changesOf(t, got.Change)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", test.why, diff)
				}
			}
		})
	}
}

// changesOf returns a change of rules in words.
func changesOf(t *testing.T, c rights.Change) (all []string) {
	t.Helper()
	for _, r := range c.Put {
		var d tko.SourceDefinition
		if err := json.Unmarshal(r.Doc, &d); err != nil || d.Name != r.ID || d.Parent != "parent" {
			t.Errorf("the rule %q is %+v, %v", r.ID, d, err)
		}
		text := "put " + r.ID
		if d.Undeclared {
			text += " undeclared"
		}
		if d.Ending != nil {
			text += fmt.Sprintf(" keeps=%t by=%s at=%s", d.Ending.Keep, d.By.Who, d.Updated.Format("15:04"))
		}
		all = append(all, text)
	}
	for _, r := range c.Remove {
		all = append(all, "remove "+r.ID)
	}
	for _, r := range c.Records {
		all = append(all, r.ID+": "+r.Op)
	}
	return all
}

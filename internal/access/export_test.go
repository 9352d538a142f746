package access

import "github.com/tko-orchestrator/tko"

// Covers reports whether a predicate selects all entities of a kind in a scope.
func (p Predicate) Covers(s Scope, kind tko.Kind) bool {
	t, ok := s.term(kind)
	return ok && p.covers(t)
}

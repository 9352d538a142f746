// Package planner makes the plans of rollouts. On one snapshot it computes, for every
// deployment that an edit selects, the package and state after the rollout: as it
// would be stored, validated as it would be validated, and prepared as far as
// preparation changes nothing else. It only reads. The catalog implements [Snapshot].
//
// It holds the packages of one deployment at a time: plans are rows of digests. The
// package after is computed again when a row is applied or shown (Planner.Row), from
// the same inputs, and must have the digest of the plan.
//
// Start reading at Planner.Plan, then change.go.
package planner

// Package plan holds the plan of a rollout: a row of digests for each deployment that an
// edit selects, the waves, the groups of equal changes, and the digest by which users
// approve all of it. It is pure.
//
// It doesn't make the packages before and after (the planner does, with package merge),
// and doesn't run the rollout (package execute).
//
// Start reading at Plan.
package plan

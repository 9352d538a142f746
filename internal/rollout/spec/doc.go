// Package spec parses and checks the package of a Rollout: its edits, waves, limits,
// health, windows, and policies. It is pure.
//
// It is not for plans (package plan) nor for running rollouts (package execute).
//
// Start reading at Parse.
package spec

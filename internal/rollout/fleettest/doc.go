// Package fleettest simulates a fleet and rollouts on it, and checks after each commit
// that the rules of rollouts hold. It is deterministic: a seed gives one run. It has its
// own clock and no goroutines, so a run takes milliseconds.
//
// The model writes what package execute decides, as the store does. The checks are
// written anew, from the rules, and don't call what they check.
//
// Start reading at Run.
package fleettest

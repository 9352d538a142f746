// Package execute decides how a rollout goes on. It is a pure function of the state of
// the rollout, its rows, what is in flight, the health of deployments, freezes, and the
// time: Next returns what to write and what blocks the rest, in words.
//
// It holds no state and writes nothing. The caller runs Next in the transaction that
// writes its result, on what that transaction reads, so that limits hold whatever is
// killed and however many executors run. Flight is the rule of the limits.
//
// Start reading at Next, then Flight.
package execute

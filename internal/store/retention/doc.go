// Package retention removes what a store need not retain: changes of the log, packages and
// metadata that no change needs, and tokens that expired long ago. Collections run in
// small transactions, with pauses, and one at a time: the store has a lease for them.
//
// Start reading at [Collect].
package retention

// Package osm keeps Open Source MANO in step with what is desired of it:
// packages of network functions and services, and instances of the latter.
// OSM's north-bound interface (NBI) is imperative, forgets what it was asked,
// and knows no idempotency; what makes up for that is here.
//
//   - [Client] speaks to the NBI: TLS, one token for all that share an account,
//     filters, time-outs, errors that say what the server said.
//   - [Desired] is what should be there, wherever it comes from: package osmops
//     reads it from the files of a git repository.
//   - [Reconciler] compares and acts. What it did is in a [State], which its
//     caller keeps: before and after each step, so that whoever dies, the next
//     one goes on where it ended, and nothing is made twice.
//
// It knows neither git nor TKO's records. Package osmtest is an NBI for tests.
// Start reading at [Reconciler.Apply].
package osm

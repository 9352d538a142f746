// Package trail carries what identifies a request through the server's
// processes: the ID of the request, and its trace. Transports begin with
// [Begin]; what the request causes later, in another process, continues with
// [Cause] and [Resume].
//
// The package records no spans itself: package tracing exports them.
package trail

// Package wire converts between the messages of tko.Data and the types of package
// tko, in both directions, for the server (internal/grpcapi) and the client
// (package client). Its test checks that each direction is the inverse of the
// other. It has no rules of its own.
//
// Functions named New… make messages; functions named after their result read
// them. A [Pair] does both. Start reading at [NewDeployment] and [Deployment], and for errors at
// [Status] and [Error].
package wire

// Package wire translates between the messages of tko.Data and the vocabulary
// of package tko, in both directions, for both ends of the wire: the server
// (internal/grpcapi) and the client (package client). That each direction is
// the other's inverse is what its test checks. It has no rules of its own.
//
// Functions named New… make messages; those named after what they answer read
// them. Start reading at [NewDeployment] and [Deployment], and for errors at
// [Status] and [Error].
package wire

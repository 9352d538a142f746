// Package client is the Go client of TKO. It has the methods of the server's catalog
// over the types of package tko, through gRPC.
//
// Errors have the same kinds as on the server: test for tko.ErrNotFound and so on
// with errors.Is, for *tko.InvalidPackageError (the errors in a package) with
// errors.As, and for [ErrUnavailable] if the server can't be reached. Lists are
// iterators that stream: breaking out of the loop ends the call. Start reading
// at [Dial].
package client

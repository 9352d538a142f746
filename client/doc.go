// Package client is the Go client of TKO: the methods of the server's catalog
// over the types of package tko, through gRPC.
//
// Errors have the kinds that they had on the server: test for tko.ErrNotFound
// and so on with errors.Is, for *tko.InvalidPackageError (what is wrong with a
// package) with errors.As, and for [ErrUnavailable] when the server can't be
// reached. Lists are iterators that stream: leaving the loop early ends the
// call. Start reading at [Dial].
package client

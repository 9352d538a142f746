// Package tko is the vocabulary of TKO: what templates, sites, deployments and
// plugins are, how they are selected, what happens to them, and the kinds of
// errors. It does no I/O. Start reading at [Deployment].
//
// The catalog (internal/catalog) and the Go client (package client) have the
// same methods over these types: what a program may ask is the same on both
// sides of the wire.
package tko

// Package tko defines the types of TKO: templates, sites, deployments and
// plugins, their selection, changes and work, and the kinds of errors. It does
// no I/O. Start reading at [Deployment].
//
// The catalog (internal/catalog) and the Go client (package client) have the
// same methods over these types.
package tko

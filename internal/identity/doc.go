// Package identity names the clients of the server. Transports authenticate a
// caller and put its [Identity] into the context of the call; the catalog
// decides with it what the caller may do. The package does not authenticate
// (package authn does) and knows no rights.
//
// Start reading at [Identity].
package identity

// Package certs holds the certificates of servers and clients. A [Server] has
// the server's certificate and the authorities of its clients, and reads them
// again when their files change; [Client] makes the configuration of a client.
// Both use TLS 1.3 only.
//
// The package verifies certificates. Package authn names their holders.
package certs

// Package remote is the catalog for the Kubernetes API in another process: a
// [Catalog] calls the methods that [Methods] serves from the server's catalog. The
// catalog decides there, with all its rules; nothing is decided here.
package remote

// Package nbi makes requests of the north-bound interface (NBI) of Open Source MANO:
// TLS, one token for all clients of an account, filters, time-outs, limits of
// responses, errors with the server's message. It has OSM's records, and no rules of
// what to do with them: package osm has those.
// Start reading at [NewClient].
package nbi

// Package cli is the tko command: it reads arguments, asks the server through
// the client, and writes what people and scripts read. It knows no rules of
// TKO's records; those are the server's. Start reading at [Main].
package cli

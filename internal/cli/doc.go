// Package cli is the tko command: it parses arguments, calls the server through
// the client, and writes results for users and scripts. The rules of TKO's
// entities are the server's. Start reading at [Main].
package cli

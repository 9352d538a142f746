// Package cli holds the specification of the tko command: scripts that run the
// real binaries, a server for each. Start reading in testdata.
package cli

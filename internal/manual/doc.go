// Package manual writes a program's man pages and shell completions, for
// packages.
//
// Start reading at [Command].
package manual

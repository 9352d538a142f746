// Package docs finds the command blocks of the documentation, and reads their commands
// with a real shell. Its tests run the blocks. The tests of each program check the
// commands that the documentation has for it.
//
// Start reading at [Blocks] and [Commands].
package docs

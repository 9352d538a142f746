// Package scaffold writes the files of new plugins, each with a golden test that
// passes. Start reading at [Write].
package scaffold

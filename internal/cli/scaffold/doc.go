// Package scaffold writes new plugins, each with a golden test that passes:
// a place to start from. Start reading at [Write].
package scaffold

//go:build race

package process

// Race reports whether this test, and so the binaries, run with the race detector.
const Race = true

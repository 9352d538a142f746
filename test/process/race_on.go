//go:build race

package process

// Race says whether this test runs with the race detector: then the binaries
// do too.
const Race = true

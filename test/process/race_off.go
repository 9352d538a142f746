//go:build !race

package process

// raceDetector reports whether this test has the race detector.
const raceDetector = false

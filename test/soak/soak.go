// Package soak gives long searches a short form. Tests that repeat something many times, or fill a large store, do it
// as often as shows the promise in make test, and as often as before in make soak. The file searches lists them;
// [Rounds] tells the two apart.
package soak

import (
	"os"
	"testing"
)

// Variable is the name of the environment variable that make soak alone sets: the path of a file, to which each test
// appends its name when it takes its long form. test/soak/run.sh compares the file with the list.
const Variable = "TKO_SOAK"

// Rounds returns short, or long in make soak.
func Rounds(t testing.TB, short, long int) int {
	t.Helper()
	path := os.Getenv(Variable)
	if path == "" {
		return short
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // make soak sets the path
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // written, or the list has a gap, which fails make soak
	if _, err := f.WriteString(t.Name() + "\n"); err != nil {
		t.Fatal(err)
	}
	return long
}

// Package e2e holds the tests of the whole: real binaries, real stores, real
// repositories. There is nothing to import.
package e2e

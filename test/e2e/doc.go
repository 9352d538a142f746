// Package e2e holds end-to-end tests with real binaries, stores and repositories.
// There is nothing to import.
package e2e

// Package docs tests that the documentation is true: its examples run. There
// is nothing to import.
package docs

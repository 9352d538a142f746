// Package plugins tests the example plugins, which are programs of their own
// in the folders beside it: each on its golden cases in testdata. There is
// nothing to import.
package plugins

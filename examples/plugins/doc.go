// Package plugins tests the example plugins, which are programs in the subfolders,
// with the golden cases in testdata. There is nothing to import.
package plugins

// Package python tests the Python SDK (sdk/python): it runs its own tests, and checks
// its types, its package, and that its generated code is up to date. There is nothing
// to import.
package python

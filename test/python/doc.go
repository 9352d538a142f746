// Package python tests the Python SDK (sdk/python): its own tests, its types,
// its package, and that its generated code is that of the API. There is
// nothing to import.
package python

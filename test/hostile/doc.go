// Package hostile holds the tests of what must not hurt: bad input, bad
// plugins, slow clients and servers that are stopped, all through the real
// binaries. Each is refused with an error that names the culprit, stores
// nothing, loses nothing, and the server goes on. There is nothing to import.
package hostile

// Package hostile tests the server's resistance to bad input, bad plugins, slow
// clients and servers that are stopped, with the real binaries. Bad input is
// refused with an error that names the cause, nothing of it is stored, no data is
// lost, and the server continues to serve. There is nothing to import.
package hostile

// Package network tests that everything works on a machine without IPv4, and on one
// with both: in network namespaces, with another machine at the other end of a cable.
package network

// Package rolling tests upgrades: servers of two adjacent versions on one database
// while clients write, and the way back. The earlier version is built from the
// repository's history. There is nothing to import.
package rolling

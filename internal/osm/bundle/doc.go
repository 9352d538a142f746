// Package bundle reads the packages of network functions and services: their files and
// descriptors, the archives that OSM accepts, and the trees that are merged into its
// descriptors. It makes no requests.
// Start reading at [Package.Load].
package bundle
